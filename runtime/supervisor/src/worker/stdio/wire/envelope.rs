//! The outermost members of a line that is not decoded, because it is too long or not JSON.

/// Maximum number of bytes that are kept of a key, text or number of an [`Envelope`].
const MAX_TOKEN: usize = 24;

/// Incremental scanner of a line of any length, in constant memory.
#[derive(Debug, Default)]
pub(in crate::worker::stdio) struct Envelope {
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// The current text or number, and the last key.
    token: Vec<u8>,
    key: Vec<u8>,
    id: Option<u64>,
    is_version_2: bool,
    has_method: bool,
    has_answer: bool,
    /// Whether the object has ended, or the line does not begin with one.
    ended: bool,
}

impl Envelope {
    /// Scans a whole line.
    pub(super) fn of(line: &[u8]) -> Envelope {
        let mut envelope = Envelope::default();
        envelope.read(line);
        envelope
    }

    /// Scans further bytes.
    pub(in crate::worker::stdio) fn read(&mut self, bytes: &[u8]) {
        for byte in bytes {
            if self.ended {
                return;
            }
            self.take(*byte);
        }
    }

    /// Returns the id of the request that the line answers.
    pub(in crate::worker::stdio) fn answered_id(&self) -> Option<u64> {
        self.id.filter(|_| self.is_version_2 && self.has_answer && !self.has_method)
    }

    fn take(&mut self, byte: u8) {
        if self.in_string {
            match byte {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = true,
                b'"' => self.in_string = false,
                _ => self.keep(byte),
            }
            return;
        }
        match byte {
            b' ' | b'\t' | b'\r' | b'\n' => {}
            _ if self.depth == 0 && byte != b'{' => self.ended = true,
            b'"' => {
                self.in_string = true;
                self.token.clear();
            }
            b'{' | b'[' => {
                self.depth += 1;
                self.token.clear();
            }
            b'}' | b']' => {
                self.end_member();
                self.depth -= 1;
                self.ended = self.depth == 0;
            }
            b':' if self.depth == 1 => {
                std::mem::swap(&mut self.key, &mut self.token);
                self.token.clear();
                self.has_method |= self.key == b"method";
                self.has_answer |= self.key == b"result" || self.key == b"error";
            }
            b',' => self.end_member(),
            _ => self.keep(byte),
        }
    }

    fn keep(&mut self, byte: u8) {
        if self.depth == 1 && self.token.len() < MAX_TOKEN {
            self.token.push(byte);
        }
    }

    fn end_member(&mut self) {
        if self.depth == 1 {
            match self.key.as_slice() {
                b"id" => {
                    self.id = std::str::from_utf8(&self.token).ok().and_then(|number| number.parse().ok());
                }
                b"jsonrpc" => self.is_version_2 = self.token == b"2.0",
                _ => {}
            }
            self.key.clear();
        }
        self.token.clear();
    }
}
