//! Both checkers against published signatures and throw-away keys, and the choice between them.

use std::cell::RefCell;

use asp_edge::testkit::Keys;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use prost::Message;

use super::*;

/// Last arguments of the host's function.
#[derive(Clone, PartialEq, Message)]
struct HashCall {
    #[prost(string, tag = "1")]
    hash_function: String,
    #[prost(bytes = "vec", tag = "2")]
    public_key: Vec<u8>,
    #[prost(bytes = "vec", tag = "3")]
    signature: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    text: Vec<u8>,
}

thread_local! {
    static ASKED: RefCell<Vec<HashCall>> = const { RefCell::new(Vec::new()) };
}

fn yes(_: &str, arguments: &[u8]) -> ForeignResult {
    ASKED.with_borrow_mut(|asked| asked.push(HashCall::decode(arguments).unwrap()));
    ForeignResult::Answer(vec![8, 1])
}

fn no(_: &str, _: &[u8]) -> ForeignResult {
    ForeignResult::Answer(vec![])
}

fn refused(_: &str, _: &[u8]) -> ForeignResult {
    ForeignResult::Refused
}

fn absent(_: &str, _: &[u8]) -> ForeignResult {
    ASKED.with_borrow_mut(|asked| asked.push(HashCall::default()));
    ForeignResult::Absent
}

const ALGORITHMS: [(&str, Algorithm); 6] = [
    ("dev", Algorithm::ES256),
    ("es384", Algorithm::ES384),
    ("rs256", Algorithm::RS256),
    ("rs384", Algorithm::RS384),
    ("rs512", Algorithm::RS512),
    ("eddsa", Algorithm::EdDSA),
];

fn decoding_key(keys: &Keys, name: &str) -> DecodingKey {
    let jwk = keys.jwk(name);
    let member = |member: &str| URL_SAFE_NO_PAD.decode(jwk[member].as_str().unwrap()).unwrap();
    match jwk["kty"].as_str().unwrap() {
        "RSA" => DecodingKey::from_rsa_raw_components(&member("n"), &member("e")),
        "EC" => DecodingKey::from_ec_der(&[vec![4], member("x"), member("y")].concat()),
        _ => DecodingKey::from_ed_der(&member("x")),
    }
}

fn check(keys: &Keys, name: &str, algorithm: Algorithm, message: &[u8], signature: &[u8]) -> bool {
    let check = Check { key: decoding_key(keys, name), algorithm };
    check.verify(message, &signature.to_vec()).is_ok()
}

#[test]
fn pure_rust_checks_every_algorithm() {
    FOREIGN.set(None);
    let keys = Keys::shared();
    for (name, algorithm) in ALGORITHMS {
        let mut signature = keys.sign(name, b"message");
        assert!(check(keys, name, algorithm, b"message", &signature), "{name}");
        assert!(!check(keys, name, algorithm, b"another", &signature), "{name}");
        assert!(!check(keys, name, algorithm, b"message", &[]), "{name}");
        assert!(!check(keys, name, algorithm, b"message", &vec![0; signature.len()]), "{name}");
        signature[7] ^= 1;
        assert!(!check(keys, name, algorithm, b"message", &signature), "{name}");
    }
}

#[test]
fn a_key_of_another_kind_checks_nothing() {
    FOREIGN.set(None);
    let keys = Keys::shared();
    for (name, _) in ALGORITHMS {
        for (other, algorithm) in ALGORITHMS {
            let signature = keys.sign(name, b"message");
            let same_kind = name == other;
            assert_eq!(
                check(keys, name, algorithm, b"message", &signature),
                same_kind,
                "{name} as {algorithm:?}"
            );
        }
    }
}

#[test]
fn the_host_is_asked_for_all_but_eddsa() {
    let keys = Keys::shared();
    FOREIGN.set(Some(yes));
    for (name, algorithm) in ALGORITHMS {
        ASKED.with_borrow_mut(Vec::clear);
        let signature = keys.sign(name, b"message");
        assert!(check(keys, name, algorithm, b"message", &signature), "{name}");
        let asked = ASKED.with_borrow(Vec::clone);
        if name == "eddsa" {
            assert!(asked.is_empty());
            continue;
        }
        assert_eq!(asked.len(), 1, "{name}");
        assert_eq!(asked[0].text, b"message");
        assert_eq!(asked[0].public_key[0], 0x30, "{name}: SubjectPublicKeyInfo is a sequence");
    }
    FOREIGN.set(Some(no));
    let signature = keys.sign("dev", b"message");
    assert!(!check(keys, "dev", Algorithm::ES256, b"message", &signature), "the host's no counts");
    FOREIGN.set(Some(refused));
    assert!(!check(keys, "dev", Algorithm::ES256, b"message", &signature), "a refusal is a no");
}

#[test]
fn a_host_without_the_function_is_asked_once() {
    let keys = Keys::shared();
    ASKED.with_borrow_mut(Vec::clear);
    FOREIGN.set(Some(absent));
    for _ in 0..3 {
        let signature = keys.sign("rs256", b"message");
        assert!(check(keys, "rs256", Algorithm::RS256, b"message", &signature));
    }
    assert_eq!(ASKED.with_borrow(Vec::len), 1);
}

/// RFC 8037 appendix A.4.
#[test]
fn the_published_ed25519_signature_is_good() {
    FOREIGN.set(None);
    let point = URL_SAFE_NO_PAD.decode("11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo").unwrap();
    let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let signature = URL_SAFE_NO_PAD
        .decode("hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg")
        .unwrap();
    let check = Check { key: DecodingKey::from_ed_der(&point), algorithm: Algorithm::EdDSA };
    assert!(check.verify(message, &signature).is_ok());
}

/// RFC 7515 appendix A.3.
#[test]
fn the_published_es256_signature_is_good() {
    FOREIGN.set(None);
    let part = |text: &str| URL_SAFE_NO_PAD.decode(text).unwrap();
    let x = part("f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU");
    let y = part("x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0");
    let message = b"eyJhbGciOiJFUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature =
        part("DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q");
    let check =
        Check { key: DecodingKey::from_ec_der(&[vec![4], x, y].concat()), algorithm: Algorithm::ES256 };
    assert!(check.verify(message, &signature).is_ok());
}
