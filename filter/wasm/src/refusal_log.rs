//! Log lines of refused requests: the trace in a client's error finds why, although no gateway saw the request.
//!
//! Keeps true: a VM logs at most [`LINES`] lines of one reason a minute; the next line of the reason has the number of those
//! left out.

use std::cell::RefCell;
use std::collections::BTreeMap;

use asp_edge::{Reason, Reply};

use crate::host::Host;

/// Maximum number of lines of one reason in a minute.
const LINES: u32 = 30;
const MINUTE_MS: u64 = 60_000;

/// Lines of each reason in the current minute.
#[derive(Default)]
pub struct RefusalLog(RefCell<BTreeMap<Reason, LineCount>>);

#[derive(Default)]
struct LineCount {
    since_ms: u64,
    lines: u32,
    left_out: u64,
}

impl RefusalLog {
    /// Logs a refusal if its reason has a line left. The fault of a token that a trusted issuer signed is a warning.
    pub fn note(&self, host: &impl Host, reply: &Reply) {
        let (Some(reason), Some(trace)) = (reply.reason, reply.trace) else { return };
        let Some(left_out) = self.take(reason, host.now_ms()) else { return };
        let mut text = format!("request refused: reason={} trace={trace}", reason.as_str());
        if left_out > 0 {
            text.push_str(&format!(" left_out={left_out}"));
        }
        match reply.cause {
            Some(cause) => host.warn(&format!("{text} cause=\"token of a trusted issuer: {cause}\"")),
            None => host.info(&text),
        }
    }

    /// Takes a line; returns the number of lines left out before it, `None` if there is no line left.
    fn take(&self, reason: Reason, now_ms: u64) -> Option<u64> {
        let mut counts = self.0.borrow_mut();
        let count = counts.entry(reason).or_default();
        if now_ms.abs_diff(count.since_ms) >= MINUTE_MS {
            (count.since_ms, count.lines) = (now_ms, 0);
        }
        if count.lines == LINES {
            count.left_out += 1;
            return None;
        }
        count.lines += 1;
        Some(std::mem::take(&mut count.left_out))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_has_a_bounded_number_of_lines_and_is_counted() {
        let log = RefusalLog::default();
        let taken =
            |now_ms: u64| (0..100).filter_map(|_| log.take(Reason::TokenInvalid, now_ms)).collect::<Vec<_>>();
        assert_eq!(taken(1_000_000), [0; 30]);
        assert_eq!(log.take(Reason::UnknownServer, 1_000_000), Some(0), "each reason has lines of its own");
        assert!(taken(1_059_999).is_empty());
        let next = taken(1_060_000);
        assert_eq!((next.len(), next[0], next[1]), (30, 170, 0));
    }
}
