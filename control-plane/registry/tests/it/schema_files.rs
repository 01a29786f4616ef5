//! Schemas that come from a plugin's code: `<id>.schema.json` next to the spec.

use asp_registry::{CheckReport, Source, check, check_before_build, schema_file, schema_file_name};
use serde_json::{Value, json};

const SERVER: &str = "apiVersion: asp/v1\nname: demo\ndescription: D\nprotocols: [mcp]\n\
                      auth: {schemes: [jwt], issuers: [dev]}\nprimitives: [{ref: demo/greet}]\n";
const PLUGIN: &str = "runtime: {mode: plugin, language: python, entrypoint: main.py}\n";

fn spec(rest: &str) -> String {
    format!(
        "id: greet\nname: Greet\ntype: tool\nversion: 1.0.0\nowner: a@example.com\nsummary: S.\n\
         mutation: read_only\n{rest}"
    )
}

/// Returns the demo server with this spec and this file of schemas.
fn sources(spec: &str, file: Option<&str>) -> Vec<Source> {
    let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    let mut sources = vec![source("demo/server.yaml", SERVER), source("demo/greet.yaml", spec)];
    sources.extend(file.map(|text| source("demo/greet.schema.json", text)));
    sources
}

fn described(input: Value, output: Value) -> String {
    let said = json!({"format": 1, "inputSchema": input, "outputSchema": output, "artifactSchema": null});
    schema_file("greet", &said).expect("it says something")
}

fn named(name: &str) -> Value {
    json!({"type": "object", "properties": {name: {"type": "string"}}, "required": [name]})
}

/// Returns `file:path code` of every fault.
fn faults(report: &CheckReport) -> Vec<String> {
    let told = |fault: &asp_registry::Fault| format!("{}:{} {}", fault.file, fault.path, fault.code.as_str());
    report.faults.iter().map(told).collect()
}

#[test]
fn a_spec_without_schemas_takes_those_of_the_code_and_names_their_file() {
    let file = described(named("name"), named("text"));
    let report = check(&sources(&spec(PLUGIN), Some(&file)));
    assert_eq!(faults(&report), [""; 0]);
    let server = report.catalog.expect("no fault").servers.remove(0);
    let primitive = &server.primitives[0];
    let parsed = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(parsed(&primitive.input_schema), named("name"));
    assert_eq!(parsed(&primitive.output_schema), named("text"));
    // This list is what is applied or pushed.
    assert_eq!(server.files, ["demo/greet.schema.json", "demo/greet.yaml", "demo/server.yaml"]);
}

#[test]
fn a_schema_in_both_places_is_the_same_or_a_fault_that_names_both() {
    let written = |name: &str| spec(&format!("primitiveSchema: {{input_schema: {}}}\n{PLUGIN}", named(name)));
    let file = described(named("name"), Value::Null);
    assert_eq!(faults(&check(&sources(&written("name"), Some(&file)))), [""; 0]);
    let report = check(&sources(&written("other"), Some(&file)));
    assert_eq!(faults(&report), ["demo/greet.yaml:/primitiveSchema/input_schema schema_conflict"]);
    assert!(report.faults[0].message.contains("demo/greet.schema.json/inputSchema"), "{report:?}");
}

#[test]
fn a_plugin_without_any_schema_is_told_to_build() {
    let report = check(&sources(&spec(PLUGIN), None));
    assert_eq!(faults(&report), ["demo/greet.yaml:/primitiveSchema/input_schema missing_key"]);
    assert!(report.faults[0].hint.contains("asp plugin build"), "{report:?}");
    // The result's schema alone is not enough.
    let file = described(Value::Null, named("text"));
    assert_eq!(faults(&check(&sources(&spec(PLUGIN), Some(&file)))).len(), 1);
}

#[test]
fn a_fault_of_a_schema_and_an_example_off_it_are_told_where_they_stand() {
    let file = described(json!({"type": "object", "properties": {"n": {"type": "many"}}}), Value::Null);
    let report = check(&sources(&spec(PLUGIN), Some(&file)));
    assert_eq!(faults(&report), ["demo/greet.schema.json:/inputSchema/properties/n/type bad_schema"]);
    assert_eq!(report.faults[0].line, 9, "{report:?}");
    let file = described(named("name"), Value::Null);
    let report =
        check(&sources(&spec(&format!("{PLUGIN}examples: [{{input: {{name: 1}}}}]\n")), Some(&file)));
    assert_eq!(faults(&report), ["demo/greet.yaml:/examples/0/input/name bad_example"]);
}

#[test]
fn a_file_of_schemas_belongs_to_a_plugin_and_says_so() {
    let file = described(named("name"), Value::Null);
    let proxy = "primitiveSchema: {input_schema: {type: object}}\n\
                 runtime: {mode: proxy, http: {url: \"https://api.example.com/\"}}\n";
    assert_eq!(faults(&check(&sources(&spec(proxy), Some(&file)))), ["demo/greet.schema.json:/id bad_path"]);
    let other = file.replace("\"greet\"", "\"part\"");
    assert_eq!(
        faults(&check(&sources(&spec(PLUGIN), Some(&other)))),
        ["demo/greet.schema.json:/id bad_value"]
    );
    let hidden = file.replace("\"format\": 1", "\"format\": 2");
    assert_eq!(
        faults(&check(&sources(&spec(PLUGIN), Some(&hidden)))),
        ["demo/greet.schema.json:/format bad_value"]
    );
}

#[test]
fn before_a_build_nothing_is_missed_and_nothing_old_is_believed() {
    let stale = described(named("old"), Value::Null);
    let spec = spec(&format!("{PLUGIN}examples: [{{input: {{name: Ada}}}}]\n"));
    for file in [None, Some(stale.as_str())] {
        let report = check_before_build(&sources(&spec, file));
        assert_eq!(faults(&report), [""; 0]);
        let server = report.catalog.expect("no fault").servers.remove(0);
        assert_eq!(server.primitives[0].input_schema, "");
    }
}

#[test]
fn code_that_says_nothing_has_no_file() {
    assert_eq!(schema_file("greet", &json!({"format": 1, "inputSchema": null, "outputSchema": null})), None);
    let text = described(named("name"), Value::Null);
    assert!(text.ends_with("}\n") && !text.contains("outputSchema"), "{text}");
    assert_eq!(schema_file_name("greet"), "greet.schema.json");
}

#[test]
fn an_examples_answers_go_to_declared_questions_in_a_form_that_is_an_answer() {
    let file = described(named("name"), Value::Null);
    let faults_of = |answers: &str| {
        let rest = format!(
            "{PLUGIN}primitiveDependencies: {{elicitations: [{{id: other/city}}], delegations: [{{id: tone}}]}}\n\
             examples: [{{input: {{name: Ada}}, answers: {answers}}}]\n"
        );
        let mut found = faults(&check(&sources(&spec(&rest), Some(&file))));
        found.retain(|fault| !fault.ends_with("unresolved_dependency"));
        found
    };
    assert_eq!(faults_of("{city: {name: Oslo}, tone: calm}"), [""; 0]);
    assert_eq!(faults_of("{city: decline}"), [""; 0]);
    assert_eq!(faults_of("{city: Oslo}"), ["demo/greet.yaml:/examples/0/answers/city bad_example"]);
    assert_eq!(faults_of("{town: decline}"), ["demo/greet.yaml:/examples/0/answers/town bad_example"]);
}
