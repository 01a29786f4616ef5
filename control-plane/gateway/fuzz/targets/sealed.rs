//! Any bytes as what a client holds sealed (sessions, cursors, request states, ids of events): no panic; nothing opens but
//! what was sealed, for what and whom it was sealed; the inside of a request state is written in one way only.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../protocols/src/request_state/plain.rs"]
mod plain;
#[allow(dead_code)]
#[path = "../../call/src/seal.rs"]
mod seal;

use plain::RequestState;
use seal::{Purpose, Sealer};

const PURPOSES: [Purpose; 4] = [Purpose::Session, Purpose::Cursor, Purpose::RequestState, Purpose::Event];

/// Nobody knows this key.
static SEALER: LazyLock<Sealer> = LazyLock::new(|| {
    let mut key = [0; 32];
    aws_lc_rs::rand::fill(&mut key).unwrap();
    Sealer::new(&key, None).unwrap()
});

fuzz_target!(|bytes: &[u8]| {
    if let Some(plain) = RequestState::decode(bytes) {
        assert_eq!(plain.encode(), bytes);
    }
    let [kind, place, rest @ ..] = bytes else { return };
    let purpose = PURPOSES[usize::from(*kind) % PURPOSES.len()];
    let (context, inside) = rest.split_at(usize::from(*place) % (rest.len() + 1));
    let text = String::from_utf8_lossy(inside);
    assert_eq!(SEALER.open(purpose, context, &text), None);

    let sealed = SEALER.seal(purpose, context, inside).unwrap();
    // What a client could not send back is not read.
    let opened = (sealed.len() <= 8 << 10).then_some(inside);
    assert_eq!(SEALER.open(purpose, context, &sealed).as_deref(), opened);
    for other in PURPOSES {
        assert!(other == purpose || SEALER.open(other, context, &sealed).is_none());
    }
    assert_eq!(SEALER.open(purpose, &[context, b"x"].concat(), &sealed), None);
    let mut altered = sealed.clone().into_bytes();
    let at = (usize::from(*kind) << 8 | usize::from(*place)) % altered.len();
    altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
    assert_eq!(SEALER.open(purpose, context, std::str::from_utf8(&altered).unwrap()), None);
    assert_eq!(SEALER.open(purpose, context, &sealed[..at]), None);
});
