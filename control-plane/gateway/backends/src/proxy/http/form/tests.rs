//! Tests of the forms that bodies become, as tables.

use asp_edge::Reason;

use super::*;

fn mapping(format: BodyFormat, styles: &[(&str, &str)]) -> ProxyHttp {
    ProxyHttp {
        body: "/body".into(),
        body_format: format.into(),
        body_styles: styles.iter().map(|(name, style)| ((*name).to_owned(), (*style).to_owned())).collect(),
        ..ProxyHttp::default()
    }
}

fn form(format: BodyFormat, styles: &[(&str, &str)], body: &str) -> Result<Form, Refusal> {
    encoded(&mapping(format, styles), &Json::parse(body.as_bytes()).unwrap())
}

#[test]
fn members_become_urlencoded_fields_as_they_were_written() {
    for (body, expected) in [
        ("{}", ""),
        (r#"{"a":"x","b":"y"}"#, "a=x&b=y"),
        (r#"{"a":"&=+% \u00e4\n日"}"#, "a=%26%3D%2B%25+%C3%A4%0A%E6%97%A5"),
        (r#"{"a b&=":"x"}"#, "a+b%26%3D=x"),
        (r#"{"a":"*-._~"}"#, "a=*-._%7E"),
        (r#"{"a":"","b":null,"c":true,"d":false}"#, "a=&c=true&d=false"),
        (
            r#"{"a":340282366920938463463374607431768211455,"b":0.123456789012345678901234567890,"c":1e400}"#,
            "a=340282366920938463463374607431768211455&b=0.123456789012345678901234567890&c=1e400",
        ),
        (r#"{"a":7.0,"b":-0,"c":0.10}"#, "a=7&b=0&c=0.10"),
        (r#"{"a":"cut \ud83d","b":"\ud83d\ude00"}"#, "a=cut+%EF%BF%BD&b=%F0%9F%98%80"),
        (r#"{"a":[1,"two",true],"b":[]}"#, "a=1&a=two&a=true"),
        (r#"{"a":{"k":[1.50]},"b":[{"x": 1}]}"#, "a=%7B%22k%22%3A%5B1.50%5D%7D&b=%7B%22x%22%3A+1%7D"),
        (r#"{"a":1,"b":2,"\u0061":3}"#, "a=3&b=2"),
    ] {
        let form = form(BodyFormat::Form, &[], body).unwrap();
        assert_eq!(form.text, expected, "{body}");
        assert_eq!(form.media_type, "application/x-www-form-urlencoded");
    }
}

#[test]
fn lists_and_objects_of_the_style_deep_object_are_written_in_brackets() {
    let styles = [("a", "deepObject"), ("ids[]", "form")];
    for (body, expected) in [
        (r#"{"a":["x","y"]}"#, "a[]=x&a[]=y"),
        (r#"{"a":{"k":"v","l":{"m":1},"n":null}}"#, "a[k]=v&a[l][m]=1"),
        (r#"{"a":[{"price":5,"tags":["t"]},{"price":6}]}"#, "a[0][price]=5&a[0][tags][]=t&a[1][price]=6"),
        (r#"{"a":[],"b":1}"#, "b=1"),
        (r#"{"a":{}}"#, ""),
        (r#"{"a":"text"}"#, "a=text"),
        (r#"{"ids[]":[1,2]}"#, "ids[]=1&ids[]=2"),
    ] {
        let form = form(BodyFormat::Form, &styles, body).unwrap();
        assert_eq!(form.text.replace("%5B", "[").replace("%5D", "]"), expected, "{body}");
    }
}

#[test]
fn what_a_form_cannot_say_is_refused_and_named() {
    let nested = format!(r#"{{"a":{}1{}}}"#, r#"{"k":"#.repeat(17), "}".repeat(17));
    let many = format!(r#"{{"b":[{}1]}}"#, "1,".repeat(MAX_FIELDS));
    // A long name before many lists of nothing.
    let long = format!(r#"{{"a":{{"{}":[{}[]]}}}}"#, "k".repeat(1 << 16), "[],".repeat(1_000));
    for (body, pointer, message) in [
        ("[]", "/body", "is not an object"),
        (r#""a=b""#, "/body", "is not an object"),
        (r#"{"b":[1,null]}"#, "/body/b", "null in a list"),
        (r#"{"a":[null]}"#, "/body/a", "null in a list"),
        (r#"{"a[k]":1}"#, "/body/a[k]", "a name with brackets"),
        (r#"{"b[]":1}"#, "/body/b[]", "a name with brackets"),
        (r#"{" b":1}"#, "/body/ b", "a name with brackets"),
        (r#"{"b\u0000c":1}"#, "/body/b\0c", "a name with brackets"),
        (r#"{"a":{"x][y":1}}"#, "/body/a", "a key that is empty or has brackets"),
        (r#"{"a":{"x\u0000":1}}"#, "/body/a", "a key that is empty or has brackets"),
        (r#"{"a":{"":1}}"#, "/body/a", "a key that is empty or has brackets"),
        (nested.as_str(), "/body/a", "nested too deeply"),
        (many.as_str(), "/body/b", "larger than 10000 fields"),
        (long.as_str(), "/body/a", "8 MiB"),
    ] {
        let refused = form(BodyFormat::Form, &[("a", "deepObject")], body).unwrap_err();
        assert_eq!(refused.reason(), Reason::InvalidParams, "{refused:?}");
        let said = refused.to_string();
        assert!(said.starts_with(&format!("argument {pointer}")) && said.contains(message), "{said}");
    }
}

#[test]
fn a_name_that_parts_may_hide_is_refused_in_parts_alone() {
    for body in [r#"{"am\\\"ount":1}"#, r#"{"=?UTF-8?Q?amount?=":1}"#] {
        assert!(form(BodyFormat::Form, &[], body).is_ok(), "{body}");
        let refused = form(BodyFormat::Multipart, &[], body).unwrap_err();
        assert_eq!(refused.reason(), Reason::InvalidParams, "{body}");
    }
}

#[test]
fn a_multipart_form_has_a_part_for_each_field_and_no_value_ends_one() {
    let body = r#"{"a":"x\r\n--y","b":[1,2],"c":{"k":1},"d":null,"q\"\r\nX: y":"v"}"#;
    let form_of = || form(BodyFormat::Multipart, &[], body).unwrap();
    let form = form_of();
    let boundary = form.media_type.strip_prefix("multipart/form-data; boundary=").unwrap();
    assert!(boundary.len() <= 70, "RFC 2046 section 5.1.1");
    let part = |name: &str, rest: &str| {
        format!("--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n{rest}\r\n")
    };
    let expected = [
        part("a", "\r\nx\r\n--y"),
        part("b", "\r\n1"),
        part("b", "\r\n2"),
        part("c", "Content-Type: application/json\r\n\r\n{\"k\":1}"),
        part("q%22%0D%0AX: y", "\r\nv"),
    ]
    .concat();
    assert_eq!(form.text, format!("{expected}--{boundary}--\r\n"));
    assert_eq!(form_of(), form, "a repetition is the same");
}

#[test]
fn a_list_or_an_object_becomes_several_parameters_of_a_query() {
    for (value, expected) in [
        (r#"["a b",7.0,true]"#, &[("p", "a b"), ("p", "7"), ("p", "true")][..]),
        ("[]", &[]),
        ("null", &[]),
        (r#""one""#, &[("p", "one")]),
        (
            r#"{"gte":1.50,"in":["a","b"],"none":null}"#,
            &[("p[gte]", "1.50"), ("p[in][]", "a"), ("p[in][]", "b")],
        ),
    ] {
        let parameters = exploded("p", "arg", &Json::parse(value.as_bytes()).unwrap()).unwrap();
        let parameters: Vec<(&str, &str)> =
            parameters.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(parameters, expected, "{value}");
    }
    for value in [r#"["a",null]"#, r#"{"a][b":1}"#] {
        let refused = exploded("p", "arg", &Json::parse(value.as_bytes()).unwrap()).unwrap_err();
        assert!(
            matches!(&refused, Refusal::InvalidArguments { pointer, .. } if pointer == "/arg"),
            "{refused:?}"
        );
    }
}
