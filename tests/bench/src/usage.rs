//! What a process used: CPU time and resident memory, from /proc.
//!
//! CPU time is the sum over the threads' `schedstat`, which counts nanoseconds; `stat` counts ticks of 10 ms,
//! too coarse for a phase of a few seconds. The measured processes keep their threads.

use std::fs;

use anyhow::{Context, Result};

/// The processes behind a row.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Processes {
    pub envoy: Option<u32>,
    pub gateway: Option<u32>,
}

/// A reading of both.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    pub envoy: Option<Reading>,
    pub gateway: Option<Reading>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub cpu_nanos: u64,
    pub rss_kib: u64,
}

impl Processes {
    pub(crate) fn read(&self) -> Result<Usage> {
        Ok(Usage {
            envoy: self.envoy.map(reading).transpose()?,
            gateway: self.gateway.map(reading).transpose()?,
        })
    }
}

fn reading(pid: u32) -> Result<Reading> {
    let mut cpu_nanos = 0;
    for thread in fs::read_dir(format!("/proc/{pid}/task")).with_context(|| format!("process {pid}"))? {
        // A thread may end between the listing and the reading.
        let Ok(text) = fs::read_to_string(thread?.path().join("schedstat")) else { continue };
        cpu_nanos += text.split_whitespace().next().and_then(|nanos| nanos.parse().ok()).unwrap_or(0);
    }
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("VmRSS")?;
    let rss_kib = rss.trim().trim_end_matches(" kB").parse().context("VmRSS is a number of kB")?;
    Ok(Reading { cpu_nanos, rss_kib })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_shows_as_cpu_time_and_memory() {
        let own = Processes { envoy: Some(std::process::id()), gateway: None };
        let before = own.read().unwrap().envoy.unwrap();
        let started = std::time::Instant::now();
        while started.elapsed().as_millis() < 50 {
            std::hint::black_box(started);
        }
        let after = own.read().unwrap().envoy.unwrap();
        assert!(after.cpu_nanos > before.cpu_nanos + 1_000_000, "{before:?} {after:?}");
        assert!(after.rss_kib > 100);
        assert!(own.read().unwrap().gateway.is_none());
    }
}
