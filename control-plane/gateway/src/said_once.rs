//! What an operator is told of a store that does not answer: once, until it does again.

use std::sync::atomic::{AtomicBool, Ordering};

/// Whether it was said, since there was an answer last.
#[derive(Default)]
pub(crate) struct SaidOnce(AtomicBool);

impl SaidOnce {
    /// An answer; `say` is called with the first error of an outage.
    pub(crate) fn noted<T, E>(&self, answer: Result<T, E>, say: impl FnOnce(E)) -> Option<T> {
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
