//! The number of limits in a list that one call may draw from, and the limits that do not apply if there are too many.
//!
//! Keeps true: from an accepted list a call draws at most [`MAX_DRAWN`] limits, for any caller, server and primitive,
//! because each of them is work for the counters that all orgs share; and no selector occurs twice.

use std::collections::{BTreeMap, HashMap};

use asp_snapshot::limits::{self, MAX_DRAWN};
use asp_store::control::LimitRecord;

use super::refill;

/// Fault of a list of limits.
#[derive(Debug, PartialEq, Eq)]
pub enum OverlapFault {
    /// Two limits, by index, with the same selector, and both or neither observed.
    Twice(usize, usize),
    /// More limits than one call may draw from: so many.
    TooMany(usize),
}

/// Kind of a part of a selector.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SelectorKind {
    Any,
    Each,
    Named,
}

/// Kinds for server, user, token, issuer and machine. Two limits of one shape that apply to the same call have the same
/// names.
type Shape = [SelectorKind; 5];

/// Refuses a list in which a selector occurs twice, or from which one call may draw more than [`MAX_DRAWN`] limits.
pub fn check(limits: &[LimitRecord]) -> Result<(), OverlapFault> {
    let mut places = HashMap::new();
    for (place, limit) in limits.iter().enumerate() {
        let kind = (limit.kind.as_str(), limit.window_seconds);
        let names = (parts(limit), limit.group.as_str(), limit.primitive.as_str());
        if let Some(first) = places.insert((names, kind, limit.observe), place) {
            return Err(OverlapFault::Twice(first, place));
        }
    }
    match max_drawn(limits) {
        most if most > MAX_DRAWN => Err(OverlapFault::TooMany(most)),
        _ => Ok(()),
    }
}

/// Returns the limits that apply only to some of their calls, in the order of the list: other calls draw from
/// [`MAX_DRAWN`] tighter ones. Only lists stored before the check existed have any.
pub fn partly_applied<'l>(limits: &[&'l LimitRecord]) -> Vec<&'l LimitRecord> {
    if max_drawn(limits.iter().copied()) <= MAX_DRAWN {
        return Vec::new();
    }
    // A limit that cannot be read is ignored.
    let tightness = |limit: &LimitRecord| Some((refill::parse(&limit.refill).ok()?, limit.capacity));
    let known: Vec<_> = limits.iter().filter_map(|limit| Some((*limit, tightness(limit)?))).collect();
    let is_passed_over = |place: usize, (limit, tight): &(&'l LimitRecord, (f64, u64))| {
        let comes_first = |(other, (_, than)): &(usize, &(&LimitRecord, (f64, u64)))| {
            limits::tightest_first(*than, *tight).then(other.cmp(&place)).is_le()
        };
        let first = known.iter().enumerate().filter(comes_first).map(|(_, (other, _))| *other);
        max_drawn(first.filter(|other| meet(other, limit))) > MAX_DRAWN
    };
    let passed = known.iter().enumerate().filter(|(place, limit)| is_passed_over(*place, limit));
    passed.map(|(_, (limit, _))| *limit).collect()
}

/// Whether one call may draw from both limits.
fn meet(one: &LimitRecord, other: &LimitRecord) -> bool {
    let is_of_user = |limit: &LimitRecord| limit.user != "*" || limit.issuer != "*";
    let is_apart = |user: &LimitRecord, machine: &LimitRecord| is_of_user(user) && machine.machine != "*";
    let agree = |(one, other): (&str, &str)| {
        one == other || how(one) != SelectorKind::Named || how(other) != SelectorKind::Named
    };
    let is_about = |pattern: &str, id: &str| match (split(pattern), split(id)) {
        ((prefix, true), (id, _)) => id.starts_with(prefix),
        ((exact, false), (id, is_open)) => exact == id && !is_open,
    };
    parts(one).into_iter().zip(parts(other)).all(agree)
        && (is_about(&one.primitive, &other.primitive) || is_about(&other.primitive, &one.primitive))
        && !is_apart(one, other)
        && !is_apart(other, one)
}

/// Returns an upper bound for the number of limits that one call may draw from.
fn max_drawn<'l>(limits: impl IntoIterator<Item = &'l LimitRecord>) -> usize {
    let mut patterns: HashMap<_, HashMap<(&str, bool), usize>> = HashMap::new();
    for limit in limits {
        let of_parts = patterns.entry((parts(limit), limit.group.as_str())).or_default();
        *of_parts.entry(split(&limit.primitive)).or_default() += 1;
    }
    // A caller may be in several groups, which therefore count together.
    let mut most: BTreeMap<(Shape, &str), usize> = BTreeMap::new();
    for ((parts, group), patterns) in &patterns {
        let nested = patterns.keys().map(|one| covering(patterns, *one)).max().unwrap_or_default();
        let of_shape = most.entry((parts.map(how), *group)).or_default();
        *of_shape = nested.max(*of_shape);
    }
    // No caller is both a user and a machine.
    let sum = |about: fn(&Shape) -> bool| {
        most.iter().filter(|((shape, _), _)| about(shape)).map(|(_, n)| n).sum::<usize>()
    };
    let of_user = sum(|[.., machine]| *machine == SelectorKind::Any);
    let of_machine =
        sum(|[_, user, _, issuer, _]| *user == SelectorKind::Any && *issuer == SelectorKind::Any);
    of_user.max(of_machine)
}

fn parts(limit: &LimitRecord) -> [&str; 5] {
    [&limit.server, &limit.user, &limit.wcit, &limit.issuer, &limit.machine].map(String::as_str)
}

fn how(part: &str) -> SelectorKind {
    match part {
        "*" => SelectorKind::Any,
        "each" => SelectorKind::Each,
        _ => SelectorKind::Named,
    }
}

/// Splits a pattern into its text without `*`, and whether it has one.
fn split(pattern: &str) -> (&str, bool) {
    pattern.strip_suffix('*').map_or((pattern, false), |prefix| (prefix, true))
}

/// Counts the patterns that cover every primitive that one of them covers, including itself. Takes time in the length
/// of the pattern, not in the number of the others.
fn covering(patterns: &HashMap<(&str, bool), usize>, (text, is_open): (&str, bool)) -> usize {
    let counted = |one: (&str, bool)| patterns.get(&one).copied().unwrap_or_default();
    let wider = (0..=text.len()).filter_map(|end| text.get(..end)).map(|prefix| counted((prefix, true)));
    let exact = if is_open { 0 } else { counted((text, false)) };
    exact + wider.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(parts: &[(&str, &str)]) -> LimitRecord {
        let of = |name: &str| {
            let set = parts.iter().find(|(part, _)| *part == name);
            set.map_or_else(|| "*".to_owned(), |(_, value)| (*value).to_owned())
        };
        LimitRecord {
            server: of("server"),
            primitive: of("primitive"),
            user: of("user"),
            wcit: of("wcit"),
            issuer: of("issuer"),
            machine: of("machine"),
            capacity: 1,
            refill: "1/s".into(),
            observe: false,
            ..LimitRecord::default()
        }
    }

    #[test]
    fn a_thousand_limits_of_which_a_call_draws_from_few_are_taken() {
        let users = (0..400).map(|n| limit(&[("user", &format!("user-{n}"))]));
        let machines = (0..400).map(|n| limit(&[("machine", &format!("robot-{n}"))]));
        let tools = (0..198).map(|n| limit(&[("primitive", &format!("tool-{n}")), ("server", "shop")]));
        let all: Vec<LimitRecord> =
            users.chain(machines).chain(tools).chain([limit(&[("user", "each")]), limit(&[])]).collect();
        assert_eq!((all.len(), check(&all)), (1_000, Ok(())));
    }

    #[test]
    fn the_same_selector_twice_is_named() {
        let same = [limit(&[("user", "a")]), limit(&[]), limit(&[("user", "a")])];
        assert_eq!(check(&same), Err(OverlapFault::Twice(0, 2)));
    }

    #[test]
    fn nested_patterns_and_every_way_to_name_a_call_count_together() {
        let nested = |count: usize| -> Vec<LimitRecord> {
            (1..=count).map(|n| limit(&[("primitive", &format!("{}*", "x".repeat(n)))])).collect()
        };
        assert_eq!(check(&nested(MAX_DRAWN)), Ok(()));
        assert_eq!(check(&nested(MAX_DRAWN + 1)), Err(OverlapFault::TooMany(MAX_DRAWN + 1)));
        let mut ways = nested(5);
        ways.extend([&[("user", "a")][..], &[("user", "each")], &[("wcit", "each")]].map(limit));
        assert_eq!(check(&ways), Ok(()));
        ways.push(limit(&[("machine", "each")]));
        assert_eq!(check(&ways), Ok(()), "nobody is a user and a machine");
        ways.push(limit(&[("server", "shop")]));
        assert_eq!(check(&ways), Err(OverlapFault::TooMany(9)));
    }

    #[test]
    fn groups_count_together_and_kinds_may_stand_beside_each_other() {
        let of = |group: &str| LimitRecord { group: group.into(), ..limit(&[]) };
        let groups: Vec<LimitRecord> = (0..=MAX_DRAWN).map(|n| of(&format!("g{n}"))).collect();
        assert_eq!(check(&groups[..MAX_DRAWN]), Ok(()));
        assert_eq!(check(&groups), Err(OverlapFault::TooMany(MAX_DRAWN + 1)));
        let daily = LimitRecord { kind: "fixed-window".into(), window_seconds: 86_400, ..limit(&[]) };
        assert_eq!(check(&[limit(&[]), daily.clone(), of("g")]), Ok(()));
        assert_eq!(check(&[daily.clone(), limit(&[]), daily]), Err(OverlapFault::Twice(0, 2)));
    }

    #[test]
    fn those_that_do_not_count_are_the_loosest_that_meet_eight_tighter_ones() {
        let nested = |n: u64, refill: &str| {
            let primitive = format!("{}*", "x".repeat(usize::try_from(n).unwrap()));
            LimitRecord { capacity: 10 + n, refill: refill.into(), ..limit(&[("primitive", &primitive)]) }
        };
        let mut list: Vec<LimitRecord> = (1..=9).map(|n| nested(n, "60/m")).collect();
        let passed = |list: &[LimitRecord]| -> Vec<String> {
            let all: Vec<&LimitRecord> = list.iter().collect();
            partly_applied(&all).into_iter().map(|limit| limit.primitive.clone()).collect()
        };
        assert_eq!(passed(&list), ["xxxxxxxxx*"], "the largest bucket");
        list[0].refill = "2/s".into();
        assert_eq!(passed(&list), ["x*"], "the quickest refill");
        list.push(LimitRecord { refill: "5/s".into(), ..limit(&[("primitive", "y")]) });
        assert_eq!(passed(&list), ["x*"], "no call draws from the last and from eight others");
        list.push(LimitRecord { refill: "5/s".into(), ..limit(&[]) });
        assert_eq!(passed(&list), ["x*", "*"]);
        list.drain(1..3);
        assert_eq!(passed(&list), Vec::<String>::new());
    }

    /// Against every call over small names: never fewer than a call draws from.
    #[test]
    fn no_call_draws_from_more_than_is_counted() {
        let mut state = 9_u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(state >> 33).unwrap() % below
        };
        for _ in 0..2_000 {
            let pick = |random: &mut dyn FnMut(usize) -> usize, of: &[&str]| of[random(of.len())].to_owned();
            let limits: Vec<LimitRecord> = (0..12)
                .map(|_| LimitRecord {
                    server: pick(&mut random, &["*", "s", "t"]),
                    primitive: pick(&mut random, &["*", "a*", "ab*", "ab", "b"]),
                    user: pick(&mut random, &["*", "each", "u"]),
                    wcit: pick(&mut random, &["*", "each"]),
                    ..limit(&[])
                })
                .collect();
            let mut distinct: Vec<LimitRecord> = Vec::new();
            for one in limits {
                if !distinct.contains(&one) {
                    distinct.push(one);
                }
            }
            let matching = |server: &str, primitive: &str, user: &str| {
                let is = |of: &str, value: &str| of == "*" || of == "each" || of == value;
                let about = |one: &&LimitRecord| {
                    let covers = match one.primitive.strip_suffix('*') {
                        Some(prefix) => primitive.starts_with(prefix),
                        None => one.primitive == primitive,
                    };
                    is(&one.server, server) && covers && is(&one.user, user)
                };
                distinct.iter().filter(about).count()
            };
            let calls = ["s", "t", "v"].into_iter().flat_map(|server| {
                ["a", "ab", "abc", "b"]
                    .into_iter()
                    .flat_map(move |tool| ["u", "w"].map(|user| (server, tool, user)))
            });
            let drawn = calls.map(|(server, tool, user)| matching(server, tool, user)).max().unwrap();
            if drawn > MAX_DRAWN {
                assert!(
                    matches!(check(&distinct), Err(OverlapFault::TooMany(counted)) if counted >= drawn),
                    "{distinct:?}"
                );
            }
        }
    }
}
