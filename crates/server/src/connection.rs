//! A connection's bytes: a client that does not read is given up, and one that is refused hears why.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep};

/// How long, and how many bytes, a client may go on sending after its last response. Closing at once would reset the
/// connection, which can take the response from a client that is still sending (RFC 9112, 9.6).
const LINGER: Duration = Duration::from_secs(2);
const LINGER_BYTES: usize = 64 << 20;

/// A connection with a bound for how long a write may wait.
pub(crate) struct Connection {
    stream: TcpStream,
    write_timeout: Duration,
    timer: Pin<Box<Sleep>>,
    /// A write waits, and the timer runs.
    waiting: bool,
    closing: Closing,
}

enum Closing {
    No,
    /// Our side is shut, and what still comes is thrown away: so many bytes more.
    Lingering(usize),
}

impl Connection {
    pub(crate) fn new(stream: TcpStream, write_timeout: Duration) -> Self {
        // Tokens are small, and wanted at once. A system that cannot do it serves as well, later.
        let _ = stream.set_nodelay(true);
        Self {
            stream,
            write_timeout,
            timer: Box::pin(tokio::time::sleep(write_timeout)),
            waiting: false,
            closing: Closing::No,
        }
    }

    /// Watches how long a write waits.
    fn watch<T>(
        &mut self,
        context: &mut Context<'_>,
        result: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.waiting = false;
            return result;
        }
        if !self.waiting {
            self.waiting = true;
            self.timer
                .as_mut()
                .reset(Instant::now() + self.write_timeout);
        }
        ready!(self.timer.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Throws away what comes, until the client has closed too, or long enough.
    fn linger(&mut self, context: &mut Context<'_>, mut left: usize) -> Poll<()> {
        let mut space = [0; 16 << 10];
        loop {
            if self.timer.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            let mut buffer = ReadBuf::new(&mut space);
            let read = Pin::new(&mut self.stream).poll_read(context, &mut buffer);
            let Poll::Ready(read) = read else {
                self.closing = Closing::Lingering(left);
                return Poll::Pending;
            };
            let bytes = buffer.filled().len();
            if read.is_err() || bytes == 0 || bytes > left {
                return Poll::Ready(());
            }
            left -= bytes;
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.watch(context, result)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_write_vectored(context, slices);
        this.watch(context, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let result = Pin::new(&mut this.stream).poll_flush(context);
        this.watch(context, result)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let left = match this.closing {
            Closing::Lingering(left) => left,
            Closing::No => {
                ready!(Pin::new(&mut this.stream).poll_shutdown(context))?;
                this.timer.as_mut().reset(Instant::now() + LINGER);
                LINGER_BYTES
            }
        };
        this.linger(context, left).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    async fn pair(write_timeout: Duration) -> (Connection, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let client = TcpStream::connect(address).await.expect("connected");
        let (server, _) = listener.accept().await.expect("accepted");
        (Connection::new(server, write_timeout), client)
    }

    #[tokio::test]
    async fn a_write_that_nobody_reads_ends() {
        let (mut server, client) = pair(Duration::from_millis(50)).await;
        let block = vec![0; 1 << 20];
        let error = loop {
            if let Err(error) = server.write_all(&block).await {
                break error;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(client);
    }

    /// The pause between two writes is not the client's.
    #[tokio::test]
    async fn silence_is_no_slowness() {
        let (mut server, mut client) = pair(Duration::from_millis(20)).await;
        for _ in 0..3 {
            tokio::time::sleep(Duration::from_millis(40)).await;
            server.write_all(b"x").await.expect("written");
            assert_eq!(client.read_u8().await.expect("read"), b'x');
        }
    }

    #[tokio::test]
    async fn a_client_that_still_sends_hears_the_answer() {
        let (mut server, mut client) = pair(Duration::from_secs(5)).await;
        let serving = tokio::spawn(async move {
            server.write_all(b"refused").await.expect("written");
            server.shutdown().await.expect("shut");
        });
        for _ in 0..64 {
            client.write_all(&[0; 1 << 16]).await.expect("taken");
        }
        let mut answer = String::new();
        client.read_to_string(&mut answer).await.expect("read");
        assert_eq!(answer, "refused");
        drop(client);
        serving.await.expect("it ends");
    }
}
