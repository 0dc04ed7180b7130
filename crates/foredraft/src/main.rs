//! The foredraft command line.
fn main() {}
