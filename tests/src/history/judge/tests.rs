//! Forged histories: the good ones hold, and each bad one is caught by its rule alone.

use super::{Rule, judge};
use crate::history::{History, Promise, What};

const ONCE: Promise = Promise::AtMostOnce;
const EXACTLY: Promise = Promise::ExactlyOnce;

fn rules(history: &History) -> Vec<Rule> {
    judge(&history.entries()).into_iter().map(|fault| fault.rule).collect()
}

/// A history of one call, told by these.
fn told(story: impl Fn(&History)) -> Vec<Rule> {
    let history = History::default();
    story(&history);
    rules(&history)
}

#[test]
fn a_call_that_was_done_once_and_told_alike_everywhere_holds() {
    for promise in [ONCE, EXACTLY] {
        let found = told(|history| {
            let first = history.ask("k", promise, "a");
            let second = history.ask("k", promise, "b");
            history.add("k", What::Happened);
            first.unanswered("reset");
            second.told("1");
            history.ask("k", promise, "c").told("1");
        });
        assert_eq!(found, []);
    }
}

#[test]
fn an_effect_that_comes_twice_is_caught() {
    for promise in [ONCE, EXACTLY] {
        let found = told(|history| {
            let ask = history.ask("k", promise, "a");
            history.add("k", What::Happened);
            history.add("k", What::Happened);
            ask.told("1");
        });
        assert_eq!(found, [Rule::TwiceDone]);
    }
}

#[test]
fn of_what_the_history_does_not_see_happen_only_the_answers_are_judged() {
    let story = |second: &'static str| {
        told(move |history| {
            history.ask("k", Promise::NoneSeen, "a").told("1");
            history.ask("k", Promise::NoneSeen, "b").told(second);
        })
    };
    assert_eq!(story("1"), []);
    assert_eq!(story("2"), [Rule::Different]);
    let unknown = |history: &History| history.ask("k", Promise::NoneSeen, "a").unknown();
    assert_eq!(told(unknown), [Rule::NeedlesslyUnknown]);
}

#[test]
fn a_result_of_nothing_is_caught_also_where_it_is_done_later() {
    let story = |history: &History| history.ask("k", EXACTLY, "a").told("1");
    assert_eq!(told(story), [Rule::NeverDone]);
    let late = |history: &History| {
        story(history);
        history.add("k", What::Happened);
    };
    assert_eq!(told(late), [Rule::NeverDone]);
}

#[test]
fn an_effect_that_nobody_asked_for_is_caught() {
    assert_eq!(told(|history| history.add("k", What::Happened)), [Rule::Unasked]);
}

#[test]
fn what_was_done_although_everybody_was_refused_is_caught_unless_it_may_be_repeated() {
    let story = |promise| {
        told(move |history| {
            let ask = history.ask("k", promise, "a");
            history.add("k", What::Happened);
            ask.refused("upstream_unavailable");
        })
    };
    assert_eq!(story(ONCE), [Rule::DoneButRefused]);
    assert_eq!(story(EXACTLY), []);
    let perhaps = |history: &History| {
        let ask = history.ask("k", ONCE, "a");
        history.add("k", What::Happened);
        ask.unanswered("reset");
        history.ask("k", ONCE, "b").refused("upstream_unavailable");
    };
    assert_eq!(told(perhaps), []);
}

#[test]
fn an_unknown_outcome_is_caught_where_nothing_was_lost_or_it_must_be_known() {
    let story = |promise, lost: fn(&History), well: fn(&History)| {
        told(move |history| {
            lost(history);
            well(history);
            history.ask("k", promise, "a").unknown();
        })
    };
    let nothing: fn(&History) = |_| {};
    let lost: fn(&History) = |history| history.add("gateway", What::Lost);
    let well: fn(&History) = |history| history.add("gateway", What::Well);
    assert_eq!(story(ONCE, nothing, nothing), [Rule::NeedlesslyUnknown]);
    assert_eq!(story(ONCE, lost, nothing), []);
    assert_eq!(story(ONCE, lost, well), [Rule::NeedlesslyUnknown]);
    assert_eq!(story(EXACTLY, lost, nothing), [Rule::NeedlesslyUnknown]);
    // Lost while it runs, and well before its client is told.
    let meanwhile = |history: &History| {
        let ask = history.ask("k", ONCE, "a");
        history.add("gateway", What::Lost);
        history.add("gateway", What::Well);
        ask.unknown();
    };
    assert_eq!(told(meanwhile), []);
}

#[test]
fn a_result_that_is_forgotten_or_another_one_is_caught() {
    let after = |end: fn(&History)| {
        told(move |history| {
            let ask = history.ask("k", ONCE, "a");
            history.add("gateway", What::Lost);
            history.add("k", What::Happened);
            ask.told("1");
            end(history);
        })
    };
    assert_eq!(after(|history| history.ask("k", ONCE, "b").unknown()), [Rule::Forgotten]);
    assert_eq!(after(|history| history.ask("k", ONCE, "b").missing()), [Rule::Forgotten]);
    assert_eq!(after(|history| history.ask("k", ONCE, "b").told("2")), [Rule::Different]);
    assert_eq!(after(|history| history.ask("k", ONCE, "b").refused("the store is away")), []);
}

#[test]
fn who_asked_before_the_result_was_known_may_be_told_that_it_is_not() {
    let found = told(|history| {
        let first = history.ask("k", ONCE, "a");
        history.add("gateway", What::Lost);
        history.add("k", What::Happened);
        history.ask("k", ONCE, "b").told("1");
        first.unknown();
    });
    assert_eq!(found, []);
}

#[test]
fn what_was_cancelled_and_is_done_or_told_later_is_caught() {
    let story = |end: fn(&History)| {
        told(move |history| {
            let early = history.ask("t", EXACTLY, "a");
            history.ask("t", EXACTLY, "b").cancelled();
            early.unanswered("left");
            end(history);
        })
    };
    assert_eq!(story(|history| history.ask("t", EXACTLY, "b").cancelled()), []);
    assert_eq!(story(|history| history.add("t", What::Happened)), [Rule::DoneAfterCancel]);
    let told_later = story(|history| history.ask("t", EXACTLY, "b").told("1"));
    assert_eq!(told_later, [Rule::NeverDone, Rule::DoneAfterCancel]);
}

#[test]
fn events_that_come_twice_out_of_order_or_not_at_all_are_caught() {
    let story = |numbers: &[u64], last| {
        told(|history| {
            for number in numbers {
                history.add("s", What::Event { number: *number });
            }
            history.add("s", What::Ended { last });
        })
    };
    assert_eq!(story(&[1, 2, 3], Some(3)), []);
    assert_eq!(story(&[1, 2, 3], None), []);
    assert_eq!(story(&[1, 2, 2, 3], Some(3)), [Rule::EventTwice]);
    assert_eq!(story(&[1, 3, 2], None), [Rule::EventMissing, Rule::EventUnordered]);
    assert_eq!(story(&[2, 3], Some(3)), [Rule::EventMissing]);
    assert_eq!(story(&[1, 2], Some(3)), [Rule::EventMissing]);
    assert_eq!(story(&[], Some(3)), [Rule::EventMissing]);
}

#[test]
fn a_write_that_was_stored_and_is_not_in_force_everywhere_is_caught() {
    let story = |found: [&'static str; 2]| {
        told(move |history| {
            history.write("clock", "off").stored();
            history.write("clock", "on").stored();
            for (place, value) in ["gateway 0", "gateway 1"].into_iter().zip(found) {
                history.add("clock", What::InForce { place: place.into(), value: value.into() });
            }
        })
    };
    assert_eq!(story(["on", "on"]), []);
    assert_eq!(story(["on", "off"]), [Rule::NotInForce]);
    assert_eq!(story(["off", "off"]), [Rule::NotInForce]);
}

#[test]
fn a_write_without_an_answer_may_be_in_force_and_one_that_was_refused_may_not() {
    let story = |end: fn(crate::history::Write), found: &'static str| {
        told(move |history| {
            history.write("clock", "off").stored();
            end(history.write("clock", "on"));
            history.add("clock", What::InForce { place: "gateway".into(), value: found.into() });
        })
    };
    assert_eq!(story(crate::history::Write::unanswered, "on"), []);
    assert_eq!(story(crate::history::Write::unanswered, "off"), []);
    assert_eq!(story(crate::history::Write::not_stored, "on"), [Rule::NotInForce]);
    // But it is the same everywhere.
    let differ = |history: &History| {
        history.write("clock", "on").unanswered();
        for value in ["on", "off"] {
            history.add("clock", What::InForce { place: value.into(), value: value.into() });
        }
    };
    assert_eq!(told(differ), [Rule::NotInForce]);
}

#[test]
fn writes_side_by_side_may_be_in_force_in_either_order() {
    for found in ["a", "b"] {
        let story = |history: &History| {
            let first = history.write("clock", "a");
            let second = history.write("clock", "b");
            second.stored();
            first.stored();
            history.add("clock", What::InForce { place: "gateway".into(), value: found.into() });
        };
        assert_eq!(told(story), []);
    }
}

#[test]
fn a_fault_is_told_with_what_led_to_it() {
    let history = History::default();
    history.ask("key 7", EXACTLY, "gateway 2").told("1");
    let said = history.hold().unwrap_err().to_string();
    assert!(said.contains("key 7: NeverDone") && said.contains("gateway 2"), "{said}");
    assert!(History::default().hold().is_ok());
}
