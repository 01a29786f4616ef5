//! A bounded JSON reader (RFC 8259) that builds nothing.
//!
//! Owns syntax: one pass over the text, no recursion on input, depth at most [`MAX_DEPTH`], which is where
//! `serde_json` stops too, so that edge and gateway accept the same texts. Refuses invalid UTF-8, byte order
//! marks and control characters in strings. Accepts what the grammar accepts: lone surrogates in escapes
//! (section 8.2), repeated keys (section 4) and numbers of any size (section 6); it reports the last two.

use std::borrow::Cow;
use std::collections::HashSet;

pub(crate) mod decode;

pub use decode::decode;

/// Deepest nesting accepted; one more level is a syntax error.
pub const MAX_DEPTH: usize = 127;
/// Most members of an object whose keys are compared; the envelope's objects have a handful.
const MAX_MEMBERS: usize = 1024;
/// Most members of an object whose keys are compared by sorting them.
const SORTED_MEMBERS: usize = 32;
/// A number this short without an exponent cannot exceed a double.
const SURELY_FINITE_DIGITS: usize = 300;

/// The text is not JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syntax;

/// A value that was read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A string literal with its quotes.
    String(Text<'a>),
    Number(&'a str),
    Bool,
    Null,
    Array,
    Object,
}

/// A checked string literal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text<'a> {
    /// With the quotes.
    pub literal: &'a str,
    escaped: bool,
}

impl<'a> Text<'a> {
    /// The value without quotes and escapes; U+FFFD in place of a lone surrogate.
    pub fn unescape(self) -> Cow<'a, str> {
        if self.escaped {
            return Cow::Owned(decode::string(self.literal));
        }
        let inner = self.literal.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        Cow::Borrowed(inner.unwrap_or_default())
    }
}

/// A position in a text.
pub struct Cursor<'a> {
    text: &'a str,
    position: usize,
    /// Open objects and arrays around the position.
    depth: usize,
    /// Whether an object read by [`Cursor::object`] repeated a key or had too many.
    pub repeated_key: bool,
    /// Whether a number was beyond a double.
    pub beyond_double: bool,
}

/// Few keys are sorted, which is cheaper; a sort of many reads long ones again and again, a hash each once.
pub(crate) fn has_repeated(mut keys: Vec<Cow<'_, str>>) -> bool {
    if keys.len() > SORTED_MEMBERS {
        let mut seen = HashSet::with_capacity(keys.len());
        return !keys.into_iter().all(|key| seen.insert(key));
    }
    keys.sort_unstable();
    keys.windows(2).any(|pair| matches!(pair, [one, next] if one == next))
}

impl<'a> Cursor<'a> {
    /// A cursor at the beginning of `body`, which must be UTF-8.
    pub fn new(body: &'a [u8]) -> Result<Cursor<'a>, Syntax> {
        let text = std::str::from_utf8(body).map_err(|_| Syntax)?;
        Ok(Cursor { text, position: 0, depth: 0, repeated_key: false, beyond_double: false })
    }

    /// The next byte that is not white space.
    pub fn peek(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.position += 1;
        }
        self.byte()
    }

    /// Refuses anything but white space up to the end.
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

    /// Reads an object whose keys are not compared; `member` must read the value of the key it is given.
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

    /// The text of the value that is read to its end.
    pub fn text(&mut self) -> Result<&'a str, Syntax> {
        let start = self.start();
        self.value()?;
        self.text_since(start)
    }

    /// The position of the next value.
    pub(crate) fn start(&mut self) -> usize {
        self.peek();
        self.position
    }

    /// The text from a position that was passed to here.
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
            // At a value.
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
            // After a value, or just inside a bracket: close what ends here.
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

    /// Moves to the next member or element of the innermost bracket; false when it was closed.
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

    /// After a backslash.
    fn escape(&mut self) -> Result<(), Syntax> {
        let kind = self.byte().ok_or(Syntax)?;
        self.position += 1;
        match kind {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => self.unit(),
            _ => Err(Syntax),
        }
    }

    /// Four hex digits.
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

/// How many bytes come before the next one that ends a string, escapes or is refused, as far as words of eight reach.
/// Arguments are mostly text, and looking at each byte of it was most of what a scan cost.
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

/// The lowest bit set is the top bit of the first byte that is a quote, a backslash or below 0x20; 0 for none.
fn special(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 0xff;
    // A byte below `limit` borrows and so gets its top bit set (Mycroft's test); what it borrows can only mislead
    // about the bytes after it.
    let below = |bytes: u64, limit: u64| bytes.wrapping_sub(ONES * limit) & !bytes;
    let quote = below(word ^ (ONES * u64::from(b'"')), 1);
    let backslash = below(word ^ (ONES * u64::from(b'\\')), 1);
    (below(word, 0x20) | quote | backslash) & (ONES * 0x80)
}

#[cfg(test)]
mod tests;
