//! Any bytes as the signature of an agent card and as the keys for it: no panic; a header with critical extensions is of no
//! signature; a card is verified by no key but that which signed it, and not if a character of it or of its signature is another.
//!
//! Input: a line with the protected header, a line with the signature, and a JSON Web Key Set.
#![no_main]

use std::sync::LazyLock;

use asp_a2a::card::{self, Algorithm, CardKey, CardSignature, CardSigner};
use asp_json::Json;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;
use serde_json::{Value, json};

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A card with one signature, and the key that verifies it. Only this has the key that signs.
static SIGNED: LazyLock<(Value, CardKey)> = LazyLock::new(|| {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    let key = CardKey::of_jwk(&format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}"}}"#)).unwrap();
    let sign = |message: &[u8]| Some(pair.sign(message).as_ref().to_vec());
    let signer = CardSigner { algorithm: Algorithm::EdDsa, kid: "k", jku: None, sign: &sign };
    let signed = card::sign(&json_of(&card("A")), &[signer]).unwrap();
    let mut signed: Value = serde_json::from_str(signed.text()).unwrap();
    signed["signatures"].as_array_mut().unwrap().truncate(1);
    (signed, key)
});

fn card(name: &str) -> Value {
    json!({"name": name, "description": "d", "version": "1"})
}

fn json_of(value: &Value) -> Json {
    Json::parse(value.to_string().as_bytes()).unwrap()
}

fuzz_target!(|bytes: &[u8]| {
    let (signed, key) = &*SIGNED;
    let keys = std::slice::from_ref(key);
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.splitn(3, '\n');
    let [header, signature, set] = [(); 3].map(|()| lines.next().unwrap_or_default());
    let others = CardKey::of_jwks(set);
    assert!(others.len() <= 16 && others.iter().all(|other| other.thumbprint().len() == 43));
    let is_critical =
        asp_json::named(header, ["crit", "b64"]).is_some_and(|members| members.iter().any(Option::is_some));
    // The header is encoded here as well, because that is hard to guess.
    for (protected, is_encoded) in [(URL_SAFE_NO_PAD.encode(header), true), (header.to_owned(), false)] {
        let mut forged = card("A");
        forged["signatures"] = json!([{"protected": protected, "signature": signature}]);
        let forged = json_of(&forged);
        assert!(!is_encoded || !is_critical || CardSignature::all_of(&forged).is_empty());
        let _ = card::verify(&forged, &others);
        assert!(card::verify(&forged, keys).is_err() || signed["signatures"][0]["signature"] == signature);
    }

    assert!(card::verify(&json_of(signed), keys).is_ok());
    let mut renamed = signed.clone();
    renamed["name"] = header.into();
    assert!(header == "A" || card::verify(&json_of(&renamed), keys).is_err());
    let [at, other, ..] = bytes else { return };
    let other = ALPHABET[usize::from(*other) % ALPHABET.len()];
    for name in ["protected", "signature"] {
        let mut altered = signed.clone();
        let mut text = altered["signatures"][0][name].as_str().unwrap().as_bytes().to_vec();
        let index = usize::from(*at) % text.len();
        if text[index] == other {
            continue;
        }
        text[index] = other;
        altered["signatures"][0][name] = String::from_utf8(text).unwrap().into();
        assert!(card::verify(&json_of(&altered), keys).is_err(), "{altered}");
    }
});
