//! Self-reported measurements of a worker's interpreter: its heap and its garbage collections.
//!
//! Owns the plausibility check of its answer to `ToolPlugin.Health`. Keeps true: a worker that is silent or lies
//! changes only its own numbers.

use std::time::Duration;

use asp_proto::plugin as wire;

/// More memory than any machine has: 2^50 bytes.
const MOST_BYTES: u64 = 1 << 50;

/// Measurements of one interpreter; `None`: not reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vitals {
    pub heap_used_bytes: Option<u64>,
    pub heap_limit_bytes: Option<u64>,
    /// Allocator blocks in use.
    pub heap_blocks: Option<u64>,
    /// Garbage collections since the process started.
    pub gc_count: Option<u64>,
    pub gc_time: Option<Duration>,
}

impl Vitals {
    /// Returns the plausible part of a report from a process that has lived this long. Implausible values are left out;
    /// counters never decrease.
    pub fn plausible(reported: &wire::Vitals, lived: Duration, before: Vitals) -> Vitals {
        let bytes = |reported: Option<u64>| reported.filter(|bytes| *bytes <= MOST_BYTES);
        // No collection is shorter than a microsecond, and they do not overlap.
        let micros = u64::try_from(lived.as_micros()).unwrap_or(u64::MAX);
        let within = |reported: Option<u64>| reported.filter(|value| *value <= micros);
        let gc_time = within(reported.gc_micros).map(Duration::from_micros);
        Vitals {
            heap_used_bytes: bytes(reported.heap_used_bytes),
            heap_limit_bytes: bytes(reported.heap_limit_bytes),
            heap_blocks: bytes(reported.heap_blocks),
            gc_count: within(reported.gc_count).max(before.gc_count),
            gc_time: gc_time.max(before.gc_time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIVED: Duration = Duration::from_secs(10);

    #[test]
    fn a_worker_is_believed_what_can_be_true() {
        let honest = wire::Vitals {
            heap_used_bytes: Some(1 << 20),
            heap_limit_bytes: Some(1 << 30),
            gc_count: Some(3),
            gc_micros: Some(1_500),
            heap_blocks: None,
        };
        let before = Vitals::plausible(&honest, LIVED, Vitals::default());
        assert_eq!(before.heap_used_bytes, Some(1 << 20));
        assert_eq!((before.gc_count, before.gc_time), (Some(3), Some(Duration::from_micros(1_500))));
        let liar = wire::Vitals {
            heap_used_bytes: Some(u64::MAX),
            heap_limit_bytes: Some(MOST_BYTES + 1),
            gc_count: Some(u64::MAX),
            gc_micros: Some(10_000_001),
            heap_blocks: Some(u64::MAX),
        };
        let after = Vitals::plausible(&liar, LIVED, before);
        assert_eq!((after.heap_used_bytes, after.heap_limit_bytes, after.heap_blocks), (None, None, None));
        assert_eq!((after.gc_count, after.gc_time), (before.gc_count, before.gc_time), "as before");
        let back = wire::Vitals { gc_count: Some(1), gc_micros: Some(1), ..honest };
        assert_eq!(Vitals::plausible(&back, LIVED, before).gc_count, Some(3), "it does not go back");
    }
}
