//! Secrets in texts that leave a process as logs, log notifications or audit: replaced by `***`.
//!
//! Owns the patterns: credentials after `Authorization` and `Bearer`, keys of model providers (`sk-…`), and values under names
//! of secrets such as `api_key`, `OPENAI_API_KEY` or `password`, in plain text, in code, in JSON and in JSON within a string.
//! Refuses to look for secrets that nothing marks. Keeps true: the work grows with the length of the text alone; what is not
//! a secret keeps its text; a redacted text stays as it is when it is redacted again.

use std::borrow::Cow;
use std::ops::Range;

use serde_json::Value;

/// Replacement of a secret.
const REDACTED: &str = "***";
/// Letters of which a text with a secret has some.
const MARKS: [&str; 7] = ["sk-", "bearer", "key", "token", "secret", "pass", "auth"];
/// Endings of the names of secrets, in lower case and without separators.
const NAMES: [&str; 11] = [
    "apikey",
    "secretkey",
    "secretaccesskey",
    "privatekey",
    "authtoken",
    "accesstoken",
    "refreshtoken",
    "clientsecret",
    "password",
    "passwd",
    AUTHORIZATION,
];
/// Endings of the names of environment variables that are secrets.
const VARIABLES: [&str; 4] = ["_TOKEN", "_SECRET", "_PASSWORD", "_PASSPHRASE"];
const AUTHORIZATION: &str = "authorization";
/// Schemes of HTTP authentication, which stay before a redacted credential.
const SCHEMES: [&str; 5] = ["bearer", "basic", "token", "apikey", "dpop"];
/// Minimum length of a credential that only a prefix marks: shorter ones are words.
const SHORTEST: usize = 16;
/// Words of code and JSON that stand for the lack of a value.
const NOTHING: [&str; 6] = ["null", "None", "undefined", "true", "false", "***"];

/// Whether a text has anything that marks a secret. If not, [`redact_text`] and [`redact_value`] change nothing.
pub fn may_have_secret(text: &str) -> bool {
    let bytes = text.as_bytes();
    let has_mark = |at: usize, mark: &str| {
        bytes.get(at..at + mark.len()).is_some_and(|found| found.eq_ignore_ascii_case(mark.as_bytes()))
    };
    (0..bytes.len()).any(|at| MARKS.iter().any(|mark| has_mark(at, mark)))
}

/// Replaces the secrets of a text.
pub fn redact_text(text: &str) -> Cow<'_, str> {
    if !may_have_secret(text) {
        return Cow::Borrowed(text);
    }
    let mut redacted = String::new();
    let mut rest = text;
    let mut at = 0;
    while let Some(word) = next_word(rest, at) {
        at = word.end;
        let Some(secret) = secret_at(rest, word) else { continue };
        redacted.push_str(rest.get(..secret.start).unwrap_or_default());
        redacted.push_str(REDACTED);
        rest = rest.get(secret.end..).unwrap_or_default();
        at = 0;
    }
    if redacted.is_empty() {
        return Cow::Borrowed(text);
    }
    redacted.push_str(rest);
    Cow::Owned(redacted)
}

/// Replaces the secrets of a value: each value under the name of a secret, whatever its type, and those in texts. Returns
/// whether there were any.
pub fn redact_value(value: &mut Value) -> bool {
    match value {
        Value::String(text) => {
            let Cow::Owned(redacted) = redact_text(text) else { return false };
            *text = redacted;
            true
        }
        // Not `any`, which ends at the first one.
        Value::Array(items) => items.iter_mut().fold(false, |changed, item| redact_value(item) | changed),
        Value::Object(members) => members.iter_mut().fold(false, |changed, (name, member)| {
            let is_changed = if is_secret(name) { hide(member) } else { redact_value(member) };
            is_changed | changed
        }),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Replaces the secrets of a JSON text; of another text, those of a text.
pub fn redact_json(text: &str) -> Cow<'_, str> {
    if !may_have_secret(text) {
        return Cow::Borrowed(text);
    }
    let Ok(mut value) = serde_json::from_str::<Value>(text) else { return redact_text(text) };
    if redact_value(&mut value) { Cow::Owned(value.to_string()) } else { Cow::Borrowed(text) }
}

/// Replaces a value under the name of a secret; returns whether it is another one now.
fn hide(value: &mut Value) -> bool {
    let is_secret = match value {
        Value::Null | Value::Bool(_) => false,
        Value::String(text) => !text.is_empty() && text != REDACTED,
        Value::Number(_) | Value::Array(_) | Value::Object(_) => true,
    };
    if is_secret {
        *value = Value::from(REDACTED);
    }
    is_secret
}

/// Whether a value under this name is a secret.
fn is_secret(name: &str) -> bool {
    is_name(name) || is_variable(name)
}

fn is_name(name: &str) -> bool {
    NAMES.iter().any(|ending| has_ending(name, ending))
}

/// Whether a name ends so, without regard to case and separators.
fn has_ending(name: &str, ending: &str) -> bool {
    let letters = name.bytes().rev().filter(u8::is_ascii_alphanumeric);
    let mut letters = letters.map(|letter| letter.to_ascii_lowercase());
    ending.bytes().rev().all(|letter| letters.next() == Some(letter))
}

fn is_variable(name: &str) -> bool {
    let is_upper = |letter: u8| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == b'_';
    VARIABLES.iter().any(|ending| name.ends_with(ending)) && name.bytes().all(is_upper)
}

/// Returns the place of the next word from `at` on.
fn next_word(text: &str, at: usize) -> Option<Range<usize>> {
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let mut start = at + text.get(at..)?.find(is_part)?;
    // The letter of an escape belongs to no word.
    let is_escape = text.get(..start)?.ends_with('\\') && text.get(start..)?.starts_with(['n', 'r', 't']);
    start += usize::from(is_escape);
    let rest = text.get(start..)?;
    Some(start..start + rest.find(|letter: char| !is_part(letter)).unwrap_or(rest.len()))
}

/// Returns the place of the secret that a word is, or that it names.
fn secret_at(text: &str, word: Range<usize>) -> Option<Range<usize>> {
    let name = text.get(word.clone())?;
    if is_provider_key(name) {
        return Some(word);
    }
    let after = text.get(word.end..)?;
    let found = if name.eq_ignore_ascii_case("bearer") { bearer(after) } else { named(name, after) }?;
    Some(word.end + found.start..word.end + found.end)
}

/// Whether a word is a key in the form of OpenAI's: a long run of letters after `sk-`, or several with a digit.
fn is_provider_key(word: &str) -> bool {
    let Some(key) = word.strip_prefix("sk-") else { return false };
    let is_long = |run: &str| run.len() >= SHORTEST;
    is_long(key) && (key.bytes().any(|letter| letter.is_ascii_digit()) || key.split(['-', '_']).any(is_long))
}

/// Returns the credential after the word `Bearer` (RFC 6750 section 2.1); a word or a parameter of a challenge is none.
fn bearer(after: &str) -> Option<Range<usize>> {
    let credential = after.strip_prefix(' ')?.trim_start_matches(' ');
    let is_part = |letter: char| letter.is_ascii_alphanumeric() || "-._~+/=".contains(letter);
    let length = credential.find(|letter: char| !is_part(letter)).unwrap_or(credential.len());
    let has_digit = credential.get(..length)?.bytes().any(|letter| letter.is_ascii_digit());
    let from = after.len() - credential.len();
    (length >= SHORTEST && has_digit).then_some(from..from + length)
}

/// Returns the value after a name, if that is the name of a secret.
fn named(name: &str, after: &str) -> Option<Range<usize>> {
    let is_name = is_name(name);
    if !is_name && !is_variable(name) {
        return None;
    }
    let past_quote = match quote(after) {
        Some((slashes, _)) => after.get(slashes + 1..)?,
        None => after,
    };
    let is_quoted = past_quote.len() < after.len();
    let separated = past_quote.trim_start_matches([' ', '\t']);
    let is_assigned = separated.starts_with('=');
    // A variable in a sentence (`MAX_TOKEN: too long`) is no assignment, nor is a path of code (`password::hash`).
    if !(is_assigned || separated.starts_with(':') && (is_name || is_quoted)) || separated.starts_with("::") {
        return None;
    }
    let value = separated.get(1..)?.trim_start_matches(['=', '>', ' ', '\t']);
    let from = after.len() - value.len();
    let found = match opening(value) {
        Some(start) => quoted(value, start),
        None if has_ending(name, AUTHORIZATION) => credential(value),
        None => plain(value),
    }?;
    Some(from + found.start..from + found.end)
}

/// Returns the number of backslashes before a quote at the start of a text, and the quote.
fn quote(text: &str) -> Option<(usize, char)> {
    let quote = text.trim_start_matches('\\');
    let found = quote.chars().next().filter(|letter| matches!(letter, '"' | '\'' | '`'))?;
    Some((text.len() - quote.len(), found))
}

/// Returns the place of the quote that opens a value: at its start, after a letter as in `b'…'`, or after `Some(`.
fn opening(value: &str) -> Option<usize> {
    let start = value.find(|letter: char| !letter.is_ascii_alphabetic() && letter != '(')?;
    let (before, rest) = value.split_at_checked(start)?;
    quote(rest).filter(|_| before.len() <= 1 || before.ends_with('(')).map(|_| start)
}

/// Returns what is between the quotes; up to the end of the text if it is cut there.
fn quoted(value: &str, start: usize) -> Option<Range<usize>> {
    let rest = value.get(start..)?;
    let (slashes, quote) = quote(rest)?;
    let inner = rest.get(slashes + 1..)?;
    let from = start + slashes + 1;
    let mut length = inner.len();
    let mut run = 0_usize;
    for (at, letter) in inner.char_indices() {
        // In a string within a string, each quote has more backslashes than those around it.
        let closes = run < slashes || (run - slashes).is_multiple_of(2 * (slashes + 1));
        if letter == quote && closes {
            length = at - run.min(slashes);
            break;
        }
        run = if letter == '\\' { run + 1 } else { 0 };
    }
    let is_secret = inner.get(..length).is_some_and(|text| !text.is_empty() && text != REDACTED);
    is_secret.then_some(from..from + length)
}

/// Returns the credential of an `Authorization` header, after its scheme.
fn credential(value: &str) -> Option<Range<usize>> {
    let scheme = value.get(..end_of(value))?;
    if !SCHEMES.iter().any(|known| scheme.eq_ignore_ascii_case(known)) {
        return plain(value);
    }
    let after = value.get(scheme.len()..)?;
    let rest = after.trim_start_matches(' ');
    let found = plain(rest).filter(|_| rest.len() < after.len())?;
    let from = value.len() - rest.len();
    Some(from + found.start..from + found.end)
}

/// Returns a value without quotes; a reference such as `${secret:name}`, and a word for nothing, are none.
fn plain(value: &str) -> Option<Range<usize>> {
    let end = end_of(value);
    let text = value.get(..end)?;
    let is_secret = !text.is_empty() && !value.starts_with("${") && !NOTHING.contains(&text);
    is_secret.then_some(0..end)
}

/// Returns the length of a value without quotes.
fn end_of(value: &str) -> usize {
    let ends = |letter: char| letter.is_whitespace() || ",;&|\"'`<>(){}[]\\".contains(letter);
    value.find(ends).unwrap_or(value.len())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const KEY: &str = "sk-proj-Abc123Def456Ghi789";

    #[test]
    fn every_pattern_of_a_secret_is_redacted_and_nothing_around_it() {
        for (text, expected) in [
            // Credentials of HTTP.
            ("Authorization: Bearer abc.def", "Authorization: Bearer ***"),
            ("authorization: bearer x, next", "authorization: bearer ***, next"),
            ("Proxy-Authorization: Basic dXNlcjpwYXNz", "Proxy-Authorization: Basic ***"),
            ("Authorization: abc123", "Authorization: ***"),
            (r#"curl -H "Authorization: Bearer abc" x"#, r#"curl -H "Authorization: Bearer ***" x"#),
            ("sent Bearer eyJhbGciOiJIUzI1NiJ9.e30.abc to it", "sent Bearer *** to it"),
            (r#"('authorization', 'Bearer 0123456789abcdef')"#, r#"('authorization', 'Bearer ***')"#),
            // Keys of model providers.
            ("key sk-abcdefghijklmnopqrstuvwx.", "key ***."),
            ("sk-proj-Abc123Def456Ghi789", "***"),
            ("a=sk-ant-api03-abc_DEF-012345;b", "a=***;b"),
            (r"line\nsk-Abc123Def456Ghi789", r"line\n***"),
            // Names of secrets.
            ("api_key=abc", "api_key=***"),
            ("?api_key=abc&page=2", "?api_key=***&page=2"),
            ("apikey: abc", "apikey: ***"),
            ("X-API-Key: abc, Accept: text/plain", "X-API-Key: ***, Accept: text/plain"),
            ("--api-key=abc --verbose", "--api-key=*** --verbose"),
            ("apiKey='a b' done", "apiKey='***' done"),
            (r#"{"api_key": "abc", "n": 1}"#, r#"{"api_key": "***", "n": 1}"#),
            (r#"{"openaiApiKey":"a\"b","n":1}"#, r#"{"openaiApiKey":"***","n":1}"#),
            ("{'api_key': b'abc', 'n': 1}", "{'api_key': b'***', 'n': 1}"),
            (r#"Settings { api_key: Some("abc"), n: 1 }"#, r#"Settings { api_key: Some("***"), n: 1 }"#),
            ("{:api_key => 'abc'}", "{:api_key => '***'}"),
            ("access_token=abc refresh_token=def", "access_token=*** refresh_token=***"),
            ("client_secret: abc", "client_secret: ***"),
            ("password=hunter2", "password=***"),
            (r#"api_key = "cut he"#, r#"api_key = "***"#),
            // Variables of an environment.
            ("OPENAI_API_KEY=abc", "OPENAI_API_KEY=***"),
            ("export LANGFUSE_SECRET_KEY='abc'", "export LANGFUSE_SECRET_KEY='***'"),
            ("A2A_AUTH_TOKEN: abc", "A2A_AUTH_TOKEN: ***"),
            ("HF_TOKEN=abc GOOGLE_CLIENT_SECRET=def", "HF_TOKEN=*** GOOGLE_CLIENT_SECRET=***"),
            ("AWS_SECRET_ACCESS_KEY=a/b+c=", "AWS_SECRET_ACCESS_KEY=***"),
            (r#"{"GITHUB_TOKEN": "abc"}"#, r#"{"GITHUB_TOKEN": "***"}"#),
            // JSON within a string.
            (
                r#"{"line":"{\"api_key\": \"abc\", \"n\": 1}"}"#,
                r#"{"line":"{\"api_key\": \"***\", \"n\": 1}"}"#,
            ),
            (r#"{"line":"api_key=abc","n":1}"#, r#"{"line":"api_key=***","n":1}"#),
            (r#"{"line":"\"api_key\": \"abc","n":1}"#, r#"{"line":"\"api_key\": \"***","n":1}"#),
        ] {
            let redacted = redact_text(text);
            assert_eq!(redacted, expected, "{text}");
            assert_eq!(redact_text(&redacted), expected, "again: {text}");
        }
    }

    #[test]
    fn what_only_looks_like_a_secret_keeps_its_text() {
        for text in [
            "",
            "the api_key is missing; set OPENAI_API_KEY",
            "Bearer token expired",
            "missing header Authorization: Bearer",
            "Authorization: Bearer <token>",
            r#"WWW-Authenticate: Bearer realm="asp", error="invalid_token""#,
            r#"Bearer resource_metadata="https://example.org/x1""#,
            "bearer-jwt, bearer-opaque",
            "task-0123456789abcdef0123456789",
            "disk-Abc123Def456Ghi789",
            "sk-learn and sk-learn-contrib-extras",
            "sk-short1",
            "max_tokens: 512, tokens_in=11, tokensOut=3",
            "nextPageToken=abc progressToken: 5 idempotencyKey=k-1",
            "INVALID_TOKEN: the signature does not fit",
            "public_key: abc, primary key = 5, LANGFUSE_PUBLIC_KEY=pk-1",
            "password::hash(text)",
            "api_key=${secret:openai} or api_key: null",
            "author: alice, authorized=true",
            "the secret santa: bob",
            "api_key == None",
            r#"{"api_key": "", "password": null}"#,
        ] {
            assert!(matches!(redact_text(text), Cow::Borrowed(same) if same == text), "{text}");
        }
    }

    #[test]
    fn a_value_under_the_name_of_a_secret_is_redacted_whatever_it_is_and_however_deep() {
        let mut value = json!({
            "env": [{"OPENAI_API_KEY": {"value": "abc"}, "PATH": "/bin"}, {"LANGFUSE_SECRET_KEY": 5}],
            "headers": {"Authorization": "Bearer abc", "x-api-key": ["a"], "accept": "*/*"},
            "deep": [[{"A2A_AUTH_TOKEN": "abc", "text": format!("uses {KEY}"), "n": 1.5}]],
            "password": true, "api_key": null, "tokens": 3,
        });
        assert!(redact_value(&mut value));
        let expected = json!({
            "env": [{"OPENAI_API_KEY": "***", "PATH": "/bin"}, {"LANGFUSE_SECRET_KEY": "***"}],
            "headers": {"Authorization": "***", "x-api-key": "***", "accept": "*/*"},
            "deep": [[{"A2A_AUTH_TOKEN": "***", "text": "uses ***", "n": 1.5}]],
            "password": true, "api_key": null, "tokens": 3,
        });
        assert_eq!(value, expected);
        assert!(!redact_value(&mut value), "nothing is left");
    }

    #[test]
    fn a_json_text_stays_json_and_a_clean_one_keeps_its_text() {
        let redacted = redact_json(r#"{"line":"api_key=b","stream":"stdout","api_key":12}"#);
        assert_eq!(redacted, r#"{"line":"api_key=***","stream":"stdout","api_key":"***"}"#);
        for clean in [r#"{"n":1.50}"#, r#"{ "token": 1.50 }"#, "no JSON with a key"] {
            assert!(matches!(redact_json(clean), Cow::Borrowed(same) if same == clean), "{clean}");
        }
        assert_eq!(redact_json("api_key=abc {"), "api_key=*** {");
    }

    #[test]
    fn the_work_grows_with_the_text_alone() {
        for unit in
            ["bearer.", "bearer ", "api_key", "password:", "password='", "api_key=(", "\\\"", "key \t "]
        {
            let text = unit.repeat((1 << 20) / unit.len());
            let redacted = redact_text(&text);
            assert!(redacted.len() <= text.len() + REDACTED.len(), "{unit}");
        }
    }
}
