//! The span of a traced call: its ids (W3C Trace Context) and the stages that the call has passed.
//!
//! Keeps true: at most [`MAX_STAGES`] stages are recorded.

use parking_lot::Mutex;
use tokio::time::Instant;

/// More stages than a call passes.
const MAX_STAGES: usize = 16;

/// The span of a call from its start to its outcome.
pub struct CallSpan {
    pub id: u64,
    /// Span of the execution, the parent of everything that the call sends on.
    pub execution: u64,
    /// Span of the caller; `None` if it sent none.
    pub parent: Option<u64>,
    stages: Mutex<Vec<PassedStage>>,
}

/// A stage that a call has passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PassedStage {
    pub name: &'static str,
    pub began: Instant,
    pub ended: Instant,
}

impl CallSpan {
    /// Creates a span with new ids.
    pub fn new(parent: Option<u64>) -> CallSpan {
        let id = || rand::random::<u64>().max(1);
        CallSpan { id: id(), execution: id(), parent, stages: Mutex::default() }
    }

    /// Records a stage that ends now.
    pub fn pass(&self, name: &'static str, began: Instant, ended: Instant) {
        let mut stages = self.stages.lock();
        if stages.len() < MAX_STAGES {
            stages.push(PassedStage { name, began, ended });
        }
    }

    /// Returns the recorded stages.
    pub fn stages(&self) -> Vec<PassedStage> {
        self.stages.lock().clone()
    }
}
