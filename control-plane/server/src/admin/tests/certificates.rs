//! Certificates of machines: registration, renewal, listing and deletion.

use asp_peer::SentCertificate;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::{Method, StatusCode};
use rcgen::{CertificateParams, KeyPair, SanType};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{Answer, Api};

const PATH: &str = "/api/machines/orgs/acme/certificates";
const URI: &str = "spiffe://example.org/press-7";

async fn register(api: &Api, role: &str, path: &str, body: Value) -> Answer {
    api.send(role, Method::POST, path, Some(body), &[]).await
}

async fn delete(api: &Api, role: &str, id: &str) -> StatusCode {
    api.send(role, Method::DELETE, &format!("{PATH}/{id}"), None, &[]).await.status
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

fn hash(digit: char) -> String {
    digit.to_string().repeat(64)
}

#[tokio::test]
async fn a_certificate_is_published_to_gateways_alone_and_gone_when_it_is_forgotten() {
    let mut api = Api::start().await;
    api.allow_machines(&["robots"], &["x:read"]).await;
    let shown = hash('A')
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8_lossy(pair).into_owned())
        .collect::<Vec<_>>();
    let asked = json!({ "machine": "press", "fingerprint": shown.join(":"), "groups": ["robots"], "scopes": ["x:read"],
        "ttlSeconds": 3600 });
    let made = register(&api, "platform", PATH, asked).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    assert_eq!((text(&made.body["fingerprint"]), made.body.get("uri")), (hash('a'), None));
    let lives = made.body["expiresAt"].as_u64().unwrap() - made.body["createdAt"].as_u64().unwrap();
    assert_eq!(lives, 3_600_000);
    let named = register(&api, "platform", PATH, json!({ "machine": "press", "uri": URI })).await;
    assert_eq!((named.status, text(&named.body["uri"])), (StatusCode::CREATED, URI.into()), "{}", named.body);

    api.published(|snapshot| snapshot.machine_certificates.len() == 2).await;
    let snapshot = api.xds_state.borrow().snapshot.clone().unwrap();
    let published = |id: &Value| {
        let known = snapshot.whole().machine_certificates.into_iter().find(|known| *id == known.id.as_str());
        known.unwrap()
    };
    let first = published(&made.body["id"]);
    assert_eq!((first.fingerprint, first.uri.as_str(), first.user.as_str()), (vec![0xaa; 32], "", "press"));
    assert_eq!((first.groups, first.scopes), (vec!["robots".to_owned()], vec!["x:read".to_owned()]));
    let second = published(&named.body["id"]);
    assert_eq!((second.fingerprint, second.uri.as_str(), second.org.as_str()), (vec![], URI, "acme"));
    assert!(!String::from_utf8_lossy(&snapshot.edge.bytes).contains(URI), "nothing of it is at the edge");
    assert_eq!(api.get("org:acme:read", PATH).await.body.as_array().unwrap().len(), 2);
    let told = api.get("org:acme", "/api/audit").await.body.to_string();
    assert!(told.contains("machine_certificate.add") && told.contains(&format!("press uri={URI}")), "{told}");

    let id = text(&made.body["id"]);
    assert_eq!(delete(&api, "org:acme", &id).await, StatusCode::NO_CONTENT);
    assert_eq!(delete(&api, "org:acme", &id).await, StatusCode::NOT_FOUND);
    api.published(|snapshot| snapshot.machine_certificates.len() == 1).await;
}

#[tokio::test]
async fn a_certificate_is_one_machines_which_alone_renews_it() {
    let api = Api::start().await;
    let body = |machine: &str| json!({ "machine": machine, "fingerprint": hash('1') });
    let first = register(&api, "platform", PATH, body("press")).await;
    let mut longer = body("press");
    longer["ttlSeconds"] = json!(366 * 24 * 3600);
    let again = register(&api, "platform", PATH, longer).await;
    assert_eq!((again.status, &again.body["id"]), (StatusCode::OK, &first.body["id"]), "{}", again.body);
    assert!(again.body["expiresAt"].as_u64() > first.body["expiresAt"].as_u64());
    let other = "/api/machines/orgs/other/certificates";
    for (path, machine) in [(PATH, "arm"), (other, "press")] {
        let taken = register(&api, "platform", path, body(machine)).await;
        assert_eq!((taken.status, &taken.body["code"]), (StatusCode::CONFLICT, &json!("certificate_in_use")));
        assert!(!taken.body.to_string().contains("acme"), "whose it is, is not told: {}", taken.body);
    }
    assert_eq!(api.get("platform", PATH).await.body.as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn a_uri_is_the_platforms_to_give() {
    let api = Api::start().await;
    let body = json!({ "machine": "press", "uri": URI });
    let refused = register(&api, "org:acme", PATH, body.clone()).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::FORBIDDEN, &json!("forbidden")));
    assert!(text(&refused.body["detail"]).contains("admin of the platform"), "{}", refused.body);
    let made = register(&api, "platform", PATH, body).await;
    assert_eq!(made.status, StatusCode::CREATED);
    // The org's own admins take it away all the same.
    assert_eq!(delete(&api, "org:acme", &text(&made.body["id"])).await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_certificate_that_makes_no_sense_is_refused() {
    let api = Api::start().await;
    let with = |name: &str, value: Value| {
        let mut body = json!({ "machine": "press", "fingerprint": hash('1') });
        body[name] = value;
        body
    };
    let uri = |uri: &str| json!({ "machine": "press", "uri": uri });
    let long = "x".repeat(400);
    for (body, said) in [
        (json!({ "machine": "press" }), "certificate, fingerprint or uri"),
        (with("uri", json!(URI)), "certificate, fingerprint or uri"),
        (with("fingerprint", json!("")), "64 hex digits"),
        (with("fingerprint", json!(&hash('1')[1..])), "64 hex digits"),
        (with("fingerprint", json!(format!("{}1", hash('1')))), "64 hex digits"),
        (with("fingerprint", json!(hash('g'))), "64 hex digits"),
        (with("fingerprint", json!(format!(" {}", &hash('1')[1..]))), "64 hex digits"),
        (uri(""), "scheme"),
        (uri("press"), "scheme"),
        (uri("://press"), "scheme"),
        (uri("spiffe://"), "scheme"),
        (uri("spiffe://a;b"), "semicolons"),
        (uri("spiffe://a,b"), "semicolons"),
        (uri("spiffe://a\"b"), "semicolons"),
        (uri("spiffe://a\\b"), "semicolons"),
        (uri("spiffe://a b"), "visible"),
        (uri("spiffe://\u{e9}"), "visible"),
        (uri("spiffe://a\n"), "visible"),
        (uri(&format!("spiffe://{}", "x".repeat(505))), "512 bytes"),
        (json!({ "machine": long, "uri": format!("spiffe://{long}") }), "bytes together"),
        (with("machine", json!("a*")), "holds `*`"),
        (with("groups", json!(vec!["g"; 17])), "at most 16"),
        (with("scopes", json!(["a b"])), "scopes:"),
        (with("ttlSeconds", json!(59)), "ttlSeconds"),
    ] {
        let answer = register(&api, "platform", PATH, body).await;
        assert_eq!(
            (answer.status, &answer.body["code"]),
            (StatusCode::BAD_REQUEST, &json!("invalid_params"))
        );
        assert!(text(&answer.body["detail"]).contains(said), "{said}: {}", answer.body);
    }
    for body in [json!({}), with("subject", json!("x")), with("fingerprint", json!(1))] {
        assert_eq!(register(&api, "platform", PATH, body).await.body["code"], "invalid_body");
    }
    assert_eq!(api.get("platform", PATH).await.body, json!([]));
}

#[tokio::test]
async fn another_orgs_certificates_do_not_exist_and_a_reader_registers_none() {
    let api = Api::start().await;
    let body = json!({ "machine": "press", "fingerprint": hash('1') });
    let id = text(&register(&api, "platform", PATH, body.clone()).await.body["id"]);
    for role in ["org:other", "server:demo", "installer"] {
        assert_eq!(register(&api, role, PATH, body.clone()).await.status, StatusCode::NOT_FOUND, "{role}");
        assert_eq!(api.get(role, PATH).await.status, StatusCode::NOT_FOUND, "{role}");
        assert_eq!(delete(&api, role, &id).await, StatusCode::NOT_FOUND, "{role}");
    }
    for role in ["org:acme:read", "platform:read"] {
        assert_eq!(register(&api, role, PATH, body.clone()).await.status, StatusCode::FORBIDDEN, "{role}");
        assert_eq!(delete(&api, role, &id).await, StatusCode::FORBIDDEN, "{role}");
    }
    let through = format!("/api/machines/orgs/other/certificates/{id}");
    assert_eq!(
        api.send("org:other", Method::DELETE, &through, None, &[]).await.status,
        StatusCode::NOT_FOUND
    );
    assert_eq!(api.get("org:acme", PATH).await.body.as_array().unwrap().len(), 1);
}

/// A certificate with these URIs, and its key; both PEM.
pub(super) fn issued(uris: &[&str]) -> (String, String) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = uris.iter().map(|uri| SanType::URI((*uri).try_into().unwrap())).collect();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// The body of a registration of `machine` that `key` signs for `org`.
pub(super) fn proved(org: &str, machine: &str, (certificate, key): (&str, &str), at: u64) -> Value {
    let der = SentCertificate::from_pem(certificate).unwrap().der;
    let hash: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
    let statement = asp_peer::statement(org, machine, &hash, at);
    let signature = STANDARD.encode(asp_peer::sign(key.as_bytes(), &statement).unwrap());
    json!({ "machine": machine, "certificate": certificate, "proof": { "at": at, "signature": signature } })
}

/// Invariant I-12.
#[tokio::test]
async fn an_org_registers_certificates_whose_keys_it_proves_to_hold() {
    let api = Api::start().await;
    let now = asp_platform::clock::now_ms() / 1_000;
    let (certificate, key) = issued(&[]);
    let own = (certificate.as_str(), key.as_str());
    let unproved = json!({ "machine": "press", "fingerprint": hash('1') });
    let refused = register(&api, "org:acme", PATH, unproved).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::FORBIDDEN, &json!("forbidden")));
    assert!(text(&refused.body["detail"]).contains("--key"), "{}", refused.body);
    let (_, other_key) = issued(&[]);
    let mut bare = proved("acme", "press", own, now);
    bare["proof"].take();
    for (body, said) in [
        (proved("acme", "press", (own.0, &other_key), now), "did not sign"),
        (proved("globex", "press", own, now), "did not sign"),
        (proved("acme", "press", own, now - 301), "proof.at"),
        (proved("acme", "press", own, now + 400), "proof.at"),
        (bare, "goes with proof"),
    ] {
        let refused = register(&api, "org:acme", PATH, body).await;
        assert_eq!(refused.body["code"], "invalid_params", "{said}: {}", refused.body);
        assert!(text(&refused.body["detail"]).contains(said), "{said}: {}", refused.body);
    }
    let uris: Vec<String> = (0..9).map(|number| format!("spiffe://factory.example/{number}")).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    for (uris, status) in [(&uris[..], StatusCode::BAD_REQUEST), (&uris[1..], StatusCode::CREATED)] {
        let (certificate, key) = issued(uris);
        let answer = register(&api, "org:acme", PATH, proved("acme", "arm", (&certificate, &key), now)).await;
        assert_eq!(answer.status, status, "{} URIs: {}", uris.len(), answer.body);
    }
    let made = register(&api, "org:acme", PATH, proved("acme", "press", own, now)).await;
    assert_eq!((made.status, &made.body["proved"]), (StatusCode::CREATED, &json!(true)), "{}", made.body);
    let again = register(&api, "org:acme", PATH, proved("acme", "press", own, now)).await;
    assert_eq!((again.status, &again.body["id"]), (StatusCode::OK, &made.body["id"]));
}

#[tokio::test]
async fn a_proof_wins_over_a_written_hash_and_never_over_another_orgs_uri() {
    let api = Api::start().await;
    let now = asp_platform::clock::now_ms() / 1_000;
    let (certificate, key) = issued(&["spiffe://factory.example/press-8"]);
    let body = proved("acme", "press", (&certificate, &key), now);
    let der = SentCertificate::from_pem(&certificate).unwrap().der;
    let hash: String = Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect();
    let other = "/api/machines/orgs/other/certificates";
    let written = json!({ "machine": "spy", "fingerprint": hash });
    let written = register(&api, "platform", other, written).await;
    assert_eq!((written.status, &written.body["proved"]), (StatusCode::CREATED, &json!(false)));
    assert_eq!(register(&api, "org:acme", PATH, body.clone()).await.status, StatusCode::CREATED);
    assert_eq!(api.get("org:other", other).await.body, json!([]), "it was the holder's");
    let uri = json!({ "machine": "press-8", "uri": "spiffe://factory.example/press-8" });
    assert_eq!(register(&api, "platform", other, uri).await.status, StatusCode::CREATED);
    let refused = register(&api, "org:acme", PATH, body).await;
    assert_eq!((refused.status, &refused.body["code"]), (StatusCode::CONFLICT, &json!("certificate_in_use")));
}
