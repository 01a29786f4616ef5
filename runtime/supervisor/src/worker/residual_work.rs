//! Whether a worker without calls does nothing: what a call started has to end with it.
//!
//! A pure state machine: it is given readings of the worker's control group and the time. Keeps true: a worker
//! is quiet once it had no more processes than before its first call and used next to no processor time for one
//! `WINDOW`; one that was not, for as long as it is given, has residual work. A thread that only waits is none,
//! until the worker has no room for more of them.

use std::time::Duration;

use asp_launcher::Activity;
use tokio::time::Instant;

/// Two periods of the processor quota and more (asp_launcher's cgroup.rs): a worker that is held to its quota
/// does nothing for a part of each.
pub const WINDOW: Duration = Duration::from_millis(220);
/// After a call was stopped: its worker serves nobody meanwhile.
pub const CHECK_WITHIN: Duration = Duration::from_millis(1500);
/// After calls that ended by themselves. Compilers and collectors of garbage finish within it, on a busy machine
/// too; the worker serves others meanwhile.
pub const SETTLE_WITHIN: Duration = Duration::from_secs(5);
/// Of one processor: pings, timers and an idle interpreter stay below.
const QUIET_PERCENT: u32 = 5;

/// What is known of one worker.
#[derive(Debug)]
pub struct Watch {
    /// Before its first call; `None` where processes of its own between calls are the plugin's business.
    processes: Option<u32>,
    /// The bound on its processes and threads.
    room: u32,
    /// Since its last call.
    idle_since: Option<Instant>,
    /// The beginning of the window.
    last: Option<(Instant, Duration)>,
}

/// The worker whose quiescence is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Since its last call.
    pub since: Instant,
    /// One of its calls was stopped.
    pub stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiescence {
    /// It does nothing.
    Quiet,
    /// It is too early to say.
    Unclear,
    /// It still runs something of an ended call; the text says what.
    ResidualWork(&'static str),
}

impl Watch {
    pub fn new(processes: Option<u32>, room: u32) -> Watch {
        Watch { processes, room, idle_since: None, last: None }
    }

    /// Takes a reading of a worker without calls, of the moment `now`. One that is older than its last call, or the
    /// one before again, says nothing.
    pub fn look(&mut self, reading: Activity, idle: Idle, now: Instant) -> Quiescence {
        if self.idle_since != Some(idle.since) {
            self.idle_since = Some(idle.since);
            self.last = None;
        }
        if now < idle.since {
            return Quiescence::Unclear;
        }
        let Some((began, used)) = self.last else {
            self.last = Some((now, reading.cpu));
            return Quiescence::Unclear;
        };
        let length = now.duration_since(began);
        if length < WINDOW {
            return Quiescence::Unclear;
        }
        self.last = Some((now, reading.cpu));
        let busy = reading.cpu.saturating_sub(used) > length * QUIET_PERCENT / 100;
        let left = match self.processes {
            Some(processes) if reading.processes > processes => "processes",
            _ if reading.tasks >= self.room => "threads",
            _ if busy => "computation",
            _ => return Quiescence::Quiet,
        };
        let patience = if idle.stopped { CHECK_WITHIN } else { SETTLE_WITHIN };
        if now.duration_since(idle.since) < patience {
            return Quiescence::Unclear;
        }
        Quiescence::ResidualWork(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Duration = Duration::from_millis(250);

    /// Looks every `STEP` after a stopped call, with what `reading` says for the time since; the first found.
    fn judge(watch: &mut Watch, reading: impl Fn(Duration) -> Activity) -> (Quiescence, Duration) {
        judge_after(true, watch, reading)
    }

    fn judge_after(
        stopped: bool,
        watch: &mut Watch,
        reading: impl Fn(Duration) -> Activity,
    ) -> (Quiescence, Duration) {
        let since = Instant::now();
        for step in 0..40 {
            let passed = STEP * step;
            let found = watch.look(reading(passed), Idle { since, stopped }, since + passed);
            if found != Quiescence::Unclear {
                return (found, passed);
            }
        }
        panic!("never judged");
    }

    fn activity(processes: u32, tasks: u32, cpu: Duration) -> Activity {
        Activity { processes, tasks, cpu }
    }

    #[test]
    fn a_worker_that_pings_and_waits_is_quiet_after_one_window() {
        let mut watch = Watch::new(Some(2), 64);
        let idle = |passed: Duration| activity(2, 40, passed / 100);
        assert_eq!(judge(&mut watch, idle), (Quiescence::Quiet, STEP));
        assert_eq!(judge(&mut watch, idle), (Quiescence::Quiet, STEP), "and again after its next call");
    }

    #[test]
    fn a_compiler_may_finish_and_a_thread_that_computes_may_not_go_on() {
        let mut watch = Watch::new(Some(2), 64);
        let warming = |passed: Duration| activity(2, 40, passed.min(Duration::from_millis(900)));
        let (found, took) = judge(&mut watch, warming);
        assert!(found == Quiescence::Quiet && took <= CHECK_WITHIN, "{found:?} after {took:?}");
        let computing = |passed: Duration| activity(2, 40, passed);
        let (found, took) = judge(&mut watch, computing);
        assert_eq!(found, Quiescence::ResidualWork("computation"));
        assert!(took >= CHECK_WITHIN && took <= CHECK_WITHIN + STEP, "{took:?}");
        let (found, took) = judge_after(false, &mut watch, computing);
        assert_eq!(found, Quiescence::ResidualWork("computation"));
        assert!(took >= SETTLE_WITHIN && took <= SETTLE_WITHIN + STEP, "{took:?}");
    }

    #[test]
    fn a_thread_that_a_small_quota_holds_up_still_computes() {
        let tenth = |passed: Duration| activity(2, 3, passed / 10);
        assert_eq!(judge(&mut Watch::new(Some(2), 64), tenth).0, Quiescence::ResidualWork("computation"));
    }

    #[test]
    fn a_process_that_waits_is_left_and_one_that_ends_is_not() {
        let mut watch = Watch::new(Some(2), 64);
        let left = |_| activity(3, 3, Duration::ZERO);
        assert_eq!(judge(&mut watch, left).0, Quiescence::ResidualWork("processes"));
        let ending = |passed: Duration| activity(if passed < STEP * 3 { 9 } else { 2 }, 9, Duration::ZERO);
        assert_eq!(judge(&mut watch, ending), (Quiescence::Quiet, STEP * 3));
        assert_eq!(judge(&mut Watch::new(None, 64), left).0, Quiescence::Quiet, "the plugin's own business");
    }

    #[test]
    fn waiting_threads_are_left_when_there_is_no_room_for_more() {
        let threads = |count| move |_: Duration| activity(2, count, Duration::ZERO);
        assert_eq!(judge(&mut Watch::new(Some(2), 64), threads(63)).0, Quiescence::Quiet);
        assert_eq!(judge(&mut Watch::new(Some(2), 64), threads(64)).0, Quiescence::ResidualWork("threads"));
    }

    #[test]
    fn a_reading_of_before_the_calls_end_and_one_that_is_told_twice_say_nothing() {
        let mut watch = Watch::new(Some(2), 64);
        let start = Instant::now();
        let idle = Idle { since: start + STEP, stopped: true };
        let busy = |passed: Duration| activity(2, 3, passed);
        assert_eq!(watch.look(busy(Duration::ZERO), idle, start), Quiescence::Unclear, "the call ran");
        for _ in 0..3 {
            assert_eq!(watch.look(busy(STEP), idle, start + STEP), Quiescence::Unclear, "nothing new");
        }
        assert_eq!(watch.look(busy(STEP), idle, start + STEP * 2), Quiescence::Quiet);
    }

    #[test]
    fn a_call_in_between_begins_the_check_anew() {
        let mut watch = Watch::new(Some(2), 64);
        let start = Instant::now();
        let busy = |passed: Duration| activity(2, 3, passed);
        for step in 0..40 {
            // A call ends every step; nothing can be said of a worker that is used all the time.
            let now = start + STEP * step;
            let idle = Idle { since: now, stopped: false };
            assert_eq!(watch.look(busy(STEP * step), idle, now), Quiescence::Unclear);
        }
    }
}
