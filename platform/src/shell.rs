//! POSIX shell words, for commands that users paste.

use std::path::Path;

/// Quotes a text so that a shell reads it as one word.
pub fn word(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/:@+,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// Quotes a path like [`word`].
pub fn path(path: &Path) -> String {
    word(&path.display().to_string())
}

/// Formats an option with its value, which may begin with a dash, after a space.
pub fn option(name: &str, value: &str) -> String {
    let between = if value.starts_with('-') { '=' } else { ' ' };
    format!(" --{name}{between}{}", word(value))
}

/// Formats a command with its one argument and its options, each from [`option`]; an argument that begins with a dash
/// comes last.
pub fn command(program: &str, argument: &str, options: &str) -> String {
    match argument.starts_with('-') {
        true => format!("{program}{options} -- {}", word(argument)),
        false => format!("{program} {}{options}", word(argument)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_one_word_whatever_is_in_it() {
        for (text, expected) in [
            ("cc.pay", "cc.pay"),
            ("*", "'*'"),
            ("a b", "'a b'"),
            ("", "''"),
            ("o'neil; rm", r"'o'\''neil; rm'"),
            ("$(x)", "'$(x)'"),
        ] {
            assert_eq!(word(text), expected);
            assert_eq!(path(Path::new(text)), expected);
        }
    }
}
