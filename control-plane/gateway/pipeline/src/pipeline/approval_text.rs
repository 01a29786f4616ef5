//! The arguments of a call as an approver sees them.
//!
//! Keeps true: nothing of them is out of sight, and no secret is in it; what cannot be reviewed is refused.

use asp_call::call::outcome::Refusal;
use asp_json::Json;
use asp_platform::redact::redact_json;
use asp_store::approvals::MAX_SHOWN;

/// Returns the arguments as an approver sees them: all of them, without secrets.
pub(super) fn reviewable_text(arguments: &Json) -> Result<String, Refusal> {
    let refuse = |pointer: String, message: String| Err(Refusal::InvalidArguments { pointer, message });
    // The approver would see both values, and the service use one.
    if let Some(pointer) = asp_json::repeated(arguments.text()) {
        return refuse(pointer, "is there twice, and another person approves this call; send it once".into());
    }
    let shown = visible(&redact_json(arguments.text()));
    if shown.len() > MAX_SHOWN {
        let message = format!("has more than {MAX_SHOWN} bytes, which nobody can review for an approval");
        return refuse(String::new(), message);
    }
    Ok(shown)
}

/// Returns JSON text that looks like what it says: characters that are not seen, or that change how others are seen (Unicode
/// TR36), become escapes (RFC 8259 section 7), and white space between values cannot push some of them out of sight.
fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut in_string = false;
    let mut is_escaped = false;
    for character in text.chars() {
        if !in_string && character.is_ascii_whitespace() {
            if !shown.ends_with(' ') {
                shown.push(' ');
            }
            continue;
        }
        if is_unseen(character) {
            for unit in character.encode_utf16(&mut [0; 2]) {
                shown.push_str(&format!("\\u{unit:04x}"));
            }
        } else {
            shown.push(character);
        }
        match character {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = in_string,
            '"' => in_string = !in_string,
            _ => {}
        }
    }
    shown
}

/// Whether a character has no shape of its own, or changes the direction of others.
fn is_unseen(character: char) -> bool {
    matches!(
        character,
        '\u{7f}'..='\u{a0}'
            | '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180e}'
            | '\u{2000}'..='\u{200f}'
            | '\u{2028}'..='\u{202f}'
            | '\u{205f}'..='\u{206f}'
            | '\u{3000}'
            | '\u{3164}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::visible;

    #[test]
    fn an_approver_sees_every_character_and_every_value() {
        for (text, expected) in [
            (r#"{"a":"b c"}"#, r#"{"a":"b c"}"#),
            ("{\"a\":\"1\u{202e}2\"}", r#"{"a":"1\u202e2"}"#),
            ("{\"a\u{200b}\":\"\u{e0041}\"}", r#"{"a\u200b":"\udb40\udc41"}"#),
            ("{\"a\":1,\n\n\t \r\n\"b\":2}", r#"{"a":1, "b":2}"#),
            (r#"{"a":"\\","b":"\"  \""}"#, r#"{"a":"\\","b":"\"  \""}"#),
            ("{\"a\":\"é\u{9b}31m\"}", r#"{"a":"é\u009b31m"}"#),
        ] {
            let shown = visible(text);
            assert_eq!(shown, expected);
            let read = |text: &str| serde_json::from_str::<Value>(text).unwrap();
            assert_eq!(read(&shown), read(text));
        }
    }
}
