//! The backend of the `direct` row and of every Envoy row: answers each request with the same JSON.
//!
//! A thread per connection: there are as many as the load generator has, and nothing else waits in it.

use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use anyhow::Result;
use serde_json::Value;

use crate::framing::{Framing, Message};

/// Connections served at once; further ones are closed. Envoys that were measured before keep theirs.
const CONNECTIONS: usize = 1024;
/// Length of the text in the answer: that of the calls.
const TEXT: usize = 512;

/// Starts the backend on a free loopback port; it lives as long as the process.
pub(crate) fn start() -> Result<SocketAddr> {
    let answer = answer();
    start_with(move |_, out| out.extend_from_slice(&answer))
}

/// The same with another answer, which is written to the end of a buffer.
pub(crate) fn start_with<A>(answer: A) -> Result<SocketAddr>
where
    A: Fn(&Message<'_>, &mut Vec<u8>) + Send + Sync + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            if Arc::strong_count(&answer) > CONNECTIONS {
                continue;
            }
            let answer = answer.clone();
            // A peer that goes away ends its connection with an error that concerns nobody.
            std::thread::spawn(move || drop(serve(stream, answer.as_ref())));
        }
    });
    Ok(address)
}

fn serve(mut stream: TcpStream, answer: impl Fn(&Message<'_>, &mut Vec<u8>)) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut framing = Framing::default();
    let mut out = Vec::new();
    while let Some(request) = framing.next(&mut stream)? {
        out.clear();
        answer(&request, &mut out);
        stream.write_all(&out)?;
    }
    Ok(())
}

fn answer() -> Vec<u8> {
    response(&serde_json::json!({
        "jsonrpc": "2.0",
        "id": 1,
        "result": {"content": [{"type": "text", "text": "x".repeat(TEXT)}], "isError": false},
    }))
}

/// A response of status 200 with this body.
pub(crate) fn response(body: &Value) -> Vec<u8> {
    let body = body.to_string();
    let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ";
    format!("{head}{}\r\n\r\n{body}", body.len()).into_bytes()
}
