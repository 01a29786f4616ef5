//! CPU time that a worker used in total, from samples of its processes.
//!
//! Owns the count. Keeps true: it never decreases, counts nothing twice, and includes a process that was seen even if
//! its parent does not wait for it (if SIGCHLD is ignored, the kernel does not add children to their parent). Bounded
//! by the processes of two samples. Does not estimate: for a process that began and ended between two samples, only the
//! time reported by its parent's wait counts, and nothing if the parent does not wait.

use std::collections::HashMap;
use std::time::Duration;

use asp_launcher::ProcessTime;

#[derive(Debug, Default)]
pub(super) struct ProcessorTime {
    used: Duration,
    seen: HashMap<(u32, u64), Last>,
    /// CPU time of ended processes that is counted and not yet found in their parents' totals.
    gone: Duration,
    /// CPU time of reaped children at the previous sample. Samples are not atomic: a child may be counted both live and
    /// reaped.
    waited_for: Duration,
}

/// A process at its last sample.
#[derive(Debug, Default)]
struct Last {
    own: Duration,
    of_children: Duration,
    /// Whether the previous sample did not find it: it has ended, or its parent just had.
    missing: bool,
}

impl ProcessorTime {
    /// Adds a sample, and returns the CPU time used so far.
    pub(super) fn add(&mut self, times: &[ProcessTime]) -> Duration {
        let mut before = std::mem::take(&mut self.seen);
        let mut waited_for = Duration::ZERO;
        for time in times {
            let key = (time.pid, time.started);
            let last = before.remove(&key).unwrap_or_default();
            if last.missing {
                self.gone = self.gone.saturating_sub(last.own + last.of_children);
            }
            self.used += time.own.saturating_sub(last.own);
            waited_for += time.of_children.saturating_sub(last.of_children);
            self.seen.insert(key, Last { own: time.own, of_children: time.of_children, missing: false });
        }
        for (key, last) in before.into_iter().filter(|(_, last)| !last.missing) {
            self.gone += last.own + last.of_children;
            self.seen.insert(key, Last { missing: true, ..last });
        }
        self.used += self.waited_for.saturating_sub(self.gone);
        self.gone = self.gone.saturating_sub(self.waited_for);
        self.waited_for = waited_for;
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(pid: u32, own: u64, of_children: u64) -> ProcessTime {
        let own = Duration::from_millis(own);
        ProcessTime { pid, started: 7, own, of_children: Duration::from_millis(of_children) }
    }

    /// Returns the CPU time after `looks` and a repetition of the last one.
    fn used(looks: &[&[ProcessTime]]) -> u128 {
        let mut count = ProcessorTime::default();
        for look in looks {
            count.add(look);
        }
        count.add(looks.last().unwrap()).as_millis()
    }

    #[test]
    fn children_that_nobody_waits_for_count_one_after_the_other() {
        let looks = [[time(1, 10, 0), time(2, 500, 0)], [time(1, 10, 0), time(3, 500, 0)]];
        assert_eq!(used(&[&looks[0], &looks[1], &[time(1, 10, 0)]]), 1010);
    }

    #[test]
    fn what_was_waited_for_counts_once_whenever_a_look_finds_it() {
        let child = time(2, 500, 30);
        let waited = [time(1, 10, 540)];
        // 10 ms of the child were used after its last sample.
        assert_eq!(used(&[&[time(1, 10, 0), child], &waited]), 550);
        assert_eq!(used(&[&[time(1, 10, 0), child], &[time(1, 10, 0)], &waited]), 550, "the end alone");
        assert_eq!(used(&[&[time(1, 10, 0), child], &[waited[0], child], &waited]), 550, "both");
        assert_eq!(used(&[&[time(1, 10, 0)], &waited]), 550, "never seen");
    }

    #[test]
    fn a_process_that_one_look_missed_counts_once() {
        let both = [time(1, 10, 0), time(2, 500, 0)];
        assert_eq!(used(&[&both, &[time(1, 10, 0)], &both]), 510);
        assert_eq!(used(&[&both, &[], &both, &[time(1, 10, 505)]]), 515);
    }
}
