//! `_meta`: served as written in the spec, and rejected where it would not be read.

use asp_registry::{Source, check};

fn faults(kind: &str, rest: &str) -> Vec<(&'static str, String)> {
    let text = format!(
        "id: sample\nname: Sample\ntype: {kind}\nversion: 1.0.0\nowner: team\nsummary: A sample.\n{rest}\n"
    );
    let report = check(&[Source { path: "demo/sample.yaml".into(), text }]);
    report.faults.iter().map(|fault| (fault.code.as_str(), fault.path.clone())).collect()
}

/// A kind, the rest of its spec, and the faults.
type Row<'a> = (&'a str, String, &'a [(&'a str, &'a str)]);

#[test]
fn what_nobody_would_read_is_refused() {
    let tool = "mutation: read_only\nprimitiveSchema: {input_schema: {type: object}}\nruntime: {mode: builtin, entrypoint: echo}\n";
    let page = "primitiveSchema: {uri: 'ui://a/b', mimeType: 'text/html;profile=mcp-app', contents: [{text: x, _meta: META}]}";
    let question = "primitiveSchema: {message: Who?, fields: [{name: name, type: string}]}\n_meta: {a: 1}";
    let long = format!("{{a: {}}}", "x".repeat(16 << 10));
    let rows: [Row<'_>; 8] = [
        (
            "tool",
            format!("{tool}_meta: {{ui: {{resourceUri: 'ui://a/b'}}, 'ui/resourceUri': 'ui://a/b'}}"),
            &[],
        ),
        ("tool", format!("{tool}_meta: {{asp/own: 1}}"), &[("bad_value", "/_meta/asp~1own")]),
        (
            "tool",
            format!("{tool}_meta: {{IO.modelcontextprotocol/own: 1}}"),
            &[("bad_value", "/_meta/IO.modelcontextprotocol~1own")],
        ),
        ("tool", format!("{tool}_meta: {long}"), &[("text_too_long", "/_meta")]),
        ("tool", format!("{tool}_meta: []"), &[("wrong_type", "/_meta")]),
        ("resource", page.replace("META", "{ui: {csp: {}}}"), &[]),
        (
            "resource",
            page.replace("META", "{asp/own: 1}"),
            &[("bad_value", "/primitiveSchema/contents/0/_meta/asp~1own")],
        ),
        ("elicitation", question.to_owned(), &[("misplaced_key", "/_meta")]),
    ];
    for (kind, rest, expected) in rows {
        let found = faults(kind, &rest);
        let found: Vec<(&str, &str)> = found.iter().map(|(code, path)| (*code, path.as_str())).collect();
        assert_eq!(found, expected, "{rest:.100}");
    }
}
