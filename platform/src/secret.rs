//! Secret text: it prints as `***` wherever it is formatted, and its memory is cleared when it is dropped.

use std::fmt;

use zeroize::Zeroizing;

/// Number of random bytes of a generated secret: 256 bits.
const RANDOM_BYTES: usize = 32;

/// Secret text. Only [`Secret::expose`] returns it, so that a search for that finds every use.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    pub fn new(text: String) -> Secret {
        Secret(Zeroizing::new(text))
    }

    /// Generates 256 random bits as 64 hex digits.
    pub fn random() -> Secret {
        Secret::new(random_hex::<RANDOM_BYTES>())
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Secret {
        Secret::new(text)
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Secret {
        Secret::new(text.to_owned())
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Returns `BYTES` bytes of the operating system's generator in hex.
pub fn random_hex<const BYTES: usize>() -> String {
    let bytes: [u8; BYTES] = rand::random();
    // Not formatted with `{:x}`: every plugin call makes one, and the formatter takes longer than the generator.
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]);
    digits.filter_map(|digit| char::from_digit(digit.into(), 16)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_never_prints() {
        let secret = Secret::new("hunter2".into());
        assert_eq!(format!("{secret} {secret:?} {:?}", Some(&secret)), "*** *** Some(***)");
        assert_eq!(secret.expose(), "hunter2");
    }

    #[test]
    fn a_random_secret_has_256_bits_and_is_never_the_same() {
        let one = Secret::random();
        let two = Secret::random();
        assert_eq!(one.expose().len(), 64);
        assert!(one.expose().bytes().all(|digit| digit.is_ascii_hexdigit()));
        assert_ne!(one, two);
    }
}
