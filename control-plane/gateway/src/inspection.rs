//! The two points at which an operator may inspect calls: the arguments, once they fit the input schema, and the
//! output, once it fits the output schema.
//!
//! Owns: the port, and the rules for an inspector: its time limit, the maximum size, and the action when it fails.
//! Refuses: knowledge of what is inspected for. Keeps true: an inspector holds a call for no longer than its own time
//! limit and the call's; content that an inspector wanted to replace or refuse never passes unchanged, whatever the
//! rule.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::call::Call;
use crate::call::outcome::{Output, written_size};

/// Result of an inspection.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding<T> {
    Pass,
    /// Continues with this content instead, if it fits the schema.
    Replace(T),
    /// Refuses the content. The caller gets the text.
    Refuse(String),
}

/// Reason for a missing finding; shown to operators only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InspectorFault(pub String);

/// Inspector of one kind of content.
#[async_trait]
pub trait Inspector<T>: Send + Sync {
    /// Inspects the arguments or the output of `call`. Dropped when its time is over.
    async fn inspect(&self, call: &Call, content: &T) -> Result<Finding<T>, InspectorFault>;
}

/// Action when content could not be inspected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// Passes the content unchanged.
    Open,
    /// Refuses the content.
    Closed,
}

/// An inspector with its limits.
pub struct Inspection<T> {
    pub inspector: Arc<dyn Inspector<T>>,
    /// Time limit.
    pub within: Duration,
    /// Maximum size of the JSON that it gets and returns, in bytes.
    pub max_bytes: usize,
    pub on_failure: OnFailure,
}

/// The inspections of a gateway; none by default.
#[derive(Default)]
pub struct Inspections {
    pub input: Option<Inspection<Value>>,
    pub output: Option<Inspection<Output>>,
}

/// Consequence of an inspection.
pub(crate) enum InspectionResult<T> {
    Passed,
    Replaced(T),
    Refused(String),
    /// The content could not be inspected, and must not pass uninspected.
    Unseen,
}

impl<T: Serialize> Inspection<T> {
    /// Inspects `what` (arguments, output) of a call.
    pub(crate) async fn ask(&self, call: &Call, what: &'static str, content: &T) -> InspectionResult<T> {
        match self.found(call, content).await {
            Ok(Finding::Pass) => InspectionResult::Passed,
            Ok(Finding::Refuse(why)) => InspectionResult::Refused(why),
            Ok(Finding::Replace(other)) if written_size(&other) <= self.max_bytes => {
                InspectionResult::Replaced(other)
            }
            Ok(Finding::Replace(_)) => {
                tracing::error!(call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, inspected = what, max_bytes = self.max_bytes, "inspector returned a replacement that is too large; the call is refused: fix the inspector, or raise its bound");
                InspectionResult::Unseen
            }
            Err(why) => {
                let effect = match self.on_failure {
                    OnFailure::Open => "the call continues uninspected",
                    OnFailure::Closed => "the call is refused",
                };
                if !call.is_cancelled() {
                    tracing::warn!(call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, inspected = what, %why, effect, "content of a call could not be inspected; check the inspector");
                }
                match self.on_failure {
                    OnFailure::Open => InspectionResult::Passed,
                    OnFailure::Closed => InspectionResult::Unseen,
                }
            }
        }
    }

    async fn found(&self, call: &Call, content: &T) -> Result<Finding<T>, InspectorFault> {
        let size = written_size(content);
        if size > self.max_bytes {
            return Err(InspectorFault(format!(
                "the content has {size} bytes, and at most {} may be inspected",
                self.max_bytes
            )));
        }
        let until = call.deadline().min(Instant::now() + self.within);
        tokio::select! {
            biased;
            found = self.inspector.inspect(call, content) => found,
            () = call.cancelled() => Err(InspectorFault("the call was cancelled".into())),
            () = tokio::time::sleep_until(until) => Err(InspectorFault("the inspector did not answer in time".into())),
        }
    }
}
