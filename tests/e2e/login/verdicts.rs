//! Tokens of a real issuer, spoilt and whole, and requests of every origin: each is sent through Envoy with the filter and
//! straight at the gateway, and both say the same (I-1).

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::wait;
use asp_edge::testkit::{Keys, Setting, load_cases, vector_dir};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::forgery::Parts;
use super::{Company, alice, list, realm, request};

/// Hang guard of a token's end: a second, and ten of leeway.
const ENDED: Duration = Duration::from_secs(60);
/// Hang guard of keys that are fetched at most once in 30 s.
const KEYS: Duration = Duration::from_secs(60);

/// A token, or what is sent in a token's place, and what both must answer.
struct Case {
    name: String,
    token: String,
    status: u16,
    reason: Option<&'static str>,
}

/// Tokens that the issuer itself minted.
pub(super) struct Minted {
    good: String,
    /// Lives for a second.
    brief: String,
    others: Vec<Case>,
}

impl Minted {
    /// Before the platform needs the keys of all of them.
    pub(super) async fn of(company: &Company) -> Result<Minted> {
        let keycloak = &company.keycloak;
        let mut others = Vec::new();
        let mut add = |name: &str, token: String, is_good: bool| others.push(case(name, token, is_good));
        for (alg, is_taken) in realm::ALGORITHMS {
            add(alg, keycloak.token(&alice(alg)).await.context(alg)?, is_taken);
        }
        add("for another service", keycloak.token(&alice("elsewhere")).await?, false);
        add("for longer than a day", keycloak.token(&alice("long")).await?, false);
        add("of another realm", keycloak.token_of(realm::OPEN, &alice("direct")).await?, false);
        let tokens =
            keycloak.tokens(asp_e2e::keycloak::REALM, &format!("{}&scope=openid", alice("direct"))).await?;
        let of =
            |member: &str| tokens[member].as_str().map(str::to_owned).with_context(|| tokens.to_string());
        add("of somebody who has logged in with OpenID", of("access_token")?, true);
        add("an ID token", of("id_token")?, false);
        add("a refresh token", of("refresh_token")?, false);
        let secret = realm::GATEWAY_SECRET;
        let service = format!("grant_type=client_credentials&client_id=gateway&client_secret={secret}");
        add("of a service, for nobody", keycloak.token(&service).await?, false);
        let secret = realm::CI_SECRET;
        let service = format!("grant_type=client_credentials&client_id=ci&client_secret={secret}");
        add("of a service, for the platform", keycloak.token(&service).await?, true);
        Ok(Minted { good: company.token("").await?, brief: keycloak.token(&alice("brief")).await?, others })
    }
}

fn case(name: &str, token: String, is_good: bool) -> Case {
    let (status, reason) = if is_good { (200, None) } else { (401, Some("token_invalid")) };
    Case { name: name.to_owned(), token, status, reason }
}

pub(super) async fn agree(company: &Company, minted: &Minted) -> Result<()> {
    // Keycloak made keys for them: an issuer that was asked a moment before is not asked again for 30 s.
    let newest = &minted.others.first().context("another token")?.token;
    wait::until("the platform has the newest keys", KEYS, || async {
        (company.status(newest).await.ok()? == 200).then_some(())
    })
    .await?;
    let key = company.keycloak.ask("GET", "/realms/acme", None).await?;
    let key = key["public_key"].as_str().context("the realm's public key")?;
    let mut faults = Vec::new();
    let mut count = 0;
    for case in minted.others.iter().chain(&spoilt(minted, key)?) {
        count += 1;
        let request = list("notes", &case.token);
        if let Err(fault) = both(company, &request, case.status, case.reason).await {
            faults.push(format!("{}: {fault:#}", case.name));
        }
    }
    ensure!(count >= 80, "{count} cases");
    ensure!(faults.is_empty(), "{} of {count} tokens:\n{}", faults.len(), faults.join("\n"));
    ended(company, minted).await.context("a token that has ended")?;
    scopes(company, minted).await.context("scopes")?;
    vectors(company, minted).await
}

/// Made of a real token, by somebody who has no key.
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn spoilt(minted: &Minted, public_key: &str) -> Result<Vec<Case>> {
    let good = Parts::of(&minted.good)?;
    let other = Parts::of(&minted.others.first().context("another token")?.token)?;
    let mut all: Vec<(String, String)> = Vec::new();
    for alg in ["none", "nOnE", "NONE", ""] {
        let header = good.with_header("alg", &json!(alg));
        let (signed, _) = header.rsplit_once('.').context("a signature")?;
        all.push((format!("alg {alg:?} without a signature"), format!("{signed}.")));
        all.push((format!("alg {alg:?} with the old signature"), header));
    }
    let der = STANDARD.decode(public_key)?;
    let pem = format!("-----BEGIN PUBLIC KEY-----\n{public_key}\n-----END PUBLIC KEY-----");
    for (form, secret) in [
        ("DER", der.clone()),
        ("PEM", pem.clone().into_bytes()),
        ("PEM and a line's end", format!("{pem}\n").into_bytes()),
        ("text", public_key.into()),
    ] {
        all.push((format!("HS256 with the public key as {form}"), good.by_secret(&secret)));
    }
    for alg in ["HS256", "HS512", "RS384", "RS512", "PS256", "ES256", "EdDSA", "rs256"] {
        all.push((format!("another alg, {alg}"), good.with_header("alg", &json!(alg))));
    }
    let long = "k".repeat(2_000);
    let others = other.header["kid"].as_str().context("a kid")?;
    for kid in [
        others,
        "nobodys",
        "",
        "../../etc/passwd",
        "' OR 1=1 --",
        "https://evil.example/key",
        "a\u{0}b",
        "*",
        &long,
    ] {
        all.push((format!("kid {kid:.20?}"), good.with_header("kid", &json!(kid))));
    }
    let evil = json!("https://evil.example/keys");
    for (member, value) in [
        ("kid", Value::Null),
        ("kid", json!(7)),
        ("kid", json!(["a"])),
        ("alg", Value::Null),
        ("alg", json!(["RS256"])),
        ("typ", Value::Null),
        ("typ", json!("at+jwt")),
        ("typ", json!("dpop+jwt")),
        ("crit", json!(["b64"])),
        ("b64", json!(false)),
        ("zip", json!("DEF")),
        ("jku", evil.clone()),
        ("x5u", evil),
        ("jwk", json!({ "kty": "oct", "k": "AA" })),
        ("x5c", json!(["AA=="])),
    ] {
        all.push((format!("header {member}: {value}"), good.with_header(member, &value)));
    }
    for (claim, value) in [
        ("preferred_username", json!("root")),
        ("sub", json!("root")),
        ("iss", json!("asp-dev")),
        ("aud", json!("*")),
        ("exp", json!(9_999_999_999_u64)),
        ("exp", Value::Null),
        ("iat", json!(0)),
        ("nbf", json!(9_999_999_999_u64)),
        ("typ", json!("ID")),
        ("org", json!("globex")),
        ("scope", json!("notes:write")),
        ("realm_access", json!({ "roles": ["root"] })),
        ("azp", json!("other")),
    ] {
        all.push((format!("claim {claim}: {value}"), good.with_claim(claim, &value)));
    }
    let signature = &good.encoded[2];
    let mut flipped = signature.clone();
    flipped.replace_range(10..11, if &signature[10..11] == "A" { "B" } else { "A" });
    for (what, signature) in [
        ("none", String::new()),
        ("shorter", signature[..signature.len() - 4].to_owned()),
        ("longer", format!("{signature}AAAA")),
        ("of zeros", "A".repeat(signature.len())),
        ("of another token", other.encoded[2].clone()),
        ("with another letter", flipped),
        ("padded", format!("{signature}==")),
        ("in another alphabet", signature.replace(['-', '_'], "+") + "/"),
    ] {
        all.push((format!("signature {what}"), good.with_signature(&signature)));
    }
    let [header, claims, signature] = &good.encoded;
    for (what, token) in [
        ("two segments", format!("{header}.{claims}")),
        ("four segments", format!("{header}.{claims}.{signature}.{signature}")),
        ("five segments", format!("{header}.{claims}.{signature}.{header}.{claims}")),
        ("an empty header", format!(".{claims}.{signature}")),
        ("no claims", format!("{header}..{signature}")),
        ("one segment", header.clone()),
        ("dots", "..".to_owned()),
    ] {
        all.push((what.to_owned(), token));
    }
    let mut cases: Vec<Case> = all.iter().map(|(name, token)| case(name, token.clone(), false)).collect();
    cases.push(case("as it came", minted.good.clone(), true));
    Ok(cases)
}

/// The same request at both; the answer of the edge.
async fn both(company: &Company, request: &Request, status: u16, reason: Option<&str>) -> Result<Response> {
    let edge = http1::send(company.stack.edge(), request).await.context("through Envoy")?;
    let gateway = http1::send(company.stack.gateway(), request).await.context("at the gateway")?;
    for name in ["www-authenticate", "access-control-allow-origin", "content-type"] {
        let (edge, gateway) = (edge.header(name), gateway.header(name));
        ensure!(edge == gateway, "{name} is {edge:?} through Envoy, {gateway:?} at the gateway");
    }
    let shown = |answer: &Response| format!("{} {:.300}", answer.status, answer.text());
    if (edge.status, &edge.body) != (gateway.status, &gateway.body) {
        bail!("{} through Envoy, {} at the gateway", shown(&edge), shown(&gateway));
    }
    if status != 0 && (edge.status != status || edge.reason().as_deref() != reason) {
        bail!("{} instead of {status} {reason:?}", shown(&edge));
    }
    Ok(edge)
}

/// Within the leeway either may still take it; then neither does.
async fn ended(company: &Company, minted: &Minted) -> Result<()> {
    let request = list("notes", &minted.brief);
    wait::until("the token ends", ENDED, || async {
        both(company, &request, 401, Some("token_expired")).await.ok().map(drop)
    })
    .await
}

/// What a call wants that a token has not is told by both.
async fn scopes(company: &Company, minted: &Minted) -> Result<()> {
    let call = |token: &str, tool: &str| {
        let params = json!({ "name": tool, "arguments": { "message": "x" } });
        request("notes", token, "tools/call", params, &[("mcp-name", tool)])
    };
    both(company, &call(&minted.good, "hello"), 200, None).await?;
    let refused = both(company, &call(&minted.good, "write"), 403, Some("insufficient_scope")).await?;
    let challenge = refused.header("www-authenticate").unwrap_or_default();
    ensure!(challenge.contains("scope=\"notes:write\""), "{challenge}");
    let wide = company.token("&scope=notes:write").await?;
    both(company, &call(&wide, "write"), 200, None).await.map(drop)
}

/// The shared vectors that are about a request's origin, and about where its token stands, with a token of the issuer.
async fn vectors(company: &Company, minted: &Minted) -> Result<()> {
    let whole = with_a_whole_token()?;
    let (keys, public_url) = (Keys::generate(), format!("http://{}", company.stack.edge()));
    let setting = Setting { keys: &keys, now: 0, public_url: &public_url };
    let mut faults = Vec::new();
    let mut count = 0;
    for case in load_cases()
        .iter()
        .filter(|case| whole.contains(&case.name) && case.request.path.contains("/demo/mcp"))
    {
        count += 1;
        let mut headers = case.request.headers(None, &setting);
        for (_, value) in &mut headers {
            if let Ok(text) = std::str::from_utf8(value) {
                *value = text.replace("${token}", &minted.good).into_bytes();
            }
        }
        headers.push(("traceparent".into(), super::TRACEPARENT.into()));
        let (method, target) = (case.request.method.clone(), case.request.path.replace("/demo/", "/notes/"));
        let request = Request { method, target, headers, body: case.request.body() };
        let status = if case.expect.forward { 0 } else { case.expect.status };
        let outcome = both(company, &request, status, case.expect.reason.as_deref()).await;
        let outcome = outcome.and_then(|answer| {
            let denied = ["origin_denied", "token_missing", "token_invalid"];
            let reason = answer.reason().unwrap_or_default();
            ensure!(!case.expect.forward || !denied.contains(&reason.as_str()), "{reason}");
            Ok(())
        });
        if let Err(fault) = outcome {
            faults.push(format!("{}: {fault:#}", case.name));
        }
    }
    ensure!(count >= 35, "{count} vectors");
    ensure!(faults.is_empty(), "{} of {count} vectors:\n{}", faults.len(), faults.join("\n"));
    Ok(())
}

/// Those whose token, if they have one, is a good one, and whose server is one of a development stack.
fn with_a_whole_token() -> Result<Vec<String>> {
    let mut names = Vec::new();
    for file in ["origin", "token"] {
        let text = std::fs::read_to_string(vector_dir().join(format!("{file}.json")))?;
        let cases: Vec<Value> = serde_json::from_str(&text)?;
        let whole = cases.iter().filter(|case| {
            let token = case.get("token");
            case.get("snapshot").is_none()
                && case.get("native_only").is_none()
                && token.is_none_or(|token| token == &json!({}))
        });
        names.extend(whole.map(|case| format!("{file}: {}", case["name"].as_str().unwrap_or_default())));
    }
    Ok(names)
}
