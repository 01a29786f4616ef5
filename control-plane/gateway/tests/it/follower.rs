//! Events that a follower of a call gets, however late it attaches.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::event::Event;
use asp_call::call::follower::{CallSnapshot, Follower, FollowerItem};
use asp_call::call::outcome::{Outcome, Refusal, Withdrawal};
use asp_call::call::question::{Answer, Ask, Question, put};
use asp_call::call::{Call, State};
use serde_json::json;

use crate::registry::running;
use crate::support::Fixture;

/// More than a call's log holds.
const MANY: usize = 300;

fn question(id: &str) -> Question {
    let requested_schema = json!({"type": "object", "properties": {}}).into();
    Question { id: id.into(), ask: Ask::Form { message: "?".into(), requested_schema, relayed: false } }
}

fn goes_on(call: &Call) {
    for n in 0..MANY {
        call.emit(Event::Status { phase: n.to_string(), message: None });
    }
}

async fn shown(follower: &mut Follower) -> FollowerItem {
    tokio::time::timeout(Duration::from_secs(60), follower.next()).await.unwrap()
}

async fn asked(follower: &mut Follower) -> String {
    match shown(follower).await {
        FollowerItem::Asked(question) => question.id,
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_is_put_to_whoever_comes_late_also_when_its_event_is_gone() {
    let fixture = Fixture::new();
    let call = running(&fixture);
    let open: Vec<_> = ["b", "a", "answered"].map(|id| put(&call, question(id)).unwrap()).into();
    assert!(call.questions.answer("answered", Answer::Declined));
    goes_on(&call);
    let _last = put(&call, question("last")).unwrap();
    let mut follower = Follower::from(call.clone(), 0);
    assert_eq!(asked(&mut follower).await, "b");
    let next = follower.position();
    assert_eq!(asked(&mut follower).await, "a");
    let FollowerItem::Event(first) = shown(&mut follower).await else { panic!("no event") };
    assert_eq!(first.number, next, "who leaves off at a question goes on with what comes after");
    let mut seen = 1;
    while let FollowerItem::Event(logged) = shown(&mut follower).await {
        assert_eq!(logged.number, first.number + seen);
        assert!(logged.at_ms >= first.at_ms);
        seen += 1;
    }
    assert_eq!(seen, 255 + 32, "the log holds 256, the last one was the question, and 32 statuses stay");
    drop(open);
}

#[tokio::test]
async fn nobody_is_asked_for_a_call_that_was_taken_away() {
    let fixture = Fixture::new();
    let call = running(&fixture);
    let _open = ["a", "b"].map(|id| put(&call, question(id)).unwrap());
    goes_on(&call);
    let mut follower = Follower::from(call.clone(), 0);
    assert_eq!(asked(&mut follower).await, "a");
    assert!(call.withdraw(Withdrawal::TokenRevoked));
    let FollowerItem::Ended(outcome) = shown(&mut follower).await else { panic!("no end") };
    assert!(matches!(&*outcome, Outcome::Refused(Refusal::Withdrawn(Withdrawal::TokenRevoked))));
}

#[tokio::test]
async fn a_question_that_has_its_answer_before_its_turn_is_not_put() {
    let fixture = Fixture::new();
    let call = running(&fixture);
    let _open = ["a", "b"].map(|id| put(&call, question(id)).unwrap());
    goes_on(&call);
    let mut follower = Follower::from(call.clone(), 0);
    assert_eq!(asked(&mut follower).await, "a");
    assert!(call.questions.answer("b", Answer::Declined));
    assert!(matches!(shown(&mut follower).await, FollowerItem::Event(_)));
}

#[tokio::test]
async fn the_outcome_comes_last_for_each_that_follows() {
    let fixture = Fixture::new();
    let call = running(&fixture);
    let followers: Vec<Follower> = (0..3).map(|_| Follower::from(call.clone(), 0)).collect();
    call.cancel();
    for mut follower in followers {
        let outcome: Arc<Outcome> = loop {
            if let FollowerItem::Ended(outcome) = shown(&mut follower).await {
                break outcome;
            }
        };
        assert!(Arc::ptr_eq(&outcome, &call.outcome().unwrap()));
    }
}

fn artifact(uri: &str) -> Event {
    Event::Artifact { uri: uri.into(), content_type: None, description: None }
}

fn artifacts(events: impl IntoIterator<Item = Event>) -> Vec<String> {
    let uri = |event| match event {
        Event::Artifact { uri, .. } => Some(uri),
        _ => None,
    };
    events.into_iter().filter_map(uri).collect()
}

#[tokio::test]
async fn every_artifact_is_shown_to_whoever_comes_late() {
    let fixture = Fixture::new();
    let call = running(&fixture);
    call.emit(artifact("a"));
    call.emit(artifact("b"));
    goes_on(&call);
    call.emit(artifact("c"));
    call.cancel();
    let mut follower = Follower::from(call, 0);
    let mut events = Vec::new();
    while let FollowerItem::Event(logged) = shown(&mut follower).await {
        events.push(logged.event);
    }
    assert_eq!(artifacts(events), ["a", "b", "c"]);
}

#[tokio::test]
async fn where_a_call_stands_and_what_follows_is_all_there_is() {
    let fixture = Fixture::new();
    let call = running(&fixture);
    call.emit(artifact("a"));
    let _open = ["b", "a"].map(|id| put(&call, question(id)).unwrap());
    goes_on(&call);
    let standing = CallSnapshot::of(&call);
    assert_eq!((standing.state, standing.outcome.is_none()), (State::InputRequired, true));
    let ids: Vec<&str> = standing.questions.iter().map(|question| question.id.as_str()).collect();
    assert_eq!(ids, ["b", "a"]);
    let last = standing.shown.last().unwrap().event.clone();
    assert_eq!(last, Event::Status { phase: (MANY - 1).to_string(), message: None });
    assert_eq!(artifacts(standing.shown.into_iter().map(|logged| logged.event)), ["a"]);

    let _late = put(&call, question("late")).unwrap();
    call.emit(artifact("c"));
    let mut follower = Follower::from(call.clone(), standing.next_event);
    assert_eq!(asked(&mut follower).await, "late");
    let FollowerItem::Event(next) = shown(&mut follower).await else { panic!("no event") };
    assert_eq!(artifacts([next.event]), ["c"]);
    call.cancel();
    call.finished().await;
    let ended = CallSnapshot::of(&call);
    assert_eq!((ended.state, ended.questions.len(), ended.outcome.is_some()), (State::Cancelled, 0, true));
}
