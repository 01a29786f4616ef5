//! Any bytes as what Envoy tells of a client's certificate: no panic; the URI that is read stands last, and nothing that
//! could be a mark of the header is in it; what was read is read so again when it is written as Envoy writes it.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../src/http/client_certificate.rs"]
mod client_certificate;

use client_certificate::{MAX_BYTES, parse};

fuzz_target!(|bytes: &[u8]| {
    let Ok(certificate) = parse(bytes) else { return };
    assert!(bytes.len() <= MAX_BYTES && !bytes.contains(&0));
    let text = std::str::from_utf8(bytes).expect("it was text");
    let hash: String = certificate.fingerprint.iter().map(|byte| format!("{byte:02x}")).collect();
    assert!(text.to_ascii_lowercase().contains(&hash));
    if let Some(uri) = &certificate.uri {
        assert!(!uri.is_empty() && text.ends_with(uri.as_str()) && !uri.contains([';', ',', '"']));
    }
    let uri = certificate.uri.as_deref().unwrap_or_default();
    let again = parse(format!("Hash={hash};URI={uri}").as_bytes()).expect("Envoy writes it so");
    assert_eq!((again.fingerprint, &again.uri), (certificate.fingerprint, &certificate.uri));
});
