//! Agent cards: who sees which skill (I-10), signatures of both algorithms that verify with the published keys, the agent at the
//! root, the bindings that reach a server.

use asp_a2a::card::{CardKey, CardSignature, VerifyFault, verify};
use asp_a2a::grpc::generated::{a2a::v1 as v03, lf::a2a::v1 as v10};
use asp_edge::Caller;
use asp_json::Json;
use asp_proto::snapshot::{Binding, ExposureException, Protocol, TargetKind};
use asp_protocols::a2a::card::{card_for, has_extended_card};
use asp_registry::{Inputs, Source, assemble, check};
use axum::body::Body;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::registry::caller;
use crate::support::{Fixture, PUBLIC_URL, inputs, token};

const CARD: &str = "/agent/.well-known/agent-card.json";

fn server(name: &str, keys: &str) -> String {
    format!(
        "apiVersion: asp/v1\nname: {name}\ntitle: Größe\ndescription: For tests.\nversion: 1.0.0\n\
         protocols: [mcp, a2a]\nauth: {{schemes: [jwt], issuers: [dev]}}\n{keys}\n"
    )
}

fn spec(id: &str, summary: &str) -> String {
    format!(
        "id: {id}\nname: Echo\ntype: tool\nversion: 1.0.0\nowner: t@example.com\nsummary: {summary}\n\
         mutation: read_only\nprimitiveSchema: {{input_schema: {{type: object}}}}\n\
         runtime: {{mode: builtin, entrypoint: echo}}\n"
    )
}

/// An agent that is offered to every org, one that orgs have to enable, one whose documents nobody finds.
fn agents() -> Inputs {
    let open = "defaultExposure: allow\nhosts: [mcp.example.com, agent.example.com]\n\
                primitives: [{ref: agent/agent.echo, as: say}, {ref: agent/agent.tell}]";
    let rows = [
        ("agent/server", server("agent", open)),
        ("agent/echo", spec("agent.echo", "Says it again.")),
        ("agent/tell", spec("agent.tell", "Tells it.")),
        ("closed/server", server("closed", "primitives: [{ref: closed/closed.secret}]")),
        ("closed/secret", spec("closed.secret", "Unannounced.")),
        (
            "hidden/server",
            server(
                "hidden",
                "defaultExposure: allow\ndiscovery: false\nprimitives: [{ref: agent/agent.echo}]",
            ),
        ),
    ];
    let sources = rows.map(|(file, text)| Source { path: format!("{file}.yaml"), text });
    let report = check(&sources);
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
    Inputs { servers: report.catalog.unwrap().servers, dev: false, ..inputs() }
}

fn ids(card: &Value) -> Vec<&str> {
    card["skills"].as_array().unwrap().iter().map(|skill| skill["id"].as_str().unwrap()).collect()
}

fn parsed(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

async fn keys(fixture: &Fixture, card: &Json) -> (String, Vec<CardKey>) {
    let jku = CardSignature::all_of(card)[0].jku.clone().unwrap();
    let path = jku.strip_prefix(PUBLIC_URL).unwrap();
    let answer = fixture.send(Method::GET, path, &[], "").await;
    assert_eq!(answer.status, StatusCode::OK, "{path}");
    let keys = CardKey::of_jwks(&answer.text);
    (answer.text, keys)
}

#[tokio::test]
async fn a_card_declares_the_extensions_of_the_platform_and_requires_none() {
    let fixture = Fixture::of(assemble(agents()));
    let card = fixture.send(Method::GET, CARD, &[], "").await.json();
    let declared = card["capabilities"]["extensions"].as_array().unwrap();
    let names = ["cost-v1", "worldstate-delta-v1", "tool-call-v1"];
    assert_eq!(declared.len(), names.len(), "{card}");
    for (extension, name) in declared.iter().zip(names) {
        assert_eq!(extension["uri"], format!("https://proto-labs.ai/a2a/ext/{name}"));
        assert_eq!((extension["description"].is_string(), extension.get("required")), (true, None));
    }
}

#[tokio::test]
async fn a_card_verifies_with_the_published_key_and_no_changed_byte_does() {
    // Interop bugs 12 and 17.
    let fixture = Fixture::of(assemble(agents()));
    let answer = fixture.send(Method::GET, CARD, &[], "").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.headers["content-type"], "application/json");
    let card = parsed(&answer.text);
    assert_eq!(card["url"], format!("{PUBLIC_URL}/agent/a2a"));
    assert_eq!(card["supportedInterfaces"][0]["protocolVersion"], "1.0");
    let (set, keys) = keys(&fixture, &card).await;
    // ES256 and EdDSA; a verifier may know either.
    assert_eq!(keys.len(), 2);
    for key in &keys {
        assert_eq!(verify(&card, std::slice::from_ref(key)).unwrap().kid, key.kid);
    }
    for (from, to) in [
        ("Größe", "Grösse"),
        ("\"streaming\":true", "\"streaming\":false"),
        ("Says it again.", "Says it again!"),
        ("\"say\"", "\"sax\""),
        ("\"protocolBinding\":\"HTTP+JSON\"", "\"protocolBinding\":\"GRPC\""),
    ] {
        assert!(answer.text.contains(from), "{from}");
        let changed = parsed(&answer.text.replacen(from, to, 1));
        assert_eq!(verify(&changed, &keys), Err(VerifyFault::Mismatch), "{from}");
    }
    // The private half stays, and services accept no token by this key.
    let set: Value = serde_json::from_str(&set).unwrap();
    let members =
        |key: &Value| key.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ");
    assert_eq!(members(&set["keys"][0]), "kty crv x y kid alg use");
    assert_eq!(members(&set["keys"][1]), "kty crv x kid alg use");
    let of_tokens = fixture.send(Method::GET, "/.well-known/jwks.json", &[], "").await;
    assert!(keys.iter().all(|key| !of_tokens.text.contains(key.kid.as_deref().unwrap())));
}

#[tokio::test]
async fn a_client_that_has_the_card_gets_a_304_until_it_changes() {
    let fixture = Fixture::of(assemble(agents()));
    let first = fixture.send(Method::GET, CARD, &[], "").await;
    let tag = first.headers["etag"].to_str().unwrap();
    assert_eq!(first.headers["cache-control"], "public, max-age=60");
    // A page that asks later must not get a response without its headers from a cache.
    let of_page = fixture.send(Method::GET, CARD, &[("origin", "https://app.example.com")], "").await;
    assert_eq!(first.headers["vary"], "origin");
    assert_eq!(of_page.headers["vary"], "origin");
    assert!(!first.headers.contains_key("access-control-allow-origin"));
    assert_eq!(of_page.headers["access-control-allow-origin"], "https://app.example.com");
    let again = fixture.send(Method::GET, CARD, &[("if-none-match", tag)], "").await;
    assert_eq!((again.status, again.text.as_str()), (StatusCode::NOT_MODIFIED, ""));
    assert_eq!(
        (&again.headers["etag"], &again.headers["cache-control"]),
        (&first.headers["etag"], &first.headers["cache-control"])
    );
    let head = fixture.send(Method::HEAD, CARD, &[], "").await;
    assert_eq!((head.status, &head.headers["etag"]), (StatusCode::OK, &first.headers["etag"]));
    let posted = fixture.send(Method::POST, CARD, &[], "").await;
    assert_eq!(posted.status, StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(posted.headers["allow"], "GET, HEAD");
    let older =
        fixture.send(Method::GET, "/agent/.well-known/agent.json", &[("if-none-match", tag)], "").await;
    assert_eq!(older.status, StatusCode::NOT_MODIFIED);

    let mut changed = agents();
    changed
        .servers
        .iter_mut()
        .for_each(|server| server.server.a2a_card = server.server.a2a_card.replace("For tests.", "Changed."));
    changed.revision = 2;
    fixture.gateway.apply(assemble(changed)).unwrap();
    let answer = fixture.send(Method::GET, CARD, &[("if-none-match", tag)], "").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert!(answer.text.contains("Changed.") && answer.headers["etag"] != first.headers["etag"]);
}

#[tokio::test]
async fn anybody_sees_the_skills_of_open_agents_and_a_caller_its_own() {
    let mut inputs = agents();
    inputs.bindings.push(Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "bob".into(),
        primitive: "agent.tell".into(),
        protocol: Protocol::Unspecified.into(),
        allowed: false,
        ..Binding::default()
    });
    inputs.exposure.push(ExposureException {
        org: "acme".into(),
        server: "closed".into(),
        protocol: Protocol::A2a.into(),
        enabled: true,
    });
    let fixture = Fixture::of(assemble(inputs));
    let open = fixture.send(Method::GET, CARD, &[], "").await.json();
    assert_eq!(ids(&open), ["say", "agent.tell"]);
    let closed = fixture.send(Method::GET, "/closed/.well-known/agent-card.json", &[], "").await;
    assert!(!closed.text.contains("secret") && !closed.text.contains("Unannounced"), "{}", closed.text);
    // Clients of 0.3 refuse a card without the member; both canonical forms are signed.
    let card = parsed(&closed.text);
    assert_eq!(card["skills"], json!([]));
    let (_, keys) = keys(&fixture, &card).await;
    assert!(verify(&card, &keys).is_ok());
    assert_eq!(CardSignature::all_of(&card).len(), 4);

    let snapshot = fixture.gateway.snapshot().unwrap();
    let of = async |server: &str, caller: &Caller| {
        let server = snapshot.server(server).unwrap();
        assert!(has_extended_card(server));
        card_for(&fixture.gateway, &snapshot, server, Some(caller)).await
    };
    for (user, sees) in [("alice", &["say", "agent.tell"][..]), ("bob", &["say"])] {
        let card = of("agent", &caller(user)).await.unwrap();
        assert_eq!(ids(card.view()), sees, "{user}");
        assert!(verify(&card, &keys).is_ok());
        let bearer = format!("Bearer {}", token(user));
        for path in ["/agent/a2a/extendedAgentCard", "/agent/a2a/v1/card"] {
            let answer = fixture.send(Method::GET, path, &[("authorization", bearer.as_str())], "").await;
            assert_eq!(
                (answer.status, ids(&answer.json())),
                (StatusCode::OK, sees.to_vec()),
                "{user} {path}"
            );
        }
    }
    assert_eq!(ids(of("closed", &caller("alice")).await.unwrap().view()), ["closed.secret"]);
    let stranger = Caller { org: "other".into(), ..caller("eve") };
    assert!(of("closed", &stranger).await.is_none(), "hidden and unknown are the same");
}

async fn at_root(fixture: &Fixture, host: &str) -> (StatusCode, String) {
    let request = Request::builder().uri("/.well-known/agent-card.json").header("host", host);
    let router = asp_gateway::http::router(fixture.gateway.clone());
    let response = router.oneshot(request.body(Body::empty()).unwrap()).await.unwrap();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let card: Value = serde_json::from_slice(&bytes).unwrap();
    (status, card["url"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn the_card_at_the_root_is_that_of_the_host_or_of_the_default_agent() {
    let with_default = |name: &str| Fixture::of(assemble(Inputs { default_agent: name.into(), ..agents() }));
    let url = |name: &str| (StatusCode::OK, format!("{PUBLIC_URL}/{name}/a2a"));
    let fixture = with_default("");
    assert_eq!(at_root(&fixture, "Agent.example.com").await, url("agent"));
    assert_eq!(at_root(&fixture, "other.example.com").await.0, StatusCode::NOT_FOUND);
    assert_eq!(at_root(&with_default("closed"), "other.example.com").await, url("closed"));
    assert_eq!(at_root(&with_default("closed"), "agent.example.com").await, url("agent"));
    // The public URL's host is the operator's, whoever lists it.
    assert_eq!(at_root(&with_default("closed"), "mcp.example.com").await, url("closed"));
    assert_eq!(at_root(&fixture, "mcp.example.com").await.0, StatusCode::NOT_FOUND);
    let hidden = with_default("hidden");
    assert_eq!(at_root(&hidden, "other.example.com").await.0, StatusCode::NOT_FOUND);
    let direct = hidden.send(Method::GET, "/hidden/.well-known/agent-card.json", &[], "").await;
    assert_eq!(direct.status, StatusCode::NOT_FOUND);
    let snapshot = hidden.gateway.snapshot().unwrap();
    assert_eq!(snapshot.edge.agent(None), Some("hidden"));
}

/// The bindings of a card's interfaces of 1.0 and 0.3 with their URLs, and its transports.
fn bindings(card: &Value) -> Vec<String> {
    let of = |list: &str, member: &str| {
        let interfaces = card[list].as_array().unwrap().iter().filter(|one| one["transport"] != "HTTP+JSON");
        let kept = interfaces.filter(|one| one["protocolBinding"] != "HTTP+JSON");
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        kept.map(|one| [text(&one[member]), text(&one["protocolVersion"]), text(&one["url"])].join(" "))
            .collect::<Vec<_>>()
    };
    [of("supportedInterfaces", "protocolBinding"), of("additionalInterfaces", "transport")].concat()
}

#[tokio::test]
async fn grpc_is_among_the_bindings_of_a_server_that_a_host_selects_and_of_the_default_agent() {
    let card = async |default_agent: &str, hosts: &[&str], server: &str| {
        let mut inputs = Inputs { default_agent: default_agent.into(), ..agents() };
        let agent = inputs.servers.iter_mut().find(|known| known.server.name == "agent").unwrap();
        agent.edge.hosts = hosts.iter().map(|host| (*host).to_owned()).collect();
        let fixture = Fixture::of(assemble(inputs));
        let answer =
            fixture.send(Method::GET, &format!("/{server}/.well-known/agent-card.json"), &[], "").await;
        let card = parsed(&answer.text);
        let (_, keys) = keys(&fixture, &card).await;
        assert!(verify(&card, &keys).is_ok());
        bindings(card.view())
    };
    let with = |url: &str, address: &str| {
        let rows = [
            format!("JSONRPC 1.0 {url}"),
            format!("GRPC 1.0 {address}"),
            format!("JSONRPC 0.3 {url}"),
            format!("GRPC 0.3 {address}"),
            format!("JSONRPC  {url}"),
            format!("GRPC  {address}"),
        ];
        rows.to_vec()
    };
    let agent = format!("{PUBLIC_URL}/agent/a2a");
    let own = ["agent.example.com:8443", "mcp.example.com"];
    assert_eq!(card("", &own, "agent").await, with(&agent, "agent.example.com:8443"));
    assert_eq!(card("agent", &[], "agent").await, with(&agent, "mcp.example.com:443"));
    let closed = format!("{PUBLIC_URL}/closed/a2a");
    assert_eq!(card("closed", &["agent.example.com"], "closed").await, with(&closed, "mcp.example.com:443"));
    assert_eq!(card("closed", &own, "closed").await, with(&closed, "mcp.example.com:443"));
    let without =
        |rows: Vec<String>| rows.into_iter().filter(|row| !row.starts_with("GRPC")).collect::<Vec<_>>();
    assert_eq!(card("", &["mcp.example.com"], "agent").await, without(with(&agent, "")), "a claim");
    assert_eq!(card("", &[], "agent").await, without(with(&agent, "")));
}

#[tokio::test]
async fn an_extended_card_over_grpc_has_the_form_of_its_version() {
    let fixture = Fixture::of(assemble(agents()));
    let router = || asp_gateway::http::router(fixture.gateway.clone());
    let origin = || http::Uri::from_static("https://agent.example.com");
    let bearer = format!("Bearer {}", token("alice"));
    let mut request = tonic::Request::new(v10::GetExtendedAgentCardRequest::default());
    request.metadata_mut().insert("authorization", bearer.parse().unwrap());
    let mut client = v10::a2a_service_client::A2aServiceClient::with_origin(router(), origin());
    let card = client.get_extended_agent_card(request).await.unwrap().into_inner();
    let bindings: Vec<&str> =
        card.supported_interfaces.iter().map(|interface| interface.protocol_binding.as_str()).collect();
    assert_eq!(bindings, ["JSONRPC", "HTTP+JSON", "GRPC"].repeat(2));
    assert_eq!(card.skills.iter().map(|skill| skill.id.as_str()).collect::<Vec<_>>(), ["say", "agent.tell"]);
    assert!(!card.signatures.is_empty());
    let mut request = tonic::Request::new(v03::GetAgentCardRequest::default());
    request.metadata_mut().insert("authorization", bearer.parse().unwrap());
    let mut client = v03::a2a_service_client::A2aServiceClient::with_origin(router(), origin());
    let card = client.get_agent_card(request).await.unwrap().into_inner();
    let last = card.additional_interfaces.last().unwrap();
    assert_eq!((last.transport.as_str(), last.url.as_str()), ("GRPC", "agent.example.com:443"));
    assert_eq!((card.protocol_version.as_str(), card.skills.len()), ("0.3.0", 2));
}
