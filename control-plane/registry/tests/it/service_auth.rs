//! `runtime.auth`: authentication to the service behind a primitive, rejected specs and the compiled ones.

use asp_proto::snapshot::LinkedToken;
use asp_proto::snapshot::service_auth::Kind;
use asp_registry::{CheckReport, Source, check};

fn report(runtime: &str) -> CheckReport {
    report_of(runtime, "")
}

/// Checks a spec with this runtime; `security` has more members for its `security`.
fn report_of(runtime: &str, security: &str) -> CheckReport {
    let spec = format!(
        "id: sample\nname: Sample\ntype: tool\nversion: 1.0.0\nowner: team\nsummary: A sample.\nmutation: idempotent\n\
         security: {{auth: {{type: jwt, scopes: [crm:read]}}{security}}}\n\
         primitiveSchema:\n  input_schema: {{type: object, required: [id], properties: {{id: {{type: string}}}}}}\n\
         runtime: {{{runtime}}}\n"
    );
    let server = "apiVersion: asp/v1\nname: demo\ntitle: Demo\ndescription: A demo.\nprotocols: [mcp]\n\
                  auth: {schemes: [jwt], issuers: [dev]}\nprimitives: [{ref: demo/sample}]\n";
    let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    check(&[source("demo/sample.yaml", &spec), source("demo/server.yaml", server)])
}

fn faults(runtime: &str) -> Vec<(&'static str, String)> {
    // With an invalid spec the server's list has an unresolved reference as well.
    let faults = report(runtime).faults;
    let own = faults.iter().filter(|fault| fault.code.as_str() != "unresolved_ref");
    own.map(|fault| (fault.code.as_str(), fault.path.clone())).collect()
}

const HTTP: &str = "mode: proxy, http: {url: \"https://crm.example.com:8443/items/{id}\"}";
const CALLS: &str = "mode: proxy, calls: {url: \"https://crm.example.com\", tool: scan}";
const PLUGIN: &str = "mode: plugin, language: python, entrypoint: a.py";

#[test]
fn one_way_is_written_for_what_has_a_service_and_no_secret_is() {
    let long = "x".repeat(2049);
    let many = format!("[{}]", vec!["a"; 65].join(", "));
    for (runtime, auth, expected) in [
        (HTTP, "{}", ("missing_key", "/runtime/auth")),
        (HTTP, "{password: x}", ("unknown_key", "/runtime/auth/password")),
        (HTTP, "{token: {}, credential: crm}", ("misplaced_key", "/runtime/auth/credential")),
        (HTTP, "{exchange: {audience: a}, token: {}}", ("misplaced_key", "/runtime/auth/exchange")),
        (
            HTTP,
            "{token: {audience: \"https://crm.example.com\"}}",
            ("misplaced_key", "/runtime/auth/token/audience"),
        ),
        (HTTP, "{exchange: {}}", ("missing_key", "/runtime/auth/exchange/audience")),
        (HTTP, "{exchange: {audience: \"\"}}", ("bad_value", "/runtime/auth/exchange/audience")),
        (HTTP, "{exchange: {audience: \"é\"}}", ("bad_value", "/runtime/auth/exchange/audience")),
        (
            HTTP,
            &format!("{{exchange: {{audience: {long}}}}}"),
            ("bad_value", "/runtime/auth/exchange/audience"),
        ),
        (HTTP, "{exchange: {audience: \"a b\"}}", ("bad_value", "/runtime/auth/exchange/audience")),
        (
            HTTP,
            "{exchange: {audience: a, scopes: [\"a b\"]}}",
            ("bad_scope", "/runtime/auth/exchange/scopes/0"),
        ),
        (
            HTTP,
            &format!("{{exchange: {{audience: a, scopes: {many}}}}}"),
            ("bad_value", "/runtime/auth/exchange/scopes"),
        ),
        (HTTP, "{credential: \"\"}", ("bad_value", "/runtime/auth/credential")),
        (HTTP, "{credential: \"a/b\"}", ("bad_value", "/runtime/auth/credential")),
        (HTTP, "{credential: [a]}", ("wrong_type", "/runtime/auth/credential")),
        (
            PLUGIN,
            "{token: {audience: \"https://crm.example.com\"}}",
            ("missing_key", "/security/allowedDomains"),
        ),
        (PLUGIN, "{credential: crm}", ("missing_key", "/security/allowedDomains")),
        (PLUGIN, "{exchange: {audience: a}}", ("missing_key", "/security/allowedDomains")),
        (HTTP, "{linked: \"\"}", ("bad_value", "/runtime/auth/linked")),
        (HTTP, "{linked: a/b}", ("bad_value", "/runtime/auth/linked")),
        (HTTP, "{linked: github, credential: crm}", ("misplaced_key", "/runtime/auth/linked")),
        (HTTP, "{linked: github, scopes: [\"a b\"]}", ("bad_scope", "/runtime/auth/scopes/0")),
        (HTTP, &format!("{{linked: github, scopes: {many}}}"), ("bad_value", "/runtime/auth/scopes")),
        (HTTP, "{token: {}, scopes: [a]}", ("misplaced_key", "/runtime/auth/scopes")),
        (PLUGIN, "{linked: github}", ("misplaced_key", "/runtime/auth/linked")),
        ("mode: builtin, entrypoint: echo", "{token: {}}", ("misplaced_key", "/runtime/auth")),
        ("mode: mcp-stdio, package: notes", "{credential: a}", ("misplaced_key", "/runtime/auth")),
    ] {
        let found = faults(&format!("{runtime}, auth: {auth}"));
        assert_eq!(found, [(expected.0, expected.1.to_owned())], "{auth:.60}");
    }
}

fn compiled(runtime: &str) -> Option<Kind> {
    compiled_of(&report(runtime))
}

fn compiled_of(report: &CheckReport) -> Option<Kind> {
    assert!(report.faults.is_empty(), "{:?}", report.faults);
    let catalog = report.catalog.as_ref().unwrap();
    let [server] = catalog.servers.as_slice() else { panic!("one server") };
    let [primitive] = server.primitives.as_slice() else { panic!("one primitive") };
    primitive.service_auth.as_ref().and_then(|auth| auth.kind.clone())
}

#[test]
fn a_tokens_audience_is_the_services_origin_and_the_scopes_are_the_primitives_unless_they_are_said() {
    let token = |runtime: &str| match compiled(runtime) {
        Some(Kind::Token(token)) => token.audience,
        other => panic!("{other:?}"),
    };
    assert_eq!(token(&format!("{HTTP}, auth: {{token: {{}}}}")), "https://crm.example.com:8443");
    assert_eq!(token(&format!("{CALLS}, auth: {{token: {{}}}}")), "https://crm.example.com");
    let exchanged = |auth: &str| match compiled(&format!("{HTTP}, auth: {{exchange: {auth}}}")) {
        Some(Kind::Exchange(token)) => (token.audience, token.scopes.join(" ")),
        other => panic!("{other:?}"),
    };
    assert_eq!(exchanged("{audience: crm}"), ("crm".into(), "crm:read".into()));
    assert_eq!(exchanged("{audience: crm, scopes: [a, b]}"), ("crm".into(), "a b".into()));
    let credential = compiled(&format!("{CALLS}, auth: {{credential: crm.key}}"));
    assert_eq!(credential, Some(Kind::Credential("crm.key".into())));
    let linked = compiled(&format!("{HTTP}, auth: {{linked: github, scopes: [repo]}}"));
    let expected = LinkedToken { provider: "github".into(), scopes: vec!["repo".into()] };
    assert_eq!(linked, Some(Kind::Linked(expected)));
    assert_eq!(compiled(HTTP), None);
}

/// Tokens of linked accounts are stored.
#[test]
fn a_primitive_of_high_risk_has_no_linked_account() {
    let runtime = format!("{HTTP}, auth: {{linked: github}}");
    for (class, expected) in [("high", true), ("medium", false), ("low", false)] {
        let report = report_of(&runtime, &format!(", riskClass: {class}"));
        let found = report.faults.iter().any(|fault| fault.path == "/runtime/auth/linked");
        assert_eq!(found, expected, "{class} {:?}", report.faults);
    }
}

#[test]
fn a_plugins_token_names_one_service_that_it_reaches() {
    let security = ", allowedDomains: [crm.example.com, a.files.example]";
    for (token, expected) in [
        ("{}", Some("missing_key")),
        ("{audience: crm}", Some("bad_value")),
        ("{audience: 'https://crm.example.com/x'}", Some("bad_value")),
        ("{audience: 'https://crm.example.com@evil.example'}", Some("bad_value")),
        ("{audience: 'https://erp.example.com'}", Some("bad_value")),
        ("{audience: 'https://files.example'}", Some("bad_value")),
        ("{audience: 'https://crm.example.com'}", None),
        ("{audience: 'http://crm.example.com:8443'}", None),
        ("{audience: 'https://a.files.example'}", None),
    ] {
        let report = report_of(&format!("{PLUGIN}, auth: {{token: {token}}}"), security);
        let found = report.faults.iter().find(|fault| fault.path == "/runtime/auth/token/audience");
        assert_eq!(found.map(|fault| fault.code.as_str()), expected, "{token} {:?}", report.faults);
        if expected.is_none() {
            assert!(
                matches!(compiled_of(&report), Some(Kind::Token(token)) if !token.audience.is_empty()),
                "{token}"
            );
        }
    }
}

#[test]
fn a_plugin_works_with_a_credential_where_it_may_reach_somebody() {
    let plugin = format!("{PLUGIN}, auth: {{credential: crm}}");
    let report = report_of(&plugin, ", allowedDomains: [crm.example.com]");
    assert_eq!(compiled_of(&report), Some(Kind::Credential("crm".into())));
}
