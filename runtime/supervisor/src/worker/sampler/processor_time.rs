//! Processor time that a worker used in all, from looks at its processes.
//!
//! Owns the count. Keeps true: it never falls, nothing counts twice, and a process that was seen counts though nobody
//! waits for it (of children that are ignored, SIGCHLD, the kernel adds nothing to their parent). Bounded by the
//! processes of two looks. Refuses to guess: of a process that began and ended between two looks it knows what its
//! parent's wait tells, and nothing where nobody waits.

use std::collections::HashMap;
use std::time::Duration;

use asp_launcher::ProcessTime;

#[derive(Debug, Default)]
pub(super) struct ProcessorTime {
    used: Duration,
    seen: HashMap<(u32, u64), Last>,
    /// Of processes that are gone: counted, and not yet found among what was waited for.
    gone: Duration,
    /// Waited for, as the look before found it: a look is no moment, and may find a child and its end.
    waited_for: Duration,
}

/// A process as it was seen last.
#[derive(Debug, Default)]
struct Last {
    own: Duration,
    of_children: Duration,
    /// The look before did not find it: it has ended, or its parent just had.
    missing: bool,
}

impl ProcessorTime {
    /// What was used so far, after another look.
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

    /// What was used after each of `looks` and one that finds the same again.
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
        // 10 ms of the child came after its last look.
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
