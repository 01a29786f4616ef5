//! Other people's servers as found in practice: what is served of them, and what is reported about the rest.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use asp_mcp_client::listing::Lists;
use asp_registry::Source;
use serde_json::{Value, json};

use super::files::{ImportResult, free_id};
use super::report::ImportReport;
use super::specs::{Upstream, convert};
use super::write::{compiled, list_requirements, write_import};
use super::{ImportArgs, edited, openapi};

fn args(out: &Path) -> ImportArgs {
    ImportArgs { accept: true, out: out.to_owned(), ..super::specs::tests::args() }
}

fn tool(name: &str, input: Value) -> Value {
    json!({"name": name, "description": "d", "inputSchema": input, "annotations": {"readOnlyHint": true}})
}

/// Imports, and returns the served ids with their input schemas.
fn import(root: &Path, lists: &Lists) -> BTreeMap<String, Value> {
    let args = args(root);
    write_import(
        &args,
        convert(&args, &Upstream::Url("https://up.example/mcp"), lists),
        &mut ImportReport::default(),
    )
    .unwrap();
    let server = compiled(&asp_registry::read_dir(root).unwrap(), "up").expect("it compiles");
    let schema = |text: &str| serde_json::from_str(text).unwrap_or_default();
    server.primitives.iter().map(|one| (one.id.clone(), schema(&one.input_schema))).collect()
}

fn served(tools: Vec<Value>) -> BTreeMap<String, Value> {
    let root = tempfile::tempdir().unwrap();
    import(root.path(), &Lists { tools, ..Lists::default() })
}

/// A table of schemas that upstreams write under `properties.a`, and of what is served.
#[test]
fn keywords_that_cannot_be_asserted_are_taken_out_and_the_tool_is_served() {
    let table = [
        (json!({"type": "string", "default": null}), json!({"type": "string"})),
        (json!({"type": "string", "pattern": "^(?!x)a$"}), json!({"type": "string"})),
        (json!({"type": "string", "pattern": "^(a)\\1$"}), json!({"type": "string"})),
        (
            json!({"type": "array", "items": [{"type": "number"}], "additionalItems": false}),
            json!({"type": "array", "prefixItems": [{"type": "number"}], "items": false}),
        ),
        (json!({"not": {"pattern": "(?=x)"}}), json!({})),
        (
            json!({"patternProperties": {"(?=x)": {}}, "additionalProperties": false}),
            json!({"patternProperties": {}}),
        ),
        (json!({"$ref": "https://up.example/a.json"}), json!({})),
        (json!({"$ref": "#/$defs/List%3CString%3E"}), json!({"$ref": "#/$defs/List%3CString%3E"})),
        (json!({"enum": (0..5000).collect::<Vec<_>>()}), json!({})),
    ];
    for (written, expected) in table {
        let input = json!({"type": "object", "properties": {"a": written},
            "$defs": {"List<String>": {"type": "array"}}});
        let found = served(vec![tool("t", input), tool("other", json!({"type": "object"}))]);
        assert_eq!(found["up.t"]["properties"]["a"], expected, "{written}");
        assert!(found.contains_key("up.other"));
    }
}

#[test]
fn the_name_of_a_dialect_stays_where_it_means_the_same() {
    let draft = |number: &str| {
        json!({"$schema": format!("http://json-schema.org/draft-{number}/schema#"),
        "type": "object", "properties": {"a": {"type": "string"}}})
    };
    let without = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let mut tuple = draft("07");
    tuple["properties"]["a"] = json!({"dependencies": {"b": ["c"]}});
    let mut described = draft("07");
    described["properties"]["a"] = json!({"$ref": "#/definitions/n", "description": "d"});
    described["definitions"] = json!({"n": {"type": "string"}});
    for (written, expected) in [(draft("07"), draft("07")), (draft("04"), without)] {
        assert_eq!(served(vec![tool("t", written)])["up.t"], expected);
    }
    for changed in [tuple, described] {
        let found = served(vec![tool("t", changed)]);
        assert_eq!(found["up.t"].get("$schema"), None, "{found:?}");
    }
}

#[test]
fn what_cannot_be_served_is_left_out_alone() {
    let root = tempfile::tempdir().unwrap();
    let lists = Lists {
        tools: vec![
            tool("scalar", json!({"type": "string"})),
            tool("hidden\u{200b}", json!({"type": "object"})),
            json!({"name": "bidi", "description": "a\u{202e}b", "inputSchema": {"type": "object"}}),
            tool("other", json!({"type": "object"})),
        ],
        resources: vec![
            json!({"uri": "file:///a.txt", "name": "a"}),
            json!({"uri": "note://x", "name": "x"}),
        ],
        templates: vec![json!({"uriTemplate": "res://{category}/{item*}", "name": "w"})],
        ..Lists::default()
    };
    let found: Vec<String> = import(root.path(), &lists).into_keys().collect();
    assert!(found.contains(&"up.other".to_owned()) && found.contains(&"up.x".to_owned()), "{found:?}");
    for id in ["up.scalar", "up.bidi", "up.w"] {
        assert!(!found.contains(&id.to_owned()), "{found:?}");
    }
}

/// Servers built on Windows describe their tools so.
#[test]
fn a_description_has_line_breaks_of_either_form() {
    let root = tempfile::tempdir().unwrap();
    let lines = json!({"name": "lines", "description": "One line\r\nand another",
        "inputSchema": {"type": "object", "properties": {"a": {"description": "b\r\nc"}}}});
    let found = import(root.path(), &Lists { tools: vec![lines], ..Lists::default() });
    assert_eq!(found["up.lines"]["properties"]["a"]["description"], "b\r\nc");
}

#[test]
fn the_report_names_the_operations_that_the_platform_refuses() {
    let root = tempfile::tempdir().unwrap();
    let report = root.path().join("report");
    let args = ImportArgs {
        mcp: None,
        openapi: Some("api.json".into()),
        report: Some(report.clone()),
        out: root.path().join("primitives"),
        ..args(root.path())
    };
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://up.example"}], "paths": {
        "/a": {"get": {"operationId": "a"}}, "/#b": {"get": {"operationId": "b"}},
        "/c": {"options": {"operationId": "c"}}}});
    write_import(
        &args,
        openapi::import(&args, document.to_string().as_bytes(), &mut ImportReport::default()).unwrap(),
        &mut ImportReport::default(),
    )
    .unwrap();
    let lines = std::fs::read_to_string(report).unwrap();
    assert!(lines.contains("left out: options /c: "), "{lines}");
    assert!(lines.contains("left out: tool \"up.b\": ") && lines.contains("fragment"), "{lines}");
    assert!(args.out.join("up/a.json").exists() && !args.out.join("up/b.json").exists());
}

#[test]
fn an_id_is_short_enough_for_a_server_with_a_long_name() {
    let server = "s".repeat(60);
    let mut taken = BTreeSet::new();
    for _ in 0..1_000 {
        let id = free_id(&server, &"operation_".repeat(20), &mut taken);
        assert!(id.len() <= 128, "{id}");
    }
    assert_eq!(taken.len(), 1_000);
    assert_eq!(free_id("up", &"a".repeat(200), &mut taken).len(), 3 + 100);
}

#[test]
fn members_that_a_spec_cannot_have_are_told() {
    let root = tempfile::tempdir().unwrap();
    let mut dated = tool("dated", json!({"type": "object"}));
    dated["deprecated"] = json!(true);
    dated["version"] = json!(null);
    dated["annotations"]["costHint"] = json!("high");
    let prompt = json!({"name": "p", "arguments": [{"name": "a", "schema": {"type": "integer"}}]});
    let resource = json!({"uri": "note://x", "name": "x", "etag": "7"});
    let lists =
        Lists { tools: vec![dated], prompts: vec![prompt], resources: vec![resource], ..Lists::default() };
    let imported = convert(&args(root.path()), &Upstream::Url("https://up.example/mcp"), &lists);
    let why = "a spec has no place for it";
    assert_eq!(
        imported.dropped,
        [
            format!("\"deprecated\" of tool \"dated\": {why}"),
            format!("\"costHint\" of the annotations of \"dated\": {why}"),
            format!("\"schema\" of an argument of \"p\": {why}"),
            format!("\"etag\" of resource \"x\": {why}"),
        ]
    );
}

#[test]
fn null_is_no_member() {
    let root = tempfile::tempdir().unwrap();
    let null = json!({"name": "x", "inputSchema": null, "outputSchema": null, "annotations": null, "icons": null,
        "_meta": null, "title": null, "description": null});
    let prompt = json!({"name": "p", "arguments": [{"name": "a", "required": null}], "description": null});
    let lists = Lists { tools: vec![null], prompts: vec![prompt], ..Lists::default() };
    let found = import(root.path(), &lists);
    assert_eq!(found["up.x"], json!({"type": "object"}));
    assert!(found.contains_key("up.p"));
}

#[test]
fn names_that_clients_cannot_use_become_plain_ones() {
    let object = || json!({"type": "object"});
    let names = ["github/git_commit", "github-git_commit", "Create Share", "\u{67e5}\u{8be2}"];
    let root = tempfile::tempdir().unwrap();
    let args = args(root.path());
    let lists = Lists { tools: names.iter().map(|name| tool(name, object())).collect(), ..Lists::default() };
    let imported = convert(&args, &Upstream::Url("https://up.example/mcp"), &lists);
    assert_eq!(imported.renamed.len(), 3, "{:?}", imported.renamed);
    write_import(&args, imported, &mut ImportReport::default()).unwrap();
    let server = compiled(&asp_registry::read_dir(root.path()).unwrap(), "up").unwrap();
    let exposed: BTreeSet<&str> =
        server.server.listings.iter().map(|listing| listing.mcp_name.as_str()).collect();
    assert_eq!(exposed, BTreeSet::from(["github-git_commit", "github-git_commit-2", "Create-Share", "item"]));
}

#[test]
fn an_array_is_a_result_and_only_new_clients_see_its_schema() {
    let mut list = tool("list", json!({"type": "object"}));
    list["outputSchema"] = json!({"type": "array", "items": {"type": "integer"}});
    let root = tempfile::tempdir().unwrap();
    import(root.path(), &Lists { tools: vec![list.clone()], ..Lists::default() });
    let server = compiled(&asp_registry::read_dir(root.path()).unwrap(), "up").unwrap();
    for (revision, expected) in [("2025-11-25", None), ("2026-07-28", Some(&list["outputSchema"]))] {
        let lists = asp_registry::compile_mcp(&server, revision);
        assert_eq!(lists["tools"][0].get("outputSchema"), expected, "{revision}");
    }
}

#[test]
fn what_a_resource_is_for_is_taken_over_and_the_rest_is_told() {
    let root = tempfile::tempdir().unwrap();
    let args = args(root.path());
    let resource = json!({"uri": "note://x", "name": "x", "size": 5,
        "annotations": {"audience": ["user"], "priority": 0.5, "lastModified": "2025-01-01T00:00:00Z"}});
    let mut task = tool("task", json!({"type": "object"}));
    task["execution"] = json!({"taskSupport": "required"});
    let icon = json!({"src": "https://a.example/i.png"});
    let mut drawn = tool("drawn", json!({"type": "object"}));
    drawn["icons"] = json!([icon, {"src": "ftp://a.example/i.png"}]);
    let lists = Lists { resources: vec![resource], tools: vec![task, drawn], ..Lists::default() };
    let imported = convert(&args, &Upstream::Url("https://up.example/mcp"), &lists);
    assert_eq!(imported.ids, ["up.drawn", "up.x"]);
    let told = imported.dropped.join("\n");
    for word in ["size", "lastModified", "task", "icons"] {
        assert!(told.contains(word), "{told}");
    }
    let spec: Value = serde_json::from_str(&imported.files["up/x.json"]).unwrap();
    assert_eq!(spec["annotations"], json!({"audience": ["user"], "priority": 0.5}));
    let spec: Value = serde_json::from_str(&imported.files["up/drawn.json"]).unwrap();
    assert_eq!(spec["icons"], json!([icon]));
}

#[test]
fn a_change_that_breaks_callers_raises_the_major_version() {
    let root = tempfile::tempdir().unwrap();
    let version = |input: Value| {
        import(root.path(), &Lists { tools: vec![tool("t", input)], ..Lists::default() });
        compiled(&asp_registry::read_dir(root.path()).unwrap(), "up").unwrap().primitives[0].version.clone()
    };
    let text = |required: Value| json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": required});
    assert_eq!(version(text(json!([]))), "1.0.0");
    assert_eq!(version(text(json!(["a"]))), "2.0.0");
    assert_eq!(version(text(json!(["a"]))), "2.0.0");
}

#[test]
fn an_item_that_is_gone_raises_the_version_of_the_server_and_nothing_else_does() {
    let root = tempfile::tempdir().unwrap();
    let version = |names: &[&str]| {
        let tools = names.iter().map(|name| tool(name, json!({"type": "object"}))).collect();
        import(root.path(), &Lists { tools, ..Lists::default() });
        compiled(&asp_registry::read_dir(root.path()).unwrap(), "up").unwrap().server.version
    };
    assert_eq!(version(&["a"]), "1.0.0");
    assert_eq!(version(&["a", "b"]), "1.0.0");
    assert_eq!(version(&["b"]), "2.0.0");
    let file = root.path().join("up/server.yaml");
    let text = std::fs::read_to_string(&file).unwrap().replace("version: 2.0.0\n", "");
    std::fs::write(&file, text).unwrap();
    assert_eq!(version(&["c"]), "1.0.0", "it had none");
}

#[test]
fn a_name_and_a_mutation_that_the_operator_chose_survive_the_next_import() {
    let root = tempfile::tempdir().unwrap();
    let guess = json!({"name": "get_order_get", "description": "d", "inputSchema": {"type": "object"}});
    let lists = Lists { tools: vec![guess], ..Lists::default() };
    let renames = vec![("get_order_get".to_owned(), "order".to_owned())];
    let first = ImportArgs { renames: renames.clone(), ..args(root.path()) };
    let chosen = ImportArgs { renames, read_only: vec!["order".to_owned()], ..args(root.path()) };
    let later = ImportArgs { accept: false, ..first.clone() };
    for (args, mutation) in [(&first, "destructive"), (&chosen, "read_only"), (&later, "read_only")] {
        write_import(
            args,
            convert(args, &Upstream::Url("https://up.example/mcp"), &lists),
            &mut ImportReport::default(),
        )
        .unwrap();
        let text = std::fs::read_to_string(root.path().join("up/order.json")).unwrap();
        let spec: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(spec["mutation"], mutation);
        assert!(!root.path().join("up/get_order_get.json").exists());
    }
    let server = compiled(&asp_registry::read_dir(root.path()).unwrap(), "up").unwrap();
    assert_eq!(server.server.listings[0].mcp_name, "order");
}

#[test]
fn an_edited_mutation_stays_until_the_upstream_describes_the_tool_otherwise() {
    let root = tempfile::tempdir().unwrap();
    let args = ImportArgs { accept: false, ..args(root.path()) };
    let again = |described: &str, accept: bool| {
        let tool = json!({"name": "t", "description": described, "inputSchema": {"type": "object"}});
        let lists = Lists { tools: vec![tool], ..Lists::default() };
        let args = ImportArgs { accept, ..args.clone() };
        write_import(
            &args,
            convert(&args, &Upstream::Url("https://up.example/mcp"), &lists),
            &mut ImportReport::default(),
        )
    };
    let file = root.path().join("up/t.json");
    let spec = || serde_json::from_str::<Value>(&std::fs::read_to_string(&file).unwrap()).unwrap();
    again("d", false).unwrap();
    let mut edited = spec();
    assert_eq!(edited["mutation"], "destructive");
    edited["mutation"] = json!("read_only");
    edited["summary"] = json!("Lists orders.");
    edited["security"]["riskClass"] = json!("low");
    edited["owner"] = json!("nobody");
    std::fs::write(&file, edited.to_string()).unwrap();

    assert!(again("d", false).is_ok(), "what an operator wrote is no change of the upstream");
    assert_eq!(
        (&spec()["mutation"], &spec()["summary"], &spec()["security"]["riskClass"], &spec()["owner"]),
        (&json!("read_only"), &json!("Lists orders."), &json!("low"), &json!("team"))
    );
    assert!(again("other words", false).is_err(), "it is another tool by now: somebody looks at it");
    assert_eq!(spec()["mutation"], "read_only");
    again("other words", true).unwrap();
    assert_eq!((&spec()["mutation"], &spec()["summary"]), (&json!("destructive"), &json!("other words")));
}

#[test]
fn edits_stay_with_their_upstream_and_none_moves_to_another_one() {
    let spec = |runtime: &Value, mutation: &str, summary: &str| {
        let text = json!({"mutation": mutation, "summary": summary, "tags": [], "runtime": runtime});
        ("up/t.json".to_owned(), text.to_string())
    };
    let at = |url: &str| json!({"mcp": {"url": url, "tool": "t", "pin": "p"}});
    let of = |package: &str| json!({"package": package, "tool": "t", "pin": "p"});
    let ours = "https://up.example/mcp";
    for (former, new, is_kept) in [
        (at(ours), at(ours), true),
        (at(ours), at("https://other.example/mcp"), false),
        (of("@a/s@2.0.0"), of("@a/s@3.0.0"), true),
        (of("@a/s"), of("@a/s@3.0.0"), true),
        (of("@a/s@2.0.0"), of("@b/s@2.0.0"), false),
    ] {
        let (path, text) = spec(&former, "read_only", "Lists orders.");
        let mut files = BTreeMap::from([spec(&new, "destructive", "d")]);
        let lines = edited::keep_edits(&mut files, &[Source { path, text }]);
        let found: Value = serde_json::from_str(&files["up/t.json"]).unwrap();
        let expected = if is_kept { ("read_only", "Lists orders.") } else { ("destructive", "d") };
        assert_eq!(
            (&found["mutation"], &found["summary"]),
            (&json!(expected.0), &json!(expected.1)),
            "{new}"
        );
        let lost: &[&str] = if is_kept { &[] } else { &["summary of up/t.json", "mutation of up/t.json"] };
        assert_eq!(lines.len(), lost.len(), "{new}: {lines:?}");
        for (line, member) in lines.iter().zip(lost) {
            assert!(line.contains(member), "{line}");
        }
    }
}

#[test]
fn an_edited_mutation_of_an_operation_stays_while_its_method_and_path_do() {
    let spec = |method: &str, url: &str, mutation: &str| {
        let http = json!({"method": method, "url": url});
        let text = json!({"mutation": mutation, "summary": mutation, "security": {"riskClass": mutation},
            "runtime": {"http": http}});
        ("up/t.json".to_owned(), text.to_string())
    };
    for (method, url, expected) in [
        ("DELETE", "https://a.example/v1/orders/{id}", "idempotent"),
        ("DELETE", "https://b.example/v1/orders/{order}", "idempotent"),
        ("POST", "https://a.example/v1/orders/{id}", "destructive"),
        ("DELETE", "https://a.example/v1/users/{id}", "destructive"),
        ("DELETE", "https://a.example/v1/orders", "destructive"),
    ] {
        let (path, text) = spec("DELETE", "https://a.example/v1/orders/{id}", "idempotent");
        let mut files = BTreeMap::from([spec(method, url, "destructive")]);
        let lines = edited::keep_edits(&mut files, &[Source { path, text }]);
        let kept: Value = serde_json::from_str(&files["up/t.json"]).unwrap();
        let found = (&kept["mutation"], &kept["security"]["riskClass"], &kept["summary"]);
        assert_eq!(found, (&json!(expected), &json!(expected), &json!("destructive")), "{method} {url}");
        let lost: &[&str] = if expected == "destructive" { &["security", "mutation"][..] } else { &[] };
        assert_eq!(lines.len(), lost.len(), "{lines:?}");
        for (line, member) in lines.iter().zip(lost) {
            assert!(line.contains(member) && line.contains("up/t.json"), "{line}");
        }
    }
}

#[test]
fn the_authentication_of_an_operation_stays_while_its_origin_method_and_path_do() {
    let spec = |url: &str, auth: Value| {
        let runtime = json!({"mode": "proxy", "http": {"method": "GET", "url": url}, "auth": auth});
        json!({"runtime": runtime}).to_string()
    };
    let exchange = json!({"exchange": {"audience": "shop"}});
    let derived = json!({"credential": "up"});
    for (url, expected) in [
        ("https://a.example/orders/{order}", &exchange),
        ("https://b.example/orders/{id}", &derived),
        ("https://a.example/users/{id}", &derived),
    ] {
        let text = spec("https://a.example/orders/{id}", exchange.clone());
        let mut files = BTreeMap::from([("up/t.json".to_owned(), spec(url, derived.clone()))]);
        edited::keep_auth(&mut files, &[Source { path: "up/t.json".into(), text }]);
        let found: Value = serde_json::from_str(&files["up/t.json"]).unwrap();
        assert_eq!(&found["runtime"]["auth"], expected, "{url}");
    }
}

#[test]
fn only_entries_that_a_spec_names_are_asked_for() {
    let root = tempfile::tempdir().unwrap();
    let args = ImportArgs { mcp: None, openapi: Some("api.json".into()), ..args(root.path()) };
    let document = json!({"openapi": "3.1.0", "servers": [{"url": "https://up.example"}],
        "paths": {"/a": {"get": {"operationId": "a"}}}, "security": [{"key": []}],
        "components": {"securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}}});
    let import =
        || openapi::import(&args, document.to_string().as_bytes(), &mut ImportReport::default()).unwrap();
    let lines = |imported: &ImportResult| list_requirements(&imported.requirements, &imported.files).count();
    assert_eq!(lines(&import()), 1);
    write_import(&args, import(), &mut ImportReport::default()).unwrap();
    let file = root.path().join("up/a.json");
    let mut spec: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    spec["runtime"].as_object_mut().unwrap().remove("auth").unwrap();
    std::fs::write(&file, spec.to_string()).unwrap();
    let mut imported = import();
    edited::keep_auth(&mut imported.files, &asp_registry::read_dir(root.path()).unwrap());
    assert_eq!(lines(&imported), 0, "the operator took it out");
}

#[test]
fn instructions_are_the_servers_own() {
    for (said, expected) in [("Call one() first: \"x\"", "Call one() first: \"x\""), ("a\u{202e}b", "")] {
        let root = tempfile::tempdir().unwrap();
        let tools = vec![tool("t", json!({"type": "object"}))];
        import(root.path(), &Lists { tools, instructions: Some(said.into()), ..Lists::default() });
        let server = compiled(&asp_registry::read_dir(root.path()).unwrap(), "up").unwrap();
        assert_eq!(server.server.instructions, expected);
    }
}

#[test]
fn lists_show_a_resources_own_name_and_title() {
    let long = "x".repeat(300);
    let root = tempfile::tempdir().unwrap();
    let args = args(root.path());
    let resources = [("note://x/1", "Quarterly report (2025).md"), ("note://x/2", long.as_str())];
    let lists = Lists {
        resources: resources
            .iter()
            .map(|(uri, name)| json!({"uri": uri, "name": name, "title": "T", "description": "d"}))
            .collect(),
        templates: vec![json!({"uriTemplate": "res://items/{id}", "name": "One of them"})],
        ..Lists::default()
    };
    let imported = convert(&args, &Upstream::Url("https://up.example/mcp"), &lists);
    assert_eq!(imported.renamed.len(), 1, "{:?}", imported.renamed);
    assert!(imported.renamed[0].contains("\"note://x/2\" is listed as up.xx"), "{:?}", imported.renamed);
    write_import(&args, imported, &mut ImportReport::default()).unwrap();
    let server = compiled(&asp_registry::read_dir(root.path()).unwrap(), "up").unwrap();
    let listed = asp_registry::compile_mcp(&server, "2025-11-25");
    let shown = |list: &str, index: usize| {
        let item = &listed[list][index];
        (item["name"].as_str().unwrap().to_owned(), item["title"].as_str().unwrap().to_owned())
    };
    assert_eq!(shown("resources", 0), ("Quarterly report (2025).md".into(), "T".into()));
    assert!(shown("resources", 1).0.starts_with("up.xx"));
    assert_eq!(shown("resourceTemplates", 0), ("One of them".into(), "One of them".into()));
}
