use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};

use super::*;

/// A hybrid card, and the bytes that `_canonicalize_agent_card` of a2a-sdk 1.3.0 makes of it.
const CARD: &str = include_str!("card.json");
const PAYLOAD: &str = include_str!("payload.txt");
/// A card that a2a-sdk 0.3.26 has signed with the key of RFC 8037, appendix A.
const CARD_03: &str = include_str!("card_03.json");
/// Signatures of these bytes by OpenSSL, with the keys of RFC 7515, appendix A.3, and RFC 8037, appendix A.
const ES256: [&str; 2] = [
    "eyJhbGciOiJFUzI1NiIsInR5cCI6IkpPU0UiLCJraWQiOiJlcyJ9",
    "HxSgBB9ceZqFa3IVe7g9fPUmhj3ItHqyISjM2ScgHnEqKbWTz0LzO6LVu5SDZ7DJyRUX5uxQHoh5ix7cQ3cI6A",
];
const EDDSA: [&str; 2] = [
    "eyJhbGciOiJFZERTQSIsInR5cCI6IkpPU0UiLCJraWQiOiJlZCIsImprdSI6Imh0dHBzOi8vYWdlbnRzLmV4YW1wbGUub3JnL2p3a3MuanNvbiJ9",
    "PEDeQU9I6SGF1rc33tZVuC6jP3gEONxDEE8j9kayrr0lxDzpv5XQBNbre82kU-myq9VBYQF8raYPERtSL7VyCg",
];
const KEYS: &str = r#"{"keys":[
    {"kty":"RSA","n":"AQAB","e":"AQAB","kid":"rsa"},
    {"kty":"EC","crv":"P-256","kid":"es","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"},
    {"kty":"OKP","crv":"Ed25519","kid":"ed","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}
]}"#;
const ED25519_SEED: &str = "nWGxne_9WmC6hEr0kuwsxERJxWl7MmkZcDusAxyuf2A";

fn card(text: &str) -> Json {
    Json::parse(text.trim().as_bytes()).unwrap()
}

fn signed(signatures: &[[&str; 2]]) -> Json {
    let mut members = Members::of(&card(CARD));
    let all: Vec<Value> = signatures
        .iter()
        .map(|[protected, signature]| json!({"protected": protected, "signature": signature}))
        .collect();
    members.insert("signatures", Value::Array(all));
    members.to_json()
}

/// Signs as the platform's key of Ed25519 would, which yields the same bytes every time.
fn ed25519(message: &[u8]) -> Option<Vec<u8>> {
    let seed = URL_SAFE_NO_PAD.decode(ED25519_SEED).ok()?;
    let pair = Ed25519KeyPair::from_seed_unchecked(&seed).ok()?;
    Some(pair.sign(message).as_ref().to_vec())
}

#[test]
fn the_payload_is_that_of_the_official_sdk() {
    // Interop bug 12: 1.0 projection, no defaults, not ASCII.
    assert_eq!(payloads(&card(CARD)).unwrap(), [PAYLOAD]);
}

#[test]
fn signatures_of_another_implementation_verify() {
    let keys = CardKey::of_jwks(KEYS);
    assert_eq!(keys.len(), 2);
    for (signature, kid) in [(ES256, "es"), (EDDSA, "ed")] {
        let found = verify(&signed(&[signature]), &keys).unwrap();
        assert_eq!(found.kid.as_deref(), Some(kid));
    }
    let jku = verify(&signed(&[EDDSA]), &keys).unwrap().jku;
    assert_eq!(jku.as_deref(), Some("https://agents.example.org/jwks.json"));
    // One good signature is enough, as during a rotation of keys.
    let bad = [EDDSA[0], ES256[1]];
    assert!(verify(&signed(&[bad, ES256]), &keys).is_ok());
}

/// It leaves out what is empty or a default, and escapes what is not ASCII.
#[test]
fn a_card_that_the_python_sdk_for_0_3_has_signed_verifies_and_a_changed_one_does_not() {
    let keys = CardKey::of_jwks(KEYS);
    assert_eq!(verify(&card(CARD_03), &keys).unwrap().kid.as_deref(), Some("ed"));
    for (from, to) in [("Ágent", "Agent"), ("a.example", "b.example"), ("\"Bearer\"", "\"Basic\"")] {
        assert!(CARD_03.contains(from));
        let changed = card(&CARD_03.replace(from, to));
        assert_eq!(verify(&changed, &keys), Err(VerifyFault::Mismatch), "{from}");
    }
}

#[test]
fn a_changed_byte_is_refused() {
    let keys = CardKey::of_jwks(KEYS);
    let text = signed(&[ES256, EDDSA]).text().to_owned();
    for (from, to) in [
        ("Größe", "Grösse"),
        ("\"version\":\"1.0.0\"", "\"version\":\"1.0.1\""),
        ("demo:call\"]}}", "demo:all\"]}}"),
    ] {
        assert!(text.contains(from));
        assert_eq!(verify(&card(&text.replace(from, to)), &keys), Err(VerifyFault::Mismatch), "{from}");
    }
    // What 1.0 does not have is not covered: fields of 0.3 and unknown ones.
    assert!(verify(&card(&text.replace("\"preferredTransport\":\"JSONRPC\"", "\"x\":1")), &keys).is_ok());
    assert_eq!(verify(&signed(&[[ES256[0], EDDSA[1]]]), &keys), Err(VerifyFault::Mismatch));
    let long = format!("{}AA", ES256[1]);
    assert_eq!(verify(&signed(&[[ES256[0], &long]]), &keys), Err(VerifyFault::Mismatch));
}

#[test]
fn only_known_keys_and_algorithms_count() {
    let keys = CardKey::of_jwks(KEYS);
    assert_eq!(verify(&card(CARD), &keys), Err(VerifyFault::Unsigned));
    assert_eq!(verify(&signed(&[ES256]), &[]), Err(VerifyFault::UnknownKey));
    assert_eq!(verify(&signed(&[ES256]), &keys[1..]), Err(VerifyFault::UnknownKey));
    for header in [
        r#"{"alg":"none","kid":"es"}"#,
        r#"{"alg":"HS256","kid":"es"}"#,
        r#"{"alg":"ES256","kid":"es","crit":["x"]}"#,
        r#"{"alg":"ES256","kid":"es","b64":false}"#,
        "[]",
    ] {
        let protected = URL_SAFE_NO_PAD.encode(header);
        assert_eq!(verify(&signed(&[[&protected, ES256[1]]]), &keys), Err(VerifyFault::Unsigned), "{header}");
    }
    // A key without an id is tried for every signature of its algorithm.
    let unnamed = CardKey { kid: None, ..keys[0].clone() };
    assert!(verify(&signed(&[ES256]), &[unnamed]).is_ok());
    let repeated = signed(&[ES256]).text().replace("\"name\":\"Echo\"", "\"name\":\"x\",\"name\":\"Echo\"");
    assert!(matches!(verify(&card(&repeated), &keys), Err(VerifyFault::NotCanonical(_))));
}

#[test]
fn our_signatures_are_those_of_another_implementation() {
    let signer = CardSigner {
        algorithm: Algorithm::EdDsa,
        kid: "ed",
        jku: Some("https://agents.example.org/jwks.json"),
        sign: &ed25519,
    };
    assert_eq!(sign(&card(CARD), &[signer]).unwrap().text(), signed(&[EDDSA]).text());
}

#[test]
fn a_key_has_its_thumbprint_by_rfc_7638() {
    let thumbprints: Vec<String> = CardKey::of_jwks(KEYS).iter().map(CardKey::thumbprint).collect();
    // The second one is in RFC 8037, appendix A.3.
    let expected =
        ["oKIywvGUpTVTyxMQ3bwIIeQUudfr_CkLMjCE19ECD-U", "kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k"];
    assert_eq!(thumbprints, expected);
}

#[test]
fn two_keys_sign_during_a_rotation() {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
    let es256 = |message: &[u8]| Some(pair.sign(&SystemRandom::new(), message).ok()?.as_ref().to_vec());
    let signers = [
        CardSigner { algorithm: Algorithm::Es256, kid: "new", jku: None, sign: &es256 },
        CardSigner { algorithm: Algorithm::EdDsa, kid: "ed", jku: None, sign: &ed25519 },
    ];
    // Signing again replaces.
    let signed = sign(&sign(&card(CARD), &signers).unwrap(), &signers).unwrap();
    assert_eq!(CardSignature::all_of(&signed).len(), 2);
    let point = pair.public_key().as_ref();
    let jwk = json!({
        "kty": "EC", "crv": "P-256", "kid": "new",
        "x": URL_SAFE_NO_PAD.encode(&point[1..33]), "y": URL_SAFE_NO_PAD.encode(&point[33..])
    });
    let new = CardKey::of_jwk(&jwk.to_string()).unwrap();
    assert_eq!(verify(&signed, &[new]).unwrap().kid.as_deref(), Some("new"));
    assert_eq!(verify(&signed, &CardKey::of_jwks(KEYS)).unwrap().kid.as_deref(), Some("ed"));

    let broken = CardSigner { algorithm: Algorithm::EdDsa, kid: "x", jku: None, sign: &|_| None };
    assert_eq!(sign(&card(CARD), &[broken]), Err(SignFault::Key));
}

#[test]
fn a_card_with_two_canonical_forms_is_signed_in_both() {
    // A requirement without scopes: the SDKs drop it, the specification does not.
    let text = CARD.replace(r#"{"list":["demo:call"]}"#, "{}");
    let signer = CardSigner { algorithm: Algorithm::EdDsa, kid: "ed", jku: None, sign: &ed25519 };
    let signed = sign(&card(&text), &[signer]).unwrap();
    assert_eq!(CardSignature::all_of(&signed).len(), 2);
    assert!(verify(&signed, &CardKey::of_jwks(KEYS)).is_ok());
}
