//! Tests of the scheduler's rules, without a process.

mod blame;
mod subscriptions;

use super::*;

struct Rig {
    scheduler: Scheduler,
    now: Instant,
    next_ticket: TicketId,
    /// Number of workers for which the machine has capacity.
    room: usize,
}

fn rig(policy: PoolPolicy) -> Rig {
    Rig { scheduler: Scheduler::new(policy), now: Instant::now(), next_ticket: 1, room: 100 }
}

fn policy() -> PoolPolicy {
    PoolPolicy {
        ephemeral: false,
        min: 0,
        max: 2,
        concurrency: 2,
        idle: Duration::from_secs(300),
        queue: 8,
        development: false,
    }
}

impl Rig {
    fn call(&mut self, tenant: &str, fresh: bool) -> Result<TicketId, Refusal> {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        let deadline = self.now + Duration::from_secs(60);
        let call = WaitingCall { ticket, tenant: tenant.into(), fresh, deadline, subscription: false };
        self.scheduler.enqueue(call, self.now).map(|_| ticket)
    }

    fn pump(&mut self) -> Vec<Action> {
        let room = &mut self.room;
        self.scheduler.pump(self.now, &mut || {
            let free = *room > 0;
            *room -= usize::from(free);
            free
        })
    }

    fn release(&mut self, worker: WorkerId) {
        self.end_call(worker, false);
    }

    /// Ends a call that was cancelled.
    fn stop(&mut self, worker: WorkerId) {
        self.end_call(worker, true);
    }

    fn end_call(&mut self, worker: WorkerId, stopped: bool) {
        let spent = FinishedCall {
            ticket: self.next_ticket - 1,
            took: Duration::from_millis(10),
            outcome: Outcome::Success,
            stopped,
            subscription: false,
        };
        self.scheduler.release(worker, "t", spent, self.now);
    }

    /// Starts a worker for calls, and assigns them to it.
    fn worker_with(&mut self, worker: WorkerId, calls: usize) {
        for _ in 0..calls {
            self.call("t", false).unwrap();
        }
        assert_eq!(self.pump(), [Action::Start { worker }]);
        self.scheduler.ready(worker, self.now);
        assert_eq!(self.pump().len(), calls);
    }

    fn end(&mut self, worker: WorkerId, end: WorkerEnd) {
        self.scheduler.record_end(worker, end, 0.5, self.now);
        self.scheduler.remove_ended(worker);
    }

    fn wait(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }
}

#[test]
fn workers_start_by_demand_and_never_take_more_calls_than_places() {
    let mut rig = rig(policy());
    let tickets: Vec<_> = (0..5).map(|_| rig.call("t", false).unwrap()).collect();
    assert_eq!(rig.pump(), [Action::Start { worker: 1 }, Action::Start { worker: 2 }]);
    assert_eq!(rig.pump(), [], "the workers that are starting are enough");
    rig.scheduler.ready(1, rig.now);
    rig.scheduler.ready(2, rig.now);
    let assigned = rig.pump();
    assert_eq!(assigned.len(), 4);
    for worker in [1, 2] {
        let own = assigned
            .iter()
            .filter(|action| matches!(action, Action::Assign { worker: w, .. } if *w == worker));
        assert_eq!(own.count(), 2);
    }
    assert_eq!(rig.scheduler.positions().iter().map(|(ticket, _)| *ticket).collect::<Vec<_>>(), tickets[4..]);
    rig.release(2);
    assert_eq!(rig.pump(), [Action::Assign { ticket: tickets[4], worker: 2 }]);
}

#[test]
fn in_development_a_failed_start_is_tried_once_and_its_calls_learn_why() {
    let mut rig = rig(PoolPolicy { development: true, ..policy() });
    let ticket = rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), [Action::Start { worker: 1 }]);
    rig.end(1, WorkerEnd::FailedStart);
    assert_eq!(rig.pump(), [Action::Refuse { ticket, reason: Refusal::FailedStart }]);
    assert_eq!(rig.call("t", false), Err(Refusal::FailedStart));
    rig.wait(30_000);
    rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), [Action::Start { worker: 2 }], "another call may try again");
}

#[test]
fn a_crashed_worker_is_replaced_after_its_backoff() {
    let mut rig = rig(policy());
    rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), [Action::Start { worker: 1 }]);
    rig.end(1, WorkerEnd::Crashed);
    rig.wait(249);
    assert_eq!(rig.pump(), []);
    rig.wait(1);
    assert_eq!(rig.pump(), [Action::Start { worker: 2 }]);
}

#[test]
fn nobody_comes_to_a_worker_whose_stream_is_gone_and_nobody_replaces_it_before_its_end() {
    let mut rig = rig(PoolPolicy { max: 1, ..policy() });
    rig.worker_with(1, 1);
    rig.scheduler.mark_lost(1);
    rig.call("other", false).unwrap();
    assert_eq!(rig.pump(), []);
    rig.end(1, WorkerEnd::Crashed);
    assert_eq!(rig.pump(), [Action::Start { worker: 2 }]);
    rig.scheduler.ready(2, rig.now);
    let assigned = rig.pump();
    assert!(matches!(assigned[..], [Action::Assign { worker: 2, .. }]), "{assigned:?}");
}

#[test]
fn a_crash_loop_starts_five_workers_in_a_minute_and_then_refuses_everyone() {
    let mut rig = rig(policy());
    rig.call("t", false).unwrap();
    let mut starts = 0;
    let mut refused = Vec::new();
    for _ in 0..6000 {
        for action in rig.pump() {
            match action {
                Action::Start { worker } => {
                    starts += 1;
                    rig.end(worker, WorkerEnd::Crashed);
                }
                Action::Refuse { reason, .. } => refused.push(reason),
                other => panic!("{other:?}"),
            }
        }
        rig.wait(10);
    }
    assert_eq!(starts, 5);
    assert!(matches!(refused[..], [Refusal::Quarantined { .. }]), "{refused:?}");
    assert!(matches!(rig.call("t", false), Err(Refusal::Quarantined { .. })));
}

#[test]
fn a_start_that_the_machine_had_no_room_for_is_told_at_once_and_sets_nobody_aside() {
    let mut rig = rig(policy());
    for failure in 0..20 {
        let ticket = rig.call("t", false).unwrap();
        let Some(Action::Start { worker }) = rig.pump().pop() else { panic!("no start number {failure}") };
        rig.end(worker, WorkerEnd::Host("No space left on device".to_owned()));
        let reason = Refusal::HostTrouble("No space left on device".to_owned());
        assert_eq!(rig.pump(), [Action::Refuse { ticket, reason }]);
        rig.wait(1000);
    }
    assert_eq!((rig.scheduler.crashes, rig.scheduler.host_failures), (0, 20));
    assert_eq!(rig.scheduler.remaining_quarantine(rig.now), None);
    let ticket = rig.call("t", false).unwrap();
    let Some(Action::Start { worker }) = rig.pump().pop() else { panic!("no start") };
    rig.scheduler.ready(worker, rig.now);
    assert_eq!(rig.pump(), [Action::Assign { ticket, worker }]);
}

#[test]
fn who_waits_beside_a_worker_that_serves_is_not_refused_for_another_that_could_not_start() {
    let mut rig = rig(PoolPolicy { concurrency: 1, ..policy() });
    rig.worker_with(1, 1);
    let ticket = rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), [Action::Start { worker: 2 }]);
    rig.end(2, WorkerEnd::Host("Too many open files".to_owned()));
    assert_eq!(rig.pump(), []);
    rig.release(1);
    assert_eq!(rig.pump(), [Action::Assign { ticket, worker: 1 }]);
}

#[test]
fn a_fresh_process_is_used_once_and_an_idle_one_makes_room_for_it() {
    let mut rig = rig(PoolPolicy { max: 1, ..policy() });
    rig.call("t", false).unwrap();
    rig.pump();
    rig.scheduler.ready(1, rig.now);
    rig.pump();
    let fresh = rig.call("t", true).unwrap();
    assert_eq!(rig.pump(), [], "the only worker is busy");
    rig.release(1);
    assert_eq!(rig.pump(), [Action::Retire { worker: 1 }, Action::Start { worker: 2 }]);
    rig.end(1, WorkerEnd::Went);
    rig.scheduler.ready(2, rig.now);
    let other = rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), [Action::Assign { ticket: fresh, worker: 2 }], "it is shared with nobody");
    rig.release(2);
    assert_eq!(rig.scheduler.stop_surplus(rig.now), [Action::Retire { worker: 2 }]);
    rig.end(2, WorkerEnd::Went);
    assert_eq!(rig.pump(), [Action::Start { worker: 3 }]);
    rig.scheduler.ready(3, rig.now);
    assert_eq!(rig.pump(), [Action::Assign { ticket: other, worker: 3 }]);
}

#[test]
fn a_worker_that_goes_has_no_place_and_costs_no_other_its_own() {
    let mut rig = rig(policy());
    rig.worker_with(1, 1);
    rig.release(1);
    rig.call("t", true).unwrap();
    assert_eq!(rig.pump(), [Action::Start { worker: 2 }]);
    rig.scheduler.ready(2, rig.now);
    rig.pump();
    rig.release(2);
    assert_eq!(rig.scheduler.stop_surplus(rig.now), [Action::Retire { worker: 2 }], "it is used up");
    rig.call("t", true).unwrap();
    assert_eq!(rig.pump(), [Action::Start { worker: 3 }], "not the end of the warm worker");
    rig.scheduler.ready(3, rig.now);
    rig.pump();
    rig.release(3);
    rig.scheduler.stop_surplus(rig.now);
    rig.call("t", true).unwrap();
    assert_eq!(rig.pump(), [Action::Start { worker: 4 }]);
    rig.scheduler.ready(4, rig.now);
    rig.pump();
    rig.release(4);
    rig.scheduler.stop_surplus(rig.now);
    rig.call("t", true).unwrap();
    assert_eq!(rig.pump(), [], "three go: with twice as many processes as slots it waits");
    rig.end(2, WorkerEnd::Went);
    assert_eq!(rig.pump(), [Action::Start { worker: 5 }]);
}

#[test]
fn a_worker_with_a_stopped_call_takes_no_other_until_it_is_quiescent() {
    let mut rig = rig(PoolPolicy { max: 1, ..policy() });
    rig.worker_with(1, 1);
    rig.stop(1);
    let next = rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), [], "its slot is not another's yet");
    let [(1, idle)] = rig.scheduler.unchecked_workers()[..] else {
        panic!("{:?}", rig.scheduler.unchecked_workers())
    };
    assert!(rig.scheduler.is_held_back());
    rig.scheduler.mark_quiescent(1, idle);
    assert!(!rig.scheduler.is_held_back() && rig.scheduler.unchecked_workers().is_empty());
    assert_eq!(rig.pump(), [Action::Assign { ticket: next, worker: 1 }]);
}

#[test]
fn a_worker_with_residual_work_is_replaced_and_is_no_crash() {
    let mut rig = rig(PoolPolicy { max: 1, ..policy() });
    rig.worker_with(1, 1);
    rig.stop(1);
    let next = rig.call("t", false).unwrap();
    let (_, idle) = rig.scheduler.unchecked_workers()[0];
    assert!(rig.scheduler.condemn(1, idle));
    assert_eq!(rig.pump(), [Action::Start { worker: 2 }]);
    rig.end(1, WorkerEnd::Went);
    rig.scheduler.ready(2, rig.now);
    assert_eq!(rig.pump(), [Action::Assign { ticket: next, worker: 2 }]);
    assert_eq!(rig.scheduler.crashes, 0);
}

#[test]
fn others_calls_finish_in_a_worker_that_must_be_checked() {
    let mut rig = rig(PoolPolicy { max: 1, ..policy() });
    rig.worker_with(1, 2);
    rig.stop(1);
    assert_eq!(rig.scheduler.unchecked_workers(), [], "another call runs: nothing can be told");
    let next = rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), [Action::Start { worker: 2 }], "it does not wait for the other call");
    rig.scheduler.ready(2, rig.now);
    assert_eq!(rig.pump(), [Action::Assign { ticket: next, worker: 2 }]);
    rig.release(1);
    let (_, idle) = rig.scheduler.unchecked_workers()[0];
    rig.scheduler.mark_quiescent(1, idle);
    assert_eq!(rig.scheduler.stop_surplus(rig.now), [Action::Retire { worker: 1 }], "its slot is taken");
}

#[test]
fn without_room_for_a_replacement_the_held_back_worker_is_used() {
    let mut rig = rig(PoolPolicy { max: 1, ..policy() });
    rig.worker_with(1, 2);
    rig.stop(1);
    rig.room = 0;
    let next = rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), [Action::Assign { ticket: next, worker: 1 }]);
}

#[test]
fn a_call_that_ended_by_itself_holds_nothing_back() {
    let mut rig = rig(PoolPolicy { max: 1, ..policy() });
    rig.worker_with(1, 1);
    rig.release(1);
    assert_eq!(rig.scheduler.unchecked_workers().len(), 1);
    let (_, idle) = rig.scheduler.unchecked_workers()[0];
    let next = rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), [Action::Assign { ticket: next, worker: 1 }]);
    assert!(!rig.scheduler.condemn(1, idle), "what was seen is of another time");
    rig.scheduler.mark_quiescent(1, idle);
    rig.release(1);
    assert_eq!(rig.scheduler.unchecked_workers().len(), 1, "its next call is to be looked at too");
}

#[test]
fn min_workers_stay_and_the_others_go_when_idle() {
    let mut rig = rig(PoolPolicy { min: 1, ..policy() });
    assert_eq!(rig.pump(), [], "nobody asked for the plugin yet");
    rig.scheduler.prewarm();
    assert_eq!(rig.pump(), [Action::Start { worker: 1 }]);
    rig.scheduler.ready(1, rig.now);
    for _ in 0..4 {
        rig.call("t", false).unwrap();
    }
    rig.pump();
    rig.scheduler.ready(2, rig.now);
    rig.pump();
    for worker in [1, 1, 2, 2] {
        rig.release(worker);
    }
    assert_eq!(rig.scheduler.stop_surplus(rig.now), []);
    rig.wait(300_000);
    assert_eq!(rig.scheduler.stop_surplus(rig.now).len(), 1);
    assert_eq!(rig.scheduler.stop_surplus(rig.now), []);
}

#[test]
fn the_machine_may_say_no_to_a_start() {
    let mut rig = rig(policy());
    rig.room = 0;
    rig.call("t", false).unwrap();
    assert_eq!(rig.pump(), []);
    rig.room = 1;
    assert_eq!(rig.pump(), [Action::Start { worker: 1 }]);
}

#[test]
fn a_late_call_is_refused_and_one_that_was_cancelled_is_forgotten() {
    let mut rig = rig(policy());
    rig.room = 0;
    let late = rig.call("t", false).unwrap();
    rig.wait(30_000);
    let cancelled = rig.call("t", false).unwrap();
    assert!(rig.scheduler.cancel(cancelled, rig.now));
    assert!(!rig.scheduler.cancel(cancelled, rig.now));
    rig.wait(30_000);
    assert_eq!(rig.pump(), [Action::Refuse { ticket: late, reason: Refusal::Late }]);
    assert_eq!(rig.scheduler.counts(), (0, 0, 0, 0));
}

#[test]
fn a_tenant_is_throttled_before_all_are_refused() {
    let mut rig = rig(PoolPolicy { queue: 2, ..policy() });
    rig.room = 0;
    for tenant in ["a", "a", "b", "b"] {
        rig.call(tenant, false).unwrap();
    }
    assert_eq!(rig.call("a", false), Err(Refusal::Throttled));
    for tenant in ["c", "d"] {
        assert!(rig.call(tenant, false).is_ok(), "the longest queue gives way");
    }
    assert_eq!(rig.call("e", false), Err(Refusal::Overload));
}

#[test]
fn a_draining_pool_finishes_what_waits_and_then_empties() {
    let mut rig = rig(policy());
    let ticket = rig.call("t", false).unwrap();
    rig.pump();
    rig.scheduler.drain();
    assert_eq!(rig.call("t", false), Err(Refusal::Draining));
    rig.scheduler.ready(1, rig.now);
    assert_eq!(rig.scheduler.stop_surplus(rig.now), [], "somebody waits for it");
    assert_eq!(rig.pump(), [Action::Assign { ticket, worker: 1 }]);
    assert_eq!(rig.scheduler.stop_surplus(rig.now), []);
    rig.release(1);
    assert_eq!(rig.scheduler.stop_surplus(rig.now), [Action::Retire { worker: 1 }]);
    rig.end(1, WorkerEnd::Went);
    assert!(rig.scheduler.is_empty());
}

#[test]
fn a_pool_that_is_stopped_refuses_who_waits_and_starts_nothing() {
    let mut rig = rig(policy());
    let ticket = rig.call("t", false).unwrap();
    rig.scheduler.drain();
    let refused = Action::Refuse { ticket, reason: Refusal::Draining };
    assert_eq!(rig.scheduler.refuse_waiting(rig.now), [refused]);
    assert_eq!(rig.pump(), []);
}

#[test]
fn a_noisy_tenant_leaves_the_victim_its_fair_share() {
    let mut rig = rig(PoolPolicy { max: 1, concurrency: 1, queue: 64, ..policy() });
    rig.call("noisy", false).unwrap();
    rig.pump();
    rig.scheduler.ready(1, rig.now);
    let mut owners = BTreeMap::new();
    let mut served: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..1000 {
        for _ in 0..100 {
            if let Ok(ticket) = rig.call("noisy", false) {
                owners.insert(ticket, "noisy");
            }
        }
        if let Ok(ticket) = rig.call("victim", false) {
            owners.insert(ticket, "victim");
        }
        for action in rig.pump() {
            if let Action::Assign { ticket, .. } = action {
                *served.entry(owners.get(&ticket).copied().unwrap_or("noisy")).or_default() += 1;
            }
        }
        rig.wait(10);
        rig.release(1);
    }
    assert!(served["victim"] >= 450, "{served:?}");
}
