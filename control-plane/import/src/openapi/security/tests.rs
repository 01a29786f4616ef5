//! Security of documents, the specs of their operations, and the entries of the operator.

use super::super::super::files::ImportResult;
use super::super::super::report::ImportReport;
use super::super::super::specs;
use super::super::import;
use super::*;

/// Returns a document with an operation for each requirement; the document itself requires `key`.
fn document(requirements: &[Value]) -> Value {
    let operation = |(n, security): (usize, &Value)| {
        (format!("/{n}"), json!({"get": {"operationId": format!("o{n}"), "security": security}}))
    };
    let mut paths: Map<String, Value> = requirements.iter().enumerate().map(operation).collect();
    paths.insert("/all".into(), json!({"get": {"operationId": "all"}}));
    let client = |url: &str| json!({"type": "oauth2", "flows": {"clientCredentials": {"tokenUrl": url}}});
    json!({"openapi": "3.1.0", "servers": [{"url": "https://api.example:8443/v1"}], "paths": paths,
        "security": [{"key": []}], "components": {"securitySchemes": {
            "key": {"type": "apiKey", "in": "header", "name": "X-Key"},
            "basic": {"type": "http", "scheme": "Basic"},
            "bearer": {"type": "http", "scheme": "bearer"},
            "client": client("https://login.example/token"),
            "plain": client("http://login.example/token"),
            "user": {"type": "openIdConnect", "openIdConnectUrl": "https://login.example"},
            "other name": {"$ref": "#/components/securitySchemes/basic"},
            "query": {"type": "apiKey", "in": "query", "name": "key"},
            "bad": {"type": "apiKey", "in": "header", "name": "a b"},
            "digest": {"type": "http", "scheme": "digest"},
            "tls": {"type": "mutualTLS"}}}})
}

fn args() -> ImportArgs {
    ImportArgs { mcp: None, openapi: Some("api.json".into()), ..specs::tests::args() }
}

fn imported(args: &ImportArgs, requirements: &[Value]) -> ImportResult {
    import(args, document(requirements).to_string().as_bytes(), &mut ImportReport::default()).unwrap()
}

fn auth(imported: &ImportResult, name: &str) -> Value {
    let spec: Value = serde_json::from_str(&imported.files[&format!("up/{name}.json")]).unwrap();
    spec["runtime"]["auth"].clone()
}

#[test]
fn each_spec_names_the_credential_of_its_scheme_and_the_operator_gets_the_entry() {
    let imported =
        imported(&args(), &[json!([{"client": ["read"]}]), json!([{"client": ["write", "a\"b"]}])]);
    assert_eq!(auth(&imported, "all"), json!({"credential": "up-key"}));
    assert_eq!(auth(&imported, "o0"), json!({"credential": "up-client"}));
    let lines: Vec<&str> = imported.requirements.iter().map(|one| one.line.as_str()).collect();
    let entry = |name: &str, proof: &str| {
        format!(r#"{{"{name}":{{"origin":"https://api.example:8443","for":["up/*"],{proof}}}}}"#)
    };
    let client = r#""oauthClient":{"tokenUrl":"https://login.example/token","clientId":"CLIENT","clientSecretFile":"/run/secrets/up-client","scopes":["read","write"]}"#;
    let key = r#""header":{"name":"X-Key","valueFile":"/run/secrets/up-key"}"#;
    assert!(lines[0].contains(&entry("up-client", client)), "{lines:?}");
    assert!(lines[0].contains("`--exchange AUDIENCE`"), "{lines:?}");
    assert!(lines[1].ends_with(&entry("up-key", key)), "{lines:?}");
    assert!(lines[1].starts_with("needs a credential: a key in the header X-Key (`key` of the document)"));
}

#[test]
fn an_operation_gets_what_one_of_its_alternatives_needs() {
    let key = json!({"credential": "up"});
    for (requirement, expected) in [
        (json!([{"key": []}]), key.clone()),
        (json!([{"query": []}, {"key": []}]), key),
        (json!([]), Value::Null),
        (json!([{"key": []}, {}]), Value::Null),
        (json!([{"query": []}]), Value::Null),
        (json!([{"bad": []}]), Value::Null),
        (json!([{"digest": []}, {"tls": []}, {"lost": []}]), Value::Null),
        (json!([{"key": [], "basic": []}]), Value::Null),
    ] {
        assert_eq!(
            auth(&imported(&args(), std::slice::from_ref(&requirement)), "o0"),
            expected,
            "{requirement}"
        );
    }
    for (name, credential, member) in [
        ("basic", "up-basic", r#""basic":{"user":"USER","passwordFile":"#),
        ("bearer", "up-bearer", r#""bearerFile":"#),
        ("plain", "up-plain", r#""bearerFile":"#),
        ("user", "up-user", r#""bearerFile":"#),
        ("other name", "up-other-name", r#""basic":"#),
    ] {
        let imported = imported(&args(), &[json!([{name: []}])]);
        assert_eq!(auth(&imported, "o0"), json!({"credential": credential}));
        let found = imported.requirements.iter().find(|one| one.name == credential).unwrap();
        assert!(found.line.contains(member), "{}", found.line);
    }
}

#[test]
fn the_operators_choice_stands_for_all_operations() {
    let requirements = [json!([{"user": ["orders", "a b"]}]), json!([])];
    let exchange = ImportArgs { exchange: Some("shop".into()), ..args() };
    let exchanged = imported(&exchange, &requirements);
    assert_eq!(auth(&exchanged, "o0"), json!({"exchange": {"audience": "shop", "scopes": ["orders"]}}));
    assert_eq!(auth(&exchanged, "all"), json!({"exchange": {"audience": "shop"}}));
    assert_eq!(auth(&exchanged, "o1"), Value::Null);
    let entry = r#"{"shop":{"origins":["https://api.example:8443"],"for":["up/*"]}}"#;
    assert!(exchanged.requirements[0].line.ends_with(entry), "{}", exchanged.requirements[0].line);

    let behind = ImportArgs { proxy_url: Some("http://shop.internal/v1".into()), ..args() };
    let line = &imported(&behind, &requirements).requirements[0].line;
    assert!(line.contains("http://shop.internal\"") && line.contains("the origin of that entry"), "{line}");

    let credential = ImportArgs { credential: Some("mine".into()), ..args() };
    let named = imported(&credential, &requirements);
    assert_eq!(auth(&named, "o0"), json!({"credential": "mine"}));
    assert!(named.requirements.is_empty());
    let without = imported(&ImportArgs { no_auth: true, ..args() }, &requirements);
    assert_eq!(auth(&without, "o0"), Value::Null);
}
