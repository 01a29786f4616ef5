//! Any bytes as a sealed record of the vault: no panic; nothing opens but what was sealed, at its place and under its key; the
//! id of the key is the one in the record.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../../vault/src/error.rs"]
mod error;
#[allow(dead_code)]
#[path = "../../../vault/src/key_service.rs"]
mod key_service;
#[allow(dead_code)]
#[path = "../../../vault/src/place.rs"]
mod place;
#[allow(dead_code)]
#[path = "../../../vault/src/record.rs"]
mod record;

use key_service::{DataKey, WrappedKey};
use place::Place;
use record::{MAX_SEALED, Record, encrypt, key_id_of};

/// Nobody knows this key.
static KEY: LazyLock<DataKey> = LazyLock::new(|| DataKey::random().unwrap());

const PLACE: Place<'static> = Place { tenant: "acme", table: "linked_accounts", row: "bob" };

fuzz_target!(|bytes: &[u8]| {
    if let Ok(record) = Record::parse(bytes) {
        assert!(bytes.len() <= MAX_SEALED);
        assert_eq!(key_id_of(bytes), Some(format!("{}:{}", record.service, record.key_id)));
        assert!(record.decrypt(&KEY, &PLACE).is_err());
    } else {
        assert_eq!(key_id_of(bytes), None);
    }
    let [at, length, rest @ ..] = bytes else { return };
    let (wrapped, plain) = rest.split_at(usize::from(*length) % (rest.len() + 1));
    let wrapped = WrappedKey { key_id: "k1".to_owned(), bytes: wrapped.to_vec() };
    let Ok(sealed) = encrypt(("local", &wrapped), &KEY, &PLACE, plain) else { return };
    let record = Record::parse(&sealed).unwrap();
    assert_eq!(record.wrapped_key(), wrapped);
    assert_eq!(record.decrypt(&KEY, &PLACE).unwrap().as_slice(), plain);
    assert!(record.decrypt(&KEY, &Place { row: "eve", ..PLACE }).is_err());
    let mut altered = sealed.clone();
    let index = (usize::from(*at) << 8 | usize::from(*length)) % altered.len();
    altered[index] ^= 1;
    assert!(Record::parse(&altered).and_then(|record| record.decrypt(&KEY, &PLACE)).is_err());
    assert!(Record::parse(&sealed[..index]).and_then(|record| record.decrypt(&KEY, &PLACE)).is_err());
});
