//! Any bytes as an agent card: no panic; a canonical form is JSON, has one form, and is its own; nothing verifies but what was
//! signed.
#![no_main]

use asp_a2a::card::{self, AgentCard, Algorithm, CardKey, CardSigner};
use asp_json::Json;
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = std::str::from_utf8(bytes).map(CardKey::of_jwks);
    let Ok(json) = Json::parse(bytes) else { return };
    for skill in AgentCard::read(&json).into_iter().flat_map(|agent| agent.skills) {
        assert!(skill.to_item()["inputSchema"].is_object(), "every skill has a schema");
    }
    let Ok(text) = card::canonical(&json) else { return };
    let again = Json::parse(text.as_bytes()).expect("a canonical form is JSON");
    assert_eq!(card::canonical(&again).as_deref(), Ok(text.as_str()));

    let pair = Ed25519KeyPair::from_seed_unchecked(&[7; 32]).unwrap();
    let x = URL_SAFE_NO_PAD.encode(pair.public_key().as_ref());
    let key = CardKey::of_jwk(&format!(r#"{{"kty":"OKP","crv":"Ed25519","x":"{x}","kid":"k"}}"#)).unwrap();
    // Nobody but the lines below has the key.
    assert!(card::verify(&json, &[key.clone()]).is_err());
    if !json.is_object() {
        return;
    }
    let sign = |message: &[u8]| Some(pair.sign(message).as_ref().to_vec());
    let signer = CardSigner { algorithm: Algorithm::EdDsa, kid: "k", jku: None, sign: &sign };
    let signed = card::sign(&json, &[signer]).expect("it has a canonical form");
    assert!(card::verify(&signed, &[key]).is_ok());
});
