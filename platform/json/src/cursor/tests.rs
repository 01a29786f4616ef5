//! The reader against tables of invalid texts and, over generated texts, against `serde_json`.

use super::*;
use crate::generator::Generator;

fn reads(body: &[u8]) -> bool {
    let read = || {
        let mut cursor = Cursor::new(body)?;
        cursor.value()?;
        cursor.end()
    };
    read().is_ok()
}

fn serde_reads(body: &[u8]) -> bool {
    serde_json::from_slice::<serde_json::Value>(body).is_ok()
}

#[test]
fn well_formed_texts_are_read() {
    for text in [
        "{}",
        " [ ] ",
        "\t{\"a\" : [ 1 , {} , [[]] ] , \"b\":\n{\"c\":null}}\r\n",
        "\"\\ud83d\\ude00 \\u0000 \\\" \\\\ \\/ \\b\\f\\n\\r\\t\"",
        "\"\u{7f}\u{e4}\u{1f600}\"",
        "[0,-0,0.5,1e308,-1E-400,1.5e+3,9007199254740993,99999999999999999999999]",
        "true",
        "false",
        "null",
    ] {
        assert!(reads(text.as_bytes()) && serde_reads(text.as_bytes()), "{text}");
    }
}

#[test]
#[allow(clippy::too_many_lines, reason = "a table of cases")]
fn malformed_texts_are_refused() {
    for text in [
        "",
        " ",
        "{",
        "}",
        "[",
        "]",
        "[}",
        "{]",
        "{\"a\"}",
        "{\"a\":}",
        "{\"a\":1,}",
        "{,}",
        "[1,]",
        "[,1]",
        "[1 2]",
        "{a:1}",
        "{'a':1}",
        "{1:1}",
        "{\"a\":1 \"b\":2}",
        "{} {}",
        "{}x",
        "{}\0",
        "// c\n{}",
        "{/**/}",
        "NaN",
        "[NaN]",
        "[Infinity]",
        "[-Infinity]",
        "[01]",
        "[-]",
        "[+1]",
        "[.5]",
        "[1.]",
        "[1e]",
        "[1e+]",
        "[0x1]",
        "tru",
        "nulll",
        "True",
        "\"",
        "\"\\\"",
        "\"\\x\"",
        "\"\\u12\"",
        "\"\\u12g4\"",
        "\"\n\"",
        "\"\t\"",
        "\"\0\"",
        "\u{feff}{}",
        "\u{a0}{}",
    ] {
        assert!(!reads(text.as_bytes()), "{text:?}");
        assert!(!serde_reads(text.as_bytes()), "{text:?} (serde_json)");
    }
}

#[test]
fn numbers_beyond_a_double_are_read_and_reported() {
    let ten_to_the_thousand = format!("[1{}]", "0".repeat(1000));
    for (text, beyond) in
        [("[1e400]", true), ("-1e999", true), (&ten_to_the_thousand, true), ("[1e308]", false)]
    {
        let mut cursor = Cursor::new(text.as_bytes()).unwrap();
        assert!(cursor.value().is_ok() && cursor.end().is_ok(), "{text}");
        assert_eq!(cursor.beyond_double, beyond, "{text}");
    }
}

#[test]
fn lone_surrogates_are_read_as_the_replacement_character() {
    for (text, value) in [
        (r#""\ud800""#, "\u{fffd}"),
        (r#""\ud83d\ude00""#, "\u{1f600}"),
        (r#""\ud800x\n""#, "\u{fffd}x\n"),
        (r#""\ud800\u0041""#, "\u{fffd}A"),
        (r#""\udc00\ud800""#, "\u{fffd}\u{fffd}"),
        (r#""\ud83d\ud83d\ude00""#, "\u{fffd}\u{1f600}"),
        (r#""\\\ud800""#, "\\\u{fffd}"),
        (r#""\\ud800""#, "\\ud800"),
    ] {
        let mut cursor = Cursor::new(text.as_bytes()).unwrap();
        let Ok(Value::String(read)) = cursor.value() else { panic!("{text}") };
        assert_eq!(read.unescape(), value, "{text}");
    }
}

#[test]
fn bytes_that_are_not_utf_8_are_refused() {
    for bytes in [
        b"\"\xff\"".as_slice(),
        b"\"\xc0\xaf\"",
        b"\"\xed\xa0\x80\"",
        b"\"\xf4\x90\x80\x80\"",
        b"\"\xe4\"",
        b"\xef\xbb",
    ] {
        assert!(!reads(bytes), "{bytes:?}");
    }
}

#[test]
fn depth_ends_where_serde_json_ends() {
    let nested = |open: &str, close: &str, depth: usize| open.repeat(depth) + "0" + &close.repeat(depth);
    for (open, close) in [("[", "]"), ("{\"a\":", "}"), ("[{\"a\":", "}]")] {
        let levels = open.matches(['[', '{']).count();
        for depth in [1, 60, MAX_DEPTH / levels, MAX_DEPTH / levels + 1, 129, 10_000] {
            let text = nested(open, close, depth);
            assert_eq!(reads(text.as_bytes()), depth * levels <= MAX_DEPTH, "{depth} of {open}");
            assert_eq!(
                serde_reads(text.as_bytes()),
                depth * levels <= MAX_DEPTH,
                "{depth} of {open} (serde_json)"
            );
        }
    }
    for open in ["[", "{\"a\":"] {
        assert!(!reads(open.repeat(1_000_000).as_bytes()));
    }
}

#[test]
fn a_million_flat_elements_are_read() {
    let text = format!("[{}0]", "0,".repeat(1_000_000));
    assert!(reads(text.as_bytes()));
}

#[test]
fn it_accepts_what_serde_json_accepts_and_what_can_be_decoded() {
    let mut generator = Generator::new(0x5eed);
    let mut good = 0;
    let mut bad = 0;
    for _ in 0..40_000 {
        let mut text = generator.value(5).into_bytes();
        generator.mutate(&mut text);
        let accepted = reads(&text);
        let decoded = std::str::from_utf8(&text).is_ok_and(|text| crate::decode(text).is_ok());
        assert_eq!(accepted, decoded, "{}", String::from_utf8_lossy(&text));
        assert!(accepted || !serde_reads(&text), "{}", String::from_utf8_lossy(&text));
        if accepted { good += 1 } else { bad += 1 }
    }
    assert!(good > 5_000 && bad > 5_000, "{good} good, {bad} bad");
}

#[test]
fn the_plain_part_of_a_string_ends_before_the_first_special_byte_wherever_it_is() {
    let special = |byte: u8| byte < 0x20 || byte == b'"' || byte == b'\\';
    for fill in [b'x', 0x7f, 0x80, 0xff, b'!', b'#', 0x20] {
        for position in 0..24 {
            for byte in 0..=u8::MAX {
                // Neither the bytes after a special byte nor its neighbours may matter.
                for after in [fill, b'"', 0x00, 0x21, byte.wrapping_add(1)] {
                    let mut text = [fill; 24];
                    text[position..].fill(after);
                    text[position] = byte;
                    let first = text.iter().position(|byte| special(*byte)).unwrap_or(24);
                    assert_eq!(plain_bytes(&text), first, "{text:?}");
                }
            }
        }
    }
    assert_eq!((plain_bytes(b"seven.."), plain_bytes(b"")), (0, 0));
}
