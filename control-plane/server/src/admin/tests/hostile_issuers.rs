//! Hostile documents and responses of issuers: none adds or replaces a key or redirects a request, and the operator
//! gets the reason.

use std::time::Duration;

use asp_issuers::refresh::ASKED_GAP;
use asp_store::control::Side;
use asp_xds::keys::RefreshKeys as _;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::StatusCode;
use serde_json::{Value, json};

use super::Api;
use super::issuers::{LOGIN, api, asked_again, key, kids, kids_of};
use super::publisher::{DISCOVERY, Page, Publisher};

const KEYS: &str = "/keys";
const NOT_JSON: &str = "it has an invalid form";

/// A document at a path, and part of the message that the operator gets.
struct Case {
    path: &'static str,
    page: Page,
    told: &'static str,
}

fn text(body: impl Into<String>) -> Page {
    Page::Text(StatusCode::OK, body.into())
}

fn case(path: &'static str, page: Page, told: &'static str) -> Case {
    Case { path, page, told }
}

/// Each at the metadata's place and at the keys'.
fn at_both(page: &Page, told: &'static str) -> [Case; 2] {
    [case(DISCOVERY, page.clone(), told), case(KEYS, page.clone(), told)]
}

/// Documents that are not a JSON object of the expected form.
fn documents(publisher: &Publisher) -> Vec<Case> {
    let good = json!({ "keys": [key("evil")] }).to_string();
    let origin = &publisher.origin;
    let mut cases = Vec::new();
    for body in [
        "",
        "<html>",
        "null",
        "7",
        "\"x\"",
        "[]",
        "{}",
        "{\"keys\": [",
        "{'keys': []}",
        "{\"keys\": NaN}",
        "{\"keys\": [], \"keys\": []}",
        "{\"keys\": null}",
        "{\"keys\": {}}",
        "{\"keys\": \"x\"}",
        "{\"keys\": 1e999}",
        "{\"keys\": [\"\\ud800\"]}",
    ] {
        cases.push(case(KEYS, text(body), NOT_JSON));
    }
    for body in [
        format!("{good}x"),
        format!("{good}{good}"),
        format!("\u{feff}{good}"),
        format!("/* */{good}"),
        format!("{{\"deep\": {}, {}", "[".repeat(500), &good[1..]),
        format!("{{\"keys\": {}{}}}", "[".repeat(10_000), "]".repeat(10_000)),
    ] {
        cases.push(case(KEYS, text(body), NOT_JSON));
    }
    cases.push(case(
        KEYS,
        Page::bytes(&[&good.as_bytes()[..10], b"\xff", &good.as_bytes()[10..]].concat()),
        NOT_JSON,
    ));
    let wide: Vec<u8> = good.encode_utf16().flat_map(u16::to_le_bytes).collect();
    cases.push(case(KEYS, Page::bytes(&wide), NOT_JSON));
    for body in [
        "<html>".to_owned(),
        "[".repeat(100_000),
        "[]".into(),
        format!("{{\"issuer\": \"{origin}\"}}"),
        format!("{{\"jwks_uri\": \"{origin}/keys\"}}"),
        format!("{{\"issuer\": \"{origin}\", \"issuer\": \"{origin}\", \"jwks_uri\": \"{origin}/keys\"}}"),
        format!("{{\"issuer\": [\"{origin}\"], \"jwks_uri\": \"{origin}/keys\"}}"),
        format!("{{\"issuer\": \"{origin}\", \"jwks_uri\": {{}}}}"),
        format!("{{\"issuer\": \"{origin}\", \"jwks_uri\": \"{origin}/keys\", \"token_endpoint\": 7}}"),
    ] {
        cases.push(case(DISCOVERY, text(body), NOT_JSON));
    }
    for page in [text(" ".repeat(300_000)), text(format!("{{\"x\": \"{}\"}}", "x".repeat(300_000)))] {
        cases.extend(at_both(&page, "too large"));
    }
    cases
}

/// Malformed responses, and responses that end differently than announced (RFC 9112).
fn answers() -> Vec<Case> {
    let mut cases = Vec::new();
    for status in [201, 204, 206, 304, 400, 401, 403, 404, 410, 429, 500, 503] {
        let status = StatusCode::from_u16(status).unwrap();
        cases.push(case(KEYS, Page::Text(status, String::new()), "status"));
    }
    cases.push(case(DISCOVERY, Page::Text(StatusCode::INTERNAL_SERVER_ERROR, String::new()), "status 500"));
    for (status, place) in [
        (301, "/keys"),
        (302, "/other"),
        (303, "http://169.254.169.254/"),
        (307, "https://127.0.0.1:1/"),
        (308, "file:///etc/passwd"),
    ] {
        let page = Page::To(StatusCode::from_u16(status).unwrap(), place.into());
        cases.extend(at_both(&page, "status 30"));
    }
    let endless = |headers: &str, again: &[u8]| {
        Page::Endless(format!("HTTP/1.1 200 OK\r\n{headers}\r\n").into_bytes(), again.to_vec())
    };
    let chunk = [b"1000\r\n".as_slice(), &[b' '; 0x1000], b"\r\n"].concat();
    for (page, told) in [
        (Page::of("content-length: 100\r\n", b"{}"), "was interrupted"),
        (Page::of("content-length: 99999999999\r\n", b"{}"), "was interrupted"),
        (Page::of("transfer-encoding: chunked\r\n", b"5\r\n{}"), "was interrupted"),
        (Page::of("transfer-encoding: chunked\r\n", b"xyz\r\n{}\r\n"), "was interrupted"),
        (Page::of("transfer-encoding: chunked\r\n", b"ffffffffffffffff1\r\n{}\r\n"), "was interrupted"),
        (endless("transfer-encoding: chunked\r\n", &chunk), "too large"),
        (endless("", &[b' '; 4_096]), "too large"),
        (endless("content-length: 1000000000\r\n", &[b'['; 4_096]), "too large"),
        (Page::of("content-length: -1\r\n", b"{}"), "content-length"),
        (Page::of("content-length: 2\r\ncontent-length: 3\r\n", b"{}x"), "content-length"),
        (Page::Raw(b"SSH-2.0-OpenSSH_9.2\r\n\r\n".to_vec()), "invalid HTTP"),
        (Page::Raw(b"HTTP/9.9 200 OK\r\n\r\n{}".to_vec()), "invalid HTTP"),
        (Page::Raw(b"{\"keys\": []}".to_vec()), "invalid HTTP"),
        (Page::Raw(Vec::new()), "connection closed"),
        (Page::Raw(b"HTTP/1.1 200 OK\r\ncontent-len".to_vec()), "connection closed"),
        (Page::Endless(b"HTTP/1.1 200 OK\r\n".to_vec(), b"x: yyyyyyyyyyyyyyyy\r\n".to_vec()), "message head"),
        (Page::Never(Vec::new()), "timed out"),
        (Page::Never(b"HTTP/1.1 200 OK\r\n".to_vec()), "timed out"),
        (Page::Never(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{".to_vec()), "was interrupted"),
        (Page::Never(b"HTTP/1.1 100 Continue\r\n\r\n".to_vec()), "timed out"),
    ] {
        cases.push(case(KEYS, page, told));
    }
    // 10 MB of zeros in a few bytes, under each name: nothing is unpacked.
    let bomb = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3, 0xed, 0xc1, 1, 1, 0, 0];
    for coding in ["gzip", "deflate", "br", "zstd", "gzip, gzip"] {
        let headers = format!("content-encoding: {coding}\r\ncontent-length: {}\r\n", bomb.len());
        cases.push(case(KEYS, Page::of(&headers, &bomb), NOT_JSON));
    }
    cases
}

/// Invalid keys.
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn keys() -> Vec<Case> {
    let mut cases: Vec<(Value, &'static str)> = Vec::new();
    let rsa = |bytes: usize, e: &str| {
        let mut n = vec![0xa5; bytes];
        n[bytes - 1] = 0x0f;
        json!({ "kty": "RSA", "kid": "rsa", "alg": "RS256", "n": URL_SAFE_NO_PAD.encode(n), "e": e })
    };
    for bits in [512, 768, 1_024, 2_040] {
        cases.push((json!([rsa(bits / 8, "AQAB")]), "it has no usable key"));
    }
    // Exponents of 0, 1 and 2, and one of 64 bits; a modulus of more room than a key may take.
    for e in ["", "AA", "AQ", "Ag", "__________8"] {
        cases.push((json!([rsa(256, e)]), "it has no usable key"));
    }
    cases.push((json!([rsa(2_048, "AQAB")]), "takes more than"));
    for alg in ["none", "HS256", "RS1", "PS256", "ES256K", "ES512", "RSA-OAEP", "dir", ""] {
        let mut bad = key("alg");
        bad["alg"] = json!(alg);
        cases.push((json!([bad]), "it has no usable key"));
    }
    let (zeros, ones) = (URL_SAFE_NO_PAD.encode([0; 32]), URL_SAFE_NO_PAD.encode([0xff; 32]));
    for (member, value) in [
        ("x", json!("")),
        ("x", json!("AA")),
        ("x", json!(zeros)),
        ("x", json!(ones)),
        ("x", json!(7)),
        ("x", json!("!!!!")),
        ("y", Value::Null),
        ("y", json!(zeros)),
        ("y", key("other")["y"].clone()),
        ("crv", json!("P-384")),
        ("crv", json!("P-521")),
        ("crv", json!("secp256k1")),
        ("crv", json!("p-256")),
        ("crv", Value::Null),
        ("kty", json!("RSA")),
        ("kty", json!("oct")),
        ("kty", json!("OKP")),
        ("kty", json!(["EC"])),
        ("use", json!("enc")),
        ("use", json!("ENC")),
        ("alg", json!(["ES256"])),
        ("kid", Value::Null),
        ("kid", json!("")),
        ("kid", json!(7)),
        ("kid", json!("with space")),
        ("kid", json!("line\nbreak")),
        ("kid", json!("null\u{0}")),
        ("kid", json!("k".repeat(200))),
        ("d", json!("AA")),
        ("k", json!("AA")),
        ("oth", json!([])),
    ] {
        let mut bad = key("bad");
        bad[member] = value;
        cases.push((json!([bad]), "it has no usable key"));
    }
    let ed = |crv: &str, x: &[u8]| json!({ "kty": "OKP", "crv": crv, "kid": "ed", "alg": "EdDSA", "x": URL_SAFE_NO_PAD.encode(x) });
    let mut identity = [0; 32];
    identity[0] = 1;
    for bad in [
        ed("X25519", &[9; 32]),
        ed("Ed448", &[9; 57]),
        ed("Ed25519", &[9; 31]),
        ed("Ed25519", &[0xff; 32]),
        ed("Ed25519", &[0; 32]),
        ed("Ed25519", &identity),
    ] {
        cases.push((json!([bad]), "it has no usable key"));
    }
    cases.push((json!([]), "no keys"));
    cases.push((json!([{}]), "no kid"));
    cases.push((json!([7, null, "x", [[]]]), "no kid"));
    cases.push((json!([key("same"), key("same")]), "two keys have the kid"));
    let secret = json!({ "kty": "oct", "kid": "s", "k": "c2VjcmV0", "alg": "HS256" });
    cases.push((json!([secret]), "it has no usable key"));
    cases.push((json!(vec![json!({}); 5_000]), "no kid"));
    cases.into_iter().map(|(keys, told)| case(KEYS, Page::Json(json!({ "keys": keys })), told)).collect()
}

/// URLs that metadata must not name: addresses of this machine and of private networks in every spelling, and URLs
/// without https.
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn places(publisher: &Publisher, sink: &Publisher) -> Vec<Case> {
    let port = sink.origin.rsplit(':').next().unwrap();
    let metadata = |member: &str, value: Value| {
        let mut metadata =
            json!({ "issuer": publisher.origin, "jwks_uri": format!("{}/keys", publisher.origin) });
        metadata[member] = value;
        Page::Json(metadata)
    };
    let mut cases = Vec::new();
    for host in [
        "127.0.0.1",
        "127.1",
        "0",
        "0.0.0.0",
        "0x7f000001",
        "0x7f.1",
        "017700000001",
        "2130706433",
        "127.0.0.1.",
        "127\u{3002}0\u{3002}0\u{3002}1",
        "\u{ff11}27.0.0.1",
        "%31%32%37.0.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[0:0:0:0:0:ffff:a00:1]",
        "[64:ff9b::7f00:1]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00:ec2::254]",
        "10.0.0.1",
        "100.64.0.1",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "168.63.129.16",
    ] {
        cases.push(case(
            DISCOVERY,
            metadata("jwks_uri", json!(format!("https://{host}:{port}/keys"))),
            "not allowed",
        ));
    }
    for url in [
        format!("http://127.0.0.1:{port}/keys"),
        format!("https://user:x@127.0.0.1:{port}/keys"),
        format!("https:\\\\127.0.0.1:{port}\\keys"),
        format!("https://127.0.0.1:{port}#@login.example/keys"),
        "http://login.example/keys".to_owned(),
        "https://user:x@login.example/keys".into(),
        "https://login.example:25/keys".into(),
        "https://login.example:0/keys".into(),
        "ftp://login.example/keys".into(),
        "file:///etc/passwd".into(),
        "unix:/var/run/docker.sock".into(),
        "data:application/json,{}".into(),
        "/keys".into(),
        "//login.example/keys".into(),
        String::new(),
        format!("https://login.example/{}", "x".repeat(3_000)),
    ] {
        cases.push(case(DISCOVERY, metadata("jwks_uri", json!(url)), "it names"));
    }
    for member in ["token_endpoint", "introspection_endpoint", "device_authorization_endpoint"] {
        for url in [
            format!("https://127.0.0.1:{port}/"),
            "http://login.example/".into(),
            format!("{}/x", sink.origin),
        ] {
            cases.push(case(DISCOVERY, metadata(member, json!(url)), "not allowed"));
        }
    }
    // Names that are private only once they are resolved.
    for host in ["localhost", "LocalHost"] {
        cases.push(case(
            DISCOVERY,
            metadata("jwks_uri", json!(format!("https://{host}:{port}/keys"))),
            "not allowed",
        ));
    }
    for issuer in [
        "https://evil.example",
        "",
        "http://127.0.0.1",
        &format!("{}/", publisher.origin),
        &publisher.origin.to_uppercase(),
    ] {
        cases.push(case(DISCOVERY, metadata("issuer", json!(issuer)), "its issuer is"));
    }
    let long = json!(format!("https://login.example/{}", "x".repeat(3_000)));
    cases.push(case(DISCOVERY, metadata("authorization_endpoint", long), "more than 2048 bytes"));
    cases
}

#[tokio::test]
async fn hostile_documents_give_no_key_and_replace_none() {
    let (publisher, sink) = (Publisher::start().await, Publisher::start().await);
    publisher.publish(&[key("good")]);
    let mut api = api(&publisher).await;
    api.put("platform", LOGIN, publisher.document()).await;
    api.published(|snapshot| kids(snapshot) == ["good"]).await;
    let cases = [documents(&publisher), answers(), keys(), places(&publisher, &sink)];
    let cases: Vec<Case> = cases.into_iter().flatten().collect();
    assert!(cases.len() >= 200, "{} cases", cases.len());
    let mut wrong = Vec::new();
    for (number, Case { path, page, told }) in cases.into_iter().enumerate() {
        publisher.publish(&[key("good")]);
        let is_silent = matches!(page, Page::Never(_));
        let shown = format!("{page:?}");
        publisher.set(path, page);
        let before = publisher.asked(path);
        if is_silent {
            silent(&api, &publisher, path, before).await;
        } else {
            asked_again(&api).await;
        }
        let fault = api.keeper.fault(Side::Clients, "login").unwrap_or_default();
        if !fault.contains(told) || fault.len() > 2_000 {
            wrong.push(format!("{number} {path} {shown:.300} should tell {told:?}: {fault:.300?}"));
        }
        assert_eq!(kids_of(&api), ["good"], "{number} {path} {told}");
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(sink.asked_in_all(), 0, "nobody is led elsewhere");
}

/// Its time for an answer passes once it has been asked.
async fn silent(api: &Api, publisher: &Publisher, path: &str, before: usize) {
    tokio::time::pause();
    tokio::time::advance(ASKED_GAP).await;
    tokio::time::resume();
    let passes = async {
        while publisher.asked(path) == before {
            tokio::task::yield_now().await;
        }
        // Gives the other side time to read.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        tokio::time::pause();
        tokio::time::advance(Duration::from_secs(11)).await;
        tokio::time::resume();
    };
    tokio::join!(api.keeper.refresh("login"), passes);
}
