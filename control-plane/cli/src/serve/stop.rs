//! The signals on which the process stops in order.
//!
//! Keeps true: closing the terminal stops it like Ctrl-C, unless it was started to ignore that.

use std::fs;
use std::future::pending;

use anyhow::Context;
use rustix::process::Signal;
use tokio::signal::unix::{SignalKind, signal};

const STATUS: &str = "/proc/self/status";
/// Name of the line with the ignored signals, proc_pid_status(5).
const IGNORED: &str = "SigIgn:";
/// Bit of SIGHUP, signal number 1.
const HANGUP: u64 = 1;

/// Waits for the first of these signals and returns its number.
pub(crate) async fn wait_for_signal() -> anyhow::Result<u8> {
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("listen for SIGINT")?;
    let (signal, name) = tokio::select! {
        _ = terminate.recv() => (Signal::TERM, "SIGTERM"),
        _ = interrupt.recv() => (Signal::INT, "SIGINT"),
        hung_up = wait_for_hangup() => { hung_up?; (Signal::HUP, "SIGHUP") }
    };
    tracing::info!(signal = name, "stopping");
    Ok(u8::try_from(signal.as_raw()).unwrap_or_default())
}

/// Waits for SIGHUP, which a closed terminal sends; never completes under nohup(1), which listening would undo.
async fn wait_for_hangup() -> anyhow::Result<()> {
    if ignores_hangup(&fs::read_to_string(STATUS).unwrap_or_default()) {
        return pending().await;
    }
    let mut hangup = signal(SignalKind::hangup()).context("listen for SIGHUP")?;
    hangup.recv().await;
    Ok(())
}

fn ignores_hangup(status: &str) -> bool {
    let ignored = status.lines().find_map(|line| line.strip_prefix(IGNORED));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    ignored.is_some_and(|mask| mask & HANGUP != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nohup_is_seen() {
        assert!(ignores_hangup("SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\n"));
        assert!(!ignores_hangup("SigBlk:\t0000000000000001\nSigIgn:\t0000000000001000\n"));
        assert!(!ignores_hangup(""));
    }
}
