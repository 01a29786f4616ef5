//! Authentication of calls to the services behind them (I-8): none, the platform's token, one of the caller's
//! issuer, or a credential of the operator's.

use std::collections::HashMap;

use asp_backends::outbound::auth::CallHeaders;
use asp_identity::issuers::IssuerDeps;
use asp_identity::issuers::credentials::{Credential, Kind as Secret, OauthClient};
use asp_proto::snapshot::service_auth::Kind as Way;
use asp_proto::snapshot::{
    ExchangedToken, IssuerAccess, MintedToken, ServiceAudience, ServiceAuth, TokenExchange,
};
use axum::extract::State;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::header::AUTHORIZATION;

use super::*;
use crate::support::{PUBLIC_URL, now, token_with_scopes};

/// Requests that the service and the issuer received.
#[derive(Default)]
struct Heard {
    calls: Mutex<Vec<HeaderMap>>,
    /// Each form, and who sent it.
    forms: Mutex<Vec<(String, HashMap<String, String>)>>,
    /// Answer of the token endpoint; `None`: a new token for each request.
    says: Mutex<Option<(StatusCode, String)>>,
    /// The service takes no token.
    refuses: Mutex<bool>,
    /// The token endpoint never answers.
    stalls: Mutex<bool>,
}

impl Heard {
    fn proof(&self) -> Option<String> {
        let calls = self.calls.lock();
        calls.last()?.get(AUTHORIZATION).map(|value| value.to_str().unwrap().to_owned())
    }
}

async fn service(State(heard): State<Arc<Heard>>, headers: HeaderMap) -> (StatusCode, axum::Json<Value>) {
    heard.calls.lock().push(headers);
    let status = if *heard.refuses.lock() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    (status, axum::Json(json!({ "done": true })))
}

async fn issuer(
    State(heard): State<Arc<Heard>>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, HeaderMap, String) {
    if *heard.stalls.lock() {
        return std::future::pending().await;
    }
    let form = form_urlencoded::parse(body.as_bytes()).into_owned().collect();
    let by = headers.get(AUTHORIZATION).map(|by| by.to_str().unwrap().to_owned()).unwrap_or_default();
    let mut forms = heard.forms.lock();
    forms.push((by, form));
    let token = json!({
        "access_token": format!("given-{}", forms.len()), "token_type": "Bearer", "expires_in": 300,
        "issued_token_type": "urn:ietf:params:oauth:token-type:access_token",
    });
    let (status, text) = heard.says.lock().clone().unwrap_or((StatusCode::OK, token.to_string()));
    let mut headers = HeaderMap::new();
    headers.insert("location", "/elsewhere".parse().unwrap());
    (status, headers, text)
}

/// A gateway whose `echo` calls a service by HTTP, and what that hears; the issuer `dev` exchanges tokens.
struct World {
    fixture: Fixture,
    heard: Arc<Heard>,
}

fn credential(origin: &str, primitives: &[&str], kind: Secret) -> Credential {
    let primitives = primitives.iter().map(|id| (*id).to_owned()).collect();
    Credential { origin: origin.to_owned(), primitives, kind }
}

impl World {
    async fn start(auth: Option<Way>) -> World {
        World::telling(auth, CallHeaders::default()).await
    }

    async fn telling(auth: Option<Way>, told: CallHeaders) -> World {
        World::serving(auth, told, &["*"]).await
    }

    /// One whose lists of audiences name these primitives.
    async fn serving(auth: Option<Way>, told: CallHeaders, patterns: &[&str]) -> World {
        World::running(Mutation::ReadOnly, auth, told, patterns).await
    }

    /// The same, with an `echo` that may have effects.
    async fn running(mutation: Mutation, auth: Option<Way>, told: CallHeaders, patterns: &[&str]) -> World {
        let every = || patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
        let heard = Arc::<Heard>::default();
        let router = axum::Router::new().route("/do", post(service)).route("/token", post(issuer));
        let origin = format!("http://{}", serve(router.with_state(heard.clone())).await);
        let mode = Mode::ProxyHttp(http_mapping("/do"));
        let mut snapshot = with_runtime("echo", mode, mutation, &origin);
        for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
            primitive.service_auth = Some(ServiceAuth { kind: auth.clone() });
        }
        let audiences = vec![
            ServiceAudience { name: "crm".into(), origins: vec![origin.clone()], primitives: every() },
            ServiceAudience {
                name: "elsewhere".into(),
                origins: vec!["https://crm.example.com".into()],
                primitives: every(),
            },
        ];
        let exchange = TokenExchange { url: format!("{origin}/token"), credential: "own".into(), audiences };
        snapshot.issuer_access.push(IssuerAccess {
            issuer: "dev".into(),
            introspection: None,
            login: None,
            exchange: Some(exchange),
        });
        let client = OauthClient {
            token_url: format!("{origin}/token"),
            id: "gate way".into(),
            secret: "s3cret:%".into(),
            scopes: vec!["a".into(), "b".into()],
            audience: Some("urn:crm".into()),
        };
        let basic = |password: &str| Secret::Basic { user: "gw".into(), password: password.into() };
        let key = Secret::Header { name: "X-Api-Key".into(), value: "k3y".into() };
        let credentials = HashMap::from([
            ("bearer".to_owned(), credential(&origin, &["demo/echo"], Secret::Bearer("t0ken".into()))),
            ("basic".to_owned(), credential(&origin, &["demo/ec*"], basic("p4ss"))),
            ("key".to_owned(), credential(&origin, &["*"], key)),
            ("client".to_owned(), credential(&origin, &["*"], Secret::Client(client))),
            ("own".to_owned(), credential(&origin, &[], basic("own"))),
            (
                "others".to_owned(),
                credential(&origin, &["demo/add", "other/echo"], Secret::Bearer("t0ken".into())),
            ),
            (
                "elsewhere".to_owned(),
                credential("http://127.0.0.1:9", &["*"], Secret::Bearer("t0ken".into())),
            ),
        ]);
        let deps = IssuerDeps { credentials, origins: vec![origin], ..IssuerDeps::default() };
        World { fixture: Fixture::telling(snapshot, deps, told), heard }
    }

    /// Calls, and fails if the client's own token came to the service.
    async fn call(&self, token: &str) -> Value {
        let params = json!({"name": "echo", "arguments": {"message": "m"}});
        let answer = Modern::new("demo", token, "tools/call", params).send(&self.fixture).await.json();
        for headers in self.heard.calls.lock().iter() {
            let said = headers.values().map(|value| String::from_utf8_lossy(value.as_bytes()));
            assert!(!said.into_iter().any(|value| value.contains(token)), "{headers:?}");
        }
        answer
    }

    fn calls(&self) -> usize {
        self.heard.calls.lock().len()
    }

    fn forms(&self) -> usize {
        self.heard.forms.lock().len()
    }
}

fn is_done(answer: &Value) -> bool {
    answer["result"]["structuredContent"]["done"] == true
}

fn text(answer: &Value) -> String {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_default().to_owned()
}

fn by(name: &str) -> Option<Way> {
    Some(Way::Credential(name.into()))
}

#[tokio::test]
async fn a_service_gets_nothing_unless_its_spec_says_so() {
    let world = World::start(None).await;
    assert!(is_done(&world.call(&token("alice")).await));
    assert_eq!(world.heard.proof(), None);
    assert!(world.heard.calls.lock()[0].contains_key("traceparent"));
}

#[tokio::test]
async fn the_platforms_own_token_says_who_calls_and_lives_no_longer_than_the_call() {
    let minted = MintedToken { audience: "https://crm.example.com".into() };
    let world = World::start(Some(Way::Token(minted))).await;
    assert!(is_done(&world.call(&token("alice")).await));
    let proof = world.heard.proof().unwrap();
    let token = proof.strip_prefix("Bearer ").unwrap();
    let part = |at: usize| -> Value {
        let part = token.split('.').nth(at).unwrap();
        serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
    };
    let (header, claims) = (part(0), part(1));
    assert_eq!((&header["typ"], &header["alg"]), (&json!("at+jwt"), &json!("ES256")));
    assert_eq!(claims["aud"], json!(["https://crm.example.com"]));
    assert_eq!((&claims["sub"], &claims["org"]), (&json!("alice"), &json!("acme")));
    assert_eq!((&claims["iss"], &claims["caller_issuer"]), (&json!(PUBLIC_URL), &json!("dev")));
    assert_eq!(claims["act"]["sub"], "primitive:demo/echo@1.0.0");
    let life = claims["exp"].as_u64().unwrap() - now();
    assert!(life <= 60, "{claims}");
}

#[tokio::test]
async fn a_credential_is_sent_in_its_own_form() {
    for (name, header, value) in [
        ("bearer", "authorization", "Bearer t0ken".to_owned()),
        ("basic", "authorization", format!("Basic {}", STANDARD.encode("gw:p4ss"))),
        ("key", "x-api-key", "k3y".to_owned()),
    ] {
        let world = World::start(by(name)).await;
        assert!(is_done(&world.call(&token("alice")).await), "{name}");
        assert_eq!(world.heard.calls.lock()[0][header], value, "{name}");
    }
}

#[tokio::test]
async fn a_credential_that_a_spec_may_not_name_sends_nothing() {
    for name in ["own", "others", "elsewhere", "unknown"] {
        let world = World::start(by(name)).await;
        let answer = world.call(&token("alice")).await;
        assert_eq!(answer["result"]["_meta"]["asp/reason"], "upstream_unavailable", "{name} {answer}");
        assert!(text(&answer).contains("could not authenticate"), "{answer}");
        // The operator's words are for the log.
        assert!(!answer.to_string().contains("ASP_CREDENTIALS"), "{answer}");
        assert_eq!(world.calls(), 0, "{name}");
    }
}

#[tokio::test]
async fn an_oauth_clients_token_is_fetched_once_and_anew_when_the_service_refuses_it() {
    let world = World::start(by("client")).await;
    let token = token("alice");
    for _ in 0..3 {
        assert!(is_done(&world.call(&token).await));
        assert_eq!(world.heard.proof().unwrap(), "Bearer given-1");
    }
    {
        let forms = world.heard.forms.lock();
        let (by, form) = &forms[0];
        // RFC 6749 section 2.3.1: both are form-encoded first.
        assert_eq!(by, &format!("Basic {}", STANDARD.encode("gate+way:s3cret%3A%25")));
        let sent = |name: &str| form[name].as_str();
        assert_eq!(
            (sent("grant_type"), sent("scope"), sent("audience")),
            ("client_credentials", "a b", "urn:crm")
        );
        assert_eq!(forms.len(), 1);
    }
    *world.heard.refuses.lock() = true;
    for _ in 0..3 {
        assert!(!is_done(&world.call(&token).await));
    }
    assert_eq!(world.forms(), 1, "a service that takes none makes nobody ask on and on");
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(11)).await;
    tokio::time::resume();
    assert!(!is_done(&world.call(&token).await));
    *world.heard.refuses.lock() = false;
    assert!(is_done(&world.call(&token).await));
    assert_eq!(world.heard.proof().unwrap(), "Bearer given-2");
}

/// The author of a spec chooses its URL and the audience; the operator decides which combinations are allowed.
#[tokio::test]
async fn no_token_for_one_service_goes_to_another() {
    for audience in ["elsewhere", "nowhere", ""] {
        let world = World::start(exchanged_for(audience)).await;
        let answer = world.call(&token_with_scopes("alice", READ)).await;
        assert!(text(&answer).contains("does not allow tokens of your issuer"), "{answer}");
        assert_eq!((world.forms(), world.calls()), (0, 0), "{audience}");
    }
}

/// The operator names the primitives that get tokens for a service (I-12).
#[tokio::test]
async fn a_token_is_exchanged_for_the_primitives_that_the_operator_names() {
    for (patterns, exchanged_) in [
        (&["demo/echo"][..], true),
        (&["demo/ec*"][..], true),
        (&["other/echo", "demo/add"][..], false),
        (&[][..], false),
    ] {
        let world = World::serving(exchanged(), CallHeaders::default(), patterns).await;
        let answer = world.call(&token_with_scopes("alice", READ)).await;
        assert_eq!(is_done(&answer), exchanged_, "{patterns:?} {answer}");
        let sent = usize::from(exchanged_);
        assert_eq!((world.forms(), world.calls()), (sent, sent), "{patterns:?}");
        assert!(exchanged_ || text(&answer).contains("does not allow this primitive a token"), "{answer}");
    }
}

#[tokio::test]
async fn an_exchange_widens_no_scope() {
    let world = World::start(exchanged()).await;
    let answer = world.call(&token_with_scopes("alice", "crm:write")).await;
    assert_eq!(answer["error"]["data"]["reason"], "insufficient_scope", "{answer}");
    assert_eq!((world.forms(), world.calls()), (0, 0));
}

/// A fault of one org's issuer or of one spec does not count against the service, which others call too.
#[tokio::test]
async fn an_issuer_that_fails_pauses_no_service() {
    let world = World::start(exchanged()).await;
    *world.heard.says.lock() = Some((StatusCode::INTERNAL_SERVER_ERROR, String::new()));
    for user in 0..30 {
        let answer = world.call(&token_with_scopes(&format!("user-{user}"), READ)).await;
        assert!(text(&answer).contains("the request to your issuer"), "{answer}");
    }
    *world.heard.says.lock() = None;
    let answer = world.call(&token_with_scopes("somebody-else", READ)).await;
    assert!(is_done(&answer), "{answer}");
}

/// Nothing was sent, so that its outcome is known although it may have effects.
#[tokio::test]
async fn a_call_whose_time_ends_before_its_proof_is_there_has_had_no_effect() {
    let world = World::running(Mutation::NonIdempotent, exchanged(), CallHeaders::default(), &["*"]).await;
    *world.heard.stalls.lock() = true;
    let deadline = now() * 1000 + 1500;
    let params = json!({"name": "echo", "arguments": {"message": "m"}});
    let call = Modern::new("demo", &token_with_scopes("alice", READ), "tools/call", params);
    let answer = call.with("x-deadline-ms", &deadline.to_string()).send(&world.fixture).await.json();
    assert_eq!(answer["error"]["data"]["reason"], "deadline", "{answer}");
    assert_eq!(world.calls(), 0);
}

const READ: &str = "crm:read";

fn exchanged() -> Option<Way> {
    exchanged_for("crm")
}

fn exchanged_for(audience: &str) -> Option<Way> {
    Some(Way::Exchange(ExchangedToken { audience: audience.into(), scopes: vec![READ.into()] }))
}

#[tokio::test]
async fn a_token_is_exchanged_at_the_callers_issuer_once_for_each_token() {
    let world = World::start(exchanged()).await;
    let (alice, bob) = (token_with_scopes("alice", READ), token_with_scopes("bob", "other crm:read"));
    for (token, given) in [(&alice, 1), (&alice, 1), (&bob, 2), (&alice, 1)] {
        let answer = world.call(token).await;
        assert!(is_done(&answer), "{answer}");
        assert_eq!(world.heard.proof().unwrap(), format!("Bearer given-{given}"));
    }
    let forms = world.heard.forms.lock();
    let (by, form) = &forms[0];
    assert_eq!(by, &format!("Basic {}", STANDARD.encode("gw:own")));
    assert_eq!(form["grant_type"], "urn:ietf:params:oauth:grant-type:token-exchange");
    assert_eq!(form["subject_token"], alice);
    assert_eq!(form["subject_token_type"], "urn:ietf:params:oauth:token-type:access_token");
    assert_eq!((form["audience"].as_str(), form["scope"].as_str()), ("crm", "crm:read"));
}

#[tokio::test]
async fn many_calls_of_one_token_ask_the_issuer_once() {
    let world = World::start(exchanged()).await;
    let token = token_with_scopes("alice", READ);
    let answers = futures::future::join_all((0..50).map(|_| world.call(&token))).await;
    assert!(answers.iter().all(is_done));
    assert_eq!((world.forms(), world.calls()), (1, 50));
}

/// An issuer's error text never reaches the caller, and nothing is sent to the service.
#[tokio::test]
async fn what_an_issuer_says_wrongly_proves_nothing() {
    let good = |member: &str, value: Value| {
        let mut said = json!({"access_token": "x", "token_type": "Bearer", "expires_in": 60});
        said[member] = value;
        said.to_string()
    };
    for (status, said, reason) in [
        (400, r#"{"error":"invalid_grant","error_description":"secret words"}"#.to_owned(), "declined"),
        (403, r#"{"error":"access_denied"}"#.into(), "declined"),
        // The gateway is not known there: the operator's fault.
        (401, "secret words".into(), "unavailable"),
        (401, r#"{"error":"invalid_client"}"#.into(), "unavailable"),
        (400, r#"{"error":"unauthorized_client"}"#.into(), "unavailable"),
        (500, "secret words".into(), "unavailable"),
        (429, String::new(), "unavailable"),
        (302, String::new(), "unavailable"),
        (200, "secret words".into(), "unavailable"),
        (200, "[]".into(), "unavailable"),
        (200, good("access_token", json!("")), "unavailable"),
        (200, good("access_token", json!("a b")), "unavailable"),
        (200, good("access_token", json!("a\r\nx: y")), "unavailable"),
        (200, good("access_token", json!("x".repeat(100_000))), "unavailable"),
        (200, good("token_type", json!("DPoP")), "unavailable"),
        (200, good("expires_in", json!(-5)), "unavailable"),
        (200, good("expires_in", json!("soon")), "unavailable"),
    ] {
        for auth in [exchanged(), by("client")] {
            let is_exchange = auth == exchanged();
            let world = World::start(auth).await;
            *world.heard.says.lock() = Some((StatusCode::from_u16(status).unwrap(), said.clone()));
            let answer = world.call(&token_with_scopes("alice", READ)).await;
            assert_eq!(answer["result"]["isError"], true, "{answer}");
            let expected = match (is_exchange, reason) {
                (true, "declined") => "your issuer refused a token",
                (true, _) => "the request to your issuer",
                (false, _) => "could not authenticate",
            };
            assert!(text(&answer).contains(expected), "{status} {said:.80}: {answer}");
            assert!(!answer.to_string().contains("secret words"), "{answer}");
            assert_eq!(world.calls(), 0, "{status} {said:.80}");
        }
    }
}

#[tokio::test]
async fn what_else_a_service_is_told_is_the_operators_choice() {
    let told = CallHeaders { trace: false, org: true, user: true };
    let world = World::telling(None, told).await;
    let mut claims = crate::support::claims("al ice/é");
    claims["org"] = json!("acme");
    assert!(is_done(&world.call(&crate::support::sign(&claims)).await));
    let calls = world.heard.calls.lock();
    assert_eq!(
        (&calls[0]["caller-org"], &calls[0]["caller-user"]),
        (&"acme".parse().unwrap(), &"al%20ice%2F%C3%A9".parse().unwrap())
    );
    assert!(!calls[0].contains_key("traceparent"), "{calls:?}");
}

/// A gateway whose `echo` is a pinned tool of a scripted upstream, and what that hears.
async fn upstream(auth: Option<Way>) -> (Fixture, Arc<super::asking::Server>) {
    let (address, server) =
        super::asking::server(|talk| Box::pin(async move { talk.done(&json!("m")) })).await;
    let origin = format!("http://{address}");
    let tool = json!({"name": "echo", "inputSchema": {"type": "object"}});
    *server.lists.lock() = json!([tool]);
    let target = ProxyMcp {
        url: "http://service.internal/mcp".into(),
        tool: "echo".into(),
        pin: asp_registry::pin::pin(&tool),
        ..ProxyMcp::default()
    };
    let mut snapshot = with_runtime("echo", Mode::ProxyMcp(target), Mutation::ReadOnly, &origin);
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.service_auth = Some(ServiceAuth { kind: auth.clone() });
        primitive.input_schema = tool["inputSchema"].to_string();
    }
    let named = credential(&origin, &["demo/echo"], Secret::Bearer("t0ken".into()));
    let credentials = HashMap::from([("bearer".to_owned(), named)]);
    (Fixture::asking(snapshot, IssuerDeps { credentials, ..IssuerDeps::default() }), server)
}

async fn echo_of(fixture: &Fixture, user: &str) -> Value {
    let params = json!({"name": "echo", "arguments": {"message": "m"}});
    Modern::new("demo", &token(user), "tools/call", params).send(fixture).await.json()
}

/// Everything that goes to an upstream has it: the handshake, the looks, the stream of what it says by itself, the end.
#[tokio::test]
async fn all_that_goes_to_an_upstream_has_its_credential() {
    let (fixture, server) = upstream(by("bearer")).await;
    let answer = echo_of(&fixture, "alice").await;
    assert_eq!(answer["result"]["structuredContent"]["told"], "m", "{answer}");
    let proofs = server.proofs.lock();
    assert!(proofs.len() >= 3, "{proofs:?}");
    assert!(proofs.iter().all(|(_, proof)| proof.as_deref() == Some("Bearer t0ken")), "{proofs:?}");
}

/// Two callers at one upstream never use each other's identity; a request on nobody's behalf has the authentication of
/// neither.
#[tokio::test]
async fn an_upstream_that_is_told_who_calls_is_told_of_each_call_by_itself() {
    let minted = MintedToken { audience: "http://service.internal".into() };
    let (fixture, server) = upstream(Some(Way::Token(minted))).await;
    for round in [["alice", "bob"], ["bob", "alice"]] {
        let [first, second] = round.map(|user| echo_of(&fixture, user));
        let (first, second) = tokio::join!(first, second);
        for answer in [first, second] {
            assert_eq!(answer["result"]["structuredContent"]["told"], "m", "{answer}");
        }
    }
    let user = |proof: &str| -> String {
        let claims = proof.split('.').nth(1).unwrap();
        let claims: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(claims).unwrap()).unwrap();
        claims["sub"].as_str().unwrap().to_owned()
    };
    let proofs = server.proofs.lock();
    let mut by_session: HashMap<String, Vec<String>> = HashMap::new();
    for (session, proof) in proofs.iter() {
        let proof = proof.as_deref().expect("whatever is asked here is asked for a caller");
        by_session.entry(session.clone()).or_default().push(user(proof));
    }
    by_session.remove("");
    assert_eq!(by_session.len(), 2, "a session each: {by_session:?}");
    for users in by_session.values() {
        assert!(users.windows(2).all(|pair| pair[0] == pair[1]), "{by_session:?}");
    }
}
