//! Breaking changes are distinguished from harmless ones, and both need a new version.

use asp_registry::{Change, CompiledServer, Source, check, compare};

fn server(lines: &str, spec: &str) -> CompiledServer {
    let file = format!("apiVersion: asp/v1\nname: demo\ndescription: D\n{lines}\n");
    let sources = [
        Source { path: "demo/server.yaml".into(), text: file },
        Source { path: "demo/x.yaml".into(), text: spec.into() },
    ];
    let report = check(&sources);
    assert_eq!(report.faults, []);
    report.catalog.expect("no fault").servers.remove(0)
}

const LINES: &str = "protocols: [mcp]\nauth: {schemes: [jwt], issuers: [dev]}\ndefaultExposure: allow\nprimitives: [{ref: demo/x}]";

fn spec(version: &str, schema: &str, rest: &str) -> String {
    format!(
        "id: x\nname: X\ntype: tool\nversion: {version}\nowner: o\nsummary: s\n{rest}\n\
         primitiveSchema:\n{schema}\nruntime: {{mode: builtin, entrypoint: x}}\n"
    )
}

fn schemas(old: &str, new: &str, key: &str) -> Vec<(String, bool)> {
    let whole = |schema: &str| match key {
        "input_schema" => format!("  input_schema: {schema}"),
        _ => format!("  input_schema: {{type: object}}\n  {key}: {schema}"),
    };
    let one = server(LINES, &spec("1.0.0", &whole(old), "mutation: read_only"));
    let two = server(LINES, &spec("1.0.0", &whole(new), "mutation: read_only"));
    compare(&one, &two).into_iter().map(|change| (change.path, change.breaking)).collect()
}

/// Returns whether the change of one property's schema breaks arguments and results.
fn property(old: &str, new: &str) -> (bool, bool) {
    let whole = |property: &str| format!("{{type: object, properties: {{a: {property}}}}}");
    let judged = |key: &str| {
        let found = schemas(&whole(old), &whole(new), key);
        assert!(!found.is_empty(), "{old} → {new} is no change");
        found.iter().any(|change| change.1)
    };
    (judged("input_schema"), judged("output_schema"))
}

#[test]
fn narrower_arguments_and_wider_results_break_callers() {
    const NARROWER: (bool, bool) = (true, false);
    const WIDER: (bool, bool) = (false, true);
    const WORDS: (bool, bool) = (false, false);
    const UNCLEAR: (bool, bool) = (true, true);
    let table = [
        ("{}", "{type: string}", NARROWER),
        ("{type: string}", "{}", WIDER),
        ("{type: number}", "{type: integer}", NARROWER),
        ("{type: integer}", "{type: number}", WIDER),
        ("{type: string}", "{type: [string, \"null\"]}", WIDER),
        ("{type: string}", "{type: integer}", UNCLEAR),
        ("{enum: [a, b]}", "{enum: [a]}", NARROWER),
        ("{enum: [a]}", "{enum: [a, b]}", WIDER),
        ("{enum: [a]}", "{enum: [b]}", UNCLEAR),
        ("{type: string}", "{type: string, enum: [a]}", NARROWER),
        ("{type: integer, maximum: 5}", "{type: integer, maximum: 4}", NARROWER),
        ("{type: integer, maximum: 5}", "{type: integer, maximum: 6}", WIDER),
        ("{type: integer, minimum: 5}", "{type: integer, minimum: 4}", WIDER),
        ("{type: integer, minimum: 5}", "{type: integer}", WIDER),
        ("{type: string}", "{type: string, minLength: 1}", NARROWER),
        ("{type: string}", "{type: string, format: email}", NARROWER),
        ("{type: string, pattern: a}", "{type: string, pattern: b}", UNCLEAR),
        ("{type: array, items: {type: string}}", "{type: array}", WIDER),
        (
            "{type: array, items: {type: string}}",
            "{type: array, items: {type: string, maxLength: 3}}",
            NARROWER,
        ),
        ("{type: object, additionalProperties: false}", "{type: object}", WIDER),
        ("{type: object}", "{type: object, additionalProperties: false}", NARROWER),
        ("{anyOf: [{type: string}]}", "{anyOf: [{type: string}, {type: integer}]}", UNCLEAR),
        ("{type: string, description: one}", "{type: string, description: two}", WORDS),
        ("{type: string}", "{type: string, default: a}", WORDS),
    ];
    for (old, new, expected) in table {
        assert_eq!(property(old, new), expected, "{old} → {new}");
    }
}

#[test]
fn properties_come_and_go() {
    let one = "{type: object, properties: {a: {type: string}}}";
    let two = "{type: object, properties: {a: {type: string}, b: {type: string}}}";
    let at = |key: &str| format!("/primitiveSchema/{key}/properties/b");
    assert_eq!(schemas(one, two, "input_schema"), [(at("input_schema"), false)]);
    assert_eq!(schemas(two, one, "input_schema"), [(at("input_schema"), true)]);
    assert_eq!(schemas(one, two, "output_schema"), [(at("output_schema"), false)]);
    assert_eq!(schemas(two, one, "output_schema"), [(at("output_schema"), true)]);
    let closed = "{type: object, additionalProperties: false, properties: {a: {type: string}}}";
    let opened =
        "{type: object, additionalProperties: false, properties: {a: {type: string}, b: {type: string}}}";
    assert_eq!(
        schemas(closed, opened, "output_schema"),
        [(at("output_schema"), true)],
        "clients check results"
    );
    let required = "{type: object, required: [a], properties: {a: {type: string}}}";
    let at = |key: &str| format!("/primitiveSchema/{key}/required");
    assert_eq!(schemas(one, required, "input_schema"), [(at("input_schema"), true)]);
    assert_eq!(schemas(required, one, "input_schema"), [(at("input_schema"), false)]);
    assert_eq!(schemas(required, one, "output_schema"), [(at("output_schema"), true)]);
    assert_eq!(schemas(one, required, "output_schema"), [(at("output_schema"), false)]);
}

fn changed(old: &str, new: &str) -> Vec<Change> {
    let schema = "  input_schema: {type: object, properties: {k: {type: string}}}";
    compare(&server(LINES, &spec("1.0.0", schema, old)), &server(LINES, &spec("1.0.0", schema, new)))
}

#[test]
fn promises_beside_the_schema_are_compared() {
    let table: [(&str, &str, &str, bool); 9] = [
        ("mutation: read_only", "mutation: destructive", "/mutation", true),
        ("mutation: destructive", "mutation: idempotent", "/mutation", false),
        (
            "mutation: read_only",
            "mutation: read_only\nsecurity: {auth: {type: jwt, scopes: [a]}}",
            "/security/auth/scopes",
            true,
        ),
        (
            "mutation: read_only\nexposure: {mcp: {tool: {name: y}}}",
            "mutation: read_only",
            "/exposure/mcp",
            true,
        ),
        (
            "mutation: read_only\nexposure: {mcp: {tool: {enabled: false}}}",
            "mutation: read_only",
            "/exposure/mcp",
            false,
        ),
        ("mutation: read_only\nidempotency: {argument: k}", "mutation: read_only", "/idempotency", true),
        (
            "mutation: read_only\nexposure: {a2a: {skill: {textArgument: k}}}",
            "mutation: read_only",
            "/exposure/a2a/skill/textArgument",
            true,
        ),
        (
            "mutation: read_only",
            "mutation: read_only\nsecurity: {riskClass: high}",
            "/security/riskClass",
            false,
        ),
        (
            "mutation: read_only",
            "mutation: read_only\nsecurity: {rateLimitMax: {invocationCount: 1}}",
            "/security/rateLimitMax",
            false,
        ),
    ];
    for (old, new, path, breaking) in table {
        let found: Vec<_> =
            changed(old, new).into_iter().map(|change| (change.path, change.breaking)).collect();
        assert_eq!(found, [(path.to_string(), breaking)], "{old} → {new}");
    }
    assert_eq!(changed("mutation: read_only", "mutation: read_only"), []);
}

#[test]
fn a_breaking_change_wants_a_major_and_any_other_a_higher_version() {
    let versioned = |version: &str, schema: &str| {
        let old = server(LINES, &spec("1.2.3", "  input_schema: {type: object}", "mutation: read_only"));
        let new = server(LINES, &spec(version, &format!("  input_schema: {schema}"), "mutation: read_only"));
        let changes = compare(&old, &new);
        assert_eq!(changes.len(), 1, "{changes:?}");
        changes[0].versioned
    };
    let breaking = "{type: object, required: [a]}";
    assert_eq!(["1.2.3", "1.3.0", "2.0.0"].map(|version| versioned(version, breaking)), [false, false, true]);
    let harmless = "{type: object, description: d}";
    assert_eq!(
        ["1.2.2", "1.2.3", "1.2.4", "2.0.0"].map(|version| versioned(version, harmless)),
        [false, false, true, true]
    );
}

#[test]
fn servers_and_lists_are_compared() {
    let one = spec("1.0.0", "  input_schema: {type: object}", "mutation: read_only");
    let old = server(LINES, &one);
    let paths = |lines: &str| -> Vec<(String, String, bool)> {
        let changes = compare(&old, &server(lines, &one));
        changes.into_iter().map(|change| (change.primitive, change.path, change.breaking)).collect()
    };
    let closed = LINES.replace("defaultExposure: allow", "defaultExposure: deny");
    assert_eq!(paths(&closed), [(String::new(), "/defaultExposure".into(), true)]);
    let other = LINES.replace("issuers: [dev]", "issuers: [corp]");
    assert_eq!(paths(&other), [(String::new(), "/auth/issuers".into(), true)]);
    let emptied = LINES.replace("[{ref: demo/x}]", "[]");
    assert_eq!(paths(&emptied), [("x".into(), String::new(), true)]);
    let gone = |version: &str| {
        let changes = compare(&old, &server(&format!("version: {version}\n{emptied}"), &one));
        changes[0].breaks_callers()
    };
    assert_eq!((gone("0.9.0"), gone("1.0.0")), (true, false), "the server's major version announces it");
    let added = compare(&server(&emptied, &one), &old);
    assert_eq!(added.len(), 1);
    assert_eq!((added[0].primitive.as_str(), added[0].breaking, added[0].versioned), ("x", false, true));
}

#[test]
fn another_name_of_a_resource_in_lists_is_a_change_that_breaks_nobody() {
    let named = |name: &str| {
        let spec = format!(
            "id: x\nname: X\ntype: resource\nversion: 1.0.0\nowner: o\nsummary: s\nprimitiveSchema:\n  \
             uri: demo://x\n  contents:\n    - {{text: one}}\nexposure: {{mcp: {{resource: {{name: {name}}}}}}}\n"
        );
        server(LINES, &spec)
    };
    let changes = compare(&named("Report 1.md"), &named("Report 2.md"));
    let found: Vec<_> = changes.iter().map(|change| (change.path.as_str(), change.breaking)).collect();
    assert_eq!(found, [("/exposure/mcp/resource/name", false)]);
}

#[test]
fn an_announced_end_is_a_change_that_breaks_nobody() {
    let of = |rest: &str| server(LINES, &spec("1.0.0", "  input_schema: {type: object}", rest));
    let changes =
        compare(&of("mutation: read_only"), &of("mutation: read_only\ndeprecated: {until: 2027-03-01}"));
    let found: Vec<_> = changes.iter().map(|change| (change.path.as_str(), change.breaking)).collect();
    assert_eq!(found, [("/deprecated", false)]);
}
