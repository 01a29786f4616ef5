//! Checks that texts for people and models contain only what they show.
//!
//! Refuses characters that hide, reorder or smuggle text, and texts longer than 64 KiB (except static contents, which
//! the file's size bounds).

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
                let message = format!("the text contains the invisible character U+{:04X}", u32::from(bad));
                findings.add(code, &path, message, "remove the character; write plain visible text");
            }
            _ => findings.add(code, &path, "the text is longer than 64 KiB", "shorten it"),
        }
    }
}

pub(super) fn first_deceptive(text: &str) -> Option<char> {
    let characters: Vec<char> = text.chars().collect();
    let mut all = characters.iter().copied().enumerate();
    all.find(|(at, c)| is_hidden(&characters, *at, *c)).map(|(_, c)| c)
}

/// Returns the text without the characters that [`first_deceptive`] finds.
pub fn visible_text(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let all = characters.iter().copied().enumerate();
    all.filter(|(at, c)| !is_hidden(&characters, *at, *c)).map(|(_, c)| c).collect()
}

/// Whether `c`, the character at `at`, hides something.
fn is_hidden(characters: &[char], at: usize, c: char) -> bool {
    is_deceptive(c) && !belongs_to_visible_text(characters, at)
}

/// Whether the invisible character at `at` belongs to visible text. A variation selector picks the emoji or text form
/// of the symbol before it. A joiner connects pictographs, or shapes a letter of a script that joins. Tag characters
/// spell a flag (Unicode TR 51, ED-14a). A carriage return before a line feed is part of a line break. Anywhere else,
/// and two in a row, they hide data.
fn belongs_to_visible_text(characters: &[char], at: usize) -> bool {
    let Some(c) = characters.get(at).copied() else { return false };
    let before = characters.get(..at).unwrap_or_default();
    let last = before.last().copied().unwrap_or('a');
    let next = characters.get(at + 1).copied();
    match c {
        '\r' => next == Some('\n'),
        '\u{FE0E}' | '\u{FE0F}' => {
            let is_keycap = next == Some('\u{20E3}') && matches!(last, '0'..='9' | '#' | '*');
            is_keycap || (!last.is_ascii() && !last.is_alphanumeric() && !is_deceptive(last))
        }
        '\u{200C}' | '\u{200D}' if uses_joiners(last) => !next.is_some_and(is_deceptive),
        '\u{200D}' => {
            let symbol = before.iter().rev().find(|c| **c != '\u{FE0F}').copied();
            symbol.is_some_and(is_pictograph) && next.is_some_and(is_pictograph)
        }
        '\u{E0020}'..='\u{E007F}' => is_flag_tag(before, characters.get(at..).unwrap_or_default()),
        _ => false,
    }
}

/// Whether the tags around a place follow a black flag and end with the cancel tag, within the longest region's
/// length.
fn is_flag_tag(before: &[char], rest: &[char]) -> bool {
    const MAX_REGION: usize = 6;
    let is_tag = |c: &&char| matches!(**c, '\u{E0030}'..='\u{E0039}' | '\u{E0061}'..='\u{E007A}');
    // Longer runs are no region, and counting them at each of their tags would take quadratic time.
    let earlier = before.iter().rev().take(MAX_REGION + 1).take_while(is_tag).count();
    let later = rest.iter().take(MAX_REGION + 1).take_while(is_tag).count();
    let flag = before.iter().rev().nth(earlier);
    (1..=MAX_REGION).contains(&(earlier + later))
        && flag == Some(&'\u{1F3F4}')
        && rest.get(later) == Some(&'\u{E007F}')
}

/// Whether the letter belongs to a script whose orthography uses joiners: Arabic and its relatives, the Indic
/// scripts, Tibetan, Myanmar, Khmer and Mongolian.
fn uses_joiners(c: char) -> bool {
    let of_script = matches!(
        c,
        '\u{600}'..='\u{8FF}'
            | '\u{900}'..='\u{DFF}'
            | '\u{F00}'..='\u{109F}'
            | '\u{1780}'..='\u{18AF}'
            | '\u{A8E0}'..='\u{A8FF}'
            | '\u{FB50}'..='\u{FDFF}'
            | '\u{FE70}'..='\u{FEFC}'
    );
    of_script && !is_deceptive(c)
}

/// Whether emoji sequences may contain the symbol.
fn is_pictograph(c: char) -> bool {
    matches!(
        c,
        '\u{2190}'..='\u{21FF}'
            | '\u{2300}'..='\u{23FF}'
            | '\u{25A0}'..='\u{27BF}'
            | '\u{2900}'..='\u{297F}'
            | '\u{2B00}'..='\u{2BFF}'
            | '\u{1F000}'..='\u{1FAFF}'
    )
}

/// Whether a character is zero-width, blank, or a direction, tag, variation or control character. Line feed and tab
/// are text.
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

#[cfg(test)]
mod tests {
    use super::{first_deceptive, visible_text};

    #[test]
    fn an_invisible_character_is_text_where_its_script_or_emoji_needs_it() {
        for text in [
            "\u{645}\u{6CC}\u{200C}\u{62E}\u{648}\u{627}\u{647}\u{645}",
            "\u{915}\u{94D}\u{200D}\u{937}",
            "\u{1F469}\u{200D}\u{1F4BB} for developers",
            "\u{1F3F3}\u{FE0F}\u{200D}\u{1F308}",
            "\u{1F469}\u{1F3FD}\u{200D}\u{2764}\u{FE0F}\u{200D}\u{1F469}",
            "\u{1F3F4}\u{E0067}\u{E0062}\u{E0065}\u{E006E}\u{E0067}\u{E007F}",
            "1\u{FE0F}\u{20E3}",
            "one line\r\nanother",
        ] {
            assert_eq!(first_deceptive(text), None, "{}", text.escape_unicode());
            assert_eq!(visible_text(text), text);
        }
        for text in [
            "a\u{200D}b",
            "a\u{200C}b",
            "\u{1F469}\u{200D}a",
            "\u{645}\u{200C}\u{200C}\u{62E}",
            "\u{200C}\u{62E}",
            "a\u{E0067}\u{E007F}",
            "\u{1F3F4}\u{E0067}\u{E0062}",
            "\u{1F3F4}\u{E0067}\u{E0067}\u{E0067}\u{E0067}\u{E0067}\u{E0067}\u{E0067}\u{E007F}",
            "1\u{FE0F}2",
            "\u{1F469}\u{200B}",
            "shown\rhidden",
            "a\r\r\n",
        ] {
            assert!(first_deceptive(text).is_some(), "{}", text.escape_unicode());
            let visible = visible_text(text);
            assert_eq!(first_deceptive(&visible), None, "{}", visible.escape_unicode());
        }
    }

    #[test]
    fn visible_text_keeps_everything_else() {
        assert_eq!(visible_text("\u{FEFF}a\u{200B}b\u{AD}c\rd\r\n\te"), "abcd\r\n\te");
    }
}
