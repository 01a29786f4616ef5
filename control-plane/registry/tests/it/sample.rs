//! The sample task of the first specification compiles to its own tool and card.

use std::fs;
use std::path::{Path, PathBuf};

use asp_registry::{CompiledServer, check, compile_mcp, read_dir, runtime_manifest};
use serde_json::{Value, json};

/// Set to write the golden files instead of comparing them.
const UPDATE: &str = "ASP_UPDATE_GOLDEN";

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(path)
}

fn compliance() -> CompiledServer {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives");
    let report = check(&read_dir(&root).expect("primitives/ is readable"));
    let servers = report.catalog.expect("the primitives have no fault").servers;
    servers.into_iter().find(|server| server.server.name == "webex-compliance").expect("the sample server")
}

fn printed(name: &str) -> Value {
    serde_json::from_str(&fs::read_to_string(here("sample").join(name)).expect(name)).expect(name)
}

/// Whether `compiled` has everything that is in `printed`. It may also have the keys in `added`.
fn differences(printed: &Value, compiled: &Value, added: &[&str], path: &str, found: &mut Vec<String>) {
    match (printed, compiled) {
        (Value::Object(printed), Value::Object(compiled)) => {
            for (key, value) in printed {
                let inner = compiled.get(key).unwrap_or(&Value::Null);
                differences(value, inner, added, &format!("{path}/{key}"), found);
            }
            for key in compiled.keys().filter(|key| !printed.contains_key(*key)) {
                if !added.contains(&key.as_str()) {
                    found.push(format!("{path}/{key} is not in the sample"));
                }
            }
        }
        (Value::Array(printed), Value::Array(compiled)) if printed.len() == compiled.len() => {
            for (index, (one, other)) in printed.iter().zip(compiled).enumerate() {
                differences(one, other, added, &format!("{path}/{index}"), found);
            }
        }
        (Value::String(printed), Value::String(compiled)) if printed.ends_with('…') => {
            if !compiled.starts_with(printed.trim_end_matches('…')) {
                found.push(format!("{path}: {compiled}"));
            }
        }
        (Value::Null, Value::Number(_)) => {}
        (printed, compiled) => {
            if printed != compiled {
                found.push(format!("{path}: {printed} became {compiled}"));
            }
        }
    }
}

#[test]
fn the_tool_is_the_printed_one_but_for_nullable() {
    let tool = compile_mcp(&compliance(), "2025-06-18")["tools"][0].clone();
    let mut expected = printed("tool.json");
    // `nullable` is not JSON Schema; the platform compiles its meaning.
    expected["inputSchema"]["properties"]["legalHoldPolicyId"] = json!({"type": ["string", "null"]});
    let mut found = Vec::new();
    differences(&expected, &tool, &[], "", &mut found);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn the_card_is_the_printed_one_and_what_is_true_besides() {
    let card: Value = serde_json::from_str(&compliance().agent_card).expect("the card is JSON");
    let url = "${public_url}/webex-compliance/a2a";
    let mut expected = printed("card.json");
    // A card that the platform signs sends nobody elsewhere with a token.
    expected["url"] = url.into();
    // The platform serves REST at the same URL.
    expected["additionalInterfaces"] =
        json!([{"url": url, "transport": "JSONRPC"}, {"url": url, "transport": "HTTP+JSON"}]);
    let mut found = Vec::new();
    let added = [
        "supportedInterfaces",
        "securityRequirements",
        "httpAuthSecurityScheme",
        "supportsAuthenticatedExtendedCard",
        "streaming",
        "extendedAgentCard",
    ];
    differences(&expected, &card, &added, "", &mut found);
    assert_eq!(found, Vec::<String>::new());
    assert_eq!(
        card["supportedInterfaces"],
        json!([
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"},
            {"url": url, "protocolBinding": "JSONRPC", "protocolVersion": "0.3"},
            {"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "0.3"},
        ])
    );
    assert_eq!(card["capabilities"], json!({"streaming": true, "extendedAgentCard": true}));
    assert_eq!(card["securityRequirements"], json!([{"schemes": {"bearer-jwt": {}}}]));
}

/// Collects the paths of empty texts, lists and objects, and of `false`.
fn empty_members(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            for (name, value) in members {
                empty_members(value, &format!("{path}/{name}"), found);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                empty_members(value, &format!("{path}/{index}"), found);
            }
        }
        _ => {}
    }
    if [json!({}), json!([]), json!(""), json!(false), Value::Null].contains(value) {
        found.push(path.to_owned());
    }
}

#[test]
fn nothing_in_the_cards_of_the_samples_is_empty_but_the_scopes_of_a_requirement() {
    // Interop bug 12: official SDKs drop what is empty before they verify a signature.
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives");
    let mut sources = read_dir(&root).expect("primitives/ is readable");
    for source in &mut sources {
        source.text = source.text.replace("protocols: [mcp, rest]", "protocols: [mcp, rest, a2a]");
        source.text = source.text.replace("protocols: [mcp]", "protocols: [mcp, a2a]");
    }
    let servers = check(&sources).catalog.expect("the primitives have no fault").servers;
    let mut skills = 0;
    for server in &servers {
        let card: Value = serde_json::from_str(&server.agent_card).expect("the card is JSON");
        let mut found = Vec::new();
        empty_members(&card, "", &mut found);
        found.retain(|path| !path.starts_with("/security/") && !path.starts_with("/securityRequirements/"));
        assert_eq!(found, Vec::<String>::new(), "{}", server.server.name);
        skills += card["skills"].as_array().map_or(0, Vec::len);
    }
    assert!(skills > 20, "{skills} skills");
}

#[test]
fn the_comparison_finds_a_difference() {
    let mut found = Vec::new();
    let printed = json!({"a": "cut…", "b": 1});
    differences(&printed, &json!({"a": "other", "b": 2, "c": 3}), &[], "", &mut found);
    assert_eq!(found.len(), 3, "{found:?}");
}

#[test]
fn the_nullable_argument_is_reported_and_nothing_else() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives");
    let report = check(&read_dir(&root).expect("primitives/ is readable"));
    let warnings: Vec<_> = report
        .warnings
        .iter()
        .filter(|w| w.file.starts_with("webex-compliance/"))
        .map(|w| (w.code.as_str(), w.file.as_str(), w.line))
        .collect();
    assert_eq!(warnings, [("nullable_rewritten", "webex-compliance/cdcsr.json", 52)]);
}

#[test]
fn the_sample_carries_what_it_depends_on() {
    let server = compliance();
    let ids: Vec<_> = server.primitives.iter().map(|primitive| primitive.id.as_str()).collect();
    let expected = [
        "approve_remediation",
        "cdcsr",
        "gather_missing_policy",
        "legal_phrase_ner",
        "llm_pii_classifier",
        "voice_redaction_suggester",
    ];
    assert_eq!(ids, expected);
    assert_eq!(server.server.listings.len(), 1, "questions and delegates are not listed");
    assert_eq!(server.files.len(), 7);
}

#[test]
fn compiled_output_equals_the_golden_files() {
    let server = compliance();
    let task = server.primitives.iter().find(|primitive| primitive.id == "cdcsr").expect("cdcsr");
    let question =
        server.primitives.iter().find(|primitive| primitive.id == "approve_remediation").expect("it");
    let compiled = [
        ("cdcsr.mcp.json", compile_mcp(&server, "2026-07-28")),
        ("cdcsr.card.json", serde_json::from_str(&server.agent_card).expect("the card is JSON")),
        ("cdcsr.manifest.json", runtime_manifest(task)),
        ("approve_remediation.json", serde_json::from_str(&question.question).expect("the question is JSON")),
    ];
    for (name, value) in compiled {
        let text = format!("{}\n", serde_json::to_string_pretty(&value).expect(name));
        let file = here("golden").join(name);
        if std::env::var_os(UPDATE).is_some() {
            fs::write(&file, &text).expect(name);
        }
        let golden = fs::read_to_string(&file).unwrap_or_default();
        assert!(
            golden == text,
            "{name} differs from what is compiled now; when that is meant, run\n\
             {UPDATE}=1 cargo test -p asp-registry --test it compiled_output_equals_the_golden_files"
        );
    }
}
