//! Limits that admins write in one line: `60/min for each user on shop.*`.
//!
//! Keeps true: the admin API accepts the form of every limit read here, because both use the same rules for names and
//! rates. Whether the names exist is checked by the API alone.

use asp_edge::names;
use asp_store::control::{CONCURRENCY, FIXED_WINDOW, LimitRecord, SLIDING_WINDOW};

use super::refill::{self, CONCURRENCY_REFILL, MAX_CAPACITY};
use super::window;
use crate::patterns;

/// Maximum length of a line in bytes: five names of the maximum length, and the words around them.
pub const MAX_BYTES: usize = 5 * names::MAX_BYTES + 256;
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

/// Parses a rate, or `at most COUNT at once` for calls that run, followed by parts in any order, each at most once. A rate per day is
/// a budget: it counts from midnight UTC.
///
/// - `for each user|machine|token`, `for user|machine|token NAME`, `for everyone` (one bucket) [default: each user]
/// - `on PRIMITIVE`: an id, an exposed name or `prefix*` [default: every primitive]
/// - `at SERVER` [default: every server]
/// - `from ISSUER` [default: every issuer]
/// - `in GROUP` [default: every group]
/// - `window fixed|sliding`: the calls of each unit of the rate, instead of a bucket
/// - `burst COUNT`: the bucket's capacity [default: the count of the rate]
/// - `observed`: the limit counts and refuses nothing
pub fn parse(line: &str) -> Result<LimitRecord, BadLimit> {
    if line.len() > MAX_BYTES {
        return Err(BadLimit(format!("a limit is longer than {MAX_BYTES} bytes")));
    }
    let mut words = split(line)?.into_iter();
    let first = words.next().map_or("", Word::keyword);
    let amount = if first == "at" { parse_running(&mut words)? } else { parse_rate(first)? };
    let mut limit =
        LimitRecord { user: names::EACH.to_owned(), capacity: amount.count, ..LimitRecord::default() };
    let mut window = None;
    let mut burst = None;
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
            "in" => limit.group = parse_name(words.next(), names::fault)?,
            "window" => window = Some(parse_window(words.next().map_or("", Word::keyword))?),
            "burst" => burst = Some(parse_count(words.next().map_or("", Word::keyword), MAX_CAPACITY)?),
            "observed" => limit.observe = true,
            _ => return Err(bad(word.text, "is not for, on, at, from, in, window, burst or observed")),
        }
    }
    if limit.machine != ANY && limit.issuer != ANY {
        return Err(BadLimit("a machine has no issuer: leave out `from`".to_owned()));
    }
    set_kind(&mut limit, amount, window, burst)?;
    Ok(limit)
}

/// The number of calls at the beginning of a line.
#[derive(Clone, Copy)]
struct Amount {
    count: u64,
    /// Unit of the rate; `None` for calls that run at once.
    unit: Option<Unit>,
}

#[derive(Clone, Copy)]
struct Unit {
    letter: &'static str,
    seconds: u64,
}

/// Sets the kind of the limit, and what belongs to it.
fn set_kind(
    limit: &mut LimitRecord,
    Amount { count, unit }: Amount,
    window: Option<&'static str>,
    burst: Option<u64>,
) -> Result<(), BadLimit> {
    let Some(Unit { letter, seconds }) = unit else {
        if window.is_some() || burst.is_some() || limit.observe {
            let fault = "a limit on calls that run has no window and no burst, and cannot be observed";
            return Err(BadLimit(fault.to_owned()));
        }
        limit.kind = CONCURRENCY.to_owned();
        limit.refill = CONCURRENCY_REFILL.to_owned();
        return Ok(());
    };
    let window = window.or((letter == "d").then_some(FIXED_WINDOW));
    match (window, burst) {
        (Some(_), Some(_)) => {
            let fault = "a limit with a window has no burst, and neither has a rate per day";
            return Err(BadLimit(fault.to_owned()));
        }
        (Some(kind), None) => {
            limit.kind = kind.to_owned();
            limit.window_seconds = seconds;
            limit.refill = window::refill(count, seconds);
        }
        (None, burst) => {
            limit.capacity = burst.unwrap_or(count);
            limit.refill = format!("{count}/{letter}");
        }
    }
    Ok(())
}

/// Describes a limit: `60 calls a minute for each user on shop.*, up to 60 at once`.
pub fn describe(limit: &LimitRecord) -> String {
    let LimitRecord { server, primitive, user, wcit, issuer, machine, group, observe, .. } = limit;
    let (amount, at_once) = describe_amount(limit);
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
    let mut text = format!("{amount} for {callers}");
    let named = [("in", group), ("from issuer", issuer), ("on", primitive), ("at server", server)];
    for (preposition, name) in named {
        if name != ANY {
            text.push_str(&format!(" {preposition} {name}"));
        }
    }
    let observed = if *observe { ", observed: it refuses nothing" } else { "" };
    format!("{text}{at_once}{observed}")
}

/// Describes how many calls a limit admits, and how many at once if that is another number.
fn describe_amount(limit: &LimitRecord) -> (String, String) {
    let LimitRecord { capacity, refill, kind, window_seconds, .. } = limit;
    let calls = |count: &str| if count == "1" { "1 call".to_owned() } else { format!("{count} calls") };
    let of_capacity = calls(&capacity.to_string());
    let words = window::describe(*window_seconds);
    match kind.as_str() {
        CONCURRENCY => return (format!("at most {of_capacity} at once"), String::new()),
        FIXED_WINDOW if *window_seconds == 86_400 => {
            return (format!("{of_capacity} a day"), ", counted from midnight UTC".to_owned());
        }
        FIXED_WINDOW => return (format!("{of_capacity} in each {words}"), String::new()),
        SLIDING_WINDOW => return (format!("{of_capacity} in any {words}"), String::new()),
        _ => {}
    }
    let (count, unit) = refill.split_once('/').unwrap_or((refill.as_str(), ""));
    let unit = match unit {
        "s" => "a second",
        "m" => "a minute",
        "h" => "an hour",
        other => other,
    };
    (format!("{} {unit}", calls(count)), format!(", up to {capacity} at once"))
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

/// Parses `COUNT/UNIT`.
fn parse_rate(text: &str) -> Result<Amount, BadLimit> {
    let (count, unit) = text.split_once('/').ok_or_else(|| bad(text, "is not a rate"))?;
    let (letter, seconds) = match unit {
        "s" | "sec" | "second" => ("s", 1),
        "m" | "min" | "minute" => ("m", 60),
        "h" | "hour" => ("h", 3_600),
        "d" | "day" => ("d", 86_400),
        _ => return Err(bad(text, "is not a rate per s, min, h or day")),
    };
    let count = parse_count(count, refill::MAX_PER_UNIT)?;
    Ok(Amount { count, unit: Some(Unit { letter, seconds }) })
}

/// Parses the rest of `at most COUNT at once`.
fn parse_running<'l>(words: &mut impl Iterator<Item = Word<'l>>) -> Result<Amount, BadLimit> {
    let mut next = || words.next().map_or("", Word::keyword);
    let [most, count, at, once] = [next(), next(), next(), next()];
    if [most, at, once] != ["most", "at", "once"] {
        return Err(bad("at", "must be followed by `most COUNT at once`"));
    }
    Ok(Amount { count: parse_count(count, MAX_CAPACITY)?, unit: None })
}

fn parse_window(text: &str) -> Result<&'static str, BadLimit> {
    match text {
        "fixed" => Ok(FIXED_WINDOW),
        "sliding" => Ok(SLIDING_WINDOW),
        _ => Err(bad(text, "is not a window: write `fixed` or `sliding`")),
    }
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
    use asp_store::control::TOKEN_BUCKET;

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
            ("1000/day", "1000 calls a day for each user, counted from midnight UTC"),
            (
                "1/d for everyone on pay",
                "1 call a day for all callers together on pay, counted from midnight UTC",
            ),
            ("60/min window fixed", "60 calls in each minute for each user"),
            ("60/min in finance window sliding", "60 calls in any minute for each user in finance"),
            (
                "100/h for everyone in \"Domain Admins\"",
                "100 calls an hour for all callers together in Domain Admins, up to 100 at once",
            ),
            ("at most 5 at once", "at most 5 calls at once for each user"),
            (
                "at most 1 at once for everyone on pay at shop",
                "at most 1 call at once for all callers together on pay at server shop",
            ),
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
            group: "*".into(),
            kind: TOKEN_BUCKET.into(),
            window_seconds: 0,
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
            ("60/week", "`60/week` is not a rate per s, min, h or day"),
            ("1/day burst 5", "a limit with a window has no burst, and neither has a rate per day"),
            (
                "1/s window fixed burst 5",
                "a limit with a window has no burst, and neither has a rate per day",
            ),
            ("1/s window round", "`round` is not a window: write `fixed` or `sliding`"),
            ("1/s window", "`` is not a window: write `fixed` or `sliding`"),
            ("1/s in", "`` is empty"),
            ("1/s in *", "`*` holds `*`"),
            ("1/s in a in b", "`in` occurs twice"),
            ("at", "`at` must be followed by `most COUNT at once`"),
            ("at most 5", "`at` must be followed by `most COUNT at once`"),
            ("at least 5 at once", "`at` must be followed by `most COUNT at once`"),
            ("at most 0 at once", "`0` is not a whole number from 1 to 1000000000"),
            (
                "at most 5 at once burst 2",
                "a limit on calls that run has no window and no burst, and cannot be observed",
            ),
            (
                "at most 5 at once observed",
                "a limit on calls that run has no window and no burst, and cannot be observed",
            ),
            ("60 / min", "`60` is not a rate"),
            ("0/min", "`0` is not a whole number from 1 to 1000000"),
            ("1000001/s", "`1000001` is not a whole number from 1 to 1000000"),
            ("99999999999999999999/s", "`99999999999999999999` is not a whole number from 1 to 1000000"),
            ("+1/s", "`+1` is not a whole number from 1 to 1000000"),
            ("0.5/s", "`0.5` is not a whole number from 1 to 1000000"),
            ("1/s burst", "`` is not a whole number from 1 to 1000000000"),
            ("1/s burst 1000000001", "`1000000001` is not a whole number from 1 to 1000000000"),
            ("1/s each user", "`each` is not for, on, at, from, in, window, burst or observed"),
            ("1/s \"for\" everyone", "`for` is not for, on, at, from, in, window, burst or observed"),
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
