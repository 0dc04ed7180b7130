"""Starts the released server, and stops it as a service manager would."""

import os
import re
import signal
import subprocess
import time
import urllib.request
from pathlib import Path

START_SECONDS = 60
STOP_SECONDS = 60


class Server:
    """A running `foredraft serve` on a port of its own; a context manager that stops it and checks how it ended."""

    def __init__(self, binary: Path, model: Path, log: Path, *options: str):
        self.log = log
        # One thread: the model is tiny, and the clients want the other processors.
        command = [binary, "serve", model, "--port", "0", "--threads", "1", *options]
        with log.open("wb") as stderr:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=stderr, stderr=stderr)
        try:
            self._wait()
        except BaseException:
            self.process.kill()
            self.process.wait()
            raise

    def _wait(self) -> None:
        """Waits until it says where it listens, which it does when it takes requests."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                break
            said = re.search(r"listening on (http://\S+)", self.log.read_text(errors="replace"))
            if said:
                self.url = said[1]
                self.get("/ready")
                return
            time.sleep(0.02)
        raise AssertionError(f"the server did not become ready; {self.log} says:\n{self._tail()}")

    def get(self, path: str, key: str = "") -> bytes:
        """What it answers; an error where that is no success."""
        request = urllib.request.Request(self.url + path, headers={"Authorization": f"Bearer {key}"})
        with urllib.request.urlopen(request, timeout=30) as response:
            return response.read()

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-20:])

    def terminate(self) -> None:
        """Tells it to stop."""
        self.process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        """Tells it to stop, and checks that it ended well."""
        if self.process.poll() is None:
            self.terminate()
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the server did not end within {STOP_SECONDS} s of SIGTERM") from None
        assert code == 0, f"the server ended with {code}; {self.log} says:\n{self._tail()}"
        faults = re.findall(r".*(?:panicked|ERROR).*", self.log.read_text(errors="replace"))
        assert not faults, f"the server's log ({self.log}) has {len(faults)} faults, the first: {faults[0]}"

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.stop()
        elif self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def from_environment(log: Path, *options: str) -> Server:
    """Another server, of the binary and the model that `run` names to its tests."""
    binary, model = (Path(os.environ[name]) for name in ("FOREDRAFT_BINARY", "FOREDRAFT_MODEL"))
    return Server(binary, model, log, *options)
