//! Quiescence check: whether a worker without calls is idle, since everything that a call started must end with it.
//!
//! A pure state machine: samples of the worker's control group and the time are arguments. Keeps true: a worker is
//! quiet once it has had no more processes than before its first call and used almost no CPU time for one `WINDOW`; one
//! that is not within its time limit has residual work. A thread that only waits does not count, until the worker has
//! no capacity for more threads.

use std::time::Duration;

use asp_launcher::Activity;
use tokio::time::Instant;

/// Length of a measurement: more than two periods of the CPU quota (asp_launcher's cgroup.rs), because a throttled
/// worker does nothing for a part of each.
pub const WINDOW: Duration = Duration::from_millis(220);
/// Time limit after a call was stopped; until then its worker serves no calls.
pub const CHECK_WITHIN: Duration = Duration::from_millis(1500);
/// Time limit after calls that ended by themselves. Compilers and garbage collectors finish within it, even on a busy
/// machine; the worker serves other calls in the meantime.
pub const SETTLE_WITHIN: Duration = Duration::from_secs(5);
/// Maximum use of one CPU in percent; pings, timers and an idle interpreter stay below.
const QUIET_PERCENT: u32 = 5;

/// State of the check of one worker.
#[derive(Debug)]
pub struct QuiescenceCheck {
    /// Number of processes before its first call; `None` if the plugin may keep processes between calls.
    processes: Option<u32>,
    /// The limit on its processes and threads.
    room: u32,
    /// Time of its last call's end.
    idle_since: Option<Instant>,
    /// Time and CPU time at the start of the measurement.
    last: Option<(Instant, Duration)>,
}

/// A worker whose quiescence is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Idle {
    /// Time of its last call's end.
    pub since: Instant,
    /// Whether one of its calls was stopped.
    pub stopped: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiescence {
    /// The worker is idle.
    Quiet,
    /// Undecided: it is too early.
    Unclear,
    /// A part of an ended call still runs; the text says what.
    ResidualWork(&'static str),
}

impl QuiescenceCheck {
    pub fn new(processes: Option<u32>, room: u32) -> QuiescenceCheck {
        QuiescenceCheck { processes, room, idle_since: None, last: None }
    }

    /// Evaluates a sample of a worker without calls, taken at `now`. A sample from before its last call's end, or a
    /// repeated one, decides nothing.
    pub fn evaluate(&mut self, reading: Activity, idle: Idle, now: Instant) -> Quiescence {
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

    /// Checks every `STEP` after a stopped call, with the sample that `reading` returns for the elapsed time; returns
    /// the first result.
    fn judge(watch: &mut QuiescenceCheck, reading: impl Fn(Duration) -> Activity) -> (Quiescence, Duration) {
        judge_after(true, watch, reading)
    }

    fn judge_after(
        stopped: bool,
        watch: &mut QuiescenceCheck,
        reading: impl Fn(Duration) -> Activity,
    ) -> (Quiescence, Duration) {
        let since = Instant::now();
        for step in 0..40 {
            let passed = STEP * step;
            let found = watch.evaluate(reading(passed), Idle { since, stopped }, since + passed);
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
        let mut watch = QuiescenceCheck::new(Some(2), 64);
        let idle = |passed: Duration| activity(2, 40, passed / 100);
        assert_eq!(judge(&mut watch, idle), (Quiescence::Quiet, STEP));
        assert_eq!(judge(&mut watch, idle), (Quiescence::Quiet, STEP), "and again after its next call");
    }

    #[test]
    fn a_compiler_may_finish_and_a_thread_that_computes_may_not_go_on() {
        let mut watch = QuiescenceCheck::new(Some(2), 64);
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
        assert_eq!(
            judge(&mut QuiescenceCheck::new(Some(2), 64), tenth).0,
            Quiescence::ResidualWork("computation")
        );
    }

    #[test]
    fn a_process_that_waits_is_left_and_one_that_ends_is_not() {
        let mut watch = QuiescenceCheck::new(Some(2), 64);
        let left = |_| activity(3, 3, Duration::ZERO);
        assert_eq!(judge(&mut watch, left).0, Quiescence::ResidualWork("processes"));
        let ending = |passed: Duration| activity(if passed < STEP * 3 { 9 } else { 2 }, 9, Duration::ZERO);
        assert_eq!(judge(&mut watch, ending), (Quiescence::Quiet, STEP * 3));
        assert_eq!(
            judge(&mut QuiescenceCheck::new(None, 64), left).0,
            Quiescence::Quiet,
            "the plugin's own business"
        );
    }

    #[test]
    fn waiting_threads_are_left_when_there_is_no_room_for_more() {
        let threads = |count| move |_: Duration| activity(2, count, Duration::ZERO);
        assert_eq!(judge(&mut QuiescenceCheck::new(Some(2), 64), threads(63)).0, Quiescence::Quiet);
        assert_eq!(
            judge(&mut QuiescenceCheck::new(Some(2), 64), threads(64)).0,
            Quiescence::ResidualWork("threads")
        );
    }

    #[test]
    fn a_reading_of_before_the_calls_end_and_one_that_is_told_twice_say_nothing() {
        let mut watch = QuiescenceCheck::new(Some(2), 64);
        let start = Instant::now();
        let idle = Idle { since: start + STEP, stopped: true };
        let busy = |passed: Duration| activity(2, 3, passed);
        assert_eq!(watch.evaluate(busy(Duration::ZERO), idle, start), Quiescence::Unclear, "the call ran");
        for _ in 0..3 {
            assert_eq!(watch.evaluate(busy(STEP), idle, start + STEP), Quiescence::Unclear, "nothing new");
        }
        assert_eq!(watch.evaluate(busy(STEP), idle, start + STEP * 2), Quiescence::Quiet);
    }

    #[test]
    fn a_call_in_between_begins_the_check_anew() {
        let mut watch = QuiescenceCheck::new(Some(2), 64);
        let start = Instant::now();
        let busy = |passed: Duration| activity(2, 3, passed);
        for step in 0..40 {
            // A call ends at every step; nothing can be said about a worker that is constantly used.
            let now = start + STEP * step;
            let idle = Idle { since: now, stopped: false };
            assert_eq!(watch.evaluate(busy(STEP * step), idle, now), Quiescence::Unclear);
        }
    }
}
