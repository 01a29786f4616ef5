//! Sanitizes the text of a failing service for display to a client.
//!
//! Keeps true: a bounded length, without characters that a terminal or a model would not take for text; anything that
//! looks like a credential becomes `***`. Messages and bodies keep their lines. A body may be a debug page that prints the
//! request: its headers are masked, and it ends where a stack trace begins. It is a filter for accidents, not a proof: a
//! service that wants to reveal a secret can.

use asp_json::first_line;

/// Maximum length of a single line in bytes.
const MAX_SHOWN: usize = 512;
/// Maximum length of a message or a body in bytes.
const MAX_MESSAGE: usize = 16 << 10;
/// Maximum length of an examined line, in characters.
const MAX_LINE: usize = 4096;
const HIDDEN: &str = "***";
/// Parts of names that denote a secret.
const SECRET_NAMES: [&str; 12] = [
    "authorization",
    "cookie",
    "password",
    "passwd",
    "secret",
    "token",
    "apikey",
    "api_key",
    "credential",
    "signature",
    "access_key",
    "private_key",
];
/// Ends of names of `X-` headers that carry a credential, besides those of `SECRET_NAMES`.
const SECRET_HEADER_ENDS: [&str; 7] =
    ["-key", "-auth", "-session", "-session-id", "-jwt", "-assertion", "-cert"];
/// First line of a stack trace of Python, whose frames follow.
const TRACEBACK: &str = "Traceback (most recent call last)";
/// Start of a text in PEM (RFC 7468), which may be a private key of several lines.
const PEM: &str = "-----BEGIN ";
/// Prefixes of well-known credentials: JSON Web Tokens, and those that issuers use so that scanners find them.
const SECRET_STARTS: [&str; 10] =
    ["eyJ", "sk-", "sk_", "ghp_", "gho_", "github_pat_", "glpat-", "xox", "AKIA", "AIza"];
/// Minimum length of a credential with a known prefix; a shorter text is a word.
const LEAST_KNOWN: usize = 12;
/// Minimum length from which a mix of letters and digits without a dot is taken for a credential.
const LEAST_OPAQUE: usize = 24;

/// Returns the first line with text, safe to display; empty if there is none.
pub fn sanitize(text: &str) -> String {
    let line = first_line(text);
    let plain: String = line.chars().filter(|c| !is_invisible(*c)).take(MAX_LINE).collect();
    cut(redacted(&plain, is_extension_header), MAX_SHOWN)
}

/// Returns the message of a service's own protocol error: all of its lines, with credentials masked.
pub fn sanitize_message(text: &str) -> String {
    sanitize_lines(text, is_secret_header, |_| None)
}

/// Returns the body of a failed response: its lines up to a stack trace, with credentials and extension headers masked. A note
/// says where the body is cut.
pub fn sanitize_body(text: &str) -> String {
    let shown = sanitize_lines(text, is_extension_header, start_of_trace);
    match text.trim().len() > MAX_MESSAGE {
        true => format!("{shown}\n(only the first {} KiB are shown)", MAX_MESSAGE >> 10),
        false => shown,
    }
}

/// Returns the lines, each redacted, up to the first one with PEM or with a place from which the rest is hidden.
fn sanitize_lines(text: &str, is_header: fn(&str) -> bool, hidden_from: fn(&str) -> Option<usize>) -> String {
    let is_shown = |c: &char| matches!(c, '\n' | '\t') || !is_invisible(*c);
    let plain: String = text.trim().chars().filter(is_shown).take(MAX_MESSAGE).collect();
    let mut lines = Vec::new();
    for line in plain.split('\n') {
        let hidden = if line.contains(PEM) { Some(0) } else { hidden_from(line) };
        let shown = redacted(line.get(..hidden.unwrap_or(line.len())).unwrap_or_default(), is_header);
        if hidden.is_some() {
            lines.push(shown + HIDDEN);
            break;
        }
        lines.push(shown);
    }
    cut(lines.join("\n"), MAX_MESSAGE)
}

/// Returns the place in a line at which a stack trace begins. In JSON the line breaks of a trace are written `\n`.
fn start_of_trace(line: &str) -> Option<usize> {
    let mut start = 0;
    for part in line.split("\\n") {
        if let Some(at) = part.find(TRACEBACK) {
            return Some(start + at);
        }
        if is_stack_frame(part) {
            return Some(start);
        }
        start += part.len() + "\\n".len();
    }
    None
}

/// Whether a line is a frame of a stack trace as of Java, JavaScript or C#: `at F (FILE:LINE)`.
fn is_stack_frame(line: &str) -> bool {
    let Some(place) = line.trim_start_matches("\\t").trim().strip_prefix("at ") else { return false };
    let number = place.trim_end_matches(['"', ',', ')']).rsplit_once(':').map(|(_, end)| end);
    let number = number.map(|end| end.strip_prefix("line ").unwrap_or(end));
    let is_number = |end: &str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
    place.contains(['(', '/', '.']) && number.is_some_and(is_number)
}

fn cut(mut text: String, most: usize) -> String {
    text.truncate(text.floor_char_boundary(most));
    text
}

/// Whether a character is a control character, or hides text or changes its direction (Unicode general category Cf,
/// in use).
fn is_invisible(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{e0000}'..='\u{e007f}')
}

/// Returns the line with credentials masked; of a line that is a header, only the name remains.
fn redacted(line: &str, is_header: fn(&str) -> bool) -> String {
    if let Some((name, _)) = line.split_once(':')
        && is_header(name)
    {
        return format!("{name}: {HIDDEN}");
    }
    let mut shown = String::new();
    let mut before = "";
    let mut rest = line;
    while let Some(first) = rest.chars().next() {
        let end = rest.find(|c| is_word(c) != is_word(first)).unwrap_or(rest.len());
        let Some((piece, tail)) = rest.split_at_checked(end) else { break };
        rest = tail;
        if is_word(first) {
            let is_scheme = ["bearer", "basic"].iter().any(|scheme| before.eq_ignore_ascii_case(scheme));
            shown.push_str(if is_scheme || is_opaque(piece) { HIDDEN } else { piece });
            before = piece;
            continue;
        }
        shown.push_str(piece);
        if names_secret(before) && piece.contains([':', '=']) {
            // Only the sender knows where the value ends, so the rest of the line is hidden.
            shown.push_str(HIDDEN);
            return shown;
        }
        if piece.ends_with("://")
            && let Some((user, host)) = rest.split(['/', ' ']).next().and_then(|place| place.rsplit_once('@'))
        {
            shown.push_str(HIDDEN);
            rest = rest.get(user.len()..).unwrap_or(host);
        }
    }
    shown
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '+' | '~' | '%')
}

/// Whether the name is that of an extension header, whose value may describe the service from inside.
fn is_extension_header(name: &str) -> bool {
    let is_token = |c: char| c.is_ascii_alphanumeric() || c == '-';
    is_secret_header(name) || (name.to_ascii_lowercase().starts_with("x-") && name.chars().all(is_token))
}

/// Whether a header of the name carries a credential. Names with a word of `SECRET_NAMES` need no rule of their own.
fn is_secret_header(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name == "mcp-session-id"
        || (name.starts_with("x-") && SECRET_HEADER_ENDS.iter().any(|end| name.ends_with(end)))
}

fn names_secret(word: &str) -> bool {
    let name = word.to_ascii_lowercase().replace('-', "_");
    SECRET_NAMES.iter().any(|secret| name.contains(secret))
}

fn is_opaque(word: &str) -> bool {
    let is_known = SECRET_STARTS.iter().any(|start| word.starts_with(start)) && word.len() >= LEAST_KNOWN;
    let is_random = |part: &str| {
        let digits = part.chars().filter(char::is_ascii_digit).count();
        let letters = part.chars().filter(char::is_ascii_alphabetic).count();
        part.len() >= LEAST_OPAQUE && digits >= 3 && letters >= 3
    };
    is_known || (uuid::Uuid::try_parse(word).is_err() && word.split('.').any(is_random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_words_are_shown_as_they_are() {
        for text in [
            "no such thing",
            "order 0193f5a0-5b1c-7000-8000-1234567890ab is closed",
            "Grüße: 3 of 10 left",
            "field `name` must have 1 to 64 characters",
            "see https://example.com/docs/errors#E42",
            "com.example.billing.v1.InvoiceService is busy since 2026-11-22",
            "not-found: item 7 is missing",
            "read-only: the file system refuses writes",
        ] {
            assert_eq!(sanitize(text), text);
            assert_eq!(sanitize_message(text), text);
        }
    }

    /// Invariant I-14.
    #[test]
    fn a_message_keeps_its_lines_and_loses_only_credentials() {
        let long = "x ".repeat(1000) + "end";
        for text in
            ["x-axis: must be positive", "Invalid arguments: [\n  {\n\t\"path\": [\"n\"]\n  }\n]", &long]
        {
            assert_eq!(sanitize_message(text), text);
        }
        for (text, expected) in [
            ("denied\r\nAuthorization: Bearer abc\r\nHost: a", "denied\nAuthorization: ***\nHost: a"),
            ("X-Api-Key: k1", "X-Api-Key: ***"),
            ("x-goog-iap-jwt-assertion: abc", "x-goog-iap-jwt-assertion: ***"),
            ("Mcp-Session-Id: s1", "Mcp-Session-Id: ***"),
            ("cannot sign\n-----BEGIN PRIVATE KEY-----\nMIIE/vAB\n", "cannot sign\n***"),
            ("\u{1b}[31mred\u{202e}", "[31mred"),
        ] {
            assert_eq!(sanitize_message(text), expected, "{text}");
        }
        assert_eq!(sanitize_message(&"é".repeat(MAX_MESSAGE)).len(), MAX_MESSAGE);
    }

    /// Invariants I-11 and I-14.
    #[test]
    fn a_body_keeps_its_lines_up_to_a_stack_trace_and_a_note_says_where_it_is_cut() {
        let errors = "{\n  \"errors\": [\n\t{\"field\": \"n\", \"message\": \"at least 1\"}\n  ]\n}";
        for text in
            [errors, "at 10:30", "at 10:30 the shop. is closed", "line 3: File \"a.csv\", line 4 is empty"]
        {
            assert_eq!(sanitize_body(text), text);
        }
        for (text, expected) in [
            ("no\r\nX-Internal-Host: db1\r\nCookie: a=b\n", "no\nX-Internal-Host: ***\nCookie: ***"),
            ("boom\n    at f (/srv/app.js:3:5)\n    at g (/srv/app.js:9:1)", "boom\n***"),
            ("boom\n   at Shop.Buy() in /src/Shop.cs:line 12\nmore", "boom\n***"),
            ("Traceback (most recent call last):\n  File \"/srv/app.py\", line 3, in f", "***"),
            (
                r#"{"error":"no","trace":"E: no\n\tat a.B.c(B.java:7)\n"}"#,
                r#"{"error":"no","trace":"E: no\n***"#,
            ),
            (r#"{"detail":"Traceback (most recent call last):\n  File"}"#, r#"{"detail":"***"#),
            ("\u{1b}[31mred\u{202e}\u{7}", "[31mred"),
        ] {
            assert_eq!(sanitize_body(text), expected, "{text}");
        }
        let long = "word ".repeat(4000);
        let shown = sanitize_body(&long);
        assert!(shown.ends_with("\n(only the first 16 KiB are shown)"), "{}", &shown[shown.len() - 50..]);
        assert!(shown.len() < MAX_MESSAGE + 50 && long.starts_with(&shown[..MAX_MESSAGE]));
    }

    #[test]
    fn it_is_one_line_of_bounded_length_without_what_cannot_be_seen() {
        assert_eq!(sanitize("\n  \n first\nat /srv/app.py:3"), "first");
        let error = "{\n  \"error\": {\n    \"code\": 404,\n    \"message\": \"no such item\"\n  }\n}\n";
        assert_eq!(sanitize(error), r#"{"error":{"code":404,"message":"no such item"}}"#);
        assert_eq!(sanitize("a\u{1b}[31mb\u{7}\u{202e}c\u{200b}d\u{e0041}e"), "a[31mbcde");
        assert_eq!(sanitize(&"é".repeat(10_000)).len(), MAX_SHOWN);
        assert_eq!(sanitize(""), "");
    }

    #[test]
    fn what_looks_like_a_credential_or_a_header_is_hidden() {
        for (text, expected) in [
            ("Authorization: Bearer abc", "Authorization: ***"),
            ("Set-Cookie: sid=1; Path=/", "Set-Cookie: ***"),
            ("x-internal-host: db1", "x-internal-host: ***"),
            ("bad header authorization=Basic dXNlcjpwYXNz", "bad header authorization=***"),
            ("sent Bearer sesame and failed", "sent Bearer *** and failed"),
            (r#"{"error":"no","api_key":"k1","user":"u"}"#, r#"{"error":"no","api_key":"***"#),
            ("password = hunter2", "password = ***"),
            ("client_secret:abc", "client_secret:***"),
            ("AccessToken=abc", "AccessToken=***"),
            ("got eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiIxIn0.sig", "got ***"),
            ("key ghp_0123456789abcdef is revoked", "key *** is revoked"),
            ("id 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b", "id ***"),
            ("connect postgres://app:hunter2@db/x", "connect postgres://***@db/x"),
        ] {
            assert_eq!(sanitize(text), expected, "{text}");
        }
    }
}
