//! Tests of tenants whose calls crash workers: isolation and quarantine.

use super::*;

/// Starts a worker for calls of these tenants, assigns them to it, and lets it crash with all of them.
fn crash_with(rig: &mut Rig, tenants: &[&str]) -> QuarantineScope {
    for tenant in tenants {
        rig.call(tenant, false).unwrap();
    }
    let Some(Action::Start { worker }) = rig.pump().pop() else { panic!("no start for {tenants:?}") };
    rig.scheduler.ready(worker, rig.now);
    assert_eq!(rig.pump().len(), tenants.len());
    let quarantined = rig.scheduler.record_end(worker, WorkerEnd::Crashed, 0.5, rig.now);
    for tenant in tenants {
        let spent = FinishedCall {
            ticket: rig.next_ticket - 1,
            took: Duration::ZERO,
            outcome: Outcome::Failure,
            stopped: false,
            subscription: false,
        };
        rig.scheduler.release(worker, tenant, spent, rig.now);
    }
    rig.scheduler.remove_ended(worker);
    rig.wait(5000);
    quarantined
}

fn is_served(rig: &mut Rig, tenant: &str) -> bool {
    let Ok(ticket) = rig.call(tenant, false) else { return false };
    let mut worker = 0;
    for action in rig.pump() {
        if let Action::Start { worker: started } = action {
            rig.scheduler.ready(started, rig.now);
            worker = started;
        }
    }
    let served = rig.pump() == [Action::Assign { ticket, worker }];
    rig.scheduler.release(
        worker,
        tenant,
        FinishedCall {
            ticket: rig.next_ticket - 1,
            took: Duration::ZERO,
            outcome: Outcome::Success,
            stopped: false,
            subscription: false,
        },
        rig.now,
    );
    rig.end(worker, WorkerEnd::Went);
    served
}

#[test]
fn a_tenant_whose_calls_crash_workers_is_put_off_and_others_go_on() {
    let mut rig = rig(policy());
    for _ in 0..2 {
        assert_eq!(crash_with(&mut rig, &["hostile"]), QuarantineScope::Nobody);
    }
    let put_off = crash_with(&mut rig, &["hostile"]);
    assert!(
        matches!(put_off, QuarantineScope::Tenant { ref tenant, .. } if tenant == "hostile"),
        "{put_off:?}"
    );
    assert!(matches!(rig.call("hostile", false), Err(Refusal::TenantQuarantined { .. })));
    assert!(is_served(&mut rig, "good"));
    rig.wait(30_000);
    for _ in 0..20 {
        // It returns after each quarantine, and crashes again.
        if rig.call("hostile", false).is_ok() {
            rig.scheduler.cancel(rig.next_ticket - 1, rig.now);
            crash_with(&mut rig, &["hostile"]);
        }
        assert!(is_served(&mut rig, "good"));
        rig.wait(60_000);
    }
    assert_eq!(rig.scheduler.remaining_quarantine(rig.now), None);
    assert_eq!(rig.scheduler.breaker(), "closed");
}

#[test]
fn only_the_crashes_of_three_tenants_set_a_plugin_aside() {
    let mut rig = rig(policy());
    for tenant in ["a", "b", "a", "b"] {
        assert_eq!(crash_with(&mut rig, &[tenant]), QuarantineScope::Nobody);
    }
    assert_eq!(crash_with(&mut rig, &["c"]), QuarantineScope::Plugin);
    assert!(matches!(rig.call("d", false), Err(Refusal::Quarantined { .. })));
}

#[test]
fn a_plugin_that_was_drained_starts_without_its_quarantines() {
    let mut rig = rig(policy());
    for tenant in ["a", "b", "a", "b", "c"] {
        crash_with(&mut rig, &[tenant]);
    }
    rig.scheduler.undrain();
    let refused = rig.call("d", false);
    assert!(matches!(refused, Err(Refusal::Quarantined { .. })), "a gateway ensures plugins again and again");
    rig.scheduler.drain();
    rig.scheduler.undrain();
    assert!(is_served(&mut rig, "d"));
}

#[test]
fn after_a_crash_with_several_tenants_each_of_them_is_served_apart() {
    let mut rig = rig(policy());
    assert_eq!(crash_with(&mut rig, &["hostile", "good"]), QuarantineScope::Nobody);
    for tenant in ["hostile", "good"] {
        rig.call(tenant, false).unwrap();
    }
    let other = rig.call("other", false).unwrap();
    let starts = rig.pump();
    assert_eq!(starts.len(), 3, "{starts:?}");
    for worker in [2, 3, 4] {
        rig.scheduler.ready(worker, rig.now);
    }
    let assigned = rig.pump();
    let workers: std::collections::BTreeSet<_> = assigned
        .iter()
        .map(|action| match action {
            Action::Assign { worker, .. } => *worker,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(workers.len(), 3, "nobody shares a worker with a suspect: {assigned:?}");
    let [worker] = assigned
        .iter()
        .filter_map(|action| match action {
            Action::Assign { ticket, worker } if *ticket == other => Some(*worker),
            _ => None,
        })
        .collect::<Vec<_>>()[..]
    else {
        panic!("{assigned:?}")
    };
    let third = rig.call("third", false).unwrap();
    assert_eq!(rig.pump(), [Action::Assign { ticket: third, worker }], "others share as before");
}

#[test]
fn of_a_call_that_ignores_its_cancel_its_tenant_alone_is_suspected() {
    let mut rig = rig(policy());
    for tenant in ["stubborn", "good"] {
        rig.call(tenant, false).unwrap();
    }
    assert_eq!(rig.pump(), [Action::Start { worker: 1 }]);
    rig.scheduler.ready(1, rig.now);
    assert_eq!(rig.pump().len(), 2);
    assert_eq!(
        rig.scheduler.record_end(1, WorkerEnd::Overrun("stubborn".to_owned()), 0.5, rig.now),
        QuarantineScope::Nobody
    );
    assert_eq!(rig.scheduler.crashes, 1);
    let is_suspect = |tenant| rig.scheduler.blame.is_suspect(tenant, rig.now);
    assert_eq!((is_suspect("stubborn"), is_suspect("good")), (true, false));
    assert_eq!(rig.scheduler.blame.culprits(rig.now), 0, "another call may have kept it from ending");
}

#[test]
fn what_one_tenant_leaves_in_a_worker_is_not_blamed_on_the_next() {
    let mut rig = rig(policy());
    rig.worker_with(1, 1);
    rig.release(1);
    let victim = rig.call("victim", false).unwrap();
    assert_eq!(rig.pump(), [Action::Assign { ticket: victim, worker: 1 }]);
    assert_eq!(rig.scheduler.record_end(1, WorkerEnd::Crashed, 0.5, rig.now), QuarantineScope::Nobody);
    rig.scheduler.remove_ended(1);
    assert_eq!(rig.scheduler.blame.culprits(rig.now), 0, "each of the two may have done it");
}

#[test]
fn a_suspect_with_much_to_do_makes_room_for_another() {
    let mut rig = rig(PoolPolicy { max: 1, ..policy() });
    crash_with(&mut rig, &["a", "b"]);
    rig.call("a", false).unwrap();
    let Some(Action::Start { worker }) = rig.pump().pop() else { panic!("no start") };
    rig.scheduler.ready(worker, rig.now);
    assert_eq!(rig.pump().len(), 1);
    let waits = rig.call("b", false).unwrap();
    rig.call("a", false).unwrap();
    assert_eq!(rig.pump().len(), 1, "its second slot");
    rig.call("a", false).unwrap();
    for _ in 0..2 {
        let spent = FinishedCall {
            ticket: rig.next_ticket - 1,
            took: Duration::ZERO,
            outcome: Outcome::Success,
            stopped: false,
            subscription: false,
        };
        rig.scheduler.release(worker, "a", spent, rig.now);
    }
    assert_eq!(rig.pump(), [], "it goes, and then the other has its turn");
    assert_eq!(rig.scheduler.stop_surplus(rig.now), [Action::Retire { worker }]);
    rig.end(worker, WorkerEnd::Went);
    let Some(Action::Start { worker }) = rig.pump().pop() else { panic!("no start") };
    rig.scheduler.ready(worker, rig.now);
    assert_eq!(rig.pump(), [Action::Assign { ticket: waits, worker }]);
}

#[test]
fn in_development_no_crash_sets_anybody_aside() {
    let mut rig = rig(PoolPolicy { development: true, ..policy() });
    for _ in 0..20 {
        assert_eq!(crash_with(&mut rig, &["author"]), QuarantineScope::Nobody);
    }
    assert!(is_served(&mut rig, "author"));
    assert_eq!(rig.scheduler.breaker(), "closed");
}
