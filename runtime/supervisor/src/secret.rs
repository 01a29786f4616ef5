//! A worker's token: it prints as `***` wherever it is formatted.

use std::fmt;
use std::fmt::Write;

/// 256 random bits as 64 hex digits. The only way to its text is [`Token::expose`].
#[derive(Clone)]
pub struct Token(String);

impl Token {
    pub fn random() -> Token {
        Token(random_hex::<32>())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// `BYTES` bytes of the operating system's generator in hex.
pub fn random_hex<const BYTES: usize>() -> String {
    let bytes: [u8; BYTES] = rand::random();
    let mut text = String::with_capacity(BYTES * 2);
    for byte in bytes {
        // Err: writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_never_prints_and_is_never_the_same() {
        let (one, two) = (Token::random(), Token::random());
        assert_eq!(format!("{one:?}"), "***");
        assert_eq!(one.expose().len(), 64);
        assert_ne!(one.expose(), two.expose());
    }
}
