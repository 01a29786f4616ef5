//! Tools that read A2A messages: what they may be, how they are compiled, and which changes of them break callers.

use asp_proto::snapshot::OtherPrimitive;
use asp_registry::{CheckReport, CompiledServer, Source, check, compare};

fn spec(id: &str, kind: &str, rest: &str) -> Source {
    let text = format!(
        "id: {id}\nname: Sample\ntype: {kind}\nversion: 1.0.0\nowner: team\nsummary: A sample.\n{rest}\n"
    );
    Source { path: format!("demo/{id}.yaml"), text }
}

fn tool(id: &str, mutation: &str) -> Source {
    let rest = format!(
        "mutation: {mutation}\nprimitiveSchema: {{input_schema: {{type: object}}}}\n\
         runtime: {{mode: builtin, entrypoint: echo}}"
    );
    spec(id, "tool", &rest)
}

/// Checks a server with these lines, whose list has a tool to call, one that reads, one that writes, and a prompt.
fn report(lines: &str) -> CheckReport {
    let listed = "primitives: [{ref: demo/pay}, {ref: demo/route}, {ref: demo/write}, {ref: demo/hello}]";
    let text = format!(
        "apiVersion: asp/v1\nname: demo\ndescription: D\nauth: {{schemes: [jwt], issuers: [dev]}}\n{lines}\n{listed}\n"
    );
    let prompt = "primitiveSchema: {messages: [{role: user, content: {type: text, text: Hi}}]}";
    check(&[
        Source { path: "demo/server.yaml".into(), text },
        tool("pay", "non_idempotent"),
        tool("route", "read_only"),
        tool("write", "idempotent"),
        spec("hello", "prompt", prompt),
    ])
}

fn compiled(lines: &str) -> CompiledServer {
    let report = report(lines);
    assert_eq!(report.faults, []);
    report.catalog.expect("no fault").servers.remove(0)
}

#[test]
fn a_message_reader_is_a_listed_tool_of_an_agent_that_only_reads() {
    let table: [(&str, &[(&str, &str)]); 8] = [
        ("protocols: [a2a]\na2a: {router: demo/route, filler: demo/route@1}", &[]),
        ("protocols: [a2a]\na2a: {router: demo/other}", &[("unresolved_ref", "/a2a/router")]),
        ("protocols: [a2a]\na2a: {router: demo/route@2}", &[("unresolved_ref", "/a2a/router")]),
        ("protocols: [a2a]\na2a: {filler: demo/hello}", &[("unresolved_ref", "/a2a/filler")]),
        ("protocols: [a2a]\na2a: {router: demo/pay}", &[("bad_value", "/a2a/router")]),
        ("protocols: [a2a]\na2a: {filler: demo/write}", &[("bad_value", "/a2a/filler")]),
        ("protocols: [mcp]\na2a: {router: demo/route}", &[("misplaced_key", "/a2a/router")]),
        ("protocols: [a2a]\na2a: {chooser: demo/route}", &[("unknown_key", "/a2a/chooser")]),
    ];
    for (lines, expected) in table {
        let report = report(lines);
        let faults = report.faults.iter();
        let found: Vec<(&str, &str)> =
            faults.map(|fault| (fault.code.as_str(), fault.path.as_str())).collect();
        assert_eq!(found, expected, "{lines}");
    }
}

#[test]
fn a_message_reader_is_no_skill() {
    let server = compiled("protocols: [mcp, a2a]\na2a: {router: demo/route@1, filler: demo/route}").server;
    let other = |major| Some(OtherPrimitive { id: "route".into(), major });
    assert_eq!((server.a2a_router, server.a2a_filler), (other(Some(1)), other(None)));
    let names = |id: &str| {
        let listing = server.listings.iter().find(|listing| listing.id == id).expect(id);
        (listing.mcp_name.as_str(), listing.a2a_skill.as_str())
    };
    assert_eq!((names("route"), names("write")), (("route", ""), ("write", "write")));
}

#[test]
fn a_message_reader_that_is_gone_breaks_callers() {
    let with = |readers: &str| compiled(&format!("protocols: [a2a]\na2a: {{{readers}}}"));
    let rows = [
        ("router: demo/route", "router: demo/route@1", "/a2a/router", false),
        ("filler: demo/route", "filler: demo/route@1", "/a2a/filler", false),
        ("router: demo/route, filler: demo/route", "router: demo/route", "/a2a/filler", true),
        ("router: demo/route, filler: demo/route", "filler: demo/route", "/a2a/router", true),
    ];
    for (old, new, path, breaking) in rows {
        let changes = compare(&with(old), &with(new));
        let found: Vec<(&str, bool)> =
            changes.iter().map(|change| (change.path.as_str(), change.breaking)).collect();
        assert_eq!(found, [(path, breaking)], "{old} → {new}");
    }
}
