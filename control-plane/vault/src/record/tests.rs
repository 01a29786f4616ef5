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
