//! Snapshots of stored servers and policy, and what is left out of them.

use asp_proto::snapshot::GatewaySnapshot;
use asp_store::control::{ControlState, StateUpdate};

use super::*;
use crate::testkit::TestIssuer;

#[test]
fn a_described_fault_holds_no_command_of_a_ci() {
    let fault = |file: &str, message: &str| asp_registry::Fault {
        code: asp_registry::FaultCode::Syntax,
        file: file.into(),
        line: 1,
        path: String::new(),
        message: message.into(),
        hint: String::new(),
    };
    for (file, message, expected) in [
        ("a/x.yaml", "bad # word", "a/x.yaml:1: syntax: bad # word"),
        (
            "a/##[error]x.yaml",
            "###vso[task.setvariable x]\n::error::x",
            "a/#\\u0023[error]x.yaml:1: syntax: #\\u0023#vso[task.setvariable x]\n  | ::error::x",
        ),
        (" ::add-mask::a.yaml", "b", "|  ::add-mask::a.yaml:1: syntax: b"),
    ] {
        let described = describe(&fault(file, message));
        assert_eq!(described, expected);
        assert!(!described.contains("##"), "{described}");
    }
}

fn published(state: &ControlState, compiler: &Compiler) -> GatewaySnapshot {
    build::Builder::new(compiler.clone()).build(StateUpdate::All(state.clone()), false).unwrap().whole()
}

pub(super) fn config(dev: bool) -> StaticConfig {
    StaticConfig {
        public_url: "http://127.0.0.1:8080".into(),
        dev,
        workers: 1,
        trust: TestIssuer::new().trust(),
        upstreams: Vec::new(),
        default_agent: String::new(),
        agent_hosts: Vec::new(),
        all_servers: false,
        unauthenticated_rate: 0,
    }
}

pub(super) fn server(auth: &str) -> ServerRecord {
    let yaml = format!(
        "apiVersion: asp/v1\nname: demo\ndescription: A demo.\nprotocols: [mcp]\nauth: {auth}\n\
             primitives: [{{ref: demo/ping}}]\n"
    );
    let spec = "id: ping\nname: Ping\ntype: tool\nversion: 1.0.0\nowner: a@example.com\nsummary: Pings.\n\
                    mutation: read_only\nprimitiveSchema: {input_schema: {type: object}}\n\
                    runtime: {mode: builtin, entrypoint: echo}\n";
    let file = |path: &str, text: &str| SourceFile { path: path.into(), text: text.into() };
    ServerRecord {
        name: "demo".into(),
        files: vec![file("demo/server.yaml", &yaml), file("demo/ping.yaml", spec)],
        unreadable: None,
        content_hash: String::new(),
        revision: 1,
        updated_at: 0,
        a2a_confirmed: true,
        disabled: Vec::new(),
    }
}

#[test]
fn a_server_that_edges_would_refuse_is_left_out_and_the_rest_is_published() {
    let good = server("{schemes: [jwt], issuers: [dev]}");
    let mut unknown = server("{schemes: [jwt], issuers: [nobody]}");
    unknown.name = "other".into();
    for file in &mut unknown.files {
        file.path = file.path.replace("demo/", "other/");
        file.text = file.text.replace("demo", "other").replace("ping", "pong");
    }
    let compiler = Compiler::new(config(true));
    let rejected = compile("other", &unknown.files).unwrap();
    assert!(compiler.accepts(&rejected).unwrap_err().contains("nobody"));
    let state = ControlState { revision: 1, servers: vec![good, unknown], ..ControlState::default() };
    let published = published(&state, &compiler);
    let names: Vec<&str> = published.servers.iter().map(|server| server.name.as_str()).collect();
    assert_eq!(names, ["demo"]);
}

#[test]
fn the_default_agent_is_published_to_edges_and_gateways() {
    let compiler = Compiler::new(StaticConfig { default_agent: "demo".into(), ..config(true) });
    assert_eq!(compiler.config.base().default_agent, "demo");
    let edge = published(&ControlState::default(), &compiler).edge.unwrap();
    assert_eq!(edge.default_agent, "demo");
}

/// Invariant I-12.
#[test]
fn a_server_accepts_audiences_that_its_issuers_list_for_it_and_its_own() {
    let issuer = TestIssuer::new();
    let corporate = |lists: serde_json::Value| -> asp_issuers::document::Document {
        serde_json::from_value(serde_json::json!({
            "name": "corporate", "iss": "https://login.example", "jwks": {"keys": [issuer.jwk()]},
            "algs": ["ES256"], "orgs": ["*"], "audiences": ["everywhere"], "serverAudiences": lists,
        }))
        .unwrap()
    };
    let compiler = |lists: serde_json::Value| {
        let file = asp_issuers::document::File { clients: vec![corporate(lists)], ..Default::default() };
        let given = asp_issuers::trust::StaticIssuers { file, ..Default::default() };
        Compiler::new(StaticConfig { trust: Trust::new(given), ..config(false) })
    };
    let accepts = |lists: serde_json::Value, audience: &str| {
        let auth = format!("{{schemes: [jwt], issuers: [corporate], audiences: [\"{audience}\"]}}");
        compiler(lists).accepts(&compile("demo", &server(&auth).files).unwrap())
    };
    let none = serde_json::json!({});
    for own in ["http://127.0.0.1:8080", "http://127.0.0.1:8080/demo/mcp", "everywhere"] {
        assert_eq!(accepts(none.clone(), own), Ok(()), "{own}");
    }
    for other in ["shop", "http://127.0.0.1:8080/other/mcp", "http://127.0.0.1:8080/demo2"] {
        let fault = accepts(none.clone(), other).unwrap_err();
        assert!(fault.contains("`corporate` does not list") && fault.contains(other), "{fault}");
    }
    assert_eq!(accepts(serde_json::json!({"demo": ["shop"]}), "shop"), Ok(()));
    assert_eq!(accepts(serde_json::json!({"de*": ["https://eu/{server}"]}), "https://eu/demo"), Ok(()));
    assert!(accepts(serde_json::json!({"other": ["shop"]}), "shop").is_err());
    assert!(accepts(serde_json::json!({"*": ["https://eu/{server}"]}), "https://eu/other").is_err());
}

#[test]
fn an_audience_that_is_listed_no_more_takes_its_server_out_and_is_named() {
    let issuer = TestIssuer::new();
    let document = serde_json::json!({
        "name": "corporate", "iss": "https://login.example", "jwks": {"keys": [issuer.jwk()]},
        "algs": ["ES256"], "orgs": ["*"],
    });
    let file = asp_issuers::document::File {
        clients: vec![serde_json::from_value(document).unwrap()],
        ..Default::default()
    };
    let given = asp_issuers::trust::StaticIssuers { file, ..Default::default() };
    let compiler = Compiler::new(StaticConfig { trust: Trust::new(given), ..config(false) });
    let stored = server("{schemes: [jwt], issuers: [corporate], audiences: [shop]}");
    let Settlement { servers, faults } = compiler.settle(&[stored]);
    assert!(servers.is_empty() && faults[0].fault.contains("serverAudiences"), "{faults:?}");
}

#[test]
fn a_server_that_another_version_applied_is_published_without_a2a() {
    let mut record = server("{schemes: [jwt], issuers: [dev]}");
    record.files[0].text = record.files[0].text.replace("protocols: [mcp]", "protocols: [mcp, a2a]");
    let compiler = Compiler::new(config(true));
    let off = |record: &ServerRecord| {
        let servers = compiler.settle(std::slice::from_ref(record)).servers;
        (servers[0].is_a2a_off(), servers[0].server.listings[0].a2a_skill.is_empty())
    };
    assert_eq!(off(&record), (false, false));
    (record.revision, record.a2a_confirmed) = (2, false);
    assert_eq!(off(&record), (true, true));
    (record.revision, record.a2a_confirmed) = (3, true);
    assert!(!compiler.compile_one(&record).unwrap().is_a2a_off(), "not compiled before");
}

#[test]
fn an_open_server_is_for_development() {
    let open = compile("demo", &server("{schemes: [none]}").files).unwrap();
    assert!(Compiler::new(config(true)).accepts(&open).is_ok());
    assert!(Compiler::new(config(false)).accepts(&open).is_err());
}
