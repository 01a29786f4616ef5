//! Logging of store outages: once per outage, at its first error.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether the current outage has been logged.
#[derive(Default)]
pub struct OutageLog(AtomicBool);

impl OutageLog {
    /// Returns the value of a success; calls `say` with the first error of an outage.
    pub fn noted<T, E>(&self, answer: Result<T, E>, say: impl FnOnce(E)) -> Option<T> {
        match answer {
            Ok(answer) => {
                self.0.store(false, Ordering::Relaxed);
                Some(answer)
            }
            Err(error) => {
                if !self.0.swap(true, Ordering::Relaxed) {
                    say(error);
                }
                None
            }
        }
    }
}
