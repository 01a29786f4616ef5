//! Reports of a whole check: every fault of every file, bounded in number and length, and the allowed places of
//! files.

use asp_registry::{CheckReport, Source, check};

const BUILTIN: &str = "runtime: {mode: builtin, entrypoint: echo}";

fn source(path: &str, text: &str) -> Source {
    Source { path: path.into(), text: text.into() }
}

fn found(report: &CheckReport) -> Vec<(&'static str, String)> {
    let all = report.faults.iter().chain(&report.warnings);
    all.map(|fault| (fault.code.as_str(), fault.path.clone())).collect()
}

#[test]
fn a_misspelt_key_is_reported_with_the_key_of_its_object_that_was_meant() {
    let said = |line: &str| {
        let text = format!(
            "id: x\nname: X\ntype: tool\nversion: 1.0.0\nowner: o\nsummary: s\nmutation: read_only\n\
             primitiveSchema: {{input_schema: {{type: object}}}}\n{BUILTIN}\n{line}\n"
        );
        let report = check(&[source("demo/x.yaml", &text)]);
        let fault = report.faults.iter().find(|fault| fault.code.as_str() == "unknown_key");
        fault.map(|fault| (fault.line, fault.message.clone())).unwrap_or_default()
    };
    let unknown = |key: &str, near: &str| (10, format!("the key `{key}` is not known here{near}"));
    assert_eq!(said("exmaples: []"), unknown("exmaples", ": did you mean `examples`?"));
    assert_eq!(
        said("capabilities: {maxRuntimeSecond: 5}"),
        unknown("maxRuntimeSecond", ": did you mean `maxRuntimeSeconds`?")
    );
    // A key of another object is none of this one.
    assert_eq!(said("capabilities: {entrypoint: x}"), unknown("entrypoint", ""));
    assert_eq!(said("colour: blue"), unknown("colour", ""));
}

#[test]
fn one_check_reports_every_fault_of_every_file() {
    let files = [
        source(
            "demo/server.yaml",
            "apiVersion: asp/v1\nname: Demo\nprotocols: [mcp]\nauth: {schemes: [jwt]}\nprimitives: [{ref: demo/x}]\n",
        ),
        source("demo/broken.yaml", "id: [\n"),
        source("demo/unknown.yaml", "id: 5\nkind: tool\n"),
        source(
            "demo/bad.json",
            "{\"id\": \"a b\", \"name\": \"A\", \"type\": \"prompt\", \"version\": \"1\", \"owner\": \"o\",\n \"summary\": \"s\"}",
        ),
    ];
    let report = check(&files);
    assert!(report.catalog.is_none());
    let by_file = |file: &str| -> Vec<(&str, u32)> {
        let faults = report.faults.iter().filter(|fault| fault.file == file);
        faults.map(|fault| (fault.code.as_str(), fault.line)).collect()
    };
    assert_eq!(by_file("demo/bad.json"), [("bad_id", 1), ("missing_key", 1), ("bad_version", 1)]);
    assert_eq!(by_file("demo/broken.yaml").len(), 1);
    let unknown = by_file("demo/unknown.yaml");
    assert_eq!(unknown.len(), 6, "{unknown:?}");
    assert!(unknown.contains(&("wrong_type", 1)) && unknown.contains(&("unknown_key", 2)));
    let server = by_file("demo/server.yaml");
    assert_eq!(server, [("bad_server_name", 2), ("auth_conflict", 4), ("unresolved_ref", 5)]);
}

#[test]
fn the_name_of_the_address_of_all_servers_is_reserved() {
    let text = "apiVersion: asp/v1\nname: all\nprotocols: [mcp]\nauth: {schemes: [none]}\nprimitives: []\n";
    let report = check(&[source("all/server.yaml", text)]);
    let faults: Vec<(&str, u32)> =
        report.faults.iter().map(|fault| (fault.code.as_str(), fault.line)).collect();
    assert_eq!(faults, [("bad_server_name", 2)]);
}

#[test]
fn the_faults_of_one_file_are_bounded() {
    let keys: String = (0..5_000).map(|n| format!("k{n}: 1\n")).collect();
    let report = check(&[source("demo/a.yaml", &keys)]);
    assert!((100..=400).contains(&report.faults.len()), "{}", report.faults.len());
}

#[test]
fn large_values_are_quoted_briefly() {
    let numbers = "1,".repeat(45_000);
    let branches = "{const: 1},".repeat(3_000);
    let table = [
        ("tags", format!("{BUILTIN}\ntags: [{numbers}]"), "wrong_type"),
        ("text", format!("{BUILTIN}\ntags: \"{}\"", "x ".repeat(30_000)), "wrong_type"),
        ("example", format!("{BUILTIN}\nexamples: [{{input: {{id: [{numbers}]}}}}]"), "bad_example"),
        (
            "example of many branches",
            format!(
                "  output_schema: {{type: object, properties: {{a: {{items: {{allOf: [{branches}]}}}}}}}}\n\
                {BUILTIN}\nexamples: [{{input: {{id: a}}, output: {{a: [{}]}}}}]",
                "2,".repeat(7_000)
            ),
            "bad_example",
        ),
    ];
    for (name, extra, code) in table {
        let text = format!(
            "id: sample\nname: Sample\ntype: tool\nversion: 1.0.0\nowner: team\nsummary: A sample.\nmutation: idempotent\n\
             primitiveSchema:\n  input_schema: {{type: object, properties: {{id: {{type: string}}}}}}\n{extra}\n"
        );
        let report = check(&[source("demo/sample.yaml", &text)]);
        assert_eq!(report.faults.first().map(|fault| fault.code.as_str()), Some(code), "{name}");
        assert!(report.faults.iter().all(|fault| fault.message.chars().count() <= 301), "{name}");
    }
}

#[test]
fn a_path_is_a_folder_and_a_file() {
    for path in [
        "a.yaml",
        "a/b/c.yaml",
        "../a.yaml",
        "/a.yaml",
        "A/b.yaml",
        "a/.yaml",
        "a/b.txt",
        "a/b.yaml/",
        "a\\b.yaml",
        "",
    ] {
        let text = "id: sample\nname: S\ntype: prompt\nversion: 1.0.0\nowner: o\nsummary: s\n\
            primitiveSchema: {messages: []}\n";
        let found = found(&check(&[source(path, text)]));
        assert_eq!(found.first().map(|fault| fault.0), Some("bad_path"), "{path:?}: {found:?}");
    }
}
