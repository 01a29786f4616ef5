//! The worker's connection below gRPC: bytes that no library would send.

use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream as RawStream;
use std::sync::Mutex;

use tokio::net::UnixStream;

/// A second handle of the supervisor's connection; gRPC has the first.
static CONNECTION: Mutex<Option<RawStream>> = Mutex::new(None);

/// Keeps a second handle of an accepted connection.
pub(super) fn keep(stream: &UnixStream) {
    *CONNECTION.lock().unwrap() = rustix::io::dup(stream).ok().map(RawStream::from);
}

/// Shuts down the connection below gRPC, in both directions.
pub(super) fn shut() {
    // Err: the supervisor has gone.
    let _ = CONNECTION.lock().unwrap().as_ref().map(|stream| stream.shutdown(Shutdown::Both));
}

/// Writes the bytes that `mode` names, bypassing gRPC; returns false if it names none here.
pub(super) fn write(mode: &str) -> bool {
    // A message of the Session, which is the connection's first stream: the HTTP/2 is valid (a DATA frame of five
    // bytes, RFC 9113 section 6.1), the gRPC prefix is not.
    let prefix = |flag: u8| [&[0, 0, 5, 0, 0, 0, 0, 0, 1, flag][..], &[0xff; 4]].concat();
    let bytes = match mode {
        "frames" => vec![0xff; 4096],
        "huge_prefix" => prefix(0),
        "compressed" => prefix(1),
        "unknown_flag" => prefix(7),
        _ => return false,
    };
    // Err: the supervisor has gone.
    let _ = CONNECTION.lock().unwrap().as_ref().map(|mut stream| stream.write_all(&bytes));
    true
}
