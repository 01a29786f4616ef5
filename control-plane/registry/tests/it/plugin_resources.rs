//! Resources that a plugin lists and watches, and specs that no plugin runs.

use asp_registry::{Source, check};

/// Returns the findings in a spec of this kind.
fn other(kind: &str, rest: &str) -> Vec<(&'static str, String)> {
    let text = format!(
        "id: sample\nname: Sample\ntype: {kind}\nversion: 1.0.0\nowner: team\nsummary: A sample.\n{rest}\n"
    );
    let report = check(&[Source { path: "demo/sample.yaml".into(), text }]);
    let all = report.faults.iter().chain(&report.warnings);
    all.map(|fault| (fault.code.as_str(), fault.path.clone())).collect()
}

fn assert_table(name: &str, found: Vec<(&'static str, String)>, expected: &[(&str, &str)]) {
    let found: Vec<(&str, &str)> = found.iter().map(|(code, path)| (*code, path.as_str())).collect();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn only_the_plugin_of_a_template_lists_what_is_behind_it() {
    let template = |listed: &str, mode: &str| {
        let spec = format!(
            "primitiveSchema: {{uriTemplate: 'demo://{{id}}', listed: {listed}}}\n\
             runtime: {{mode: {mode}, {}entrypoint: main.py}}",
            if mode == "plugin" { "language: python, " } else { "" }
        );
        other("resource_template", &spec)
    };
    let at = "/primitiveSchema/listed";
    assert_table("a plugin", template("plugin", "plugin"), &[]);
    assert_table("no plugin", template("plugin", "builtin"), &[("bad_value", at)]);
    assert_table("another word", template("always", "plugin"), &[("bad_value", at)]);
    assert_table("who completes", template("upstream", "plugin"), &[("bad_value", at)]);
    let resource = "primitiveSchema: {uri: demo://a, listed: plugin}\nruntime: {mode: plugin, language: python, entrypoint: main.py}";
    assert_table("a resource", other("resource", resource), &[("misplaced_key", at)]);
}

#[test]
fn only_a_plugin_that_has_a_place_beside_its_calls_watches() {
    let spec = |kind: &str, schema: &str, runtime: &str| {
        other(kind, &format!("primitiveSchema: {{{schema}}}\nruntime: {{{runtime}}}"))
    };
    let plugin = "mode: plugin, language: python, entrypoint: main.py";
    let watched =
        |schema: &str, runtime: &str| spec("resource", &format!("uri: demo://a, {schema}"), runtime);
    let at = "/primitiveSchema/watched";
    assert_table("a resource", watched("watched: plugin", plugin), &[]);
    let template = "uriTemplate: 'demo://{id}', watched: plugin, listed: plugin";
    assert_table("a template", spec("resource_template", template, plugin), &[]);
    assert_table("another word", watched("watched: always", plugin), &[("bad_value", at)]);
    for runtime in [
        "mode: builtin, entrypoint: about",
        "mode: proxy, mcp: {url: 'https://up.example/mcp', tool: 'a:b'}",
        "mode: mcp-stdio, package: files, tool: 'a:b'",
    ] {
        let found = watched("watched: plugin", runtime);
        assert!(found.contains(&("bad_value", at.to_owned())), "{runtime}: {found:?}");
    }
    for (pool, expected) in [
        ("{max: 1, concurrency: 2}", &[][..]),
        ("{max: 2, concurrency: 1}", &[]),
        ("{max: 2, mode: ephemeral}", &[]),
        ("{max: 1, concurrency: 1}", &[("bad_value", at)]),
        ("{max: 1, mode: ephemeral}", &[("bad_value", at)]),
    ] {
        assert_table(pool, watched("watched: plugin", &format!("{plugin}, pool: {pool}")), expected);
    }
    for kind in ["prompt", "tool", "elicitation"] {
        let found = spec(kind, "watched: plugin", plugin);
        assert!(found.contains(&("misplaced_key", at.to_owned())), "{kind}: {found:?}");
    }
}

#[test]
fn plugins_of_every_kind_name_secrets_and_nothing_else_does() {
    let found = |kind: &str, schema: &str, runtime: &str, secrets: &str| {
        other(kind, &format!("primitiveSchema: {{{schema}}}\nruntime: {{{runtime}, secrets: {secrets}}}"))
    };
    let plugin = "mode: plugin, language: python, entrypoint: main.py";
    let input = "input_schema: {type: object}";
    let is_of_secrets = |(_, path): &(&str, String)| path.starts_with("/runtime/secrets");
    for (kind, schema) in
        [("tool", input), ("task", input), ("resource", "uri: demo://a"), ("prompt", "arguments: []")]
    {
        let found = found(kind, schema, plugin, "[crm-key, DB.password_1]");
        assert!(!found.iter().any(is_of_secrets), "{kind}: {found:?}");
    }
    for runtime in ["mode: builtin, entrypoint: about", "mode: mcp-stdio, package: files"] {
        let found = found("tool", input, runtime, "[crm-key]");
        assert!(found.contains(&("misplaced_key", "/runtime/secrets".to_owned())), "{runtime}: {found:?}");
    }
    let wrong = found("tool", input, plugin, "[crm-key, 'a/b', '']");
    for index in [1, 2] {
        assert!(wrong.contains(&("bad_value", format!("/runtime/secrets/{index}"))), "{wrong:?}");
    }
    let names: Vec<String> = (0..65).map(|number| format!("key-{number}")).collect();
    let many = found("tool", input, plugin, &format!("[{}]", names.join(", ")));
    assert!(many.contains(&("too_many", "/runtime/secrets".to_owned())), "{many:?}");
}

#[test]
fn only_tools_and_tasks_of_plugins_have_storage() {
    let is_misplaced = |kind: &str, schema: &str, runtime: &str| {
        let spec = format!("primitiveSchema: {{{schema}}}\nruntime: {{{runtime}, storage: true}}");
        other(kind, &spec).contains(&("misplaced_key", "/runtime/storage".to_owned()))
    };
    let plugin = "mode: plugin, language: python, entrypoint: main.py";
    let input = "input_schema: {type: object}";
    for kind in ["tool", "task"] {
        assert!(!is_misplaced(kind, input, plugin), "{kind}");
    }
    assert!(is_misplaced("tool", input, "mode: builtin, entrypoint: about"));
    assert!(is_misplaced("tool", input, "mode: mcp-stdio, package: files"));
    assert!(is_misplaced("resource", "uri: demo://a", plugin));
    assert!(is_misplaced("prompt", "arguments: []", plugin));
}
