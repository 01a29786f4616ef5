//! What a worker uses and runs at this moment, as the kernel counts it.

use std::sync::Arc;

use asp_launcher::{Activity, Cgroup, Stats};
use parking_lot::Mutex;

/// What a worker uses: its control group, as long as it lives, or else its processes.
#[derive(Clone, Debug, Default)]
pub struct Accounting {
    pub(super) cgroup: Arc<Mutex<Option<Cgroup>>>,
    /// Its outermost process.
    pub(super) root: Option<u32>,
}

impl Accounting {
    /// What the worker used so far; zeros when it is gone or has no control group.
    pub fn stats(&self) -> Stats {
        self.cgroup.lock().as_ref().map(Cgroup::stats).unwrap_or_default()
    }

    /// What the worker runs at this moment.
    pub fn activity(&self) -> Activity {
        let told = self.cgroup.lock().as_ref().map(Cgroup::activity);
        told.or_else(|| self.root.map(Activity::below)).unwrap_or_default()
    }
}
