//! Repeated samples of the processes below given roots, at a cost that depends on those and not on the whole machine.
//!
//! The kernel numbers processes and threads consecutively (proc_sys_kernel(5), `ns_last_pid`), and every new process
//! below a root has its parent there. So a sample reads the processes found by the last one, and those numbered since.
//! Keeps true: nothing is missed for longer than `FULL_EVERY` samples, whatever happens to the numbers: then all
//! processes of the machine are read. They are also read if the kernel does not report the last number, after many
//! processes were started, and for a new root.

use std::collections::HashSet;
use std::fs;
use std::ops::RangeInclusive;

use super::{Processes, Tree, read};

/// One second, at ten samples a second.
const FULL_EVERY: u32 = 10;
/// Maximum number of new ids since the sample before the last; reading them costs no more than reading all processes of
/// a machine.
const MAX_NEW: u32 = 512;

/// State from previous samples.
#[derive(Debug, Default)]
pub struct Lookout {
    roots: Vec<u32>,
    /// The roots and all processes below them.
    members: HashSet<u32>,
    /// Processes whose parent was not found: it ended during the sample. The next sample sees them adopted.
    strays: HashSet<u32>,
    /// Last id assigned at the previous sample and at the one before it: ids that were new then may belong to strays.
    given: [Option<u32>; 2],
    /// Number of samples since all processes were read.
    partial: u32,
}

impl Lookout {
    /// Returns each of `roots` with everything below it, in order; an empty tree for one that is gone.
    pub fn sample(&mut self, roots: &[u32]) -> Vec<Tree> {
        let last = last_assigned_id();
        let mut found = match self.newly_assigned_ids(roots, last) {
            Some(new) => {
                self.partial += 1;
                let known = self.members.union(&self.strays).copied().filter(|pid| !new.contains(pid));
                Processes::of(known.chain(new.clone().filter(|pid| is_process(*pid))))
            }
            None => {
                self.partial = 0;
                Processes::now()
            }
        };
        let trees: Vec<Tree> = roots.iter().map(|root| found.take(*root)).collect();
        self.members.retain(|pid| found.seen.contains_key(pid));
        self.strays = std::mem::take(&mut self.members);
        self.members.extend(trees.iter().flat_map(|tree| tree.times.iter().map(|time| time.pid)));
        self.roots = roots.to_vec();
        self.given = [last, self.given[0]];
        trees
    }

    /// Returns the ids assigned since the sample before the last; `None` if unknown or too many.
    fn newly_assigned_ids(&self, roots: &[u32], last: Option<u32>) -> Option<RangeInclusive<u32>> {
        let known = roots.iter().all(|root| self.roots.contains(root));
        let new = self.given[1]?.checked_add(1)?..=last?;
        // The last id is below an earlier one after the ids wrapped around.
        let few = new.end().checked_add(1)?.checked_sub(*new.start())? <= MAX_NEW;
        (known && few && self.partial < FULL_EVERY).then_some(new)
    }
}

/// Returns the id that the kernel assigned last, to a process or a thread, in this process's namespace.
fn last_assigned_id() -> Option<u32> {
    fs::read_to_string("/proc/sys/kernel/ns_last_pid").ok()?.trim().parse().ok()
}

/// Whether the id belongs to a process; a thread has a directory in /proc too.
fn is_process(pid: u32) -> bool {
    let status = read(&format!("/proc/{pid}/status")).unwrap_or_default();
    let group = status.lines().find_map(|line| line.strip_prefix("Tgid:")?.trim().parse().ok());
    group == Some(pid)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    /// Does nothing until a line arrives.
    fn waiting(program: &[&str]) -> Child {
        let mut command = Command::new(program[0]);
        command.args(&program[1..]).stdin(Stdio::piped()).spawn().unwrap()
    }

    /// Samples until `wanted` holds; reads all processes only if numbers are assigned too fast.
    fn becomes(lookout: &mut Lookout, root: u32, wanted: impl Fn(&Tree) -> bool) -> Tree {
        let began = Instant::now();
        loop {
            lookout.partial = lookout.partial.min(1);
            let found = lookout.sample(&[root]).remove(0);
            if wanted(&found) || began.elapsed() > Duration::from_secs(30) {
                return found;
            }
            std::thread::yield_now();
        }
    }

    /// Returns a lookout with enough samples to rely on numbers, and the results `before` the line and `after` it.
    fn before_and_after(mut root: Child, wanted: impl Fn(&Tree) -> bool) -> (Tree, Tree) {
        let mut lookout = Lookout::default();
        for _ in 0..3 {
            lookout.sample(&[root.id()]);
        }
        let before = lookout.sample(&[root.id()]).remove(0);
        root.stdin.take().unwrap().write_all(b"go\n").unwrap();
        let after = becomes(&mut lookout, root.id(), wanted);
        for time in &after.times {
            Command::new("kill").args(["-9", &time.pid.to_string()]).status().unwrap();
        }
        root.wait().unwrap();
        let gone = lookout.sample(&[root.id()]).remove(0);
        assert_eq!(gone.activity.processes, 0, "{gone:?}");
        (before, after)
    }

    #[test]
    fn what_starts_after_the_first_looks_is_found_by_its_number_and_what_is_below_it() {
        let root = waiting(&["/bin/sh", "-c", "read line; (sleep 60; :) & sleep 60"]);
        let (before, after) = before_and_after(root, |found| found.activity.processes == 4);
        assert_eq!((before.activity.processes, after.activity.processes), (1, 4), "{before:?} {after:?}");
    }

    #[test]
    fn a_thread_is_no_process() {
        let code = "import threading, time\ninput()\n\
                    for _ in range(5): threading.Thread(target=time.sleep, args=(60,)).start()";
        let root = waiting(&["/usr/bin/python3", "-I", "-c", code]);
        let (_, after) = before_and_after(root, |found| found.activity.tasks == 6);
        assert_eq!((after.activity.processes, after.activity.tasks), (1, 6), "{after:?}");
    }

    #[test]
    fn all_processes_are_read_where_the_numbers_do_not_tell() {
        let known = |given, partial| Lookout { roots: vec![7], given, partial, ..Lookout::default() };
        let fresh = known([Some(120), Some(100)], 0);
        assert_eq!(fresh.newly_assigned_ids(&[7], Some(130)), Some(101..=130));
        assert_eq!(fresh.newly_assigned_ids(&[7, 8], Some(130)), None, "a new root may have children");
        assert_eq!(fresh.newly_assigned_ids(&[7], Some(100 + MAX_NEW)), Some(101..=100 + MAX_NEW));
        assert_eq!(fresh.newly_assigned_ids(&[7], Some(101 + MAX_NEW)), None, "too many");
        assert_eq!(fresh.newly_assigned_ids(&[7], Some(90)), None, "they began anew");
        assert_eq!(fresh.newly_assigned_ids(&[7], None), None, "the kernel does not tell");
        assert_eq!(known([Some(120), None], 0).newly_assigned_ids(&[7], Some(130)), None, "the second look");
        assert_eq!(
            known([Some(120), Some(100)], FULL_EVERY).newly_assigned_ids(&[7], Some(130)),
            None,
            "now and then"
        );
    }
}
