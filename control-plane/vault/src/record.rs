//! The encoded form of a sealed record.
//!
//! Version (1 byte), key id and wrapped data key (each after its length in 2 bytes, big-endian), nonce (12 bytes),
//! ciphertext and tag of AES-256-GCM. All before the nonce is authenticated with the place of the record. Keeps true: a
//! text that is not of this form is refused before any key service is asked, and nothing is allocated by a length that
//! it claims.

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::error::VaultError;
use crate::key_service::{DataKey, WrappedKey};
use crate::place::Place;

/// Version of the form.
const VERSION: u8 = 1;
/// Label of the associated data: no other use of a data key has it.
const LABEL: &[u8] = b"asp/vault/1\0";
/// Length of the tag of AES-256-GCM in bytes.
const TAG_LEN: usize = 16;

/// Maximum length of a key id in bytes, with the name of its service. A Kubernetes KMS plugin may use 1,024.
pub const MAX_KEY_ID: usize = 1_100;
/// Maximum length of a wrapped data key in bytes. A Kubernetes KMS plugin may use 33 KiB, most of it for annotations.
pub const MAX_WRAPPED: usize = 34 * 1024;
/// Maximum length of a plaintext in bytes.
pub const MAX_PLAIN: usize = 64 * 1024;
/// Maximum length of a sealed record in bytes.
pub const MAX_SEALED: usize = 1 + 2 + MAX_KEY_ID + 2 + MAX_WRAPPED + NONCE_LEN + MAX_PLAIN + TAG_LEN;

/// Sealed record, split into its parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record<'a> {
    /// Name of the key service.
    pub(crate) service: &'a str,
    /// Id of the key at its service.
    pub(crate) key_id: &'a str,
    pub(crate) wrapped: &'a [u8],
    /// Everything before the nonce.
    header: &'a [u8],
    nonce: &'a [u8],
    ciphertext: &'a [u8],
}

/// Returns the id of the key under which a record is sealed, as `SERVICE:KEY`; `None` if the bytes are no sealed record.
/// It is not authenticated: for lists of the keys in use.
pub fn key_id_of(sealed: &[u8]) -> Option<String> {
    let record = Record::parse(sealed).ok()?;
    Some(full_key_id(record.service, record.key_id))
}

/// Returns the id of a key with the name of its service.
pub(crate) fn full_key_id(service: &str, key_id: &str) -> String {
    format!("{service}:{key_id}")
}

impl<'a> Record<'a> {
    pub(crate) fn parse(sealed: &'a [u8]) -> Result<Record<'a>, VaultError> {
        if sealed.len() > MAX_SEALED {
            return Err(VaultError::TooLarge { length: sealed.len(), limit: MAX_SEALED });
        }
        Record::split(sealed).ok_or(VaultError::NotOpened)
    }

    fn split(sealed: &'a [u8]) -> Option<Record<'a>> {
        let (version, rest) = sealed.split_first()?;
        if *version != VERSION {
            return None;
        }
        let (key_id, rest) = field(rest, MAX_KEY_ID)?;
        let (wrapped, rest) = field(rest, MAX_WRAPPED)?;
        let header = sealed.get(..sealed.len().checked_sub(rest.len())?)?;
        let (nonce, ciphertext) = rest.split_at_checked(NONCE_LEN)?;
        let is_bounded = (TAG_LEN..=MAX_PLAIN + TAG_LEN).contains(&ciphertext.len());
        let (service, key_id) = std::str::from_utf8(key_id).ok()?.split_once(':')?;
        let is_named = !service.is_empty() && !key_id.is_empty();
        (is_bounded && is_named).then_some(Record { service, key_id, wrapped, header, nonce, ciphertext })
    }

    /// Returns the wrapped data key in the form of its service.
    pub(crate) fn wrapped_key(&self) -> WrappedKey {
        WrappedKey { key_id: self.key_id.to_owned(), bytes: self.wrapped.to_vec() }
    }

    /// Decrypts the record.
    pub(crate) fn decrypt(
        &self,
        data_key: &DataKey,
        place: &Place<'_>,
    ) -> Result<Zeroizing<Vec<u8>>, VaultError> {
        let nonce = Nonce::try_assume_unique_for_key(self.nonce).map_err(|_| VaultError::NotOpened)?;
        let mut buffer = Zeroizing::new(self.ciphertext.to_vec());
        let aad = Aad::from(associated(self.header, place));
        let opened = aead_key(data_key)?.open_in_place(nonce, aad, &mut buffer);
        let length = opened.map_err(|_| VaultError::NotOpened)?.len();
        buffer.truncate(length);
        Ok(buffer)
    }
}

/// Encrypts `plain` under a data key and returns the sealed record.
pub(crate) fn encrypt(
    (service, wrapped): (&str, &WrappedKey),
    data_key: &DataKey,
    place: &Place<'_>,
    plain: &[u8],
) -> Result<Vec<u8>, VaultError> {
    bounded(plain.len(), MAX_PLAIN)?;
    let mut sealed = vec![VERSION];
    push_field(&mut sealed, full_key_id(service, &wrapped.key_id).as_bytes(), MAX_KEY_ID)?;
    push_field(&mut sealed, &wrapped.bytes, MAX_WRAPPED)?;
    let aad = Aad::from(associated(&sealed, place));
    let mut nonce = [0_u8; NONCE_LEN];
    aws_lc_rs::rand::fill(&mut nonce).map_err(|_| VaultError::Crypto)?;
    sealed.extend_from_slice(&nonce);
    // With room for the tag, so that no copy of the plaintext stays in memory that was moved.
    let mut buffer = Zeroizing::new(Vec::with_capacity(plain.len() + TAG_LEN));
    buffer.extend_from_slice(plain);
    let nonce = Nonce::assume_unique_for_key(nonce);
    let key = aead_key(data_key)?;
    key.seal_in_place_append_tag(nonce, aad, &mut *buffer).map_err(|_| VaultError::Crypto)?;
    sealed.extend_from_slice(&buffer);
    Ok(sealed)
}

fn aead_key(data_key: &DataKey) -> Result<LessSafeKey, VaultError> {
    let key = UnboundKey::new(&AES_256_GCM, data_key.expose()).map_err(|_| VaultError::Crypto)?;
    Ok(LessSafeKey::new(key))
}

/// Returns the associated data of a record.
fn associated(header: &[u8], place: &Place<'_>) -> Vec<u8> {
    let length = (header.len() as u64).to_be_bytes();
    [LABEL, length.as_slice(), header, place.to_bytes().as_slice()].concat()
}

/// Splits off a field that follows its length.
fn field(bytes: &[u8], limit: usize) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_be_bytes(*length));
    if length > limit {
        return None;
    }
    rest.split_at_checked(length)
}

fn push_field(sealed: &mut Vec<u8>, field: &[u8], limit: usize) -> Result<(), VaultError> {
    bounded(field.len(), limit)?;
    let length = u16::try_from(field.len());
    let length = length.map_err(|_| VaultError::TooLarge { length: field.len(), limit })?;
    sealed.extend_from_slice(&length.to_be_bytes());
    sealed.extend_from_slice(field);
    Ok(())
}

fn bounded(length: usize, limit: usize) -> Result<(), VaultError> {
    if length > limit { Err(VaultError::TooLarge { length, limit }) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place<'static> = Place { tenant: "acme", table: "linked_accounts", row: "bob/github" };

    fn wrapped() -> WrappedKey {
        WrappedKey { key_id: "k1".to_owned(), bytes: b"wrapped".to_vec() }
    }

    fn sealed(data_key: &DataKey) -> Vec<u8> {
        encrypt(("local", &wrapped()), data_key, &PLACE, b"token").unwrap()
    }

    #[test]
    fn a_record_names_its_key_and_opens_at_its_place() {
        let data_key = DataKey::random().unwrap();
        let sealed = sealed(&data_key);
        let record = Record::parse(&sealed).unwrap();
        assert_eq!((record.service, record.wrapped_key()), ("local", wrapped()));
        assert_eq!(record.decrypt(&data_key, &PLACE).unwrap().as_slice(), b"token");
        assert_eq!(key_id_of(&sealed).as_deref(), Some("local:k1"));
        assert!(!sealed.windows(5).any(|window| window == b"token"));
    }

    #[test]
    fn every_altered_or_truncated_record_stays_shut() {
        let data_key = DataKey::random().unwrap();
        let sealed = sealed(&data_key);
        let open = |bytes: &[u8]| Record::parse(bytes).and_then(|record| record.decrypt(&data_key, &PLACE));
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut altered = sealed.clone();
                altered[at] ^= 1 << bit;
                assert_eq!(open(&altered).unwrap_err(), VaultError::NotOpened, "bit {bit} of byte {at}");
            }
            assert_eq!(open(&sealed[..at]).unwrap_err(), VaultError::NotOpened, "the first {at} bytes");
        }
        assert_eq!(open(&[&sealed[..], b"x"].concat()).unwrap_err(), VaultError::NotOpened);
    }

    #[test]
    fn a_record_opens_at_no_other_place_and_under_no_other_key() {
        let data_key = DataKey::random().unwrap();
        let sealed = sealed(&data_key);
        let record = Record::parse(&sealed).unwrap();
        for place in [
            Place { tenant: "other", ..PLACE },
            Place { table: "other", ..PLACE },
            Place { row: "eve/github", ..PLACE },
            Place { tenant: "acmel", table: "inked_accounts", ..PLACE },
        ] {
            assert_eq!(record.decrypt(&data_key, &place).unwrap_err(), VaultError::NotOpened, "{place:?}");
        }
        let other = DataKey::random().unwrap();
        assert_eq!(record.decrypt(&other, &PLACE).unwrap_err(), VaultError::NotOpened);
    }

    #[test]
    fn malformed_records_are_refused_before_any_key_is_used() {
        let field = |bytes: &[u8]| [&u16::try_from(bytes.len()).unwrap().to_be_bytes()[..], bytes].concat();
        let record = |version: u8, key_id: &[u8], wrapped: &[u8], rest: usize| {
            [vec![version], field(key_id), field(wrapped), vec![0; rest]].concat()
        };
        let least = NONCE_LEN + TAG_LEN;
        assert!(Record::parse(&record(1, b"local:k", b"", least)).is_ok());
        for (name, bytes) in [
            ("empty", Vec::new()),
            ("version 0", record(0, b"local:k", b"", least)),
            ("version 2", record(2, b"local:k", b"", least)),
            ("no service", record(1, b"k", b"", least)),
            ("empty service", record(1, b":k", b"", least)),
            ("empty key id", record(1, b"local:", b"", least)),
            ("key id not UTF-8", record(1, b"local:\xff", b"", least)),
            ("long key id", record(1, &[b':'; MAX_KEY_ID + 1], b"", least)),
            ("long wrapped key", record(1, b"local:k", &vec![0; MAX_WRAPPED + 1], least)),
            ("no tag", record(1, b"local:k", b"", least - 1)),
            ("length beyond the end", vec![1, 0xff, 0xff, b'a']),
            ("half a length", vec![1, 0]),
        ] {
            assert_eq!(Record::parse(&bytes).unwrap_err(), VaultError::NotOpened, "{name}");
            assert_eq!(key_id_of(&bytes), None, "{name}");
        }
        let long = record(1, b"local:k", b"", MAX_SEALED);
        assert!(matches!(Record::parse(&long), Err(VaultError::TooLarge { limit: MAX_SEALED, .. })));
    }

    #[test]
    fn lengths_are_bounded_when_sealing() {
        let data_key = DataKey::random().unwrap();
        let seal = |wrapped: &WrappedKey, plain: &[u8]| encrypt(("local", wrapped), &data_key, &PLACE, plain);
        let largest = seal(&wrapped(), &vec![7; MAX_PLAIN]).unwrap();
        assert!(Record::parse(&largest).is_ok());
        assert!(matches!(seal(&wrapped(), &vec![7; MAX_PLAIN + 1]), Err(VaultError::TooLarge { .. })));
        let long_id = WrappedKey { key_id: "k".repeat(MAX_KEY_ID), ..wrapped() };
        assert!(matches!(seal(&long_id, b""), Err(VaultError::TooLarge { .. })));
        let long_key = WrappedKey { bytes: vec![0; MAX_WRAPPED + 1], ..wrapped() };
        assert!(matches!(seal(&long_key, b""), Err(VaultError::TooLarge { .. })));
    }
}
