//! HTTP/1.1 messages one after the other on a blocking stream, for the load generator and its backend.
//!
//! Reads no more than the bench needs: a message ends after its `content-length` bytes or after the last
//! chunk, and without either has no body. Nothing is pipelined, so what was read ends with the message.

use std::io::{self, Read};

use memchr::memmem;

/// Longest message read; longer is an error, not memory.
const LIMIT: usize = 16 << 20;
const CHUNK: usize = 16 << 10;

/// The bytes of one connection's current message.
#[derive(Default)]
pub(crate) struct Framing {
    buffer: Vec<u8>,
}

/// One message; the body of a chunked one still has its chunk sizes.
pub(crate) struct Message<'a> {
    pub head: &'a [u8],
    pub body: &'a [u8],
}

impl Framing {
    /// Reads the next message; `None` when the peer closed the connection before it.
    pub(crate) fn next(&mut self, stream: &mut impl Read) -> io::Result<Option<Message<'_>>> {
        self.buffer.clear();
        let head = loop {
            if let Some(end) = memmem::find(&self.buffer, b"\r\n\r\n") {
                break end + 4;
            }
            if !self.fill(stream)? {
                return if self.buffer.is_empty() { Ok(None) } else { Err(cut()) };
            }
        };
        let ending = Ending::of(self.buffer.get(..head).unwrap_or_default());
        while !ending.reached(self.buffer.get(head..).unwrap_or_default()) {
            if !self.fill(stream)? {
                return Err(cut());
            }
        }
        let (head, body) = self.buffer.split_at_checked(head).ok_or_else(cut)?;
        Ok(Some(Message { head, body }))
    }

    fn fill(&mut self, stream: &mut impl Read) -> io::Result<bool> {
        let known = self.buffer.len();
        if known > LIMIT {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
        }
        self.buffer.resize(known + CHUNK, 0);
        let read = stream.read(self.buffer.get_mut(known..).unwrap_or_default());
        self.buffer.truncate(known + *read.as_ref().unwrap_or(&0));
        Ok(read? > 0)
    }
}

enum Ending {
    Length(usize),
    LastChunk,
}

impl Ending {
    fn of(head: &[u8]) -> Ending {
        let mut ending = Ending::Length(0);
        for line in head.split(|byte| *byte == b'\n') {
            let Some(colon) = memchr::memchr(b':', line) else { continue };
            let (name, value) = line.split_at(colon);
            let value = value.get(1..).unwrap_or_default().trim_ascii();
            if name.eq_ignore_ascii_case(b"content-length") {
                let length = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                ending = Ending::Length(length.unwrap_or(0));
            } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
                ending = Ending::LastChunk;
            }
        }
        ending
    }

    fn reached(&self, body: &[u8]) -> bool {
        match self {
            Ending::Length(length) => body.len() >= *length,
            Ending::LastChunk => body == b"0\r\n\r\n" || body.ends_with(b"\r\n0\r\n\r\n"),
        }
    }
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the connection closed within a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives one byte at a time, as a slow network does.
    struct Drip<'a>(&'a [u8]);

    impl Read for Drip<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
            buffer[0] = *first;
            self.0 = rest;
            Ok(1)
        }
    }

    #[test]
    fn a_message_ends_where_its_head_says_however_it_arrives() {
        let bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcHTTP/1.1 200 OK\r\n\
            transfer-encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n";
        let mut stream = Drip(bytes);
        let mut framing = Framing::default();
        assert_eq!(framing.next(&mut stream).unwrap().unwrap().body, b"abc");
        assert_eq!(framing.next(&mut stream).unwrap().unwrap().body, b"5\r\nhello\r\n0\r\n\r\n");
        assert_eq!(framing.next(&mut stream).unwrap().unwrap().head, b"GET / HTTP/1.1\r\n\r\n");
        assert!(framing.next(&mut stream).unwrap().is_none());
    }

    #[test]
    fn a_message_cut_short_is_an_error() {
        let mut stream = Drip(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab");
        assert!(Framing::default().next(&mut stream).is_err());
    }
}
