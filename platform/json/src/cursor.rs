//! A bounded JSON reader (RFC 8259) that builds no tree.
//!
//! Owns syntax: one pass over the text, no recursion on input, depth at most [`MAX_DEPTH`], the limit of `serde_json`,
//! so that edge and gateway accept the same texts. Refuses invalid UTF-8, byte order marks and control characters in
//! strings. Accepts everything that the grammar does: lone surrogates in escapes (section 8.2), repeated keys (section
//! 4) and numbers of any size (section 6); it reports the last two.

use std::borrow::Cow;
use std::collections::HashSet;

pub(crate) mod decode;

pub use decode::decode;

/// Maximum nesting depth; one more level is a syntax error.
pub const MAX_DEPTH: usize = 127;
/// Maximum number of an object's keys that are compared; the envelope's objects have a handful.
const MAX_MEMBERS: usize = 1024;
/// Maximum number of keys that are compared by sorting them.
const SORTED_MEMBERS: usize = 32;
/// Maximum length of a number without an exponent that is known to fit a double.
const SURELY_FINITE_DIGITS: usize = 300;

/// Error: the text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syntax;

/// Value that was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// String literal with its quotes.
    String(Text<'a>),
    Number(&'a str),
    Bool,
    Null,
    Array,
    Object,
}

/// Checked string literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// Text of the literal with its quotes.
    pub literal: &'a str,
    escaped: bool,
}

impl<'a> Text<'a> {
    /// Returns the value without quotes and escapes; U+FFFD replaces a lone surrogate.
    pub fn unescape(self) -> Cow<'a, str> {
        if self.escaped {
            return Cow::Owned(decode::string(self.literal));
        }
        let inner = self.literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        Cow::Borrowed(inner.unwrap_or_default())
    }
}

/// Position in a text.
pub struct Cursor<'a> {
    text: &'a str,
    position: usize,
    /// Number of open objects and arrays around the position.
    depth: usize,
    /// Whether an object read by [`Cursor::object`] repeated a key or had too many.
    pub repeated_key: bool,
    /// Whether a number exceeded the range of a double.
    pub beyond_double: bool,
}

/// Whether a key occurs twice. Few keys are sorted, which is cheaper; many are hashed, because sorting would read long
/// keys repeatedly.
pub(crate) fn has_repeated(mut keys: Vec<Cow<'_, str>>) -> bool {
    if keys.len() > SORTED_MEMBERS {
        let mut seen = HashSet::with_capacity(keys.len());
        return !keys.into_iter().all(|key| seen.insert(key));
    }
    keys.sort_unstable();
    keys.windows(2).any(|pair| matches!(pair, [one, next] if one == next))
}

impl<'a> Cursor<'a> {
    /// Creates a cursor at the beginning of `body`, which must be UTF-8.
    pub fn new(body: &'a [u8]) -> Result<Cursor<'a>, Syntax> {
        let text = std::str::from_utf8(body).map_err(|_| Syntax)?;
        Ok(Cursor { text, position: 0, depth: 0, repeated_key: false, beyond_double: false })
    }

    /// Returns the next byte that is not white space.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.position += 1;
        }
        self.byte()
    }

    /// Accepts only white space up to the end.
    pub fn end(&mut self) -> Result<(), Syntax> {
        self.peek().map_or(Ok(()), |_| Err(Syntax))
    }

    /// Reads an object; `member` must read the value of the key it is given.
    pub fn object(
        &mut self,
        mut member: impl FnMut(&mut Cursor<'a>, &str) -> Result<(), Syntax>,
    ) -> Result<(), Syntax> {
        let mut keys: Vec<Cow<'a, str>> = Vec::new();
        let mut too_many = false;
        self.object_with_keys(|cursor, key| {
            let key = key.unescape();
            member(cursor, &key)?;
            match keys.len() < MAX_MEMBERS {
                true => keys.push(key),
                false => too_many = true,
            }
            Ok(())
        })?;
        self.repeated_key |= too_many || has_repeated(keys);
        Ok(())
    }

    /// Reads an object without comparing its keys; `member` must read the value of the key it is given.
    pub fn object_with_keys(
        &mut self,
        mut member: impl FnMut(&mut Cursor<'a>, Text<'a>) -> Result<(), Syntax>,
    ) -> Result<(), Syntax> {
        self.open(b'{')?;
        let mut first = true;
        while self.item(b'}', &mut first)? {
            let key = self.key()?;
            member(self, key)?;
        }
        Ok(())
    }

    /// Reads an array; `element` must read one value.
    pub fn array(
        &mut self,
        mut element: impl FnMut(&mut Cursor<'a>) -> Result<(), Syntax>,
    ) -> Result<(), Syntax> {
        self.open(b'[')?;
        let mut first = true;
        while self.item(b']', &mut first)? {
            element(self)?;
        }
        Ok(())
    }

    /// Reads the next value to its end and returns its text.
    pub fn text(&mut self) -> Result<&'a str, Syntax> {
        let start = self.start();
        self.value()?;
        self.text_since(start)
    }

    /// Returns the position of the next value.
    pub(crate) fn start(&mut self) -> usize {
        self.peek();
        self.position
    }

    /// Returns the text from `start` to the current position.
    pub(crate) fn text_since(&self, start: usize) -> Result<&'a str, Syntax> {
        self.text.get(start..self.position).ok_or(Syntax)
    }

    /// Reads any value to its end.
    pub fn value(&mut self) -> Result<Value<'a>, Syntax> {
        match self.peek().ok_or(Syntax)? {
            b'{' => self.composite().map(|()| Value::Object),
            b'[' => self.composite().map(|()| Value::Array),
            _ => self.scalar(),
        }
    }

    /// Reads an object or array to its end, keeping the open brackets in two words instead of on the stack.
    fn composite(&mut self) -> Result<(), Syntax> {
        let floor = self.depth;
        // Bit 0 is the innermost open bracket: set for an object. MAX_DEPTH bits suffice.
        let mut objects: u128 = 0;
        let mut first = false;
        loop {
            // A value follows.
            match self.peek().ok_or(Syntax)? {
                open @ (b'{' | b'[') => {
                    self.open(open)?;
                    objects = (objects << 1) | u128::from(open == b'{');
                    first = true;
                }
                _ => {
                    self.scalar()?;
                }
            }
            // A value ended or a bracket was opened: close the brackets that end here.
            loop {
                if self.depth == floor {
                    return Ok(());
                }
                let object = objects & 1 == 1;
                if self.item(if object { b'}' } else { b']' }, &mut first)? {
                    if object {
                        self.key()?;
                    }
                    break;
                }
                objects >>= 1;
                first = false;
            }
        }
    }

    fn open(&mut self, bracket: u8) -> Result<(), Syntax> {
        self.take(bracket)?;
        self.depth += 1;
        if self.depth > MAX_DEPTH { Err(Syntax) } else { Ok(()) }
    }

    /// Moves to the next member or element of the innermost bracket; false if the bracket was closed.
    fn item(&mut self, close: u8, first: &mut bool) -> Result<bool, Syntax> {
        if self.peek() == Some(close) {
            self.position += 1;
            self.depth = self.depth.saturating_sub(1);
            return Ok(false);
        }
        if !std::mem::take(first) {
            self.take(b',')?;
        }
        Ok(true)
    }

    fn key(&mut self) -> Result<Text<'a>, Syntax> {
        self.peek();
        let key = self.string()?;
        self.take(b':')?;
        Ok(key)
    }

    fn scalar(&mut self) -> Result<Value<'a>, Syntax> {
        match self.byte().ok_or(Syntax)? {
            b'"' => self.string().map(Value::String),
            b't' => self.literal("true", Value::Bool),
            b'f' => self.literal("false", Value::Bool),
            b'n' => self.literal("null", Value::Null),
            _ => self.number().map(Value::Number),
        }
    }

    fn literal(&mut self, word: &str, value: Value<'a>) -> Result<Value<'a>, Syntax> {
        if !self.rest().starts_with(word) {
            return Err(Syntax);
        }
        self.position += word.len();
        Ok(value)
    }

    fn string(&mut self) -> Result<Text<'a>, Syntax> {
        let start = self.position;
        let mut escaped = false;
        self.exactly(b'"')?;
        loop {
            self.position += plain_bytes(self.text.as_bytes().get(self.position..).unwrap_or_default());
            match self.byte().ok_or(Syntax)? {
                b'"' => break,
                b'\\' => {
                    escaped = true;
                    self.position += 1;
                    self.escape()?;
                }
                0..=0x1f => return Err(Syntax),
                _ => self.position += 1,
            }
        }
        self.position += 1;
        let literal = self.text.get(start..self.position).ok_or(Syntax)?;
        Ok(Text { literal, escaped })
    }

    /// Reads the rest of an escape, after its backslash.
    fn escape(&mut self) -> Result<(), Syntax> {
        let kind = self.byte().ok_or(Syntax)?;
        self.position += 1;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => self.unit(),
            _ => Err(Syntax),
        }
    }

    /// Reads four hex digits.
    fn unit(&mut self) -> Result<(), Syntax> {
        let digits = self.text.get(self.position..self.position + 4).ok_or(Syntax)?;
        if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
            return Err(Syntax);
        }
        self.position += 4;
        Ok(())
    }

    fn number(&mut self) -> Result<&'a str, Syntax> {
        let start = self.position;
        if self.byte() == Some(b'-') {
            self.position += 1;
        }
        match self.byte() {
            Some(b'0') => self.position += 1,
            _ => self.digits()?,
        }
        if self.byte() == Some(b'.') {
            self.position += 1;
            self.digits()?;
        }
        let mut exponent = false;
        if let Some(b'e' | b'E') = self.byte() {
            exponent = true;
            self.position += 1;
            if let Some(b'+' | b'-') = self.byte() {
                self.position += 1;
            }
            self.digits()?;
        }
        let number = self.text.get(start..self.position).ok_or(Syntax)?;
        self.beyond_double |= !((!exponent && number.len() <= SURELY_FINITE_DIGITS)
            || number.parse::<f64>().is_ok_and(f64::is_finite));
        Ok(number)
    }

    fn digits(&mut self) -> Result<(), Syntax> {
        let start = self.position;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.position += 1;
        }
        if self.position == start { Err(Syntax) } else { Ok(()) }
    }

    /// Takes `byte`, after white space.
    fn take(&mut self, byte: u8) -> Result<(), Syntax> {
        self.peek();
        self.exactly(byte)
    }

    fn exactly(&mut self, byte: u8) -> Result<(), Syntax> {
        if self.byte() != Some(byte) {
            return Err(Syntax);
        }
        self.position += 1;
        Ok(())
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.position).copied()
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.position..).unwrap_or_default()
    }
}

/// Returns the number of bytes before the next one that ends a string, escapes or is refused, as far as whole words of
/// eight bytes go. Arguments are mostly text, and checking each byte of it took most of the time of a scan.
fn plain_bytes(text: &[u8]) -> usize {
    let (words, _) = text.as_chunks::<8>();
    let mut plain = 0;
    for word in words {
        match special(u64::from_le_bytes(*word)) {
            0 => plain += 8,
            marks => return plain + marks.trailing_zeros() as usize / 8,
        }
    }
    plain
}

/// Marks special bytes: the lowest bit set is the top bit of the first byte that is a quote, a backslash or below 0x20;
/// 0 for none.
fn special(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    // A byte below `limit` borrows and so gets its top bit set (Mycroft's test); the borrow can only corrupt the bytes
    // after it.
    let below = |bytes: u64, limit: u64| bytes.wrapping_sub(ONES * limit) & !bytes;
    let quote = below(word ^ (ONES * u64::from(b'"')), 1);
    let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
    (below(word, 0x20) | quote | backslash) & (ONES * 0x80)
}

#[cfg(test)]
mod tests;
