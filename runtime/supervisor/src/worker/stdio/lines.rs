//! The lines of a server's standard output: messages, and other text that it prints.
//!
//! Keeps true: no line ends the process, which other calls share. A line that is not a JSON-RPC message is skipped and
//! logged as the worker's output, within its rate; an answer that is too large or malformed fails its own call; memory
//! is bounded by `MAX_LINE`; output is read at a rate that costs other workers little.

use std::sync::Arc;

use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep};

use super::wire::{Envelope, MAX_LINE, ServerLine, parse};
use crate::worker::logs::{self, Meter, PAUSE, Rate};

/// Maximum size of the buffer that is kept after a large message.
const KEPT_BUFFER: usize = 1 << 20;
/// Rate and burst at which output is read: about that of workers' logs, and two answers of the largest size at once.
const BYTES_PER_SECOND: u64 = 2 * MAX_LINE as u64;
/// Bytes that a line counts in addition to its length, for the time to handle a short one.
const LINE_COST: usize = 4 << 10;

/// Reads messages until the server closes its output.
pub(super) async fn read(
    stdout: impl AsyncRead + Unpin,
    meter: Arc<Meter>,
    messages: mpsc::Sender<ServerLine>,
) {
    let mut reader = BufReader::new(stdout);
    let mut pace = Pace(Rate::new(BYTES_PER_SECOND, Instant::now()));
    let mut line = Vec::new();
    loop {
        line.clear();
        line.shrink_to(KEPT_BUFFER);
        match (&mut reader).take(MAX_LINE as u64).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let incoming = if line.len() == MAX_LINE && line.last() != Some(&b'\n') {
            too_large(&mut reader, &line, &mut pace).await
        } else {
            parse(&line)
        };
        match incoming {
            Some(incoming) => {
                if messages.send(incoming).await.is_err() {
                    return;
                }
            }
            None if line.iter().all(u8::is_ascii_whitespace) || logs::log_printed(&meter, &line) => {}
            // A flood is read slowly, as everywhere.
            None => sleep(PAUSE).await,
        }
        pace.throttle(line.len() + LINE_COST).await;
    }
}

/// Reads to the end of a line that began with `head`, and keeps only which request it answers.
async fn too_large<R: AsyncRead + Unpin>(
    reader: &mut BufReader<R>,
    head: &[u8],
    pace: &mut Pace,
) -> Option<ServerLine> {
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
        pace.throttle(length).await;
    }
    envelope.answered_id().map(|id| ServerLine::TooLarge { id })
}

/// Rate limit on reading a server's output.
struct Pace(Rate);

impl Pace {
    /// Waits until this many bytes may have been read. The writer is blocked during it, this process is not.
    async fn throttle(&mut self, bytes: usize) {
        let mut ahead = bytes - self.0.take(bytes, Instant::now());
        while ahead > 0 {
            sleep(PAUSE).await;
            ahead -= self.0.take(ahead, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::wire::{RpcAnswer, RpcMessage};
    use super::*;

    async fn all(output: Vec<u8>) -> Vec<ServerLine> {
        let (sender, mut messages) = mpsc::channel(1 << 14);
        read(output.as_slice(), Arc::new(Meter::new("p", "w", 1 << 20)), sender).await;
        let mut found = Vec::new();
        while let Some(message) = messages.recv().await {
            found.push(message);
        }
        found
    }

    fn response(id: u64) -> ServerLine {
        ServerLine::Message(RpcMessage::Response { id, answer: RpcAnswer::Result(json!({}).into()) })
    }

    #[tokio::test]
    async fn what_a_server_prints_among_its_messages_is_skipped() {
        let output =
            b"[dotenv] injecting env\nINFO calling\n\xff\xfe\n[1]\n{\"level\":30,\"msg\":\"pino\"}\n\
                       {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\nnull\n\"text\"\n\
                       {\"id\":2,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":{}}\nlast words";
        assert_eq!(all(output.to_vec()).await, [response(1), response(2)]);
    }

    #[tokio::test]
    async fn an_answer_beyond_the_bound_is_named_by_its_id_wherever_that_stands() {
        let filling = "x".repeat(MAX_LINE);
        let text = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":7,\"result\":\"{filling}\"}}\n\
             {{\"result\":{{\"id\":9,\"a\":\"\\\"{filling}\"}},\"jsonrpc\":\"2.0\",\"id\": 8}}\n\
             {{\"id\":9,\"result\":\"{filling}\"}}\n\
             DEBUG {{\"jsonrpc\":\"2.0\",\"id\":9,\"result\":\"{filling}\"}}\n\
             {{\"jsonrpc\":\"2.0\",\"id\":9,\"method\":\"notifications/x\",\"params\":\"{filling}\"}}\n\
             {filling}\n{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{{}}}}\n"
        );
        let expected = [ServerLine::TooLarge { id: 7 }, ServerLine::TooLarge { id: 8 }, response(1)];
        assert_eq!(all(text.into_bytes()).await, expected);
    }

    #[tokio::test]
    async fn a_message_at_the_bound_of_http_passes() {
        let filling = "x".repeat(MAX_LINE - 100);
        let line = |filling: &[u8]| {
            let begin = br#"{"jsonrpc":"2.0","id":7,"result":{"t":""#;
            [begin.as_slice(), filling, b"\"}}\n"].concat()
        };
        let found = all(line(filling.as_bytes())).await;
        assert!(matches!(&found[..], [ServerLine::Message(RpcMessage::Response { id: 7, .. })]));
        // Each of these bytes becomes three.
        let found = all(line(&vec![0xff; MAX_LINE / 2])).await;
        assert_eq!(found, [ServerLine::TooLarge { id: 7 }]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_flood_is_read_faster_than_at_the_rate() {
        let malformed = br#"{"jsonrpc":"2.0","id":7,"result":oops}"#;
        let unknown = br#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
        let lines = |line: &[u8]| [line, b"\n"].concat().repeat(12_000);
        // Lines that are not logged, because the log has a rate of its own.
        for (flood, seconds) in [
            (lines(b""), 0.4),
            (lines(malformed), 0.4),
            (lines(unknown), 0.4),
            (vec![b'x'; 3 * MAX_LINE], 0.4),
            ([unknown, b"\n".as_slice()].concat(), 0.0),
            (
                [
                    br#"{"jsonrpc":"2.0","id":7,"result":{"t":""#,
                    "x".repeat(MAX_LINE - 100).as_bytes(),
                    b"\"}}\n",
                ]
                .concat(),
                0.0,
            ),
        ] {
            let shown = String::from_utf8_lossy(&flood[..flood.len().min(40)]).into_owned();
            let began = Instant::now();
            all(flood).await;
            let took = began.elapsed().as_secs_f64();
            assert!(took >= seconds && took <= 2.0 && (seconds > 0.0 || took == 0.0), "{shown}: {took} s");
        }
    }
}
