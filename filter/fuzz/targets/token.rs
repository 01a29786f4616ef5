//! Any text as a bearer token: no panic, and no result other than a token_* refusal (the private key is unknown).
//!
//! Input: either a whole token, or `header NUL claims`, which are encoded here so that the fuzzer gets past base64.
#![no_main]

use std::sync::OnceLock;

use asp_edge::{Edge, Env, EdgeRole, Snapshot, Step, Verdict};
use asp_proto::snapshot::{AuthScheme, EdgeServer, EdgeSnapshot, Issuer, Key, Protocol};
use libfuzzer_sys::fuzz_target;

/// Public key from RFC 7515 appendix A.3.1.
const JWK: &str = r#"{"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"}"#;

fuzz_target!(|input: &[u8]| {
    static BENCH: OnceLock<(Snapshot, Edge)> = OnceLock::new();
    let (snapshot, edge) = BENCH.get_or_init(bench);
    let token = match input.iter().position(|byte| *byte == 0) {
        Some(end) => format!("{}.{}.{}", encode(&input[..end]), encode(&input[end + 1..]), encode(&[7; 64]))
            .into_bytes(),
        None => input.to_vec(),
    };
    let headers = [
        (":method".to_owned(), b"GET".to_vec()),
        (":path".to_owned(), b"/jwt/mcp".to_vec()),
        ("authorization".to_owned(), [b"Bearer ".as_slice(), &token].concat()),
    ];
    let env = Env { now_ms: 2_000_000_000_000, random: [1; 8], trace: asp_edge::Trace::new([1; 24]) };
    match edge.on_headers(snapshot, &headers, true, &env) {
        Step::Decided(Verdict::Reply(reply)) => assert!(matches!(reply.status, 400 | 401)),
        _ => panic!("a token nobody signed was let through"),
    }
});

fn bench() -> (Snapshot, Edge) {
    let message = EdgeSnapshot {
        revision: 1,
        public_url: "https://h".into(),
        servers: vec![EdgeServer {
            name: "jwt".into(),
            protocols: vec![Protocol::Mcp as i32],
            default_allow: true,
            schemes: vec![AuthScheme::Jwt as i32],
            issuers: vec!["dev".into()],
            ..EdgeServer::default()
        }],
        issuers: vec![Issuer {
            name: "dev".into(),
            iss: "i".into(),
            keys: vec![Key { kid: "k".into(), alg: "ES256".into(), jwk: JWK.into() }],
            ..Issuer::default()
        }],
        ..EdgeSnapshot::default()
    };
    (Snapshot::from_message(message).expect("a good snapshot"), Edge::new(EdgeRole::Gateway))
}

/// Encodes base64url without padding.
fn encode(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let word =
            chunk.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for position in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(word >> (18 - 6 * position)) as usize & 63]));
        }
    }
    text
}
