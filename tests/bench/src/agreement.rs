//! Whether the native chain and the filter let the same requests through and refuse the same: a comparison
//! of their costs means nothing otherwise.

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use asp_e2e::http1::{self, Request};
use serde::Serialize;

use crate::chain::{MAX_BODY, ORIGIN, SERVER};
use crate::issuer::Issuer;

/// One request's fate at both.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Agreement {
    pub case: &'static str,
    pub passes: bool,
    pub native_status: u16,
    pub filter_status: u16,
}

struct Case {
    name: &'static str,
    passes: bool,
    path: String,
    token: Option<String>,
    origin: Option<&'static str>,
    body: Vec<u8>,
}

/// Sends every case to both; an answer that is not as it should be is an error.
pub(crate) async fn check(
    native: SocketAddr,
    filter: SocketAddr,
    issuer: &Issuer,
    audience: &str,
) -> Result<Vec<Agreement>> {
    let mut agreements = Vec::new();
    for case in cases(issuer, audience)? {
        let request = request(&case);
        let native_status = http1::send(native, &request).await?.status;
        let filter_status = http1::send(filter, &request).await?.status;
        for (chain, status) in [("native", native_status), ("filter", filter_status)] {
            let as_expected = if case.passes { status == 200 } else { (400..500).contains(&status) };
            ensure!(as_expected, "{}: the {chain} chain answers {status}", case.name);
        }
        agreements.push(Agreement { case: case.name, passes: case.passes, native_status, filter_status });
    }
    Ok(agreements)
}

fn cases(issuer: &Issuer, audience: &str) -> Result<Vec<Case>> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let good = issuer.mint(audience, "user-00");
    let good_body =
        r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{}}}"#;
    let tampered = good.replace("eyJ", "eyK");
    let case = |name, passes| Case {
        name,
        passes,
        path: format!("/{SERVER}/mcp"),
        token: Some(good.clone()),
        origin: None,
        body: good_body.into(),
    };
    let token = |name, token: Option<String>| Case { token, ..case(name, false) };
    let body = |name, body: &str| Case { body: body.into(), ..case(name, false) };
    let oversize = good_body.replace("echo", &"e".repeat(MAX_BODY as usize));
    Ok(vec![
        case("a good call", true),
        Case { origin: Some(ORIGIN), ..case("the allowed Origin", true) },
        Case { origin: Some("https://evil.example"), ..case("a foreign Origin", false) },
        Case { path: "/nothing/mcp".into(), ..case("an unknown server", false) },
        token("no token", None),
        token("a tampered token", Some(tampered)),
        token("an expired token", Some(issuer.mint_until(audience, "user-00", now - 600))),
        token("another audience", Some(issuer.mint("https://other.example", "user-00"))),
        body("no JSON", "hello"),
        body("no JSON-RPC", r#"{"id":1}"#),
        body(
            "a duplicate key",
            r#"{"jsonrpc":"2.0","id":1,"method":"ping","method":"tools/call","params":{"name":"echo"}}"#,
        ),
        body("a batch", &format!("[{good_body},{good_body}]")),
        body("an oversize body", &oversize),
    ])
}

fn request(case: &Case) -> Request {
    let mut headers = vec![
        ("content-type", "application/json".to_string()),
        ("accept", "application/json, text/event-stream".to_string()),
        ("mcp-protocol-version", "2025-11-25".to_string()),
    ];
    headers.extend(case.token.iter().map(|token| ("authorization", format!("Bearer {token}"))));
    headers.extend(case.origin.iter().map(|origin| ("origin", origin.to_string())));
    Request {
        method: "POST".into(),
        target: case.path.clone(),
        headers: headers.into_iter().map(|(name, value)| (name.to_string(), value.into_bytes())).collect(),
        body: case.body.clone(),
    }
}
