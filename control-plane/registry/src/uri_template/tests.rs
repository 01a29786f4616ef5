use serde_json::json;

use super::*;

fn expanded(template: &str, values: Value) -> Result<String, ExpandFault> {
    UriTemplate::parse(template).unwrap().expand(values.as_object().unwrap())
}

#[test]
fn a_template_matches_what_it_expands_to() {
    let template = UriTemplate::parse_matching("demo://items/{id}/parts/{part}").unwrap();
    let values = json!({"id": "a b/ü", "part": 7});
    let uri = template.expand(values.as_object().unwrap()).unwrap();
    assert_eq!(uri, "demo://items/a%20b%2F%C3%BC/parts/7");
    assert_eq!(Value::Object(template.matches(&uri).unwrap()), json!({"id": "a b/ü", "part": "7"}));
}

#[test]
fn what_does_not_match_is_refused() {
    let template = UriTemplate::parse_matching("test://template/{id}/data").unwrap();
    for uri in [
        "test://template//data",
        "test://template/1/2/data",
        "test://template/1/data/",
        "test://template/1",
        "TEST://template/1/data",
        "test://template/%zz/data",
        "test://template/%f/data",
        "test://template/%ff/data",
        "",
    ] {
        assert_eq!(template.matches(uri), None, "{uri}");
    }
    assert_eq!(template.matches(&format!("test://template/{}/data", "a".repeat(1 << 20))), None);
}

#[test]
fn templates_beyond_level_1_do_not_parse() {
    for text in [
        "x://{+path}",
        "{#id}",
        "{.id}",
        "{/id}",
        "{;id}",
        "{?id}",
        "{&id}",
        "{id*}",
        "{id:3}",
        "{a,b}",
        "{}",
        "{id",
        "id}",
        "{{id}}",
        "{a b}",
        "{\u{e9}}",
        "{a..b}",
        "{a.}",
        "x://{",
        "x://}",
    ] {
        assert!(UriTemplate::parse(text).is_err(), "{text}");
    }
    for text in ["{x_1.y}", "x://{a}{b}", "plain", ""] {
        assert!(UriTemplate::parse(text).is_ok(), "{text}");
    }
    assert_eq!(UriTemplate::parse("demo://a/{id}/{b}c").unwrap().sample_uri(), "demo://a/v/vc");
}

#[test]
fn what_is_matched_matches_in_one_way_only() {
    for text in ["x://{a}{b}", "x://{a}/{b}/{a}", "x://plain"] {
        assert_eq!(UriTemplate::parse_matching(text), Err(TemplateFault::Ambiguous), "{text}");
    }
    assert!(UriTemplate::parse_matching("x://{a}-{b}").is_ok());
}

#[test]
fn a_name_with_a_dot_is_one_argument() {
    assert_eq!(expanded("https://h/{a.b}", json!({"a.b": 1})).as_deref(), Ok("https://h/1"));
    let missing = expanded("https://h/{a.b}", json!({"a": {"b": 1}}));
    assert_eq!(missing, Err(ExpandFault::Missing("a.b".into())));
}

/// Paths that an argument must never produce, however it is written.
#[test]
fn an_argument_that_would_climb_is_refused_and_named() {
    let template = "https://h/users/{id}/profile";
    for id in [
        ".",
        "..",
        "%2e",
        "%2E%2e",
        ".%2e",
        "%252e%252e",
        "%25252e.",
        "../admin",
        "..%2fadmin",
        "a/../../admin",
        "a/./b",
        "..\\admin",
        "%5c..%5c",
        "/..",
        "../",
        "..;x=1",
        "..;",
        "..\0",
        "\t..",
        ".\n.",
        "..?x",
        "..#x",
        "..%3Fx",
    ] {
        let found = expanded(template, json!({"id": id}));
        assert_eq!(found, Err(ExpandFault::DotSegment("id".into())), "{id:?}");
    }
    assert_eq!(expanded(template, json!({"id": ""})), Err(ExpandFault::EmptySegment("id".into())));
}

#[test]
fn variables_and_fixed_text_do_not_make_a_dot_segment_together() {
    let names = |names: &str| Err(ExpandFault::DotSegment(names.into()));
    let rows = [
        ("https://h/a/{x}{y}", json!({"x": ".", "y": "."}), names("x`, `y")),
        ("https://h/a/{x}{y}/b", json!({"x": "", "y": ".."}), names("x`, `y")),
        ("https://h/a/{x}{y}", json!({"x": "b/", "y": ".."}), names("x`, `y")),
        ("https://h/a/{x}{y}", json!({"x": "%2", "y": "e"}), names("x`, `y")),
        ("https://h/a/.{x}", json!({"x": "."}), names("x")),
        ("https://h/a/.{x}", json!({"x": ""}), names("x")),
        ("https://h/a/{x}.", json!({"x": "."}), names("x")),
        ("https://h/a/%2e{x}", json!({"x": "."}), names("x")),
        ("https://h/a/{x}?q=1", json!({"x": ".."}), names("x")),
        ("https://h/{x}#f", json!({"x": ".."}), names("x")),
        ("{x}/b", json!({"x": ".."}), names("x")),
        ("/files/{x}", json!({"x": ".."}), names("x")),
        ("https://h/a?path=/b/{x}&c=1", json!({"x": ".."}), names("x")),
        ("demo://{x}", json!({"x": ".."}), names("x")),
        ("https://h/{x}{y}/b", json!({"x": "", "y": ""}), Err(ExpandFault::EmptySegment("x`, `y".into()))),
    ];
    for (template, values, fault) in rows {
        assert_eq!(expanded(template, values.clone()), fault, "{template} {values}");
    }
    let fault = expanded("https://h/a/{x}{y}", json!({"x": ".", "y": "."})).unwrap_err();
    assert_eq!(fault.argument(), "x");
    assert_eq!(
        fault.to_string(),
        "`x`, `y` must not be or contain a `.` or `..` between slashes, in any encoding"
    );
}

#[test]
fn dots_that_are_no_segment_are_taken() {
    let rows = [
        ("https://h/{x}", "a..b", "https://h/a..b"),
        ("https://h/{x}", "...", "https://h/..."),
        ("https://h/{x}", ".hidden", "https://h/.hidden"),
        ("https://h/{x}", "v1.2", "https://h/v1.2"),
        ("https://h/{x}", "100%", "https://h/100%25"),
        ("https://h/{x}", "group/project", "https://h/group%2Fproject"),
        ("https://h/a{x}", "..", "https://h/a.."),
        ("https://h/search?q={x}", "..", "https://h/search?q=.."),
        ("https://h/search?q={x}", "", "https://h/search?q="),
        ("https://h/search?a=1&q={x}", "../", "https://h/search?a=1&q=..%2F"),
        ("{x}", "..", ".."),
        ("{x}", "", ""),
    ];
    for (template, value, uri) in rows {
        assert_eq!(expanded(template, json!({"x": value})).as_deref(), Ok(uri), "{template} {value}");
    }
}

#[test]
fn a_list_is_written_with_commas_and_what_has_no_text_is_no_absent_value() {
    for (template, values, expected) in [
        ("{x}", json!({"x": ["a", 1, true]}), Ok("a,1,true")),
        ("https://h/{x}/y", json!({"x": ["a,b", "c/d"]}), Ok("https://h/a%2Cb,c%2Fd/y")),
        ("{x}", json!({"x": []}), Err(ExpandFault::Missing("x".into()))),
        ("{x}", json!({"x": null}), Err(ExpandFault::Missing("x".into()))),
        ("{x}", json!({"x": ["a", null]}), Err(ExpandFault::NoText("x".into()))),
        ("{x}", json!({"x": [["a"]]}), Err(ExpandFault::NoText("x".into()))),
        ("{x}", json!({"x": {"a": 1}}), Err(ExpandFault::NoText("x".into()))),
        ("https://h/{x}", json!({"x": [".."]}), Err(ExpandFault::DotSegment("x".into()))),
        ("https://h/{x}", json!({"x": [""]}), Err(ExpandFault::EmptySegment("x".into()))),
        ("https://h/{x}", json!({"x": ["..;", "a"]}), Err(ExpandFault::DotSegment("x".into()))),
    ] {
        assert_eq!(
            expanded(template, values.clone()).as_deref(),
            expected.as_ref().copied(),
            "{template} {values}"
        );
    }
}

#[test]
fn a_header_has_values_as_they_are_and_none_that_it_cannot_hold() {
    let refused = |text: &str| (json!({"x": text}), Err(ExpandFault::NoHeader("x".into())));
    for (values, expected) in [
        (json!({"x": "W/\"a b\", return=minimal; q=0.5 100%"}), Ok("W/\"a b\", return=minimal; q=0.5 100%")),
        (json!({"x": ["a", 1]}), Ok("a,1")),
        (json!({"x": ""}), Ok("")),
        (json!({}), Err(ExpandFault::Missing("x".into()))),
        (json!({"x": {}}), Err(ExpandFault::NoText("x".into()))),
        (json!({"x": ["a,b"]}), Err(ExpandFault::NoHeader("x".into()))),
        refused("a\r\nx-user: b"),
        refused("a\0"),
        refused("\u{7f}"),
        refused("\u{e9}"),
        refused(" a"),
        refused("a "),
    ] {
        let header = UriTemplate::parse("{x}").unwrap().expand_header(values.as_object().unwrap());
        assert_eq!(header.as_deref(), expected.as_ref().copied(), "{values}");
    }
    let path = UriTemplate::parse("/users/{x}").unwrap();
    let climbs = path.expand_header(json!({"x": "../admin"}).as_object().unwrap());
    assert_eq!(climbs, Err(ExpandFault::DotSegment("x".into())));
}

#[test]
fn a_variable_is_exploded_where_it_is_the_whole_text() {
    assert_eq!(exploded("{tags*}"), Some("tags"));
    for text in ["{tags}", "{tags*}x", "x{tags*}", "{*}", "{a,b*}", "{?tags*}", "{a**}", "tags*", ""] {
        assert_eq!(exploded(text), None, "{text}");
    }
}
