//! One connection through a tap: which response answers which request, and which messages both hold.

use std::collections::VecDeque;
use std::sync::Arc;

use super::link::Link;
use super::reader::{Head, Part, Reader};
use super::record::{Exchange, Record};

/// Largest body, and largest event of a stream, that is read.
const BODY_BYTES: usize = 17 << 20;
/// Media types of MCP and A2A.
const JSON: [&str; 2] = ["application/json", "application/a2a+json"];
/// Most requests of a connection that wait for their responses.
const PENDING: usize = 64;

pub(super) struct Connection {
    link: Link,
    record: Arc<Record>,
    requests: Reader,
    responses: Reader,
    /// A request that is still being sent.
    asking: Option<(Head, Vec<u8>)>,
    pending: VecDeque<Exchange>,
    answering: Option<Answering>,
    /// Something came that is not read: another protocol, or too much.
    blind: bool,
}

/// A response that is still being sent.
struct Answering {
    exchange: Exchange,
    kind: Kind,
    body: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Json,
    Events,
    Other,
}

impl Connection {
    pub(super) fn new(link: Link, record: Arc<Record>) -> Connection {
        Connection {
            link,
            record,
            requests: Reader::requests(),
            responses: Reader::responses(),
            asking: None,
            pending: VecDeque::new(),
            answering: None,
            blind: false,
        }
    }

    /// Bytes of the client.
    pub(super) fn sent(&mut self, bytes: &[u8]) {
        if self.blind {
            return;
        }
        self.requests.push(bytes);
        loop {
            match self.requests.next(false) {
                Ok(None) => return,
                Ok(Some(part)) => self.request(part),
                Err(_) => return self.give_up(),
            }
            if self.blind {
                return;
            }
        }
    }

    fn request(&mut self, part: Part) {
        match part {
            Part::Head(head) => self.asking = Some((head, Vec::new())),
            Part::Data(data) => {
                if let Some((_, body)) = &mut self.asking {
                    body.extend_from_slice(&data);
                    if body.len() > BODY_BYTES {
                        self.give_up();
                    }
                }
            }
            Part::End => {
                let Some((head, body)) = self.asking.take() else { return };
                let exchange = self.record.asked(self.link, &head, &body);
                self.pending.push_back(exchange);
                if self.pending.len() > PENDING {
                    self.give_up();
                }
            }
        }
    }

    /// Bytes of the server.
    pub(super) fn received(&mut self, bytes: &[u8]) {
        if self.blind {
            return;
        }
        self.responses.push(bytes);
        loop {
            let bodiless = self.pending.front().is_some_and(|exchange| exchange.is_head);
            match self.responses.next(bodiless) {
                Ok(None) => return,
                Ok(Some(part)) => self.response(part),
                Err(_) => return self.give_up(),
            }
            if self.blind {
                return;
            }
        }
    }

    fn response(&mut self, part: Part) {
        match part {
            Part::Head(head) => {
                // An answer to what has not been sent whole, or to nothing.
                let Some(mut exchange) = self.pending.pop_front() else { return self.give_up() };
                self.record.answered(&mut exchange, &head);
                let kind = match head.header("content-type") {
                    _ if head.header("content-encoding").is_some() => Kind::Other,
                    Some(kind) if JSON.iter().any(|json| kind.starts_with(json)) => Kind::Json,
                    Some(kind) if kind.starts_with("text/event-stream") => Kind::Events,
                    _ => Kind::Other,
                };
                self.answering = Some(Answering { exchange, kind, body: Vec::new() });
            }
            Part::Data(data) => {
                let Some(answering) = &mut self.answering else { return };
                if answering.kind == Kind::Other || !answering.exchange.is_read() {
                    return;
                }
                answering.body.extend_from_slice(&data);
                if answering.kind == Kind::Events {
                    for event in events(&mut answering.body) {
                        self.record.told(&mut answering.exchange, event.as_bytes());
                    }
                }
                if answering.body.len() > BODY_BYTES {
                    self.give_up();
                }
            }
            Part::End => self.end(),
        }
    }

    fn end(&mut self) {
        let Some(mut answering) = self.answering.take() else { return };
        if answering.kind == Kind::Json && answering.exchange.is_read() {
            self.record.told(&mut answering.exchange, &answering.body);
        }
        self.record.ended(answering.exchange);
    }

    /// The connection is gone: a body that ends with it is whole now.
    pub(super) fn closed(&mut self) {
        if !self.blind {
            self.end();
        }
    }

    fn give_up(&mut self) {
        self.blind = true;
        self.asking = None;
        self.answering = None;
        self.pending.clear();
        self.record.unread();
    }
}

/// The data of the events that are whole; they are taken out of `body`. An event without data is none (WHATWG HTML,
/// server-sent events).
fn events(body: &mut Vec<u8>) -> Vec<String> {
    let mut found = Vec::new();
    while let Some((end, length)) = blank_line(body) {
        let event = String::from_utf8_lossy(body.get(..end).unwrap_or_default()).into_owned();
        body.drain(..end + length);
        let data: Vec<&str> = event
            .lines()
            .filter_map(|line| line.strip_prefix("data:"))
            .map(|data| data.strip_prefix(' ').unwrap_or(data))
            .collect();
        let data = data.join("\n");
        if !data.trim().is_empty() {
            found.push(data);
        }
    }
    found
}

/// Where the first event ends, and how long its end is.
fn blank_line(body: &[u8]) -> Option<(usize, usize)> {
    let at = |end: &[u8]| body.windows(end.len()).position(|window| window == end).map(|at| (at, end.len()));
    [at(b"\n\n"), at(b"\r\n\r\n")].into_iter().flatten().min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_taken_out_once_they_are_whole() {
        let mut body = b": open\n\nid: 1\ndata:\n\nid: 2\ndata: {\"a\":\ndata: 1}\n\ndata: {".to_vec();
        assert_eq!(events(&mut body), ["{\"a\":\n1}"]);
        assert_eq!(body, b"data: {");
        body.extend_from_slice(b"}\r\n\r\n");
        assert_eq!(events(&mut body), ["{}"]);
        assert_eq!(body, b"");
    }
}
