//! Tests of subscriptions: their limits, their eviction, and that no call waits for one.

use super::*;

fn subscribe(rig: &mut Rig, tenant: &str, fresh: bool) -> Result<TicketId, Refusal> {
    let ticket = rig.next_ticket;
    rig.next_ticket += 1;
    let deadline = rig.now + Duration::from_secs(60);
    let wanted = WaitingCall { ticket, tenant: tenant.into(), fresh, deadline, subscription: true };
    rig.scheduler.enqueue(wanted, rig.now).map(|_| ticket)
}

fn unsubscribe(rig: &mut Rig, worker: WorkerId, tenant: &str) {
    let spent = FinishedCall {
        ticket: rig.next_ticket - 1,
        took: Duration::from_secs(3600),
        outcome: Outcome::Success,
        stopped: false,
        subscription: true,
    };
    rig.scheduler.release(worker, tenant, spent, rig.now);
}

/// Creates a pool with one worker that has this subscription.
fn subscribed(policy: PoolPolicy, tenant: &str) -> Rig {
    let mut rig = rig(policy);
    let ticket = subscribe(&mut rig, tenant, false).unwrap();
    assert_eq!(rig.pump(), [Action::Start { worker: 1 }]);
    rig.scheduler.ready(1, rig.now);
    assert_eq!(rig.pump(), [Action::Assign { ticket, worker: 1 }]);
    rig
}

#[test]
fn they_take_half_of_the_places_and_one_tenant_half_of_those() {
    let mut rig = rig(PoolPolicy { max: 4, concurrency: 8, queue: 64, ..policy() });
    for _ in 0..8 {
        subscribe(&mut rig, "a", false).unwrap();
    }
    assert_eq!(subscribe(&mut rig, "a", false), Err(Refusal::Subscriptions { most: 16 }));
    for _ in 0..4 {
        subscribe(&mut rig, "b", false).unwrap();
        subscribe(&mut rig, "c", false).unwrap();
    }
    assert_eq!(subscribe(&mut rig, "d", false), Err(Refusal::Subscriptions { most: 16 }));
    assert_eq!(rig.pump().len(), 4, "a worker has four of them beside its calls");
    for worker in 1..=4 {
        rig.scheduler.ready(worker, rig.now);
    }
    assert_eq!(rig.pump().len(), 16);
    assert_eq!(
        subscribe(&mut rig, "d", false),
        Err(Refusal::Subscriptions { most: 16 }),
        "they have them now"
    );
    for _ in 0..16 {
        rig.call("e", false).unwrap();
    }
    assert_eq!(rig.pump().len(), 16, "calls have the other half at once");
    // Those of one tenant share a worker.
    unsubscribe(&mut rig, 1, "b");
    assert!(subscribe(&mut rig, "d", false).is_ok());
}

#[test]
fn the_only_place_of_a_plugin_is_for_calls() {
    for policy in [
        PoolPolicy { max: 1, concurrency: 1, ..policy() },
        PoolPolicy { max: 1, ephemeral: true, ..policy() },
    ] {
        assert_eq!(subscribe(&mut rig(policy), "t", false), Err(Refusal::Subscriptions { most: 0 }));
    }
    assert!(subscribe(&mut rig(PoolPolicy { max: 1, concurrency: 2, ..policy() }), "t", false).is_ok());
    let mut alone = rig(PoolPolicy { max: 2, concurrency: 4, ..policy() });
    assert!(subscribe(&mut alone, "t", true).is_ok(), "a process of its own is half of all");
    assert!(subscribe(&mut alone, "u", false).is_err());
}

#[test]
fn one_that_stays_leaves_the_other_places_of_its_worker_to_calls_and_its_own_when_it_ends() {
    let mut rig = subscribed(PoolPolicy { max: 1, concurrency: 2, ..policy() }, "t");
    let calls: Vec<_> = (0..2).map(|_| rig.call("t", false).unwrap()).collect();
    assert_eq!(rig.pump(), [Action::Assign { ticket: calls[0], worker: 1 }]);
    assert_eq!(rig.pump(), []);
    unsubscribe(&mut rig, 1, "t");
    assert_eq!(rig.pump(), [Action::Assign { ticket: calls[1], worker: 1 }]);
}

#[test]
fn no_call_waits_behind_a_subscription_that_waits() {
    let mut rig = subscribed(PoolPolicy { max: 2, concurrency: 2, ..policy() }, "t");
    rig.room = 0;
    let waits = subscribe(&mut rig, "u", false).unwrap();
    assert_eq!(rig.pump(), [], "the worker has one already, and the machine has no room for another");
    let call = rig.call("u", false).unwrap();
    assert_eq!(rig.pump(), [Action::Assign { ticket: call, worker: 1 }]);
    assert_eq!(rig.scheduler.counts().3, 0, "no call waits");
    rig.wait(60_000);
    assert_eq!(rig.pump(), [Action::Refuse { ticket: waits, reason: Refusal::Late }]);
}

#[test]
fn how_long_one_stayed_says_nothing_of_the_plugins_calls() {
    let mut rig = subscribed(PoolPolicy { max: 1, ..policy() }, "t");
    unsubscribe(&mut rig, 1, "t");
    for _ in 0..5 {
        rig.call("t", false).unwrap();
    }
    rig.pump();
    let positions = rig.scheduler.positions();
    let (_, last) = positions.last().unwrap();
    assert!(last.eta < Duration::from_secs(1), "{last:?}");
    assert_eq!(rig.scheduler.breaker(), "closed");
}

#[test]
fn a_worker_whose_call_was_stopped_ends_its_subscriptions_and_is_found_quiescent() {
    let mut rig = subscribed(PoolPolicy { max: 1, concurrency: 4, ..policy() }, "t");
    for _ in 0..2 {
        rig.call("t", false).unwrap();
    }
    assert_eq!(rig.pump().len(), 2);
    rig.stop(1);
    assert!(!rig.pump().contains(&Action::Unsubscribe { worker: 1 }), "it has a call");
    rig.release(1);
    assert!(rig.pump().contains(&Action::Unsubscribe { worker: 1 }));
    assert!(rig.pump().contains(&Action::Unsubscribe { worker: 1 }), "as long as it has one");
    unsubscribe(&mut rig, 1, "t");
    assert!(rig.scheduler.is_held_back());
    assert!(!rig.pump().contains(&Action::Unsubscribe { worker: 1 }));
}

#[test]
fn a_drain_ends_them_at_once_and_refuses_those_that_wait() {
    let mut rig = subscribed(PoolPolicy { max: 1, concurrency: 4, ..policy() }, "t");
    let waits = {
        rig.scheduler.workers.get_mut(&1).unwrap().history = History::Suspect;
        subscribe(&mut rig, "u", false).unwrap()
    };
    rig.scheduler.drain();
    let actions = rig.pump();
    assert!(actions.contains(&Action::Unsubscribe { worker: 1 }), "{actions:?}");
    assert!(actions.contains(&Action::Refuse { ticket: waits, reason: Refusal::Draining }), "{actions:?}");
    unsubscribe(&mut rig, 1, "t");
    assert_eq!(rig.scheduler.stop_surplus(rig.now), [Action::Retire { worker: 1 }]);
}

#[test]
fn a_worker_with_nothing_else_gives_its_memory_to_another_plugins_calls() {
    let mut rig = subscribed(PoolPolicy { max: 2, ..policy() }, "t");
    assert_eq!(rig.scheduler.idle_since(), None, "it is not idle");
    assert_eq!(rig.scheduler.subscribed_since(), Some((rig.now, 1)));
    let call = rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), [Action::Assign { ticket: call, worker: 1 }]);
    assert_eq!(rig.scheduler.subscribed_since(), None, "it has a call");
    rig.release(1);
    assert_eq!(
        rig.scheduler.stop_surplus(rig.now + Duration::from_secs(3600)),
        [],
        "and it does not go by itself"
    );
}

#[test]
fn a_suspects_subscription_is_served_apart() {
    let mut rig = subscribed(PoolPolicy { max: 2, concurrency: 4, ..policy() }, "a");
    rig.call("b", false).unwrap();
    assert_eq!(rig.pump().len(), 1);
    rig.end(1, WorkerEnd::Crashed);
    let of_a = subscribe(&mut rig, "a", false).unwrap();
    let of_c = subscribe(&mut rig, "c", false).unwrap();
    assert_eq!(rig.pump(), [Action::Start { worker: 2 }, Action::Start { worker: 3 }]);
    rig.scheduler.ready(2, rig.now);
    rig.scheduler.ready(3, rig.now);
    let actions = rig.pump();
    assert!(actions.contains(&Action::Assign { ticket: of_c, worker: 2 }), "{actions:?}");
    assert!(actions.contains(&Action::Assign { ticket: of_a, worker: 3 }), "{actions:?}");
}
