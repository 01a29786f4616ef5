//! Secret text and bytes: they print as `***` wherever they are formatted, and their memory is cleared when they are
//! dropped.

use std::path::Path;
use std::{fmt, io};

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

/// Secret bytes, for example the key in a file. Only [`SecretBytes::expose`] returns them.
pub struct SecretBytes(Zeroizing<Vec<u8>>);

impl SecretBytes {
    pub fn new(bytes: Vec<u8>) -> SecretBytes {
        SecretBytes(Zeroizing::new(bytes))
    }

    /// Generates 256 random bits.
    pub fn random() -> SecretBytes {
        let bytes = Zeroizing::new(rand::random::<[u8; RANDOM_BYTES]>());
        SecretBytes(Zeroizing::new(bytes.to_vec()))
    }

    /// Reads the content of a file.
    pub fn read(path: &Path) -> io::Result<SecretBytes> {
        Ok(SecretBytes(Zeroizing::new(std::fs::read(path)?)))
    }

    pub fn expose(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for SecretBytes {
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
    fn secret_bytes_are_those_of_the_file_and_never_print() {
        let file = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml"));
        let read = SecretBytes::read(file).unwrap();
        assert_eq!(read.expose(), std::fs::read(file).unwrap());
        assert_eq!(format!("{read:?}"), "***");
        let random = SecretBytes::random();
        assert_eq!(random.expose().len(), RANDOM_BYTES);
        assert_ne!(random.expose(), SecretBytes::random().expose());
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
