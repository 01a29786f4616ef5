//! Texts that views cannot represent, and random ones (I-14).

use serde_json::{Value, json};

use super::*;
use crate::generator::Generator;

const ODD: &str = r#"{"n":340282366920938463463374607431768211455,"d":0.123456789012345678901234567890,"e":1e3,"s":"cut \ud83d","\u006e":1,"k":[{"a":1.50}]}"#;

#[test]
fn a_text_stays_as_it_was_written_but_for_its_line_breaks() {
    assert_eq!(Json::parse(ODD.as_bytes()).unwrap().text(), ODD);
    let lines = Json::parse(b" {\r\n \"a\": [1,\n2]}\n").unwrap();
    assert_eq!(lines.text(), "{   \"a\": [1, 2]}");
    assert_eq!(lines.view(), &json!({"a": [1, 2]}));
}

#[test]
fn a_request_has_no_number_beyond_a_double() {
    for text in ["1e400", r#"{"a":[-1e999]}"#] {
        assert!(
            Json::parse(text.as_bytes()).is_ok() && Json::parse_request(text.as_bytes()).is_err(),
            "{text}"
        );
    }
    assert_eq!(Json::parse_request(ODD.as_bytes()), Json::parse(ODD.as_bytes()));
    assert!(Json::parse_request(b"{").is_err());
}

#[test]
fn parts_have_their_texts() {
    let json = Json::parse(ODD.as_bytes()).unwrap();
    assert_eq!(json.member("d").unwrap().text(), "0.123456789012345678901234567890");
    assert_eq!(json.member("n").unwrap().text(), "1");
    assert_eq!(json.pointed("/k/0/a").unwrap().text(), "1.50");
    assert_eq!(json.pointed("").unwrap().text(), ODD);
    for nowhere in ["/k/00", "/k/+0", "/x", "/k/1", "k", "/e/0"] {
        assert!(json.pointed(nowhere).is_none(), "{nowhere}");
    }
    assert_eq!(json.member("k").unwrap().elements().unwrap().len(), 1);
}

#[test]
fn members_are_found_by_name_and_elements_up_to_a_limit() {
    let found = named(ODD, ["n", "s", "x"]).unwrap();
    assert_eq!(
        found,
        [Some("1"), Some(r#""cut \ud83d""#), None],
        "the last of equal keys, also when escaped"
    );
    for none in ["[1]", "1", r#"{"a":1"#, r#"{"a":1} 2"#, ""] {
        assert_eq!(named(none, ["a"]), None, "{none}");
    }
    assert_eq!(first_elements("[1, [2], {}]", 9), Some(vec!["1", "[2]", "{}"]));
    assert_eq!(first_elements("[1, [2], {}]", 2), Some(vec!["1", "[2]"]));
    assert_eq!(first_elements("[]", 2), Some(Vec::new()));
    for none in ["{}", "1", "[1", "[1,]", ""] {
        assert_eq!(first_elements(none, 9), None, "{none}");
    }
}

#[test]
fn a_change_leaves_the_text_of_everything_else() {
    let json = Json::parse(ODD.as_bytes()).unwrap();
    let mut value = json.view().clone();
    value["added"] = json!(true);
    value["k"][0]["b"] = json!(null);
    let changed = json.changed_to(value.clone());
    assert_eq!(
        changed.text(),
        r#"{"n":1,"d":0.123456789012345678901234567890,"e":1e3,"s":"cut \ud83d","k":[{"a":1.50,"b":null}],"added":true}"#
    );
    assert_eq!(changed.view(), &value);
    assert_eq!(json.changed_to(json.view().clone()).text(), ODD);
}

#[test]
fn every_text_comes_back_from_its_parts() {
    let mut generator = Generator::new(7);
    let mut objects = 0;
    for _ in 0..5_000 {
        let text = generator.value(5);
        let json = Json::parse(text.as_bytes()).unwrap();
        assert_eq!(json.view(), &crate::decode(json.text()).unwrap());
        assert_eq!(json.text(), text.trim().replace(['\n', '\r'], " "));
        let Some(members) = members(json.text()) else { continue };
        objects += 1;
        for (name, part) in members {
            assert!(json.text().contains(part));
            assert!(json.get(name.as_ref()).is_some());
        }
        let mut value = json.view().clone();
        value["added"] = json!(1);
        let changed = json.changed_to(value.clone());
        assert_eq!(crate::decode(changed.text()).unwrap(), value, "{text}");
    }
    assert!(objects > 1_000);
}

#[test]
fn members_keep_the_place_of_the_first_of_equal_keys_and_the_value_of_the_last() {
    let json = Json::parse(br#"{"a":1,"b":1.50,"\u0061":[2],"c":"\ud83d","b":3}"#).unwrap();
    let members = Members::of(&json);
    assert_eq!(members.to_json().text(), r#"{"a":[2],"b":3,"c":"\ud83d"}"#);
    let mut inserted = Members::default();
    for (name, value) in [("a", "1"), ("b", "1.50"), ("a", "[2]"), ("c", r#""\ud83d""#), ("b", "3")] {
        inserted.insert(name, Json::part(value));
    }
    assert_eq!(members, inserted);
    assert!(Members::of(&Json::part("[1]")).is_empty());
}

#[test]
fn an_object_of_many_members_is_read_in_one_pass() {
    let text: Vec<String> = (0..300_000).map(|n| format!(r#""k{}":{n}"#, n % 299_999)).collect();
    let members = Members::of(&Json::part(format!("{{{}}}", text.join(","))));
    assert_eq!(members.iter().count(), 299_999);
    assert_eq!(members.get("k0").unwrap().text(), "299999");
}

#[test]
fn an_object_of_many_members_is_changed_in_one_pass() {
    let text: Vec<String> = (0..300_000).map(|n| format!(r#""k{n}":1.50"#)).collect();
    let json = Json::part(format!(r#"{{"k0":0,{}}}"#, text.join(",")));
    let mut value = json.view().clone();
    value["k1"] = json!(2);
    let changed = json.changed_to(value);
    assert_eq!(changed.member("k0").unwrap().text(), "1.50");
    assert_eq!(changed.member("k1").unwrap().text(), "2");
    assert_eq!(changed.member("k299999").unwrap().text(), "1.50");
}

#[test]
fn a_value_made_here_has_its_text() {
    assert_eq!(Json::from(json!({"a": [1]})).text(), r#"{"a":[1]}"#);
    assert_eq!(Json::part("no json").view(), &Value::Null);
    let read: Json = serde_json::from_str(r#"{"x": "\ud83d"}"#).unwrap();
    assert_eq!(read.text(), r#"{"x": "\ud83d"}"#);
}

#[test]
fn a_text_is_written_without_a_copy_that_stays_in_memory() {
    let json = Json::parse(br#"{"a": [1.50, "\ud83d"]}"#).unwrap();
    assert!(std::ptr::eq(json.raw().get(), json.text()));
    assert_eq!(Json::part("no json").raw().get(), "null");
}

#[test]
fn white_space_goes_between_tokens_alone() {
    for (text, expected) in [
        (r#"{"x": 1, "y" : [ 1.50,	null ] }"#, r#"{"x":1,"y":[1.50,null]}"#),
        (r#"" a \" b ""#, r#"" a \" b ""#),
        (r#"["\\", " "]"#, r#"["\\"," "]"#),
        (r#"["\ud83d ", { }]"#, r#"["\ud83d ",{}]"#),
    ] {
        let value = Json::parse(text.as_bytes()).unwrap();
        assert_eq!(value.compact().text(), expected, "{text}");
    }
}

#[test]
fn a_byte_order_mark_is_left_out_once() {
    assert_eq!(unmarked("\u{feff}{}".as_bytes()), b"{}");
    for kept in ["{}", "", " \u{feff}{}"] {
        assert_eq!(unmarked(kept.as_bytes()), kept.as_bytes());
    }
    assert!(Json::parse("\u{feff}{}".as_bytes()).is_err());
}
