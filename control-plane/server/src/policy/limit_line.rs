//! Limits that admins write in one line: `60/min for each user on shop.*`.
//!
//! Keeps true: the admin API accepts the form of every limit read here, because both use the same rules for names and
//! rates. Whether the names exist is checked by the API alone.

use asp_edge::names;
use asp_store::control::LimitRecord;

use super::refill::{self, MAX_CAPACITY};
use crate::patterns;

/// Maximum length of a line in bytes: four names of the maximum length, and the words around them.
pub const MAX_BYTES: usize = 4 * names::MAX_BYTES + 256;
/// Maximum number of characters that a fault repeats.
const MAX_SHOWN: usize = 64;
const ANY: &str = "*";

/// Fault of a line.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{0}; write for example `60/min for each user on shop.*`")]
pub struct BadLimit(String);

/// A word of the line; a name in quotation marks is one word and never a keyword.
#[derive(Clone, Copy)]
struct Word<'l> {
    text: &'l str,
    is_quoted: bool,
}

impl<'l> Word<'l> {
    /// Returns the keyword that the word may be; "" if it is quoted.
    fn keyword(self) -> &'l str {
        if self.is_quoted { "" } else { self.text }
    }
}

/// Parses a rate, followed by parts in any order, each at most once:
///
/// - `for each user|machine|token`, `for user|machine|token NAME`, `for everyone` (one bucket) [default: each user]
/// - `on PRIMITIVE`: an id, an exposed name or `prefix*` [default: every primitive]
/// - `at SERVER` [default: every server]
/// - `from ISSUER` [default: every issuer]
/// - `burst COUNT`: the bucket's capacity [default: the count of the rate]
/// - `observed`: the limit counts and refuses nothing
pub fn parse(line: &str) -> Result<LimitRecord, BadLimit> {
    if line.len() > MAX_BYTES {
        return Err(BadLimit(format!("a limit is longer than {MAX_BYTES} bytes")));
    }
    let mut words = split(line)?.into_iter();
    let (capacity, refill) = parse_rate(words.next().map_or("", Word::keyword))?;
    let mut limit = LimitRecord {
        server: ANY.to_owned(),
        primitive: ANY.to_owned(),
        user: names::EACH.to_owned(),
        wcit: ANY.to_owned(),
        issuer: ANY.to_owned(),
        machine: ANY.to_owned(),
        capacity,
        refill,
        observe: false,
    };
    let mut parts = Vec::new();
    while let Some(word) = words.next() {
        let part = word.keyword();
        if parts.contains(&part) {
            return Err(bad(part, "occurs twice"));
        }
        parts.push(part);
        match part {
            "for" => select_callers(&mut limit, &mut words)?,
            "on" => limit.primitive = parse_name(words.next(), names::pattern_fault)?,
            "at" => limit.server = parse_name(words.next(), names::fault)?,
            "from" => limit.issuer = parse_name(words.next(), issuer_fault)?,
            "burst" => limit.capacity = parse_count(words.next().map_or("", Word::keyword), MAX_CAPACITY)?,
            "observed" => limit.observe = true,
            _ => return Err(bad(word.text, "is not for, on, at, from, burst or observed")),
        }
    }
    if limit.machine != ANY && limit.issuer != ANY {
        return Err(BadLimit("a machine has no issuer: leave out `from`".to_owned()));
    }
    Ok(limit)
}

/// Describes a limit: `60 calls a minute for each user on shop.*, up to 60 at once`.
pub fn describe(limit: &LimitRecord) -> String {
    let LimitRecord { server, primitive, user, wcit, issuer, machine, capacity, refill, observe } = limit;
    let (count, unit) = refill.split_once('/').unwrap_or((refill.as_str(), ""));
    let calls = if count == "1" { "call" } else { "calls" };
    let unit = match unit {
        "s" => "a second",
        "m" => "a minute",
        "h" => "an hour",
        other => other,
    };
    let callers =
        [("user", user), ("machine", machine), ("token", wcit)].into_iter().filter_map(|(kind, name)| {
            match name.as_str() {
                ANY => None,
                names::EACH => Some(format!("each {kind}")),
                name => Some(format!("{kind} {name}")),
            }
        });
    let callers = Vec::from_iter(callers).join(" with ");
    let callers = if callers.is_empty() { "all callers together" } else { &callers };
    let mut text = format!("{count} {calls} {unit} for {callers}");
    for (preposition, name) in [("from issuer", issuer), ("on", primitive), ("at server", server)] {
        if name != ANY {
            text.push_str(&format!(" {preposition} {name}"));
        }
    }
    let observed = if *observe { ", observed: it refuses nothing" } else { "" };
    format!("{text}, up to {capacity} at once{observed}")
}

fn split(line: &str) -> Result<Vec<Word<'_>>, BadLimit> {
    let mut words = Vec::new();
    let mut rest = line.trim();
    while !rest.is_empty() {
        let (text, after) = match rest.strip_prefix('"') {
            Some(quoted) => {
                quoted.split_once('"').ok_or_else(|| bad(rest, "has no closing quotation mark"))?
            }
            None => rest.split_at(rest.find(char::is_whitespace).unwrap_or(rest.len())),
        };
        if !after.is_empty() && !after.starts_with(char::is_whitespace) {
            return Err(bad(text, "needs a space after its closing quotation mark"));
        }
        words.push(Word { text, is_quoted: rest.starts_with('"') });
        rest = after.trim_start();
    }
    Ok(words)
}

/// Parses `COUNT/UNIT`; returns the count, and the rate in the notation of the admin API.
fn parse_rate(text: &str) -> Result<(u64, String), BadLimit> {
    let (count, unit) = text.split_once('/').ok_or_else(|| bad(text, "is not a rate"))?;
    let unit = match unit {
        "s" | "sec" | "second" => "s",
        "m" | "min" | "minute" => "m",
        "h" | "hour" => "h",
        _ => return Err(bad(text, "is not a rate per s, min or h")),
    };
    let count = parse_count(count, refill::MAX_PER_UNIT)?;
    Ok((count, format!("{count}/{unit}")))
}

fn parse_count(text: &str, max: u64) -> Result<u64, BadLimit> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let count = text.parse::<u64>().ok().filter(|count| is_number && (1..=max).contains(count));
    count.ok_or_else(|| bad(text, &format!("is not a whole number from 1 to {max}")))
}

fn select_callers<'l>(
    limit: &mut LimitRecord,
    words: &mut impl Iterator<Item = Word<'l>>,
) -> Result<(), BadLimit> {
    let fault = "must be followed by `each user`, `user NAME` (or machine, token) or `everyone`";
    let mut next = || words.next().ok_or_else(|| bad("for", fault));
    let first = next()?;
    limit.user = ANY.to_owned();
    if first.keyword() == "everyone" {
        return Ok(());
    }
    let is_each = first.keyword() == names::EACH;
    let second = next()?;
    let kind = if is_each { second } else { first };
    let field = match kind.keyword() {
        "user" => &mut limit.user,
        "machine" => &mut limit.machine,
        "token" => &mut limit.wcit,
        _ => return Err(bad("for", fault)),
    };
    *field = if is_each { names::EACH.to_owned() } else { parse_name(Some(second), caller_fault)? };
    Ok(())
}

fn parse_name(
    word: Option<Word<'_>>,
    fault: impl Fn(&str) -> Option<&'static str>,
) -> Result<String, BadLimit> {
    let name = word.map_or("", |word| word.text);
    fault(name).map_or_else(|| Ok(name.to_owned()), |fault| Err(bad(name, fault)))
}

fn issuer_fault(name: &str) -> Option<&'static str> {
    (!patterns::is_issuer(name)).then_some("is not the name of an issuer")
}

/// A user, machine or token of this name would be taken for each of them.
fn caller_fault(name: &str) -> Option<&'static str> {
    if name == names::EACH { Some("cannot have a limit of its own") } else { names::fault(name) }
}

fn bad(text: &str, fault: &str) -> BadLimit {
    BadLimit(format!("`{}` {fault}", text.chars().take(MAX_SHOWN).collect::<String>()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_limit_and_is_described_in_words() {
        for (line, words) in [
            ("60/min", "60 calls a minute for each user, up to 60 at once"),
            ("60/min for each user on shop.*", "60 calls a minute for each user on shop.*, up to 60 at once"),
            ("1/s for everyone burst 20", "1 call a second for all callers together, up to 20 at once"),
            (
                "1000/hour for user \"Ann B\" from login",
                "1000 calls an hour for user Ann B from issuer login, up to 1000 at once",
            ),
            (
                "  5/second\tat shop on pay for each token ",
                "5 calls a second for each token on pay at server shop, up to 5 at once",
            ),
            ("2/m for machine robot-7", "2 calls a minute for machine robot-7, up to 2 at once"),
            ("1/h observed", "1 call an hour for each user, up to 1 at once, observed: it refuses nothing"),
            ("2/m for user \"on\"", "2 calls a minute for user on, up to 2 at once"),
            ("1000000/s burst 1000000000", "1000000 calls a second for each user, up to 1000000000 at once"),
        ] {
            assert_eq!(parse(line).map(|limit| describe(&limit)), Ok(words.to_owned()), "{line}");
        }
        let limit = parse("60/min for each user on shop.*").unwrap();
        let expected = LimitRecord {
            server: "*".into(),
            primitive: "shop.*".into(),
            user: "each".into(),
            wcit: "*".into(),
            issuer: "*".into(),
            machine: "*".into(),
            capacity: 60,
            refill: "60/m".into(),
            observe: false,
        };
        assert_eq!(limit, expected);
    }

    #[test]
    fn a_limit_of_other_callers_leaves_users_alone() {
        let who = |line: &str| {
            let limit = parse(line).unwrap();
            [limit.user, limit.machine, limit.wcit]
        };
        assert_eq!(who("1/s for everyone"), ["*", "*", "*"]);
        assert_eq!(who("1/s for each machine"), ["*", "each", "*"]);
        assert_eq!(who("1/s for token t1"), ["*", "*", "t1"]);
    }

    #[test]
    fn a_line_that_is_not_clear_is_refused_with_what_is_wrong() {
        for (line, fault) in [
            ("", "`` is not a rate"),
            ("60", "`60` is not a rate"),
            ("\"60/min\"", "`` is not a rate"),
            ("60/day", "`60/day` is not a rate per s, min or h"),
            ("60 / min", "`60` is not a rate"),
            ("0/min", "`0` is not a whole number from 1 to 1000000"),
            ("1000001/s", "`1000001` is not a whole number from 1 to 1000000"),
            ("99999999999999999999/s", "`99999999999999999999` is not a whole number from 1 to 1000000"),
            ("+1/s", "`+1` is not a whole number from 1 to 1000000"),
            ("0.5/s", "`0.5` is not a whole number from 1 to 1000000"),
            ("1/s burst", "`` is not a whole number from 1 to 1000000000"),
            ("1/s burst 1000000001", "`1000000001` is not a whole number from 1 to 1000000000"),
            ("1/s each user", "`each` is not for, on, at, from, burst or observed"),
            ("1/s \"for\" everyone", "`for` is not for, on, at, from, burst or observed"),
            ("1/s on a on b", "`on` occurs twice"),
            ("1/s on", "`` is empty"),
            ("1/s on a*b", "`a*b` holds `*`"),
            ("1/s at *", "`*` holds `*`"),
            ("1/s from a:b", "`a:b` is not the name of an issuer"),
            ("1/s for user each", "`each` cannot have a limit of its own"),
            ("1/s for user \"Ann B", "`\"Ann B` has no closing quotation mark"),
            ("1/s for user \"Ann\"B", "`Ann` needs a space after its closing quotation mark"),
            ("1/s for each machine from login", "a machine has no issuer: leave out `from`"),
        ] {
            let refused = parse(line).unwrap_err().to_string();
            assert!(refused.starts_with(&format!("{fault}; write for example")), "{line}: {refused}");
        }
        for line in ["1/s for", "1/s for each", "1/s for user", "1/s for each group", "1/s for all"] {
            let refused = parse(line).unwrap_err().to_string();
            assert!(refused.starts_with("`for` must be followed by `each user`"), "{line}: {refused}");
        }
        let long = format!("1/s for user {}", "x".repeat(MAX_BYTES));
        assert!(parse(&long).unwrap_err().to_string().starts_with("a limit is longer than"));
        let long = parse(&format!("1/s for user {}", "é".repeat(300))).unwrap_err().to_string();
        assert!(long.starts_with(&format!("`{}` is longer than 512 bytes", "é".repeat(MAX_SHOWN))), "{long}");
    }
}
