//! Reads one direction of an HTTP/1.1 connection as its bytes pass.
//!
//! Keeps true: it never changes a byte; what it cannot read, or what is longer than its bounds, is an error after which
//! it reads no more of that connection.

use anyhow::{Context, Result, bail};
use bytes::{Buf, BytesMut};

/// Largest head: more than Envoy takes.
const HEAD_BYTES: usize = 512 << 10;
/// Most headers of a message.
const HEADERS: usize = 256;

/// The first line and the headers.
#[derive(Clone, Debug, Default)]
pub(super) struct Head {
    /// Of a request.
    pub(super) method: String,
    pub(super) target: String,
    /// Of a response.
    pub(super) status: u16,
    /// Names in lower case.
    headers: Vec<(String, String)>,
}

impl Head {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// What has been read.
pub(super) enum Part {
    Head(Head),
    Data(Vec<u8>),
    /// The message is whole.
    End,
}

/// Where in a message the reader stands.
enum State {
    Head,
    /// So many bytes of the body are left.
    Length(u64),
    ChunkSize,
    /// So many bytes of the chunk are left, its line end among them.
    Chunk(u64),
    Trailers,
    /// The body ends with the connection.
    Rest,
}

/// Reads requests, or responses.
pub(super) struct Reader {
    of_requests: bool,
    buffer: BytesMut,
    state: State,
}

impl Reader {
    pub(super) fn requests() -> Reader {
        Reader { of_requests: true, buffer: BytesMut::new(), state: State::Head }
    }

    pub(super) fn responses() -> Reader {
        Reader { of_requests: false, ..Reader::requests() }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next part that is there whole. `bodiless`: the response has no body, whatever its headers say (HEAD).
    pub(super) fn next(&mut self, bodiless: bool) -> Result<Option<Part>> {
        loop {
            match self.state {
                State::Head => return self.head(bodiless),
                State::Length(0) => {
                    self.state = State::Head;
                    return Ok(Some(Part::End));
                }
                State::Length(left) => {
                    let Some(data) = self.take(left) else { return Ok(None) };
                    self.state = State::Length(left - data.len() as u64);
                    return Ok(Some(Part::Data(data)));
                }
                State::Rest => return Ok(self.take(u64::MAX).map(Part::Data)),
                State::ChunkSize => {
                    let Some(line) = self.line()? else { return Ok(None) };
                    let digits = line.split(';').next().unwrap_or_default().trim();
                    let size = u64::from_str_radix(digits, 16).context("the size of a chunk")?;
                    self.state = if size == 0 { State::Trailers } else { State::Chunk(size + 2) };
                }
                State::Chunk(left @ 1..=2) => {
                    let Some(end) = self.take(left) else { return Ok(None) };
                    let left = left - end.len() as u64;
                    self.state = if left == 0 { State::ChunkSize } else { State::Chunk(left) };
                }
                State::Chunk(left) => {
                    let Some(data) = self.take(left - 2) else { return Ok(None) };
                    self.state = State::Chunk(left - data.len() as u64);
                    return Ok(Some(Part::Data(data)));
                }
                State::Trailers => match self.line()?.as_deref() {
                    None => return Ok(None),
                    Some("") => {
                        self.state = State::Head;
                        return Ok(Some(Part::End));
                    }
                    Some(_) => {}
                },
            }
        }
    }

    fn head(&mut self, bodiless: bool) -> Result<Option<Part>> {
        let mut slots = [httparse::EMPTY_HEADER; HEADERS];
        let (head, length) = if self.of_requests {
            let mut request = httparse::Request::new(&mut slots);
            let httparse::Status::Complete(length) = request.parse(&self.buffer)? else {
                return self.incomplete();
            };
            let method = request.method.unwrap_or_default();
            let target = request.path.unwrap_or_default();
            let headers = texts(request.headers);
            (Head { method: method.into(), target: target.into(), status: 0, headers }, length)
        } else {
            let mut response = httparse::Response::new(&mut slots);
            let httparse::Status::Complete(length) = response.parse(&self.buffer)? else {
                return self.incomplete();
            };
            let status = response.code.unwrap_or_default();
            (Head { status, headers: texts(response.headers), ..Head::default() }, length)
        };
        self.buffer.advance(length);
        // An interim response comes before the response.
        if !self.of_requests && (100..200).contains(&head.status) {
            return self.head(bodiless);
        }
        self.state = self.body_of(&head, bodiless)?;
        Ok(Some(Part::Head(head)))
    }

    fn incomplete(&self) -> Result<Option<Part>> {
        if self.buffer.len() > HEAD_BYTES {
            bail!("a head of more than {HEAD_BYTES} bytes");
        }
        Ok(None)
    }

    /// How the body ends (RFC 9112, message body length).
    fn body_of(&self, head: &Head, bodiless: bool) -> Result<State> {
        if !self.of_requests && (bodiless || head.status == 204 || head.status == 304) {
            return Ok(State::Length(0));
        }
        if head.header("transfer-encoding").is_some_and(|value| value.contains("chunked")) {
            return Ok(State::ChunkSize);
        }
        match head.header("content-length") {
            Some(length) => Ok(State::Length(length.trim().parse().context("content-length")?)),
            None if self.of_requests => Ok(State::Length(0)),
            None => Ok(State::Rest),
        }
    }

    /// At most `most` bytes of what is there.
    fn take(&mut self, most: u64) -> Option<Vec<u8>> {
        let length = usize::try_from(most).unwrap_or(usize::MAX).min(self.buffer.len());
        (length > 0).then(|| self.buffer.split_to(length).to_vec())
    }

    /// A line without its end, once that is there.
    fn line(&mut self) -> Result<Option<String>> {
        let Some(end) = self.buffer.windows(2).position(|window| window == b"\r\n") else {
            if self.buffer.len() > HEAD_BYTES {
                bail!("a line of more than {HEAD_BYTES} bytes");
            }
            return Ok(None);
        };
        let line = String::from_utf8_lossy(&self.buffer.split_to(end)).into_owned();
        self.buffer.advance(2);
        Ok(Some(line))
    }
}

fn texts(headers: &[httparse::Header<'_>]) -> Vec<(String, String)> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).trim().to_owned();
    headers.iter().map(|header| (header.name.to_ascii_lowercase(), text(header.value))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Byte by byte and at once: the same parts.
    fn parts(mut reader: Reader, bytes: &[u8]) -> Vec<String> {
        let mut whole = Vec::new();
        for byte in bytes {
            reader.push(&[*byte]);
            while let Some(part) = reader.next(false).unwrap() {
                match part {
                    Part::Head(head) => whole.push(format!("{}{}{}", head.method, head.target, head.status)),
                    Part::End => whole.push("end".into()),
                    Part::Data(data) => {
                        let text = String::from_utf8(data).unwrap();
                        match whole.last_mut().filter(|last| last.starts_with('=')) {
                            Some(last) => last.push_str(&text),
                            None => whole.push(format!("={text}")),
                        }
                    }
                }
            }
        }
        whole
    }

    #[test]
    fn messages_on_one_connection_are_told_apart() {
        let requests =
            b"POST /a HTTP/1.1\r\nContent-Length: 3\r\n\r\nabcGET /b HTTP/1.1\r\n\r\nPOST /c HTTP/1.1\r\n\
              transfer-encoding: chunked\r\n\r\n3;x=1\r\nabc\r\n2\r\nde\r\n0\r\nt: 1\r\n\r\n";
        let read = parts(Reader::requests(), requests);
        assert_eq!(read, ["POST/a0", "=abc", "end", "GET/b0", "end", "POST/c0", "=abcde", "end"]);
        let responses = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\ncontent-length: 0\r\n\r\n\
                          HTTP/1.1 204 No Content\r\n\r\nHTTP/1.0 200 OK\r\n\r\nto the end";
        let read = parts(Reader::responses(), responses);
        assert_eq!(read, ["202", "end", "204", "end", "200", "=to the end"]);
    }

    #[test]
    fn what_is_no_http_is_an_error() {
        for bytes in [&b"\x16\x03\x01\x02\x00"[..], b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"] {
            let mut reader = Reader::requests();
            reader.push(bytes);
            assert!(reader.next(false).is_err(), "{bytes:?}");
        }
        let mut reader = Reader::requests();
        reader.push(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n");
        assert!(matches!(reader.next(false), Ok(Some(Part::Head(_)))));
        assert!(reader.next(false).is_err());
    }
}
