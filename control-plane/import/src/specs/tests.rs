//! Specs of an upstream's items, and the lines about the items that have none.

use super::*;

/// Arguments of an import from an upstream.
pub(in super::super) fn args() -> ImportArgs {
    ImportArgs {
        client: None,
        mcp: Some("https://up.example/mcp".into()),
        npx: None,
        uvx: None,
        variables: Vec::new(),
        stdio: None,
        a2a: None,
        card_keys: Vec::new(),
        openapi: None,
        tags: Vec::new(),
        operations: Vec::new(),
        report: None,
        no_output_schemas: false,
        except: Vec::new(),
        renames: Vec::new(),
        names: None,
        read_only: Vec::new(),
        accept: false,
        server: "up".into(),
        domains: Vec::new(),
        proxy_url: None,
        pages: Vec::new(),
        credential: None,
        exchange: None,
        no_auth: false,
        protocols: Vec::new(),
        owner: "team".into(),
        out: "primitives".into(),
        json: false,
    }
}

fn converted(tool: Value) -> ImportResult {
    let args = args();
    let lists = Lists { tools: vec![tool], ..Lists::default() };
    convert(&args, &Upstream::Url("https://up.example/mcp"), &lists)
}

#[test]
fn what_is_beyond_the_primitives_of_a_server_is_left_out_and_named() {
    let tools = vec![json!({"name": "t", "inputSchema": {"type": "object"}})];
    let resources = (0..1_200).map(|n| json!({"uri": format!("a://{n}"), "name": format!("r{n}")})).collect();
    let lists = Lists { tools, resources, ..Lists::default() };
    let imported = convert(&args(), &Upstream::Url("https://up.example/mcp"), &lists);
    assert_eq!((imported.ids.len(), imported.dropped.len()), (1_000, 201));
    assert!(imported.said.starts_with("1 tools, 0 prompts, 999 resources"), "{}", imported.said);
    assert_eq!(
        imported.dropped.last().unwrap(),
        "resource \"a://1199\" is left out: a server has at most 1000 primitives"
    );
}

#[test]
fn a_name_that_is_listed_again_and_an_item_without_one_are_left_out_and_named() {
    let tool = |title: &str| json!({"name": "t", "title": title, "inputSchema": {"type": "object"}});
    let page = json!({"uri": "a://b", "name": "p"});
    let lists = Lists {
        tools: vec![tool("first"), tool("second"), json!({"name": null, "inputSchema": {}}), json!("t")],
        prompts: vec![json!({"name": "t"})],
        resources: vec![page.clone(), page],
        ..Lists::default()
    };
    let imported = convert(&args(), &Upstream::Url("https://up.example/mcp"), &lists);
    assert_eq!((imported.ids.len(), &spec(&imported)["name"]), (3, &json!("first")));
    assert_eq!(
        imported.dropped,
        [
            "tool \"t\" is left out: the server lists this name before",
            "a tool is left out: the server lists it without name",
            "a tool is left out: the server lists it without name",
            "resource \"a://b\" is left out: the server lists this name before"
        ]
    );
}

#[test]
fn an_exception_that_names_no_tool_is_told() {
    let args = ImportArgs { except: vec!["delete_all".into(), "delet_all".into()], ..args() };
    let tools = ["delete_all", "list"].map(|name| json!({"name": name, "inputSchema": {"type": "object"}}));
    let lists = Lists { tools: tools.to_vec(), ..Lists::default() };
    let imported = convert(&args, &Upstream::Url("https://up.example/mcp"), &lists);
    assert_eq!(imported.ids, ["up.list"]);
    assert_eq!(imported.renamed, ["note: --except \"delet_all\": the server lists no such tool"]);
}

#[test]
fn a_number_that_is_rounded_is_told() {
    let losses = vec![r#"18446744073709551616 in "t" of tools"#.to_owned()];
    let tools = vec![json!({"name": "t", "inputSchema": {"type": "object"}})];
    let lists = Lists { tools, losses, ..Lists::default() };
    let imported = convert(&args(), &Upstream::Url("https://up.example/mcp"), &lists);
    assert_eq!(imported.dropped, [format!("18446744073709551616 in \"t\" of tools: {DECODED}")]);
}

#[test]
fn what_an_upstream_completes_is_asked_of_it() {
    let template = json!({"uriTemplate": "a://{kind}/{id}", "name": "t"});
    for (completions, expected) in
        [(false, json!(null)), (true, json!({"id": "upstream", "kind": "upstream"}))]
    {
        let lists = Lists { templates: vec![template.clone()], completions, ..Lists::default() };
        let imported = convert(&args(), &Upstream::Url("https://up.example/mcp"), &lists);
        assert_eq!(spec(&imported)["primitiveSchema"]["completions"], expected);
    }
}

fn spec(imported: &ImportResult) -> Value {
    serde_json::from_str(&imported.files["up/t.json"]).unwrap()
}

fn imported(annotations: Value) -> Value {
    spec(&converted(json!({ "name": "t", "inputSchema": {"type": "object"}, "annotations": annotations })))
}

#[test]
fn what_an_upstream_says_in_names_of_the_protocol_is_dropped_and_told() {
    let meta = json!({"ui": {"resourceUri": "ui://a/b"}, "io.modelcontextprotocol/x": 1, "asp/y": 2});
    let imported = converted(json!({"name": "t", "inputSchema": {"type": "object"}, "_meta": meta}));
    assert_eq!(spec(&imported)["_meta"], json!({"ui": {"resourceUri": "ui://a/b"}}));
    let told = imported.dropped.join("\n");
    assert_eq!(imported.dropped.len(), 2, "{told}");
    assert!(told.contains("asp/y") && told.contains("io.modelcontextprotocol/x"), "{told}");
}

#[test]
fn what_a_former_spec_says_of_a_packages_process_stays_and_its_package_is_pinned_as_it_is() {
    let root = tempfile::tempdir().unwrap();
    let args = ImportArgs { out: root.path().to_owned(), ..args() };
    let package = || Upstream::Package(Package { name: "@a/s@2.0.0", sha256: "ab".into(), is_pinned: false });
    let tool = json!({"name": "t", "inputSchema": {"type": "object"}});
    let lists = Lists { tools: vec![tool.clone()], ..Lists::default() };
    let first = spec(&convert(&args, &package(), &lists));
    let own = json!({"mode": "mcp-stdio", "package": "@a/s@2.0.0", "tool": "t", "pin": pin(&tool)});
    assert_eq!(first["runtime"], own);
    let mut edited = first.clone();
    edited["security"]["allowedDomains"] = json!(["a.example"]);
    edited["security"]["allowedTcp"] = json!(["db.example:5432"]);
    for (key, value) in
        [("resources", json!({"memory": "1G"})), ("artifactSha256", json!("cd")), ("pin", json!("old"))]
    {
        edited["runtime"][key] = value;
    }
    std::fs::create_dir(root.path().join("up")).unwrap();
    std::fs::write(root.path().join("up/t.json"), edited.to_string()).unwrap();
    let again = spec(&convert(&args, &package(), &lists));
    let mut kept = own.clone();
    kept["resources"] = json!({"memory": "1G"});
    kept["artifactSha256"] = json!("ab");
    assert_eq!((&again["runtime"], &again["security"]["allowedDomains"][0]), (&kept, &json!("a.example")));
    assert_eq!(again["security"]["allowedTcp"], json!(["db.example:5432"]));

    let args = ImportArgs { out: root.path().join("fresh"), domains: vec!["b.example".into()], ..args };
    let fetched = Upstream::Package(Package { name: "@a/s@2.0.0", sha256: "ab".into(), is_pinned: true });
    let first = spec(&convert(&args, &fetched, &lists));
    let mut pinned = own;
    pinned["artifactSha256"] = json!("ab");
    assert_eq!((&first["runtime"], &first["security"]["allowedDomains"]), (&pinned, &json!(["b.example"])));
}

#[test]
fn a_tool_is_what_its_hints_say_and_mcps_defaults_where_they_say_nothing() {
    let table = [
        (json!({}), "destructive", "medium"),
        (json!({"idempotentHint": true}), "destructive", "medium"),
        (json!({"destructiveHint": false}), "non_idempotent", "medium"),
        (json!({"destructiveHint": false, "idempotentHint": true}), "idempotent", "medium"),
        (json!({"readOnlyHint": true}), "read_only", "low"),
    ];
    for (hints, mutation, risk) in table {
        let spec = imported(hints.clone());
        assert_eq!(
            (&spec["mutation"], &spec["security"]["riskClass"]),
            (&json!(mutation), &json!(risk)),
            "{hints}"
        );
        assert_eq!(spec["annotations"]["openWorldHint"], true, "{hints}");
    }
    assert_eq!(imported(json!({"openWorldHint": false}))["annotations"]["openWorldHint"], false);
}

#[test]
fn a_tool_has_its_title_wherever_that_stands() {
    for (title, hint, expected) in [
        (json!("Find"), json!("Search"), "Find"),
        (json!(null), json!("Search"), "Search"),
        (json!(""), json!("Search"), "Search"),
        (json!(null), json!(null), "t"),
        (json!(null), json!(""), "t"),
    ] {
        let annotations = json!({"title": hint});
        let tool = json!({"name": "t", "title": title, "inputSchema": {"type": "object"}, "annotations": annotations});
        assert_eq!(spec(&converted(tool.clone()))["name"], expected, "{tool}");
    }
}
