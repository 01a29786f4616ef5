use serde_json::json;

use super::*;

fn message(pointer: &str, test: Message) -> ConditionMessage {
    ConditionMessage { pointer: pointer.into(), test: Some(test) }
}

fn values(texts: &[&str]) -> Scalars {
    Scalars { json: texts.iter().map(|text| (*text).to_owned()).collect() }
}

fn range(min: &str, max: &str) -> Message {
    Message::Range(Range { min: min.into(), max: max.into() })
}

fn holds(test: Message, argument: Value) -> bool {
    Condition::compile(&message("/a", test)).unwrap().holds(&json!({ "a": argument }))
}

#[test]
fn what_is_beyond_a_bound_or_not_exact_is_refused_with_its_place() {
    let long = "x".repeat(MAX_TEXT);
    let many: Vec<&str> = vec!["1"; MAX_VALUES + 1];
    let rows = [
        (message(&format!("/{}", "x".repeat(MAX_POINTER)), range("1", "")), "pointer"),
        (message("a", range("1", "")), "pointer"),
        (message("/a~", range("1", "")), "pointer"),
        (message("/a~2b", range("1", "")), "pointer"),
        (ConditionMessage { pointer: "/a".into(), test: None }, "one of equals"),
        (message("/a", Message::Equals(values(&[]))), "equals"),
        (message("/a", Message::Equals(values(&["1", "2"]))), "equals"),
        (message("/a", Message::Equals(values(&["nothing"]))), "equals"),
        (message("/a", Message::Equals(values(&["[1]"]))), "equals"),
        (message("/a", Message::Equals(values(&["{}"]))), "equals"),
        (message("/a", Message::Equals(values(&[&format!("\"{long}\"")]))), "equals"),
        (message("/a", Message::Equals(values(&["18446744073709551616"]))), "equals"),
        (message("/a", Message::Equals(values(&["9007199254740993.5"]))), "equals"),
        (message("/a", Message::Equals(values(&["1e300"]))), "equals"),
        (message("/a", Message::In(values(&[]))), "in"),
        (message("/a", Message::In(values(&many))), "in"),
        (message("/a", Message::In(values(&["1", "[]"]))), "in"),
        (message("/a", Message::Glob(format!("{long}*"))), "glob"),
        (message("/a", range("", "")), "range"),
        (message("/a", range("2", "1")), "range"),
        (message("/a", range("1", "1e16")), "range"),
        (message("/a", range("\"1\"", "")), "range"),
        (message("/a", range("NaN", "")), "range"),
        (message("/a", range("1 2", "")), "range"),
        (message("/a", range(&"1".repeat(MAX_TEXT + 1), "")), "range"),
    ];
    for (bad, place) in rows {
        let fault = Condition::compile(&bad).map(drop).unwrap_err();
        assert!(fault.starts_with(place), "{fault}: {bad:?}");
    }
    for pointer in ["", "/", "/a/0/b", "/a~1b~0c", "/é"] {
        assert!(Condition::compile(&message(pointer, range("1", ""))).is_ok(), "{pointer}");
    }
}

#[test]
fn numbers_are_compared_by_value_and_integers_of_64_bits_exactly() {
    let equals = |one: &str, argument: &str| {
        holds(Message::Equals(values(&[one])), serde_json::from_str(argument).unwrap())
    };
    for (one, other) in [
        ("1", "1.0"),
        ("1", "1e0"),
        ("0", "-0.0"),
        ("0.0", "-0"),
        ("9007199254740993", "9007199254740993"),
        ("-9223372036854775808", "-9223372036854775808"),
        ("18446744073709551615", "18446744073709551615"),
        ("0.1", "0.10"),
    ] {
        assert!(equals(one, other), "{one} {other}");
    }
    for (one, other) in [
        ("9007199254740993", "9007199254740992"),
        ("9007199254740993", "9007199254740992.0"),
        ("18446744073709551615", "18446744073709551616"),
        ("9223372036854775807", "9223372036854775808"),
        ("1", "1.0000001"),
        ("1", "\"1\""),
        ("1", "true"),
        ("0", "null"),
        ("0", "false"),
        ("\"\"", "null"),
    ] {
        assert!(!equals(one, other), "{one} {other}");
    }
}

#[test]
fn a_range_has_its_ends_and_nothing_that_is_no_number() {
    let within = |min: &str, max: &str, argument: &str| {
        holds(range(min, max), serde_json::from_str(argument).unwrap())
    };
    for (argument, expected) in [
        ("1000", true),
        ("1000.0", true),
        ("999.9999", false),
        ("1000.0001", true),
        ("2000", true),
        ("2000.1", false),
        ("1e400000", false),
        ("\"1500\"", false),
        ("[1500]", false),
        ("{\"amount\":1500}", false),
        ("null", false),
    ] {
        let Ok(_) = serde_json::from_str::<Value>(argument) else { continue };
        assert_eq!(within("1000", "2000", argument), expected, "{argument}");
    }
    assert!(within("", "-0.5", "-1") && within("", "-0.5", "-0.5") && !within("", "-0.5", "-0.25"));
    assert!(within("9007199254740993", "", "9007199254740993"));
    assert!(!within("9007199254740993", "", "9007199254740992"));
    assert!(within("9223372036854775807", "", "1e30") && !within("-9223372036854775808", "", "-1e30"));
}

#[test]
fn a_glob_has_stars_and_nothing_else() {
    for (glob, text, expected) in [
        ("", "", true),
        ("", "a", false),
        ("*", "", true),
        ("**", "abc", true),
        ("a*", "a", true),
        ("a*", "ba", false),
        ("*a", "ba", true),
        ("*a", "ab", false),
        ("/etc/*", "/etc/passwd", true),
        ("/etc/*", "/home/etc/passwd", false),
        ("a*b*c", "abc", true),
        ("a*b*c", "a-b-b-c", true),
        ("a*b*c", "acb", false),
        ("a*a", "a", false),
        ("ab*ba", "aba", false),
        ("*ab*ab*", "ab", false),
        ("*ab*ab*", "abab", true),
        ("a?c", "abc", false),
        ("a?c", "a?c", true),
        ("[ab]", "a", false),
        ("É*", "É1", true),
        ("é*", "É1", false),
    ] {
        assert_eq!(holds(Message::Glob(glob.into()), json!(text)), expected, "{glob} {text}");
    }
    assert!(!holds(Message::Glob("*".into()), json!(1)) && !holds(Message::Glob("*".into()), json!(null)));
}

#[test]
fn what_is_not_there_and_what_holds_others_fulfils_nothing() {
    let condition = |pointer: &str| Condition::compile(&message(pointer, range("1", ""))).unwrap();
    let arguments = json!({"a": {"b": [1, {"c/d": 5}]}, "": 7});
    assert!(condition("/a/b/1/c~1d").holds(&arguments) && condition("/a/b/0").holds(&arguments));
    assert!(condition("/").holds(&arguments));
    for pointer in ["", "/a", "/a/b", "/a/b/2", "/a/b/01", "/a/b/-", "/x", "/a/b/0/c"] {
        assert!(!condition(pointer).holds(&arguments), "{pointer}");
    }
    assert!(condition("").holds(&json!(1)));
}

#[test]
fn a_glob_of_many_pieces_over_a_long_text_is_one_pass() {
    // Backtracking would take 2^50 steps or more.
    let glob = "a*".repeat(100) + "b";
    assert!(!holds(Message::Glob(glob), json!("a".repeat(1 << 20))));
}

#[test]
fn a_test_of_what_a_value_must_not_be_holds_for_everything_else_and_for_nothing() {
    let not_in = || Message::NotIn(values(&["\"EUR\"", "5"]));
    let not_glob = || Message::NotGlob("*@example.com".into());
    for value in [json!("EUR"), json!(5), json!(5.0)] {
        assert!(!holds(not_in(), value.clone()), "{value}");
    }
    for value in [json!("USD"), json!(6), json!(null), json!(["EUR"]), json!({ "a": "EUR" })] {
        assert!(holds(not_in(), value.clone()), "{value}");
    }
    assert!(!holds(not_glob(), json!("bob@example.com")));
    for value in [json!("bob@example.org"), json!(7), json!(["bob@example.com"])] {
        assert!(holds(not_glob(), value.clone()), "{value}");
    }
    for test in [not_in(), not_glob()] {
        assert!(Condition::compile(&message("/b", test)).unwrap().holds(&json!({ "a": "EUR" })), "missing");
    }
    for (bad, place) in [
        (Message::NotIn(values(&[])), "notIn"),
        (Message::NotIn(values(&["[]"])), "notIn"),
        (Message::NotGlob("x".repeat(MAX_TEXT + 1)), "notGlob"),
    ] {
        let fault = Condition::compile(&message("/a", bad)).map(drop).unwrap_err();
        assert!(fault.starts_with(place), "{fault}");
    }
}
