//! Several major versions of a primitive on one server.

use asp_registry::{CheckReport, CompiledServer, Source, check, compare};

fn spec(version: &str, argument: &str) -> String {
    format!(
        "id: echo\nname: Echo\ntype: tool\nversion: {version}\nowner: o\nsummary: s\nmutation: read_only\n\
         primitiveSchema:\n  input_schema: {{type: object, required: [{argument}], properties: {{{argument}: {{type: string}}}}}}\n\
         runtime: {{mode: builtin, entrypoint: echo}}\n"
    )
}

fn report(listed: &str, specs: &[(&str, String)]) -> CheckReport {
    let server = format!(
        "apiVersion: asp/v1\nname: demo\ndescription: D\nprotocols: [mcp, a2a, rest]\nauth: {{schemes: [jwt], issuers: [dev]}}\n\
         defaultExposure: allow\nprimitives: [{listed}]\n"
    );
    let mut sources = vec![Source { path: "demo/server.yaml".into(), text: server }];
    sources
        .extend(specs.iter().map(|(file, text)| Source { path: format!("demo/{file}"), text: text.clone() }));
    check(&sources)
}

fn compiled(listed: &str, specs: &[(&str, String)]) -> CompiledServer {
    let report = report(listed, specs);
    assert_eq!(report.faults, []);
    report.catalog.expect("no fault").servers.remove(0)
}

fn names(server: &CompiledServer) -> Vec<(&str, &str, &str)> {
    let listings = server.server.listings.iter();
    listings
        .map(|listed| (listed.mcp_name.as_str(), listed.rest_name.as_str(), listed.version.as_str()))
        .collect()
}

fn both() -> [(&'static str, String); 2] {
    [("echo-1.yaml", spec("1.4.0", "text")), ("echo.yaml", spec("2.0.1", "message"))]
}

#[test]
fn a_server_lists_several_major_versions_under_names_of_their_own() {
    let server = compiled("{ref: demo/echo}, {ref: demo/echo@1, as: echo_v1}", &both());
    assert_eq!(names(&server), [("echo", "echo", "2.0.1"), ("echo_v1", "echo_v1", "1.4.0")]);
    let versions: Vec<&str> = server.primitives.iter().map(|primitive| primitive.version.as_str()).collect();
    assert_eq!(versions, ["1.4.0", "2.0.1"]);
}

#[test]
fn a_version_that_is_not_pinned_is_the_highest_and_a_pinned_one_stays() {
    let files =
        [("a.yaml", spec("10.0.0", "a")), ("b.yaml", spec("9.9.9", "b")), ("c.yaml", spec("2.0.0", "c"))];
    let server =
        compiled("{ref: demo/echo@9, as: nine}, {ref: demo/echo}, {ref: demo/echo@2, as: two}", &files);
    assert_eq!(
        names(&server),
        [("nine", "nine", "9.9.9"), ("echo", "echo", "10.0.0"), ("two", "two", "2.0.0")]
    );
    for reference in
        ["demo/echo@3", "demo/echo@", "demo/echo@9.9.9", "demo/echo@09", "demo/other@1", "demo/echo@-1"]
    {
        let faults = report(&format!("{{ref: {reference}}}"), &files).faults;
        assert!(
            faults.iter().any(|fault| fault.code.as_str() == "unresolved_ref"),
            "{reference}: {faults:?}"
        );
    }
}

#[test]
fn two_of_one_major_version_or_of_two_owners_are_refused() {
    let listed = "{ref: demo/echo}";
    let other_owner = spec("2.0.0", "a").replace("owner: o", "owner: another");
    let other_type = spec("2.0.0", "a").replace("type: tool", "type: task");
    for second in [spec("1.9.0", "a"), other_owner, other_type] {
        let faults = report(listed, &[("a.yaml", spec("1.0.0", "a")), ("b.yaml", second)]).faults;
        assert!(faults.iter().any(|fault| fault.code.as_str() == "duplicate_id"), "{faults:?}");
    }
}

/// Returns each change: its message, whether it breaks callers, whether a new version announces it.
fn told(old: &CompiledServer, new: &CompiledServer) -> Vec<(String, bool, bool)> {
    let mut told: Vec<_> = compare(old, new)
        .into_iter()
        .filter(|change| change.path.is_empty())
        .map(|change| (change.message, change.breaking, change.versioned))
        .collect();
    told.sort();
    told
}

#[test]
fn a_new_major_beside_the_old_one_breaks_nobody_and_its_end_breaks_those_who_stayed() {
    let [first, second] = both();
    let one = compiled("{ref: demo/echo}", std::slice::from_ref(&first));
    let two = compiled("{ref: demo/echo@1}, {ref: demo/echo@2, as: echo_v2}", &both());
    assert_eq!(told(&one, &two), [("version 2.0.1 is new".into(), false, true)]);
    assert!(compare(&one, &two).iter().all(|change| !change.breaking));
    let last = compiled("{ref: demo/echo, as: echo_v2}", std::slice::from_ref(&second));
    assert_eq!(told(&two, &last), [("version 1.4.0 is gone".into(), true, false)]);
    // A higher major version in place of the first announces the break.
    let replaced = compiled("{ref: demo/echo}", &[second]);
    let changes = compare(&one, &replaced);
    assert!(changes.iter().any(|change| change.breaking) && changes.iter().all(|change| change.versioned));
}

#[test]
fn the_agent_card_describes_each_version_by_itself() {
    let spec =
        |version: &str| spec(version, "a").replace("summary: s", &format!("summary: Version {version}."));
    let files = [("a.yaml", spec("1.0.0")), ("b.yaml", spec("2.0.0"))];
    let server = compiled("{ref: demo/echo}, {ref: demo/echo@1, as: echo_v1}", &files);
    let place =
        |text: &str| server.agent_card.find(text).unwrap_or_else(|| panic!("{text}: {}", server.agent_card));
    assert!(place("Version 2.0.0.") < place("Version 1.0.0."), "{}", server.agent_card);
}
