//! Current resource use and activity of a worker: as the kernel counts them, or as last sampled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use asp_launcher::{Activity, Cgroup, Processes, Stats, mapped_bytes};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::cause::Cause;
use crate::worker::sampler::SampledWorker;

/// Resource accounting of a worker: by its control group, as long as that exists, or otherwise by its processes.
#[derive(Clone, Debug, Default)]
pub struct Accounting {
    pub(super) cgroup: Arc<Mutex<Option<Cgroup>>>,
    /// Samples of a worker without a control group.
    pub(super) sampled: Option<Arc<SampledWorker>>,
    /// Its outermost process.
    pub(super) root: Option<u32>,
    /// Bytes of files that one of its processes has mapped.
    pub(super) mapped: Arc<AtomicU64>,
}

impl Accounting {
    /// Returns the worker's resource use so far; zeros when its control group is gone.
    pub fn stats(&self) -> Stats {
        match &self.sampled {
            Some(sampled) => sampled.stats(),
            None => self.cgroup.lock().as_ref().map(Cgroup::stats).unwrap_or_default(),
        }
    }

    /// Returns the limit for which the runtime ended the worker, if it did.
    pub fn verdict(&self) -> Option<Cause> {
        self.sampled.as_ref().and_then(|sampled| sampled.verdict())
    }

    /// Returns the worker's activity and the time of that information: now, or the last sample. `None`: not sampled
    /// yet. Never reads the machine's processes, so that it costs calls nothing.
    pub fn activity(&self) -> Option<(Activity, Instant)> {
        match &self.sampled {
            Some(sampled) => sampled.activity(),
            // The group is gone, so nothing runs in it.
            None => Some((self.of_group().unwrap_or_default(), Instant::now())),
        }
    }

    /// Returns the worker's current activity, read on another thread if that takes a while.
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

    /// Reads how many bytes of files the worker has mapped, for [`Accounting::mapped_bytes`].
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

    /// Returns the bytes of files that one of its processes had mapped at the last reading.
    pub fn mapped_bytes(&self) -> u64 {
        self.mapped.load(Ordering::Relaxed)
    }

    fn of_group(&self) -> Option<Activity> {
        self.cgroup.lock().as_ref().map(Cgroup::activity)
    }
}
