//! Texts that people and models read must say what they show.
//!
//! Refuses characters that hide, reorder or smuggle text, and texts longer than 64 KiB (static contents
//! aside, which the file's size bounds).

use crate::document::Document;
use crate::fault::{FaultCode, Findings};

const MAX_TEXT_BYTES: usize = 64 * 1024;
const CONTENTS: &str = "/primitiveSchema/contents/";

pub(super) fn check(document: &Document, findings: &mut Findings<'_>) {
    let mut found = Vec::new();
    document.visit_texts(&mut |path, text| {
        if let Some(bad) = text.chars().find(|c| is_deceptive(*c)) {
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

/// Zero-width, direction, tag, private variation and control characters. Line feed and tab are text.
fn is_deceptive(c: char) -> bool {
    matches!(
        c,
        '\u{0}'..='\u{8}'
            | '\u{B}'..='\u{1F}'
            | '\u{7F}'..='\u{9F}'
            | '\u{AD}'
            | '\u{61C}'
            | '\u{180E}'
            | '\u{200B}'..='\u{200F}'
            | '\u{2028}'..='\u{202E}'
            | '\u{2060}'..='\u{206F}'
            | '\u{FEFF}'
            | '\u{FFF9}'..='\u{FFFB}'
            | '\u{E0000}'..='\u{E0FFF}'
    )
}
