//! The operator's upstreams serve the primitives that they name, at the paths that they open (I-12): whatever speaks to them.

use asp_identity::minting::{TokenAudience, TokenAudiences};
use asp_proto::snapshot::service_auth::Kind;
use asp_proto::snapshot::{MintedToken, ProxyCalls, ProxyMcp, ServiceAuth};
use asp_runtime_client::runtimes::Runtimes;
use axum::extract::{Request, State};

use super::*;

/// The requests that a service got.
type Paths = Arc<Mutex<Vec<String>>>;

async fn record(State(paths): State<Paths>, request: Request) -> axum::Json<Value> {
    paths.lock().push(request.uri().path().to_owned());
    axum::Json(json!({ "done": true }))
}

/// A gateway whose `echo` uses the upstream entry `service.internal`, whose URL has `prefix` and which serves `patterns`.
async fn world(mode: Mode, prefix: &str, patterns: &[&str]) -> (Fixture, Paths) {
    let paths = Paths::default();
    let router = axum::Router::new().fallback(record).with_state(paths.clone());
    let url = format!("http://{}{prefix}", serve(router).await);
    let mut snapshot = with_runtime("echo", mode, Mutation::ReadOnly, &url);
    for upstream in &mut snapshot.upstreams {
        upstream.primitives = patterns.iter().map(|pattern| (*pattern).to_owned()).collect();
    }
    (Fixture::of(snapshot), paths)
}

fn modes() -> [(&'static str, Mode); 3] {
    let url = "http://service.internal/v1/do".to_owned();
    let mcp = ProxyMcp { url: url.clone(), tool: "echo".into(), ..ProxyMcp::default() };
    let calls = ProxyCalls { url, tool: "echo".into() };
    [
        ("http", Mode::ProxyHttp(http_mapping("/v1/do"))),
        ("mcp", Mode::ProxyMcp(mcp)),
        ("calls", Mode::ProxyCalls(calls)),
    ]
}

#[tokio::test]
async fn an_upstream_serves_the_primitives_that_its_entry_names() {
    for (patterns, reached) in [
        (&["demo/echo"][..], true),
        (&["demo/ec*"][..], true),
        (&["*"][..], true),
        (&["demo/echo2", "other/*", "other/echo"][..], false),
        (&[][..], false),
    ] {
        for (name, mode) in modes() {
            let (fixture, paths) = world(mode, "", patterns).await;
            let answer = echo(&fixture, "m").await.to_string();
            assert_eq!(!paths.lock().is_empty(), reached, "{name} {patterns:?}: {answer}");
            if !reached {
                assert!(answer.contains("does not let this primitive use the service"), "{name}: {answer}");
                // The entry and its patterns are the operator's.
                assert!(!answer.contains("ASP_UPSTREAMS") && !answer.contains("other/"), "{answer}");
            }
        }
    }
}

#[tokio::test]
async fn an_upstream_is_reached_at_the_paths_that_its_entry_opens() {
    for (prefix, reached) in
        [("/v1", true), ("/v1/", true), ("/v1/do", true), ("/v2", false), ("/v1/do/more", false)]
    {
        for (name, mode) in modes() {
            let (fixture, paths) = world(mode, prefix, &["demo/*"]).await;
            let answer = echo(&fixture, "m").await.to_string();
            assert_eq!(!paths.lock().is_empty(), reached, "{name} {prefix}: {answer}");
            assert!(reached || answer.contains("use that path"), "{name}: {answer}");
        }
    }
}

/// A template is judged as it is filled in with a caller's arguments, and as the service may decode it.
#[tokio::test]
async fn an_argument_leads_to_no_other_path() {
    for (message, reached) in [
        ("a", true),
        ("a b", true),
        ("..a", true),
        ("a/b", true),
        ("../admin", false),
        ("..", false),
        ("%2e%2e/admin", false),
        ("..%2fadmin", false),
        ("%252e%252e%252fadmin", false),
        ("..\\admin", false),
        ("..;/admin", false),
    ] {
        let mode = Mode::ProxyHttp(http_mapping("/v1/{message}"));
        let (fixture, paths) = world(mode, "/v1", &["demo/echo"]).await;
        let answer = echo(&fixture, message).await;
        assert_eq!(!paths.lock().is_empty(), reached, "{message}: {answer}");
    }
    for path in ["/v1/../admin", "/v1/%2e%2e/admin", "/v1/..%2fadmin", "/v1/..%5cadmin", "/v10", "/%76%31/do"]
    {
        let (fixture, paths) = world(Mode::ProxyHttp(http_mapping(path)), "/v1", &["demo/echo"]).await;
        let answer = echo(&fixture, "m").await;
        assert!(paths.lock().is_empty(), "{path}: {answer}");
    }
}

/// The author of a spec chooses its URL; the operator says whose calls are made in their callers' names there.
#[tokio::test]
async fn the_platforms_token_is_minted_for_the_primitives_that_the_operator_names() {
    for (origin, pattern, minted) in [
        ("http://service.internal", "demo/echo", true),
        ("http://service.internal", "demo/ec*", true),
        ("http://service.internal", "*", true),
        ("http://service.internal", "other/echo", false),
        ("http://service.internal", "demo/add", false),
        ("https://service.internal", "*", false),
        ("http://service.internal:81", "*", false),
    ] {
        for (name, mode) in modes() {
            let paths = Paths::default();
            let router = axum::Router::new().fallback(record).with_state(paths.clone());
            let url = format!("http://{}", serve(router).await);
            let mut snapshot = with_runtime("echo", mode, Mutation::ReadOnly, &url);
            for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
                let token = MintedToken { audience: "http://service.internal".into() };
                primitive.service_auth = Some(ServiceAuth { kind: Some(Kind::Token(token)) });
            }
            let entry = TokenAudience { origin: origin.into(), primitives: vec![pattern.into()] };
            let fixture = Fixture::minting(snapshot, Runtimes::none(), TokenAudiences::Listed(vec![entry]));
            let answer = echo(&fixture, "m").await.to_string();
            assert_eq!(!paths.lock().is_empty(), minted, "{name} {origin} {pattern} {answer}");
            assert!(minted || answer.contains("does not allow this primitive a token"), "{name} {answer}");
        }
    }
}
