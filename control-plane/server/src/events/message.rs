//! The form of a message: JSON of one event.

use asp_edge::names;
use asp_issuers::trusted_issuer::MAX_TTL;
use asp_platform::redact::redact_text;
use asp_store::control::{MAX_PARKED_BYTES, RevocationRecord, linked_token_target};
use serde::Deserialize;
use sha2::{Digest, Sha256};

use super::MessageOrigin;
use crate::policy::LINKED_TOKEN;

/// Maximum size of a message in bytes.
const MAX_MESSAGE: usize = 16 * 1024;
/// Maximum length of an event's id, an issuer and a reason, in bytes.
const MAX_TEXT: usize = 512;
/// Leeway added to the lifetime of a token, because clocks differ.
const LEEWAY_MS: u64 = 60_000;
/// Start of every JWT: `{"` in base64.
const JWT: &str = "eyJ";
/// Minimum length of a text that is taken for a JWT.
const SHORTEST_JWT: usize = 40;

/// A message as it is written. Further members are ignored.
#[derive(Deserialize)]
struct EventText {
    event: Option<String>,
    /// Unix seconds.
    at: Option<u64>,
    #[serde(rename = "type")]
    kind: String,
    org: Option<String>,
    id: String,
    issuer: Option<String>,
    reason: Option<String>,
    /// Unix seconds.
    exp: Option<u64>,
}

/// An event, and the revocation that it asks for.
#[derive(Debug)]
pub(super) struct ParsedEvent {
    /// The same for every repetition.
    pub(super) id: String,
    /// Unix milliseconds after which no token that it names is alive.
    pub(super) until: u64,
    pub(super) record: RevocationRecord,
}

/// Reads a message at `now` (Unix milliseconds). The error says what is wrong with it.
pub(super) fn read(origin: MessageOrigin<'_>, payload: &[u8], now: u64) -> Result<ParsedEvent, String> {
    if payload.len() > MAX_MESSAGE {
        return Err(format!("it has {} bytes, more than {MAX_MESSAGE}", payload.len()));
    }
    let written: EventText = serde_json::from_slice(payload).map_err(|error| {
        // The rest of the text may repeat the message.
        format!("it is not the JSON of an event: line {} column {}", error.line(), error.column())
    })?;
    let (kind, org) = subject(&written)?;
    if let Some(fault) = names::fault(&written.id) {
        return Err(format!("id {fault}"));
    }
    if written.exp.is_some() && !matches!(kind, "token" | "token_hash") {
        return Err("exp is one token's".to_owned());
    }
    if written.issuer.is_some() && kind != "token" {
        return Err("issuer is only for a token's id".to_owned());
    }
    for (name, text) in [("event", &written.event), ("issuer", &written.issuer), ("reason", &written.reason)]
    {
        let is_plain = |text: &String| text.len() <= MAX_TEXT && !text.chars().any(char::is_control);
        if text.as_ref().is_some_and(|text| !is_plain(text)) {
            return Err(format!("{name}: at most {MAX_TEXT} visible bytes"));
        }
    }
    if written.event.as_ref().is_some_and(String::is_empty) {
        return Err("event is empty".to_owned());
    }
    let at = written.at.map(|at| at.saturating_mul(1_000)).or(origin.at).unwrap_or(now).min(now);
    let longest =
        at.saturating_add(u64::try_from(MAX_TTL.as_millis()).unwrap_or(u64::MAX)).saturating_add(LEEWAY_MS);
    let known = written.exp.map(|exp| exp.saturating_mul(1_000).saturating_add(LEEWAY_MS));
    let until = known.map_or(longest, |known| known.min(longest));
    let digest = digest(origin, written.event.as_deref());
    let record = RevocationRecord {
        id: record_id(&digest),
        kind: kind.to_owned(),
        org,
        target: written.id,
        issuer: written.issuer.unwrap_or_default(),
        reason: written.reason.unwrap_or_default(),
        // Of a user or an org, tokens are revoked that were issued until the event; of a token, the time does not matter.
        created_at: if matches!(kind, "user" | "org") { at } else { now },
        until,
        by_platform: true,
    };
    Ok(ParsedEvent { id: digest.iter().map(|byte| format!("{byte:02x}")).collect(), until, record })
}

/// Returns the kind of the revocation and its org.
fn subject(written: &EventText) -> Result<(&'static str, String), String> {
    let is_hash = written.id.len() == 64 && written.id.chars().all(|c| matches!(c, '0'..='9' | 'a'..='f'));
    let org = written.org.clone();
    let (kind, org) = match (written.kind.as_str(), org) {
        ("org", None) => ("org", written.id.clone()),
        ("org", Some(org)) if org == written.id => ("org", org),
        ("org", Some(_)) => return Err("org and id differ".to_owned()),
        ("user", Some(org)) if !org.is_empty() => ("user", org),
        ("user", _) => return Err("a user is revoked within its org: org is missing".to_owned()),
        ("token", org) => ("token", org.unwrap_or_default()),
        (LINKED_TOKEN, _) if linked_token_target(&written.id).is_none() => {
            return Err("id must be a provider, or provider/user".to_owned());
        }
        (LINKED_TOKEN, org) => (LINKED_TOKEN, org.unwrap_or_default()),
        ("wcit", org) => (if is_hash { "token_hash" } else { "token" }, org.unwrap_or_default()),
        ("token_hash", org) if is_hash => ("token_hash", org.unwrap_or_default()),
        ("token_hash", _) => {
            return Err("id must be the lower-case hex SHA-256 of the compact token".to_owned());
        }
        _ => return Err("type must be token, token_hash, wcit, user, org or linked_token".to_owned()),
    };
    match names::fault(&org) {
        Some(fault) if !org.is_empty() => Err(format!("org {fault}")),
        _ => Ok((kind, org)),
    }
}

/// Returns what identifies the event: the id that its producer gave it, or where it is in the topic.
fn digest(origin: MessageOrigin<'_>, event: Option<&str>) -> [u8; 32] {
    let identity = match event {
        Some(event) => format!("event\0{event}"),
        None => format!("place\0{}", origin.id()),
    };
    Sha256::digest(identity.as_bytes()).into()
}

fn record_id(digest: &[u8; 32]) -> String {
    let mut bytes = [0; 16];
    bytes.iter_mut().zip(digest).for_each(|(byte, from)| *byte = *from);
    uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
}

/// Returns the text of a parked message: bounded, on one line, and without secrets.
pub(super) fn redacted(payload: &[u8]) -> String {
    let start = payload.get(..MAX_PARKED_BYTES).unwrap_or(payload);
    let text = String::from_utf8_lossy(start);
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let text = without_tokens(&redact_text(&text));
    // A replacement character is longer than the byte that it stands for.
    let end = (0..=MAX_PARKED_BYTES.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.get(..end.unwrap_or_default()).unwrap_or_default().to_owned()
}

/// Replaces what looks like a JWT: nothing marks one that is a value by itself.
fn without_tokens(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut rest = text;
    let mut out = String::with_capacity(text.len());
    while let Some(start) = rest.find(JWT) {
        let (before, found) = rest.split_at(start);
        let end = found.find(|c| !is_part(c)).unwrap_or(found.len());
        let (word, after) = found.split_at(end);
        out.push_str(before);
        out.push_str(if word.len() >= SHORTEST_JWT { "***" } else { word });
        rest = after;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_790_000_000_000;
    const DAY_MS: u64 = 86_400_000;

    fn origin(offset: i64) -> MessageOrigin<'static> {
        MessageOrigin { topic: "asp.revocations", partition: 0, offset, at: None }
    }

    fn event(text: &str) -> Result<ParsedEvent, String> {
        read(origin(7), text.as_bytes(), NOW)
    }

    #[test]
    fn each_kind_of_event_is_a_revocation() {
        let hash = "ab".repeat(32);
        for (text, kind, org, target) in [
            (r#"{"type":"token","org":"acme","id":"j"}"#.to_owned(), "token", "acme", "j"),
            (r#"{"type":"token","id":"j","more":{"a":[1]}}"#.to_owned(), "token", "", "j"),
            (r#"{"type":"wcit","org":"acme","id":"j"}"#.to_owned(), "token", "acme", "j"),
            (format!(r#"{{"type":"wcit","org":"acme","id":"{hash}"}}"#), "token_hash", "acme", hash.as_str()),
            (format!(r#"{{"type":"token_hash","id":"{hash}"}}"#), "token_hash", "", hash.as_str()),
            (r#"{"type":"user","org":"acme","id":"bob"}"#.to_owned(), "user", "acme", "bob"),
            (r#"{"type":"linked_token","id":"github"}"#.to_owned(), "linked_token", "", "github"),
            (
                r#"{"type":"linked_token","org":"acme","id":"github/bob"}"#.to_owned(),
                "linked_token",
                "acme",
                "github/bob",
            ),
            (r#"{"type":"org","id":"acme"}"#.to_owned(), "org", "acme", "acme"),
            (r#"{"type":"org","id":"acme","org":"acme"}"#.to_owned(), "org", "acme", "acme"),
        ] {
            let record = event(&text).unwrap().record;
            assert_eq!(
                (record.kind.as_str(), record.org.as_str(), record.target.as_str()),
                (kind, org, target)
            );
            assert!(record.by_platform);
            assert_eq!(record.until, NOW + DAY_MS + LEEWAY_MS, "{text}");
        }
    }

    #[test]
    fn what_is_no_event_is_refused_without_repeating_it() {
        let long = format!(r#"{{"type":"token","id":"j","reason":"{}"}}"#, "x".repeat(MAX_TEXT + 1));
        let large = format!(r#"{{"type":"token","id":"j","more":"{}"}}"#, "x".repeat(MAX_MESSAGE));
        for (text, fault) in [
            ("", "not the JSON"),
            ("[]", "not the JSON"),
            ("null", "not the JSON"),
            ("{", "not the JSON"),
            ("\u{feff}{}", "not the JSON"),
            (r#"{"type":"token"}"#, "not the JSON"),
            (r#"{"type":"token","id":7}"#, "not the JSON"),
            (r#"{"type":"token","id":"j","exp":-1}"#, "not the JSON"),
            (r#"{"type":"token","id":"j","at":1.5}"#, "not the JSON"),
            (r#"{"type":"token","id":"j","id":"k"}"#, "not the JSON"),
            (r#"{"type":"token","id":"j"} {}"#, "not the JSON"),
            (r#"{"type":"token","id":""}"#, "id is empty"),
            (r#"{"type":"token","id":"a\u0000b"}"#, "id contains a control character"),
            (r#"{"type":"token","id":"*"}"#, "id holds `*`"),
            (r#"{"type":"token","id":"j","org":"a\nb"}"#, "org contains a control character"),
            (r#"{"type":"token","id":"j","event":""}"#, "event is empty"),
            (r#"{"type":"token","id":"j","event":"a\nb"}"#, "event: at most"),
            (r#"{"type":"user","id":"bob"}"#, "org is missing"),
            (r#"{"type":"user","id":"bob","org":""}"#, "org is missing"),
            (r#"{"type":"user","id":"bob","org":"acme","exp":1}"#, "exp is one token's"),
            (r#"{"type":"user","id":"bob","org":"acme","issuer":"i"}"#, "issuer is only for"),
            (r#"{"type":"org","id":"acme","org":"globex"}"#, "org and id differ"),
            (r#"{"type":"token_hash","id":"AB"}"#, "id must be the lower-case hex"),
            (r#"{"type":"linked_tokens","id":"j"}"#, "type must be"),
            (r#"{"type":"linked_token","id":"j","exp":5}"#, "exp is one token's"),
            (r#"{"type":"linked_token","org":"acme","id":"github/"}"#, "id must be a provider"),
            (r#"{"type":"linked_token","org":"acme","id":"/bob"}"#, "id must be a provider"),
            (r#"{"type":"","id":"j"}"#, "type must be"),
            (long.as_str(), "reason: at most"),
            (large.as_str(), "more than 16384"),
        ] {
            let refused = event(text).unwrap_err();
            assert!(refused.contains(fault), "{text}: {refused}");
        }
        let secret = event(r#"{"type":"token","id":"j","exp":"hunter2"}"#).unwrap_err();
        assert!(!secret.contains("hunter2"), "{secret}");
        assert!(read(origin(1), b"\xff\xfe", NOW).is_err());
    }

    #[test]
    fn an_event_has_the_time_that_it_says_and_none_of_the_future() {
        let user = |at: &str| event(&format!(r#"{{"type":"user","org":"acme","id":"bob"{at}}}"#)).unwrap();
        assert_eq!(user(r#","at":1789999000"#).record.created_at, 1_789_999_000_000);
        assert_eq!(user(r#","at":99999999999"#).record.created_at, NOW);
        assert_eq!(user(r#","at":18446744073709551615"#).record.created_at, NOW);
        let dated = MessageOrigin { at: Some(NOW - 5), ..origin(7) };
        let read = read(dated, br#"{"type":"user","org":"acme","id":"bob"}"#, NOW).unwrap();
        assert_eq!(read.record.created_at, NOW - 5);
        let old = user(r#","at":1789000000"#);
        assert!(old.until < NOW, "no token from before it is alive");
        let ended = event(r#"{"type":"token","id":"j","exp":1}"#).unwrap();
        assert!(ended.until < NOW);
    }

    #[test]
    fn a_repetition_has_the_same_id_wherever_it_is() {
        let named = br#"{"event":"e-1","type":"org","id":"acme"}"#;
        let plain = br#"{"type":"org","id":"acme"}"#;
        let ids = |payload: &[u8], offset: i64, now: u64| {
            let event = read(origin(offset), payload, now).unwrap();
            (event.id, event.record.id)
        };
        assert_eq!(ids(named, 1, NOW), ids(named, 2, NOW + 9));
        assert_eq!(ids(plain, 1, NOW), ids(plain, 1, NOW + 9));
        assert_ne!(ids(plain, 1, NOW).0, ids(plain, 2, NOW).0);
        let like_a_place = br#"{"event":"asp.revocations:0:1","type":"org","id":"acme"}"#;
        assert_ne!(ids(like_a_place, 1, NOW).0, ids(plain, 1, NOW).0);
    }

    #[test]
    fn the_text_of_a_parked_message_is_bounded_and_has_no_token() {
        let token = format!("{JWT}hbGciOiJFUzI1NiJ9.{}.{}", "a".repeat(80), "b".repeat(86));
        let text = format!("{{\"id\":\"{token}\",\n\"password\": \"hunter2hunter2\", \"b\": \"eyJ\"}}");
        let shown = redacted(text.as_bytes());
        assert!(!shown.contains(&token) && !shown.contains("hunter2") && !shown.contains('\n'), "{shown}");
        assert!(shown.contains("\"eyJ\""), "{shown}");
        let many = redacted(&[0xff; 3 * MAX_PARKED_BYTES]);
        assert!(many.len() <= MAX_PARKED_BYTES, "{}", many.len());
        assert_eq!(redacted(b"a\0b"), "a b");
    }
}
