//! Compiled MCP definitions fit the official schema of each revision, and contain nothing that it does not define.

use std::fs;
use std::path::Path;

use asp_registry::{Catalog, CompiledServer, check, compile_mcp, read_dir};
use serde_json::{Value, json};

const REVISIONS: [&str; 4] = ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"];
const LISTS: [(&str, &str); 4] = [
    ("tools", "Tool"),
    ("resources", "Resource"),
    ("resourceTemplates", "ResourceTemplate"),
    ("prompts", "Prompt"),
];

fn catalog() -> Catalog {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives");
    let report = check(&read_dir(&root).expect("primitives/ is readable"));
    assert_eq!(report.faults, []);
    report.catalog.expect("without a fault there is a catalog")
}

fn official(revision: &str) -> Value {
    let file = format!("../../tests/vectors/mcp-schema/schema-{revision}.json");
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).expect(revision);
    serde_json::from_str(&text).expect(revision)
}

/// Returns the official schema with `definition` as its root.
fn definition(official: &Value, definition: &str) -> Value {
    let place = if official.get("$defs").is_some() { "$defs" } else { "definitions" };
    json!({
        "$schema": official["$schema"],
        "$ref": format!("#/{place}/{definition}"),
        place: official[place],
    })
}

fn known_keys(official: &Value, definition: &str) -> Vec<String> {
    let place = if official.get("$defs").is_some() { "$defs" } else { "definitions" };
    let properties = official[place][definition]["properties"].as_object().expect(definition);
    properties.keys().cloned().collect()
}

fn server<'a>(catalog: &'a Catalog, name: &str) -> &'a CompiledServer {
    catalog.servers.iter().find(|server| server.server.name == name).expect(name)
}

#[test]
fn every_compiled_definition_fits_the_official_schema_of_its_revision() {
    let catalog = catalog();
    let mut judged = 0;
    for revision in REVISIONS {
        let official = official(revision);
        for (list, name) in LISTS {
            let schema = definition(&official, name);
            let validator = jsonschema::options().offline().build(&schema).expect(name);
            let known = known_keys(&official, name);
            for server in &catalog.servers {
                for item in compile_mcp(server, revision)[list].as_array().expect(list) {
                    let errors: Vec<String> = validator.iter_errors(item).map(|e| e.to_string()).collect();
                    assert!(errors.is_empty(), "{revision} {name} {item}: {errors:?}");
                    for key in item.as_object().expect(name).keys() {
                        assert!(known.contains(key), "{revision} {name} has no `{key}`");
                    }
                    judged += 1;
                }
            }
        }
    }
    assert!(judged >= 4 * 12, "only {judged} definitions were judged");
}

#[test]
fn a_definition_that_lacks_its_schema_is_told_from_a_good_one() {
    let official = official("2025-11-25");
    let validator = jsonschema::options().offline().build(&definition(&official, "Tool")).expect("Tool");
    assert!(validator.is_valid(&json!({"name": "a", "inputSchema": {"type": "object"}})));
    assert!(!validator.is_valid(&json!({"name": "a"})));
    assert!(!validator.is_valid(&json!({"name": "a", "inputSchema": {"type": "string"}})));
}

#[test]
fn titles_and_output_schemas_appear_with_the_revision_that_brought_them() {
    let catalog = catalog();
    let tool = |revision: &str| compile_mcp(server(&catalog, "demo"), revision)["tools"][0].clone();
    assert_eq!(tool("2024-11-05").get("annotations"), None);
    assert_eq!(tool("2025-03-26")["annotations"]["title"], "Echo");
    assert_eq!(tool("2025-03-26").get("title"), None);
    assert_eq!(tool("2025-03-26").get("outputSchema"), None);
    assert_eq!(tool("2025-06-18")["title"], "Echo");
    assert_eq!(tool("2025-06-18")["outputSchema"]["required"], json!(["message"]));
    for revision in REVISIONS {
        assert_eq!(tool(revision).get("execution"), None, "task support is never advertised");
    }
    assert_eq!(tool("2099-01-01"), tool("2026-07-28"), "a later revision gets the newest definition");
    assert_eq!(tool("1999-01-01"), tool("2024-11-05"), "an earlier one the oldest");
}

#[test]
fn tools_stand_in_the_order_of_the_server_file() {
    let catalog = catalog();
    let lists = compile_mcp(server(&catalog, "demo"), "2025-11-25");
    let names: Vec<&str> =
        lists["tools"].as_array().expect("tools").iter().map(|t| t["name"].as_str().expect("name")).collect();
    assert_eq!(names, ["echo", "clock", "count"]);
    assert_eq!(lists["resources"][0]["uri"], "demo://about");
    assert_eq!(lists["resourceTemplates"][0]["uriTemplate"], "demo://items/{id}");
    assert_eq!(lists["prompts"][0]["arguments"][0]["required"], true);
}
