use super::{Document, MAX_DEPTH, MAX_NODES, build};
use crate::fault::FaultCode;
use crate::source::Source;

fn source(path: &str, text: impl Into<String>) -> Source {
    Source { path: path.into(), text: text.into() }
}

fn codes(path: &str, text: &str) -> Vec<(FaultCode, u32, String)> {
    let (_, faults) = Document::parse(&source(path, text));
    faults.into_iter().map(|fault| (fault.code, fault.line, fault.path)).collect()
}

fn json_of(text: &str) -> String {
    let (document, faults) = Document::parse(&source("a/b.yaml", text));
    assert_eq!(faults, [], "{text}");
    document.expect(text).to_json().to_string()
}

#[test]
fn yaml_becomes_the_json_its_author_meant() {
    let table = [
        ("a: 1", r#"{"a":1}"#),
        ("b: 2\na: 1", r#"{"b":2,"a":1}"#),
        ("a: [1, -2, 1.5, 1e3]", r#"{"a":[1,-2,1.5,1000.0]}"#),
        ("a: {b: true, c: null, d: ~, e: }", r#"{"a":{"b":true,"c":null,"d":null,"e":null}}"#),
        ("a: 1.0.0", r#"{"a":"1.0.0"}"#),
        ("a: 2025-01-01", r#"{"a":"2025-01-01"}"#),
        ("a: 2025-01-01T00:00:00Z", r#"{"a":"2025-01-01T00:00:00Z"}"#),
        ("a: 'no'", r#"{"a":"no"}"#),
        ("a: \"017\"", r#"{"a":"017"}"#),
        ("a: north", r#"{"a":"north"}"#),
        ("{x: y, y: n}", r#"{"x":"y","y":"n"}"#),
        ("a: -x", r#"{"a":"-x"}"#),
        ("a: |\n  two\n  lines\n", r#"{"a":"two\nlines\n"}"#),
        ("a: >-\n  one\n  line\n", r#"{"a":"one line"}"#),
        ("# only a comment\na: 1", r#"{"a":1}"#),
        ("---\na: 1\n", r#"{"a":1}"#),
        ("a: 18446744073709551615", r#"{"a":18446744073709551615}"#),
    ];
    for (text, expected) in table {
        assert_eq!(json_of(text), expected, "{text}");
    }
}

#[test]
fn what_yaml_versions_read_differently_is_refused_with_its_line() {
    for value in [
        "no",
        "No",
        "NO",
        "yes",
        "on",
        "off",
        "017",
        "08",
        "0x1F",
        "0o17",
        "0b11",
        "1_000",
        ".inf",
        "-.INF",
        ".nan",
        "12:30:45",
        "1e999",
        ".5",
        "5.",
        "+1",
        "99999999999999999999999",
        "-9223372036854775809",
    ] {
        let found = codes("a/b.yaml", &format!("x: 1\na: {value}\n"));
        assert_eq!(found, [(FaultCode::AmbiguousScalar, 2, "/a".into())], "{value}");
    }
    for key in ["no", "1", "true", "null", "~"] {
        let found = codes("a/b.yaml", &format!("x: 1\n{key}: 1\n"));
        assert_eq!(found.len(), 1, "{key}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (FaultCode::AmbiguousScalar, 2), "{key}");
    }
}

#[test]
fn features_that_hide_or_repeat_values_are_refused_with_their_line() {
    let table = [
        ("a: &x 1\nb: 2", 1),
        ("a: 1\nb: *x", 2),
        ("a: 1\nb: !!str 2", 2),
        ("a: 1\nb: !custom {c: 1}", 2),
        ("a: 1\nb: !!binary aGk=", 2),
        ("a: {b: 1}\nc:\n  <<: {d: 1}", 3),
        ("a: 1\n? [b]\n: 1", 2),
        ("a: 1\n---\nb: 2", 3),
    ];
    for (text, line) in table {
        let found = codes("a/b.yaml", text);
        assert_eq!(found.len(), 1, "{text}: {found:?}");
        assert_eq!((found[0].0, found[0].1), (FaultCode::YamlFeature, line), "{text}");
    }
}

#[test]
fn every_duplicate_key_is_reported_at_its_second_place() {
    let text = "a: 1\nb:\n  c: 1\n  c: 2\na: 3\n";
    let expected = [(FaultCode::DuplicateKey, 4, "/b/c".into()), (FaultCode::DuplicateKey, 5, "/a".into())];
    assert_eq!(codes("a/b.yaml", text), expected);
    let json = "{\"a\": 1,\n \"\\u0061\": 2}";
    assert_eq!(codes("a/b.json", json), [(FaultCode::DuplicateKey, 2, "/a".into())]);
}

#[test]
fn json_is_strict_and_keeps_its_escapes() {
    for text in [
        "{\"a\": 1,}",
        "{a: 1}",
        "// c\n{}",
        "{\"a\": 01}",
        "{\"a\": NaN}",
        "{\"a\": '1'}",
        "{} {}",
        "",
        "\u{feff}{}",
    ] {
        let found = codes("a/b.json", text);
        assert_eq!(found.first().map(|fault| fault.0), Some(FaultCode::Syntax), "{text}");
    }
    let (document, faults) = Document::parse(&source("a/b.json", r#"{"a":"\ud83d\ude00\/\t\"é"}"#));
    assert_eq!(faults, []);
    assert_eq!(document.expect("it parses").to_json()["a"], "😀/\t\"é");
    assert_eq!(codes("a/b.json", r#"{"a":"\ud83d"}"#)[0].0, FaultCode::Syntax);
}

#[test]
fn bombs_are_refused_with_a_line_before_they_cost_more_than_a_plain_file() {
    let laughs: String = (1..9)
        .map(|level| {
            let previous = format!("*a{}", level - 1);
            format!("a{level}: &a{level} [{}]\n", vec![previous; 9].join(", "))
        })
        .collect();
    let merges: String =
        (1..500).map(|level| format!("m{level}: &m{level} {{<<: *m{}}}\n", level - 1)).collect();
    let values_of = |text: &str| text.split([' ', '\n']).count();
    let table: Vec<(&str, String, FaultCode)> = vec![
        ("alias bomb", format!("a0: &a0 lol\n{laughs}"), FaultCode::YamlFeature),
        ("merge bomb", format!("m0: &m0 {{a: 1}}\n{merges}"), FaultCode::YamlFeature),
        ("deep flow", "[".repeat(20_000), FaultCode::DocumentBudget),
        ("deep map", "{a: ".repeat(20_000), FaultCode::DocumentBudget),
        (
            "deep block",
            (0..2_000).map(|n| format!("{}a:\n", " ".repeat(n))).collect(),
            FaultCode::DocumentBudget,
        ),
        ("deep sequence", format!("a: {}1", "- ".repeat(5_000)), FaultCode::Syntax),
        ("deep block sequence", format!("{}1", "- ".repeat(5_000)), FaultCode::DocumentBudget),
        ("long scalar", format!("a: {}", "x".repeat(10 * 1024 * 1024)), FaultCode::DocumentBudget),
        ("many values", format!("a: [{}]", "1,".repeat(400_000)), FaultCode::DocumentBudget),
        ("many keys", (0..100_000).map(|n| format!("k{n}: 1\n")).collect(), FaultCode::DocumentBudget),
    ];
    for (name, text, code) in table {
        for path in ["a/b.yaml", "a/b.json"] {
            let source = source(path, text.clone());
            let (_, faults) = Document::parse(&source);
            let first = faults.first().unwrap_or_else(|| panic!("{name} was accepted"));
            assert!(first.line > 0, "{name} has no line");
            // In JSON the same texts are syntax errors, except for the sizes.
            if path.ends_with("yaml") {
                assert_eq!(first.code, code, "{name}: {first:?}");
            }
            let most = if name.starts_with("deep") { 2 * MAX_DEPTH } else { MAX_NODES };
            let read = build::nodes(&source);
            assert!(read <= most + 1, "{name}: {read} values were read");
            assert!(!name.ends_with("bomb") || read <= values_of(&text), "{name} was expanded: {read}");
        }
    }
}

#[test]
fn depth_up_to_the_limit_is_read_and_one_more_is_not() {
    let nested = |levels: usize| format!("a: {}{}", "[".repeat(levels), "]".repeat(levels));
    let (document, faults) = Document::parse(&source("a/b.yaml", nested(70)));
    assert!(document.is_some() && faults.is_empty());
    let (document, faults) = Document::parse(&source("a/b.yaml", nested(81)));
    assert!(document.is_none());
    assert_eq!(faults[0].code, FaultCode::DocumentBudget);
}

#[test]
fn a_pointer_finds_the_line_of_its_key_or_of_the_nearest_value() {
    let text = "a:\n  b: 1\n  c/d~e:\n    - x\n    - y\n";
    let (document, _) = Document::parse(&source("a/b.yaml", text));
    let document = document.expect("it parses");
    let table = [
        ("", 1),
        ("/a", 1),
        ("/a/b", 2),
        ("/a/c~1d~0e", 3),
        ("/a/c~1d~0e/1", 5),
        ("/a/missing", 1),
        ("/z/y", 1),
    ];
    for (pointer, line) in table {
        assert_eq!(document.line_at(pointer), line, "{pointer}");
    }
}

#[test]
fn an_empty_file_is_a_fault_and_no_document() {
    for text in ["", "\n\n", "# nothing\n", "---\n"] {
        let (_, faults) = Document::parse(&source("a/b.yaml", text));
        let (document, _) = Document::parse(&source("a/b.yaml", text));
        let is_null = document.is_some_and(|document| document.to_json().is_null());
        assert!(!faults.is_empty() || is_null, "{text:?}");
    }
}
