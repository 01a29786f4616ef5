//! Elicitations that send the user to a page, and primitives that require a user.

use asp_registry::{Source, check};

fn faults(file: &str, text: String) -> Vec<(&'static str, String)> {
    let report = check(&[Source { path: format!("demo/{file}.yaml"), text }]);
    report.faults.iter().map(|fault| (fault.code.as_str(), fault.path.clone())).collect()
}

fn assert_faults(what: &str, found: &[(&'static str, String)], expected: &[(&str, &str)]) {
    let found: Vec<(&str, &str)> = found.iter().map(|(code, path)| (*code, path.as_str())).collect();
    assert_eq!(found, expected, "{what}");
}

#[test]
fn a_page_is_https_and_no_form() {
    for (schema, expected) in [
        ("{url: 'https://pay.example.com/cards'}", &[][..]),
        ("{message: Pay, url: 'https://pay.example.com'}", &[]),
        ("{url: 'http://pay.example.com'}", &[("bad_url", "/primitiveSchema/url")]),
        ("{url: 'https://me@pay.example.com'}", &[("bad_url", "/primitiveSchema/url")]),
        ("{url: 'javascript:alert(1)'}", &[("bad_url", "/primitiveSchema/url")]),
        ("{}", &[("missing_key", "/primitiveSchema/fields")]),
        (
            "{url: 'https://pay.example.com', fields: [{name: n, type: string}]}",
            &[("misplaced_key", "/primitiveSchema/fields")],
        ),
    ] {
        let text = format!(
            "id: card\nname: Card\ntype: elicitation\nversion: 1.0.0\nowner: team\nprimitiveSchema: {schema}\n"
        );
        assert_faults(schema, &faults("card", text), expected);
    }
}

#[test]
fn who_needs_a_user_says_what_for() {
    let text = "id: pay\nname: Pay\ntype: tool\nversion: 1.0.0\nowner: team\nsummary: Pays.\nmutation: read_only\n\
                capabilities: {elicitationRequired: true}\nprimitiveSchema: {input_schema: {type: object}}\n\
                runtime: {mode: builtin, entrypoint: echo}\n";
    let found = faults("pay", text.to_owned());
    assert_faults("none listed", &found, &[("capability_conflict", "/capabilities/elicitationRequired")]);
}
