//! The lines of a server's standard output: messages, and what it prints among them.
//!
//! Keeps true: no line ends the process, which other calls share. A line that is not a JSON-RPC message is skipped and
//! logged as the worker's output, within its rate; an answer that is too large or malformed fails its own call; memory is
//! bounded by `MAX_LINE`.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::wire::{Envelope, Incoming, parse};
use crate::worker::logs::{self, Meter, PAUSE};

/// Largest message in bytes: what the answer of an upstream over HTTP may have.
const MAX_LINE: usize = 16 << 20;
/// A buffer that a large message left is not kept.
const KEPT_BUFFER: usize = 1 << 20;

/// Reads messages until the server closes its output.
pub(super) async fn read(
    stdout: impl AsyncRead + Unpin,
    meter: Arc<Meter>,
    messages: mpsc::Sender<Incoming>,
) {
    let mut reader = BufReader::new(stdout);
    let mut line = Vec::new();
    loop {
        line.clear();
        line.shrink_to(KEPT_BUFFER);
        match (&mut reader).take(MAX_LINE as u64).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let incoming = if line.len() == MAX_LINE && line.last() != Some(&b'\n') {
            too_large(&mut reader, &line).await
        } else if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        } else {
            parse(&line)
        };
        match incoming {
            Some(incoming) => {
                if messages.send(incoming).await.is_err() {
                    return;
                }
            }
            None if logs::printed(&meter, &line) => {}
            // As everywhere, a flood is read slowly.
            None => sleep(PAUSE).await,
        }
    }
}

/// Reads to the end of a line that began with `head`, and keeps of it whose message it is.
async fn too_large<R: AsyncRead + Unpin>(reader: &mut BufReader<R>, head: &[u8]) -> Option<Incoming> {
    let mut envelope = Envelope::default();
    envelope.read(head);
    loop {
        // Err: the process is ending.
        let part = reader.fill_buf().await.ok()?;
        if part.is_empty() {
            break;
        }
        let end = part.iter().position(|byte| *byte == b'\n');
        let part = part.get(..end.unwrap_or(part.len())).unwrap_or_default();
        envelope.read(part);
        let length = part.len() + usize::from(end.is_some());
        reader.consume(length);
        if end.is_some() {
            break;
        }
    }
    envelope.answered().map(|id| Incoming::TooLarge { id })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::wire::{Answer, Message};
    use super::*;

    async fn all(output: Vec<u8>) -> Vec<Incoming> {
        let (sender, mut messages) = mpsc::channel(64);
        read(output.as_slice(), Arc::new(Meter::new("p", "w", 1 << 20)), sender).await;
        let mut found = Vec::new();
        while let Some(message) = messages.recv().await {
            found.push(message);
        }
        found
    }

    fn response(id: u64) -> Incoming {
        Incoming::Message(Message::Response { id, answer: Answer::Result(json!({}).into()) })
    }

    #[tokio::test]
    async fn what_a_server_prints_among_its_messages_is_skipped() {
        let output =
            b"[dotenv] injecting env\nINFO calling\n\xff\xfe\n[1]\n{\"level\":30,\"msg\":\"pino\"}\n\
                       {\"id\":1,\"result\":{}}\n\nnull\n\"text\"\n{\"id\":2,\"result\":{}}\nlast words";
        assert_eq!(all(output.to_vec()).await, [response(1), response(2)]);
    }

    #[tokio::test]
    async fn an_answer_beyond_the_bound_is_named_by_its_id_wherever_that_stands() {
        let filling = "x".repeat(MAX_LINE);
        let text = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{filling}\"}}\n\
             {{\"result\":{{\"id\":9,\"a\":\"\\\"{filling}\"}},\"jsonrpc\":\"2.0\",\"id\": 8}}\n\
             {{\"method\":\"notifications/x\",\"params\":\"{filling}\"}}\n\
             {filling}\n{{\"id\":1,\"result\":{{}}}}\n"
        );
        let expected = [Incoming::TooLarge { id: 7 }, Incoming::TooLarge { id: 8 }, response(1)];
        assert_eq!(all(text.into_bytes()).await, expected);
    }

    #[tokio::test]
    async fn a_message_at_the_bound_of_http_passes() {
        let filling = "x".repeat(MAX_LINE - 100);
        let text = format!("{{\"id\":7,\"result\":{{\"t\":\"{filling}\"}}}}\n");
        let found = all(text.into_bytes()).await;
        assert!(matches!(&found[..], [Incoming::Message(Message::Response { id: 7, .. })]));
    }
}
