//! What the figures were taken on, and how busy it was.

use std::fs;

use serde::Serialize;

/// Taken at the start and at the end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Machine {
    pub cpus: usize,
    pub model: String,
    pub kernel: String,
    /// Of the last minute; other work on the machine makes every figure worse and wider.
    pub load: String,
}

impl Machine {
    pub(crate) fn now() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let model = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name"))
            .map(|rest| rest.trim_start_matches([' ', '\t', ':']).to_string());
        Machine {
            cpus: std::thread::available_parallelism().map_or(0, usize::from),
            model: model.unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_string(),
            load: read("/proc/loadavg").split(' ').next().unwrap_or_default().to_string(),
        }
    }
}
