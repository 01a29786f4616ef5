//! What a worker uses and runs at this moment: as the kernel counts it, or as it was seen last.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asp_launcher::{Activity, Cgroup, Processes, Stats, mapped_bytes};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::worker::sampler::Sampled;

/// What a worker uses: its control group, as long as that is there, or else its processes.
#[derive(Clone, Debug, Default)]
pub struct Accounting {
    pub(super) cgroup: Arc<Mutex<Option<Cgroup>>>,
    /// Where it has no control group.
    pub(super) sampled: Option<Arc<Sampled>>,
    /// Its outermost process.
    pub(super) root: Option<u32>,
    /// Bytes of files that one of its processes has mapped.
    pub(super) mapped: Arc<AtomicU64>,
}

impl Accounting {
    /// What the worker used so far; zeros when its control group is gone.
    pub fn stats(&self) -> Stats {
        match &self.sampled {
            Some(sampled) => sampled.stats(),
            None => self.cgroup.lock().as_ref().map(Cgroup::stats).unwrap_or_default(),
        }
    }

    /// The bound for which it was ended, where that was seen and not the kernel's doing.
    pub fn verdict(&self) -> Option<Cause> {
        self.sampled.as_ref().and_then(|sampled| sampled.verdict())
    }

    /// What the worker runs, and since when that is known: at this moment, or when it was looked at last. `None`: it was
    /// not yet. Never reads the machine's processes, so that it costs calls nothing.
    pub fn activity(&self) -> Option<(Activity, Instant)> {
        match &self.sampled {
            Some(sampled) => sampled.activity(),
            // Gone: it runs nothing.
            None => Some((self.of_group().unwrap_or_default(), Instant::now())),
        }
    }

    /// What the worker runs at this moment, read aside where that takes a while.
    pub async fn activity_now(&self) -> Activity {
        match (self.of_group(), self.root) {
            (Some(activity), _) => activity,
            (None, None) => Activity::default(),
            (None, Some(root)) => {
                let read = tokio::task::spawn_blocking(move || Activity::below(root));
                // Err: the executor is ending.
                read.await.unwrap_or_default()
            }
        }
    }

    /// Reads how much of files the worker has mapped, for [`Accounting::mapped_bytes`].
    pub async fn note_mapped(&self) {
        let of_group = self.cgroup.lock().as_ref().map(Cgroup::processes);
        let root = self.root;
        let read = tokio::task::spawn_blocking(move || {
            let below = || root.map(|root| Processes::now().take(root).pids().to_vec());
            mapped_bytes(&of_group.or_else(below).unwrap_or_default())
        });
        // Err: the executor is ending.
        self.mapped.store(read.await.unwrap_or_default(), Ordering::Relaxed);
    }

    /// Bytes of files that one of its processes had mapped when that was noted.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped.load(Ordering::Relaxed)
    }

    fn of_group(&self) -> Option<Activity> {
        self.cgroup.lock().as_ref().map(Cgroup::activity)
    }
}
