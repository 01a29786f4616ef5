//! What a process used: CPU time and resident memory, from /proc.
//!
//! CPU time is taken from the threads' `schedstat`, which counts nanoseconds; `stat` counts ticks of 10 ms,
//! too coarse for a phase of a few seconds. What a thread used that ended between two readings is lost: the
//! workers of Envoy and of the gateway live as long as the process.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context, Result};
use asp_e2e::process::resident;

/// The processes behind a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Processes {
    pub envoy: Option<u32>,
    /// The gateway, or the peer in its place.
    pub gateway: Option<u32>,
    /// The MCP server behind the peer.
    pub backend: Option<u32>,
}

/// A reading of all.
#[derive(Clone, Debug, Default)]
pub(crate) struct Usage {
    pub envoy: Option<Reading>,
    pub gateway: Option<Reading>,
    pub backend: Option<Reading>,
}

/// Of one process.
#[derive(Clone, Debug)]
pub(crate) struct Reading {
    /// CPU time of each thread so far, by its id.
    cpu_nanos: BTreeMap<String, u64>,
    pub rss_kib: u64,
}

impl Reading {
    /// CPU time used since an earlier reading of the same process, in nanoseconds.
    pub(crate) fn cpu_nanos_since(&self, earlier: &Reading) -> u64 {
        let used = |(thread, nanos): (&String, &u64)| {
            nanos.saturating_sub(earlier.cpu_nanos.get(thread).copied().unwrap_or(0))
        };
        self.cpu_nanos.iter().map(used).sum()
    }
}

impl Processes {
    pub(crate) fn read(&self) -> Result<Usage> {
        Ok(Usage {
            envoy: self.envoy.map(reading).transpose()?,
            gateway: self.gateway.map(reading).transpose()?,
            backend: self.backend.map(reading).transpose()?,
        })
    }
}

/// Of one process, now.
pub(crate) fn reading(pid: u32) -> Result<Reading> {
    let mut cpu_nanos = BTreeMap::new();
    for thread in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid}"))? {
        let thread = thread?;
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(thread.path().join("schedstat")) else { continue };
        let nanos = text.split_whitespace().next().and_then(|nanos| nanos.parse().ok());
        cpu_nanos.insert(thread.file_name().to_string_lossy().into_owned(), nanos.context("schedstat")?);
    }
    Ok(Reading { cpu_nanos, rss_kib: resident(pid)? / 1024 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_as_cpu_time_and_memory() {
        let own = Processes { envoy: Some(std::process::id()), ..Processes::default() };
        let before = own.read().unwrap().envoy.unwrap();
        let started = std::time::Instant::now();
        while started.elapsed().as_millis() < 50 {
            std::hint::black_box(started);
        }
        let after = own.read().unwrap().envoy.unwrap();
        assert!(after.cpu_nanos_since(&before) > 1_000_000, "{before:?} {after:?}");
        assert_eq!(after.cpu_nanos_since(&after), 0);
        assert!(after.rss_kib > 100);
        assert!(own.read().unwrap().gateway.is_none());
    }
}
