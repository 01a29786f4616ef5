//! How many limits of a list one call may draw from.
//!
//! Keeps true: a call draws from at most [`MOST`], however its caller, server and primitive are chosen, because each of them is
//! work for the counters that all orgs share; and no selector is there twice.

use std::collections::{BTreeMap, HashMap};

use asp_store::control::LimitRecord;

/// Limits that one call may draw from.
pub(super) const MOST: usize = 8;

/// What is wrong with a list.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// These two, by their places, have the same selector.
    Twice(usize, usize),
    /// One call may draw from so many.
    TooMany(usize),
}

/// How a selector names what a call has one of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum How {
    Any,
    Each,
    Named,
}

/// How server, user, token, issuer and machine are named: two limits of one shape that are about the same call name the same.
type Shape = [How; 5];

pub(super) fn check(limits: &[LimitRecord]) -> Result<(), Fault> {
    let mut places = HashMap::new();
    for (place, limit) in limits.iter().enumerate() {
        if let Some(first) = places.insert((parts(limit), limit.primitive.as_str()), place) {
            return Err(Fault::Twice(first, place));
        }
    }
    let mut patterns: HashMap<[&str; 5], Vec<&str>> = HashMap::new();
    for limit in limits {
        patterns.entry(parts(limit)).or_default().push(&limit.primitive);
    }
    let mut most: BTreeMap<Shape, usize> = BTreeMap::new();
    for (parts, patterns) in &patterns {
        let nested = patterns.iter().map(|one| covering(patterns, one)).max().unwrap_or_default();
        let of_shape = most.entry(parts.map(how)).or_default();
        *of_shape = nested.max(*of_shape);
    }
    // Nobody is a user and a machine.
    let sum = |about: fn(&Shape) -> bool| {
        most.iter().filter(|(shape, _)| about(shape)).map(|(_, n)| n).sum::<usize>()
    };
    let of_user = sum(|[.., machine]| *machine == How::Any);
    let of_machine = sum(|[_, user, _, issuer, _]| *user == How::Any && *issuer == How::Any);
    match of_user.max(of_machine) {
        most if most > MOST => Err(Fault::TooMany(most)),
        _ => Ok(()),
    }
}

fn parts(limit: &LimitRecord) -> [&str; 5] {
    [&limit.server, &limit.user, &limit.wcit, &limit.issuer, &limit.machine].map(String::as_str)
}

fn how(part: &str) -> How {
    match part {
        "*" => How::Any,
        "each" => How::Each,
        _ => How::Named,
    }
}

/// How many of the patterns are about every primitive that `pattern` is about, itself included.
fn covering(patterns: &[&str], pattern: &str) -> usize {
    let covers = |other: &&&str| match other.strip_suffix('*') {
        Some(prefix) => pattern.starts_with(prefix),
        None => **other == pattern,
    };
    patterns.iter().filter(covers).count()
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
        assert_eq!(check(&same), Err(Fault::Twice(0, 2)));
    }

    #[test]
    fn nested_patterns_and_every_way_to_name_a_call_count_together() {
        let nested = |count: usize| -> Vec<LimitRecord> {
            (1..=count).map(|n| limit(&[("primitive", &format!("{}*", "x".repeat(n)))])).collect()
        };
        assert_eq!(check(&nested(MOST)), Ok(()));
        assert_eq!(check(&nested(MOST + 1)), Err(Fault::TooMany(MOST + 1)));
        let mut ways = nested(5);
        ways.extend([&[("user", "a")][..], &[("user", "each")], &[("wcit", "each")]].map(limit));
        assert_eq!(check(&ways), Ok(()));
        ways.push(limit(&[("machine", "each")]));
        assert_eq!(check(&ways), Ok(()), "nobody is a user and a machine");
        ways.push(limit(&[("server", "shop")]));
        assert_eq!(check(&ways), Err(Fault::TooMany(9)));
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
            if drawn > MOST {
                assert!(
                    matches!(check(&distinct), Err(Fault::TooMany(counted)) if counted >= drawn),
                    "{distinct:?}"
                );
            }
        }
    }
}
