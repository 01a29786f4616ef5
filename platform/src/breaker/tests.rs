use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::Outcome::{Abandoned, Failure, Success};
use super::*;

/// One step of a table: the action at `at` milliseconds, and the expected result.
enum Step {
    /// Sends so many requests, of which so many are admitted. Numbered from 1 throughout a row.
    Ask {
        at: u64,
        requests: u64,
        admitted: usize,
    },
    /// The request with this number ends.
    End {
        at: u64,
        number: u64,
        outcome: Outcome,
    },
    Is(&'static str),
}

use Step::{Ask, End, Is};

/// Ten requests that fail: the breaker is open from 0 to 10,000 ms, and the next number is 11.
fn opened() -> Vec<Step> {
    let mut steps = vec![Ask { at: 0, requests: 10, admitted: 10 }];
    steps.extend((1..=10).map(|number| End { at: 0, number, outcome: Failure }));
    steps.push(Is("open"));
    steps
}

fn walk(row: &str, steps: Vec<Step>) {
    let start = Instant::now();
    let mut breaker = Breaker::new();
    let mut number = 0;
    for (step, what) in steps.into_iter().enumerate() {
        match what {
            Ask { at, requests, admitted } => {
                let now = start + Duration::from_millis(at);
                let ask = |_| {
                    number += 1;
                    breaker.admit(number, now)
                };
                let found = (0..requests).map(ask).filter(|admitted| *admitted).count();
                assert_eq!(found, admitted, "{row}, step {step}");
            }
            End { at, number, outcome } => {
                breaker.ended(number, outcome, start + Duration::from_millis(at));
            }
            Is(name) => assert_eq!(breaker.name(), name, "{row}, step {step}"),
        }
    }
}

#[test]
fn half_of_at_least_ten_requests_must_fail() {
    let mut few = opened();
    few.truncate(10);
    few.extend([Is("closed"), End { at: 0, number: 10, outcome: Failure }, Is("open")]);
    walk("nine are too few to judge by", few);

    let third = |number| if number % 3 == 0 { Failure } else { Success };
    let mut healthy = vec![Ask { at: 0, requests: 200, admitted: 200 }];
    healthy.extend((1..=200).map(|number| End { at: 0, number, outcome: third(number) }));
    healthy.push(Is("closed"));
    walk("one in three is less than half", healthy);

    let mut given_up = vec![Ask { at: 0, requests: 30, admitted: 30 }];
    given_up.extend((1..=30).map(|number| End { at: 0, number, outcome: Abandoned }));
    given_up.push(Is("closed"));
    walk("what was given up says nothing", given_up);
}

#[test]
// Each row of the table is independent.
#[allow(clippy::too_many_lines)]
fn what_happens_after_it_has_opened() {
    let end = |at, number, outcome| End { at, number, outcome };
    let rows: [(&str, Vec<Step>); 8] = [
        (
            "three good probes close it and no fourth runs beside them",
            vec![
                Ask { at: 9_999, requests: 1, admitted: 0 },
                Ask { at: 10_000, requests: 4, admitted: 3 },
                end(10_001, 12, Success),
                end(10_001, 13, Success),
                Ask { at: 10_001, requests: 1, admitted: 0 },
                Is("half_open"),
                end(10_002, 14, Success),
                Is("closed"),
                Ask { at: 10_002, requests: 50, admitted: 50 },
            ],
        ),
        (
            "one failed probe opens it again",
            vec![
                Ask { at: 10_000, requests: 1, admitted: 1 },
                end(10_500, 11, Failure),
                Ask { at: 20_499, requests: 1, admitted: 0 },
                Ask { at: 20_500, requests: 1, admitted: 1 },
            ],
        ),
        (
            "refused requests take no place",
            vec![
                Ask { at: 10_000, requests: 3, admitted: 3 },
                Ask { at: 10_001, requests: 100, admitted: 0 },
                end(10_002, 11, Abandoned),
                end(10_002, 12, Abandoned),
                end(10_002, 13, Abandoned),
                Ask { at: 10_003, requests: 4, admitted: 3 },
            ],
        ),
        (
            "a probe that is given up gives its place back",
            vec![
                Ask { at: 10_000, requests: 3, admitted: 3 },
                end(10_001, 12, Abandoned),
                Ask { at: 10_001, requests: 2, admitted: 1 },
            ],
        ),
        (
            "probes that nobody hears of any more hold their places for a rest",
            vec![
                Ask { at: 10_000, requests: 3, admitted: 3 },
                Ask { at: 19_999, requests: 1, admitted: 0 },
                Ask { at: 20_000, requests: 5, admitted: 3 },
                Ask { at: 29_999, requests: 1, admitted: 0 },
                Ask { at: 30_000, requests: 1, admitted: 1 },
            ],
        ),
        (
            "slow probes that succeed close it all the same",
            vec![
                Ask { at: 10_000, requests: 3, admitted: 3 },
                Ask { at: 20_000, requests: 3, admitted: 3 },
                end(25_000, 11, Success),
                end(25_000, 12, Success),
                end(25_000, 13, Success),
                Is("closed"),
                end(26_000, 14, Failure),
                Is("closed"),
            ],
        ),
        (
            "requests from before it opened say nothing afterwards",
            vec![
                Ask { at: 10_000, requests: 1, admitted: 1 },
                end(10_001, 1, Failure),
                end(10_001, 2, Success),
                end(10_001, 3, Success),
                end(10_001, 4, Success),
                Is("half_open"),
            ],
        ),
        (
            "requests from before it opened do not open it again after it has closed",
            vec![
                Ask { at: 10_000, requests: 3, admitted: 3 },
                end(10_001, 11, Success),
                end(10_001, 12, Success),
                end(10_001, 13, Success),
                end(10_002, 1, Failure),
                Is("closed"),
            ],
        ),
    ];
    for (row, steps) in rows {
        walk(row, opened().into_iter().chain(steps).collect());
    }
}

/// Applies any history: successes, failures, drops, results that are never reported, refused requests, and time.
#[test]
fn whoever_asks_again_and_again_is_admitted_within_the_rest() {
    let start = Instant::now();
    for seed in 0..400 {
        let mut chance = StdRng::seed_from_u64(seed);
        let mut breaker = Breaker::new();
        let mut now = start;
        let mut running = Vec::new();
        let mut number = 0;
        // A service that fails sometimes, always, or never answers.
        let weights: [u32; 3] =
            [chance.random_range(0..5), chance.random_range(0..5), chance.random_range(0..5)];
        for step in 0..300 {
            match chance.random_range(0..10) {
                0..5 => {
                    number += 1;
                    if breaker.admit(number, now) {
                        running.push(number);
                    }
                }
                5..9 if !running.is_empty() => {
                    let ended = running.swap_remove(chance.random_range(0..running.len()));
                    let which = chance.random_range(0..=weights.iter().sum());
                    let outcome = match which {
                        least if least <= weights[0] => Failure,
                        least if least <= weights[0] + weights[1] => Abandoned,
                        _ => Success,
                    };
                    breaker.ended(ended, outcome, now);
                }
                _ => now += Duration::from_millis(chance.random_range(0..3_000)),
            }
            assert!(
                is_admitted_within_the_rest(&mut breaker.clone(), number, now),
                "seed {seed}, step {step}"
            );
        }
    }
}

fn is_admitted_within_the_rest(breaker: &mut Breaker, number: u64, now: Instant) -> bool {
    (0..=100).any(|part| breaker.admit(number + 1 + part, now + REST * u32::try_from(part).unwrap() / 100))
}
