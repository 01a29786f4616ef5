//! Texts that people and models read must say what they show.
//!
//! Refuses characters that hide, reorder or smuggle text, and texts longer than 64 KiB (static contents
//! aside, which the file's size bounds).

use crate::document::Document;
use crate::fault::FaultCode;
use crate::findings::Findings;

const MAX_TEXT_BYTES: usize = 64 * 1024;
const CONTENTS: &str = "/primitiveSchema/contents/";

pub(super) fn check(document: &Document, findings: &mut Findings<'_>) {
    let mut found = Vec::new();
    document.visit_texts(&mut |path, text| {
        if let Some(bad) = first_deceptive(text) {
            found.push((FaultCode::BadText, path.to_string(), bad));
        }
        if text.len() > MAX_TEXT_BYTES && !path.starts_with(CONTENTS) {
            found.push((FaultCode::TextTooLong, path.to_string(), ' '));
        }
    });
    for (code, path, bad) in found {
        match code {
            FaultCode::BadText => {
                let message = format!("the text holds the invisible character U+{:04X}", u32::from(bad));
                findings.add(code, &path, message, "remove the character; write plain visible text");
            }
            _ => findings.add(code, &path, "the text is longer than 64 KiB", "shorten it"),
        }
    }
}

/// A variation selector that picks the emoji or text form of the symbol before it is what people write;
/// anywhere else, and two in a row, it hides data.
fn first_deceptive(text: &str) -> Option<char> {
    let mut before = 'a';
    for c in text.chars() {
        let picks_a_form = matches!(c, '\u{FE0E}' | '\u{FE0F}')
            && !before.is_ascii()
            && !before.is_alphanumeric()
            && !is_deceptive(before);
        if is_deceptive(c) && !picks_a_form {
            return Some(c);
        }
        before = c;
    }
    None
}

/// Zero-width, blank, direction, tag, variation and control characters. Line feed and tab are text.
fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{0}'..='\u{8}'
            | '\u{B}'..='\u{1F}'
            | '\u{7F}'..='\u{9F}'
            | '\u{AD}'
            | '\u{34F}'
            | '\u{61C}'
            | '\u{115F}'..='\u{1160}'
            | '\u{17B4}'..='\u{17B5}'
            | '\u{180B}'..='\u{180F}'
            | '\u{200B}'..='\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{2800}'
            | '\u{3164}'
            | '\u{FE00}'..='\u{FE0F}'
            | '\u{FEFF}'
            | '\u{FFA0}'
            | '\u{FFF9}'..='\u{FFFB}'
            | '\u{1D173}'..='\u{1D17A}'
            | '\u{E0000}'..='\u{E0FFF}'
    )
}
