//! A server that stands before its issuer: what it registers, whom it asks, where it sends people, and what it refuses.

#[path = "login/exchange.rs"]
mod exchange;

use std::collections::HashMap;

use asp_proto::snapshot::{GatewaySnapshot, IssuerAccess, Login};
use asp_registry::assemble;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Answer, Fixture, PUBLIC_URL, inputs};

const REDIRECT: &str = "http://127.0.0.1:4711/callback";
/// RFC 7636 appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
pub(crate) const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

fn front(redirects: &[&str]) -> GatewaySnapshot {
    front_at("https://login.example.com/token", redirects)
}

fn front_at(token_endpoint: &str, redirects: &[&str]) -> GatewaySnapshot {
    let mut inputs = inputs();
    inputs.issuer_access.push(IssuerAccess {
        exchange: None,
        issuer: "dev".into(),
        introspection: None,
        login: Some(Login {
            client_id: "the-one-client".into(),
            authorization_endpoint: "https://login.example.com/authorize?tenant=acme".into(),
            token_endpoint: token_endpoint.to_owned(),
            redirects: redirects.iter().map(|redirect| (*redirect).to_owned()).collect(),
            scopes: vec!["openid".into()],
            without_resource: false,
            scopes_on_refresh: false,
            iss_required: false,
        }),
    });
    assemble(inputs)
}

fn fixture() -> Fixture {
    Fixture::of(front(&[]))
}

async fn ask(fixture: &Fixture, method: Method, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    fixture.send(method, path, headers, body).await
}

async fn get(fixture: &Fixture, path: &str, headers: &[(&str, &str)]) -> Answer {
    ask(fixture, Method::GET, path, headers, "").await
}

async fn register(fixture: &Fixture, body: Value) -> Answer {
    let json = [("content-type", "application/json")];
    ask(fixture, Method::POST, "/demo/oauth/register", &json, &body.to_string()).await
}

async fn client(fixture: &Fixture) -> String {
    let answer =
        register(fixture, json!({ "client_name": "A <b>client</b>", "redirect_uris": [REDIRECT] })).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", answer.text);
    answer.json()["client_id"].as_str().unwrap().to_owned()
}

fn query(pairs: &[(&str, &str)]) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.extend_pairs(pairs);
    query.finish()
}

fn authorize(client: &str, change: &[(&str, &str)]) -> String {
    let mut pairs = HashMap::from([
        ("response_type", "code"),
        ("client_id", client),
        ("redirect_uri", REDIRECT),
        ("state", "the clients state"),
        ("code_challenge", CHALLENGE),
        ("code_challenge_method", "S256"),
        ("scope", "notes:write openid"),
    ]);
    pairs.extend(change.iter().copied());
    let pairs: Vec<(&str, &str)> = pairs.into_iter().filter(|(_, value)| !value.is_empty()).collect();
    format!("/demo/oauth/authorize?{}", query(&pairs))
}

/// The code that a client gets when the issuer's is `of_issuer`.
async fn code(fixture: &Fixture, client: &str, of_issuer: &str) -> String {
    let (ticket, cookie) = ticket(&get(fixture, &authorize(client, &[]), &[]).await);
    let (_, at_issuer) = sent_to(&decide(fixture, &ticket, &cookie, "allow", PUBLIC_URL).await);
    let back = query(&[("state", at_issuer["state"].as_str()), ("code", of_issuer)]);
    let back = get(fixture, &format!("/demo/oauth/callback?{back}"), &[("cookie", &cookie)]).await;
    sent_to(&back).1["code"].clone()
}

/// The ticket of a consent page, and the cookie that came with it.
fn ticket(page: &Answer) -> (String, String) {
    let ticket = page.text.split("name=ticket value=\"").nth(1).unwrap().split('"').next().unwrap();
    let cookie = page.headers["set-cookie"].to_str().unwrap().split(';').next().unwrap();
    (ticket.to_owned(), cookie.to_owned())
}

async fn decide(fixture: &Fixture, ticket: &str, cookie: &str, decision: &str, origin: &str) -> Answer {
    let body = query(&[("ticket", ticket), ("decision", decision)]);
    let headers = [FORM, ("cookie", cookie), ("origin", origin)];
    ask(fixture, Method::POST, "/demo/oauth/consent", &headers, &body).await
}

fn sent_to(answer: &Answer) -> (String, HashMap<String, String>) {
    let location =
        answer.headers.get("location").unwrap_or_else(|| panic!("{}", answer.text)).to_str().unwrap();
    let (place, query) = location.split_once('?').unwrap();
    (place.to_owned(), form_urlencoded::parse(query.as_bytes()).into_owned().collect())
}

#[tokio::test]
async fn a_client_finds_the_front_and_everything_it_needs_to_log_in() {
    let fixture = fixture();
    let resource = get(&fixture, "/.well-known/oauth-protected-resource/demo/mcp", &[]).await.json();
    let issuer = format!("{PUBLIC_URL}/demo/oauth");
    assert_eq!(resource["authorization_servers"][0], issuer);
    for path in [
        "/.well-known/oauth-authorization-server/demo/oauth",
        "/.well-known/openid-configuration/demo/oauth",
        "/demo/oauth/.well-known/openid-configuration",
    ] {
        let metadata = get(&fixture, path, &[]).await.json();
        assert_eq!(metadata["issuer"], issuer, "{path}");
        assert_eq!(metadata["registration_endpoint"], format!("{issuer}/register"));
        assert_eq!(metadata["code_challenge_methods_supported"], json!(["S256"]));
    }
    let plain = Fixture::new();
    for path in ["/.well-known/oauth-authorization-server/demo/oauth", "/demo/oauth/authorize"] {
        assert_eq!(get(&plain, path, &[]).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(get(&fixture, "/.well-known/oauth-authorization-server/nobody/oauth", &[]).await.status, 404);
}

#[tokio::test]
async fn the_user_is_asked_then_sent_to_the_issuer_and_back_to_the_client() {
    let fixture = fixture();
    let client = client(&fixture).await;
    let page = get(&fixture, &authorize(&client, &[]), &[]).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains("A &lt;b&gt;client") && page.text.contains(REDIRECT), "{}", page.text);
    assert!(page.headers["content-security-policy"].to_str().unwrap().contains("frame-ancestors 'none'"));
    assert_eq!(page.headers["referrer-policy"], "same-origin", "else a browser says Origin: null");
    let (ticket, cookie) = ticket(&page);
    assert!(cookie.starts_with("__Host-asp-login-demo="), "{cookie}");
    let (place, at_issuer) = sent_to(&decide(&fixture, &ticket, &cookie, "allow", PUBLIC_URL).await);
    assert_eq!(place, "https://login.example.com/authorize");
    let wanted = [
        ("tenant", "acme"),
        ("client_id", "the-one-client"),
        ("redirect_uri", "https://mcp.example.com/demo/oauth/callback"),
        ("code_challenge", CHALLENGE),
        ("scope", "notes:write openid"),
        ("resource", "https://mcp.example.com/demo/mcp"),
    ];
    for (name, value) in wanted {
        assert_eq!(at_issuer[name], value, "{name}");
    }
    let callback =
        |more: &str| format!("/demo/oauth/callback?{}{more}", query(&[("state", &at_issuer["state"])]));
    let back = get(&fixture, &callback("&code=c0de&iss=asp-dev"), &[("cookie", &cookie)]).await;
    let (place, at_client) = sent_to(&back);
    assert_eq!(place, REDIRECT);
    assert_eq!(at_client["state"], "the clients state");
    assert!(!at_client["code"].is_empty() && at_client["code"] != "c0de", "the issuer's code stays here");
    assert_eq!(at_client["iss"], format!("{PUBLIC_URL}/demo/oauth"), "RFC 9207");
    let failed = get(&fixture, &callback("&error=access_denied"), &[("cookie", &cookie)]).await;
    assert_eq!(sent_to(&failed).1["error"], "access_denied");
    for (more, headers) in [
        ("&code=c0de&iss=https://evil.example", vec![("cookie", cookie.as_str())]),
        ("&code=c0de", vec![]),
        ("&code=c0de", vec![("cookie", "__Host-asp-login-demo=AAAAAAAAAAAAAAAAAAAAAA")]),
        ("&code=c0de&code=d", vec![("cookie", cookie.as_str())]),
    ] {
        let refused = get(&fixture, &callback(more), &headers).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{more} {headers:?}");
        assert!(!refused.headers.contains_key("location"));
    }
}

#[tokio::test]
async fn an_issuer_that_names_itself_in_its_answers_must_do_so_in_each() {
    let mut snapshot = front(&[]);
    snapshot.issuer_access[0].login.as_mut().unwrap().iss_required = true;
    let fixture = Fixture::of(snapshot);
    let client = client(&fixture).await;
    let (ticket, cookie) = ticket(&get(&fixture, &authorize(&client, &[]), &[]).await);
    let (_, at_issuer) = sent_to(&decide(&fixture, &ticket, &cookie, "allow", PUBLIC_URL).await);
    for (more, counts) in [
        ("&code=c0de&iss=asp-dev", true),
        ("&error=access_denied&iss=asp-dev", true),
        ("&code=c0de", false),
        ("&error=access_denied", false),
        ("&code=c0de&iss=", false),
        ("&code=c0de&iss=asp-dev2", false),
        ("&code=c0de&iss=ASP-DEV", false),
        ("&code=c0de&iss=asp-dev&iss=asp-dev", false),
    ] {
        let path = format!("/demo/oauth/callback?{}{more}", query(&[("state", &at_issuer["state"])]));
        let answer = get(&fixture, &path, &[("cookie", &cookie)]).await;
        assert_eq!(answer.headers.contains_key("location"), counts, "{more}: {}", answer.text);
    }
}

#[tokio::test]
async fn nobody_decides_for_the_user() {
    let fixture = fixture();
    let client = client(&fixture).await;
    let (ticket, cookie) = ticket(&get(&fixture, &authorize(&client, &[]), &[]).await);
    let denied = decide(&fixture, &ticket, &cookie, "deny", PUBLIC_URL).await;
    let (place, answer) = sent_to(&denied);
    assert_eq!((place.as_str(), answer["error"].as_str()), (REDIRECT, "access_denied"));
    let other = format!("__Host-asp-login-demo={}", URL_SAFE_NO_PAD.encode([1; 16]));
    let two = format!("{other}; {cookie}");
    let mut spoilt = ticket.clone();
    spoilt.replace_range(20..21, if &ticket[20..21] == "A" { "B" } else { "A" });
    for (ticket, cookie, origin) in [
        (&ticket, &cookie, "https://evil.example"),
        (&ticket, &cookie, "null"),
        (&ticket, &other, PUBLIC_URL),
        (&ticket, &two, PUBLIC_URL),
        (&ticket, &String::new(), PUBLIC_URL),
        (&spoilt, &cookie, PUBLIC_URL),
        (&client, &cookie, PUBLIC_URL),
    ] {
        let refused = decide(&fixture, ticket, cookie, "allow", origin).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{origin} {cookie}");
        assert!(!refused.headers.contains_key("location"));
    }
    // What has not been agreed to brings nobody back.
    let callback = format!("/demo/oauth/callback?{}&code=c", query(&[("state", &ticket)]));
    assert_eq!(get(&fixture, &callback, &[("cookie", &cookie)]).await.status, StatusCode::BAD_REQUEST);
    // A ticket of one server is none of another's.
    let elsewhere = query(&[("ticket", &ticket), ("decision", "allow")]);
    let headers = [FORM, ("cookie", cookie.as_str()), ("origin", PUBLIC_URL)];
    let refused = ask(&fixture, Method::POST, "/policy/oauth/consent", &headers, &elsewhere).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn two_logins_of_one_browser_at_a_time_do_not_end_each_other() {
    let fixture = fixture();
    let client = client(&fixture).await;
    let (first, cookie) = ticket(&get(&fixture, &authorize(&client, &[]), &[]).await);
    let again = get(&fixture, &authorize(&client, &[]), &[("cookie", &cookie)]).await;
    let (second, same) = ticket(&again);
    assert_eq!(cookie, same);
    for ticket in [first, second] {
        let answer = decide(&fixture, &ticket, &cookie, "allow", PUBLIC_URL).await;
        assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", answer.text);
    }
}

#[tokio::test]
async fn a_request_that_is_not_the_clients_own_is_sent_nowhere() {
    let fixture = fixture();
    let client = client(&fixture).await;
    for change in [
        ("client_id", "nobody"),
        ("redirect_uri", "http://127.0.0.1:4711/other"),
        ("redirect_uri", "http://localhost:4711/callback"),
        ("redirect_uri", "https://evil.example/callback"),
        ("redirect_uri", "http://127.0.0.1:4711@evil.example/callback"),
    ] {
        let refused = get(&fixture, &authorize(&client, &[change]), &[]).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{change:?}");
        assert!(!refused.headers.contains_key("location"), "{change:?}");
    }
    let twice = format!("{}&client_id={client}", authorize(&client, &[]));
    assert_eq!(get(&fixture, &twice, &[]).await.status, StatusCode::BAD_REQUEST);
    // From here on the client is told.
    for (change, code) in [
        (("response_type", "token"), "unsupported_response_type"),
        (("code_challenge", ""), "invalid_request"),
        (("code_challenge", "short"), "invalid_request"),
        (("code_challenge_method", "plain"), "invalid_request"),
    ] {
        let (place, told) = sent_to(&get(&fixture, &authorize(&client, &[change]), &[]).await);
        assert_eq!((place.as_str(), told["error"].as_str()), (REDIRECT, code), "{change:?}");
    }
    let port =
        get(&fixture, &authorize(&client, &[("redirect_uri", "http://127.0.0.1:9/callback")]), &[]).await;
    assert_eq!(port.status, StatusCode::OK, "a native app's port is its own (RFC 8252 section 7.3)");
}

#[tokio::test]
async fn only_listed_addresses_are_registered() {
    let fixture = Fixture::of(front(&["https://app.example/cb", "http://127.0.0.1/*"]));
    let of = |uris: Value| json!({ "redirect_uris": uris });
    let some = register(&fixture, of(json!(["https://evil.example/", "https://app.example/cb"]))).await;
    assert_eq!(some.json()["redirect_uris"], json!(["https://app.example/cb"]), "{}", some.text);
    let many: Vec<String> = (0..11).map(|n| format!("http://127.0.0.1/{n}")).collect();
    for body in [
        of(json!(["https://evil.example/cb"])),
        of(json!(["javascript:alert(1)"])),
        of(json!([])),
        of(json!(many)),
        of(json!("https://app.example/cb")),
        json!({}),
        json!([]),
        of(json!([format!("http://127.0.0.1/{}", "x".repeat(2_000))])),
    ] {
        let refused = register(&fixture, body.clone()).await;
        assert_eq!(refused.status, StatusCode::BAD_REQUEST, "{body}");
        assert!(refused.json()["error"].is_string());
    }
}

#[tokio::test]
async fn a_token_request_without_a_client_or_a_code_reaches_no_issuer() {
    let fixture = fixture();
    let client = client(&fixture).await;
    let exchange = async |pairs: &[(&str, &str)]| {
        ask(&fixture, Method::POST, "/demo/oauth/token", &[FORM], &query(pairs)).await
    };
    let own = [("client_id", client.as_str()), ("grant_type", "authorization_code")];
    for (pairs, status, code) in [
        (vec![("grant_type", "authorization_code")], StatusCode::UNAUTHORIZED, "invalid_client"),
        (vec![("client_id", "the-one-client")], StatusCode::UNAUTHORIZED, "invalid_client"),
        (own.to_vec(), StatusCode::BAD_REQUEST, "invalid_request"),
        (
            vec![own[0], ("grant_type", "client_credentials")],
            StatusCode::BAD_REQUEST,
            "unsupported_grant_type",
        ),
        (vec![own[0], ("grant_type", "password")], StatusCode::BAD_REQUEST, "unsupported_grant_type"),
        (
            [
                own.to_vec(),
                vec![("code", "c"), ("code_verifier", "v"), ("redirect_uri", "https://evil.example/")],
            ]
            .concat(),
            StatusCode::BAD_REQUEST,
            "invalid_grant",
        ),
        (vec![own[0], own[0]], StatusCode::BAD_REQUEST, "invalid_request"),
    ] {
        let answer = exchange(&pairs).await;
        assert_eq!((answer.status, answer.json()["error"].as_str()), (status, Some(code)), "{pairs:?}");
        assert_eq!(answer.headers["cache-control"], "no-store");
    }
    let json = [("content-type", "application/json")];
    let answer = ask(&fixture, Method::POST, "/demo/oauth/token", &json, "{}").await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(get(&fixture, "/demo/oauth/token", &[]).await.status, StatusCode::METHOD_NOT_ALLOWED);
}
