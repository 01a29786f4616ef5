use serde_json::{Value, json};

use super::*;
use crate::card::etag;

fn input() -> CardInput {
    let both = vec![Generation::V10, Generation::V03];
    let interface = |binding, url: &str| Interface { binding, url: url.into(), generations: both.clone() };
    CardInput {
        name: "Größe".into(),
        description: "d".into(),
        version: "1.2.3".into(),
        provider: Some(Provider { organization: "ACME".into(), url: "https://acme.example/".into() }),
        interfaces: vec![
            interface(Binding::JsonRpc, "https://a.example/demo/a2a"),
            interface(Binding::Grpc, "a.example:443"),
            interface(Binding::Rest, "https://a.example/demo/a2a"),
        ],
        capabilities: Capabilities { streaming: true, extended_card: true, ..Capabilities::default() },
        security_schemes: vec![
            (
                "bearer".into(),
                SecurityScheme::Http { scheme: "Bearer".into(), bearer_format: Some("JWT".into()) },
            ),
            ("mtls".into(), SecurityScheme::MutualTls),
        ],
        security_requirements: vec![vec![("bearer".into(), vec!["demo:call".into()])]],
        default_input_modes: vec!["text/plain".into()],
        default_output_modes: vec!["application/json".into()],
        skills: vec![Json::part(
            r#"{"id":"echo","name":"Echo","description":"","tags":["x"],"examples":[],"n":1.50}"#,
        )],
        ..CardInput::default()
    }
}

#[test]
fn the_hybrid_card_serves_both_versions() {
    // Interop bug 17: 1.0 first, 0.3 beside it, and the top-level fields that clients of 0.3 need.
    let expected = json!({
        "name": "Größe", "description": "d", "version": "1.2.3",
        "supportedInterfaces": [
            {"url": "https://a.example/demo/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": "a.example:443", "protocolBinding": "GRPC", "protocolVersion": "1.0"},
            {"url": "https://a.example/demo/a2a", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            {"url": "https://a.example/demo/a2a", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
            {"url": "a.example:443", "protocolBinding": "GRPC", "protocolVersion": "0.3"},
            {"url": "https://a.example/demo/a2a", "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"}
        ],
        "provider": {"organization": "ACME", "url": "https://acme.example/"},
        "capabilities": {"streaming": true, "pushNotifications": false, "extendedAgentCard": true},
        "securitySchemes": {
            "bearer": {
                "httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"},
                "type": "http", "scheme": "Bearer", "bearerFormat": "JWT"
            },
            "mtls": {
                "mtlsSecurityScheme": {"description": "TLS client certificate"},
                "type": "mutualTLS", "description": "TLS client certificate"
            }
        },
        "securityRequirements": [{"schemes": {"bearer": {"list": ["demo:call"]}}}],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["application/json"],
        "skills": [{"id": "echo", "name": "Echo", "tags": ["x"], "n": 1.5}],
        "protocolVersion": "0.3", "url": "https://a.example/demo/a2a", "preferredTransport": "JSONRPC",
        "additionalInterfaces": [
            {"url": "https://a.example/demo/a2a", "transport": "JSONRPC"},
            {"url": "a.example:443", "transport": "GRPC"},
            {"url": "https://a.example/demo/a2a", "transport": "HTTP+JSON"}
        ],
        "supportsAuthenticatedExtendedCard": true,
        "security": [{"bearer": ["demo:call"]}]
    });
    let card = build(&input());
    assert_eq!(card.view(), &expected);
    assert!(card.text().contains("1.50"), "what is not empty keeps its text");
}

#[test]
fn nothing_in_a_card_is_empty() {
    let minimal = CardInput {
        name: "A".into(),
        documentation_url: Some(String::new()),
        provider: Some(Provider { organization: "x".into(), url: String::new() }),
        ..CardInput::default()
    };
    let schemes = vec![
        ("k".to_owned(), SecurityScheme::ApiKey { location: "header".into(), name: "X-Key".into() }),
        (
            "o".to_owned(),
            SecurityScheme::OpenIdConnect { url: "https://i/.well-known/openid-configuration".into() },
        ),
        (
            "c".to_owned(),
            SecurityScheme::Oauth2 {
                flow: OauthFlow::ClientCredentials {
                    token_url: "https://i/token".into(),
                    scopes: Vec::new(),
                },
                metadata_url: None,
            },
        ),
        (
            "a".to_owned(),
            SecurityScheme::Oauth2 {
                flow: OauthFlow::AuthorizationCode {
                    authorization_url: "https://i/auth".into(),
                    token_url: "https://i/token".into(),
                    scopes: vec![("demo:call".into(), "calls".into())],
                    pkce_required: true,
                },
                metadata_url: Some("https://i/meta".into()),
            },
        ),
    ];
    for input in [minimal, CardInput { security_schemes: schemes, ..input() }, input()] {
        let card = build(&input);
        assert_eq!(&prune(card.view()), card.view(), "{card}");
        assert!(!etag(&card).contains(['{', ' ']) && etag(&card).len() == 34);
    }
}

#[test]
fn a_card_of_1_0_alone_has_no_field_of_0_3() {
    let mut input = input();
    input.interfaces.iter_mut().for_each(|interface| interface.generations = vec![Generation::V10]);
    let card = build(&input);
    for name in ["url", "protocolVersion", "preferredTransport", "additionalInterfaces", "security"] {
        assert_eq!(card.get(name), None::<&Value>, "{name}");
    }
}
