//! When a worker was not listened to.

use parking_lot::Mutex;
use tokio::time::Instant;

/// When a worker's stream was last not read because a gateway did not read. Nothing the worker said meanwhile came
/// through, so nobody may take it for silence.
#[derive(Debug, Default)]
pub struct Stall(Mutex<Held>);

#[derive(Debug, Default)]
enum Held {
    #[default]
    Never,
    Now,
    Until(Instant),
}

impl Stall {
    /// The last moment of which the worker's silence says nothing.
    pub(super) fn last(&self) -> Option<Instant> {
        match *self.0.lock() {
            Held::Never => None,
            Held::Now => Some(Instant::now()),
            Held::Until(moment) => Some(moment),
        }
    }
}

/// Notes a stall as long as this is held.
pub(super) struct Stalled<'a>(&'a Stall);

impl<'a> Stalled<'a> {
    pub(super) fn on(stall: &'a Stall) -> Stalled<'a> {
        *stall.0.lock() = Held::Now;
        Stalled(stall)
    }
}

impl Drop for Stalled<'_> {
    fn drop(&mut self) {
        *self.0.0.lock() = Held::Until(Instant::now());
    }
}
