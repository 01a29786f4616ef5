//! The two points at which whoever runs a gateway may look into calls: the arguments, once they fit the input schema,
//! and the output, once it fits the output schema.
//!
//! Owns: the port, and how an inspector is asked: within a time, up to a size, and by a rule for when it fails. Refuses:
//! to know what is looked for. Keeps true: an inspector holds a call for no longer than its time and the call's own;
//! what an inspector wanted changed or refused never goes on as it was, whatever the rule.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;

use crate::call::Call;
use crate::call::outcome::{Output, written_size};

/// What an inspector says of a content.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding<T> {
    Pass,
    /// This goes on in its place, if it fits the schema.
    Replace(T),
    /// It does not go on. The caller is told the text.
    Refuse(String),
}

/// Why there is no finding; told to operators only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InspectorFault(pub String);

/// Looks into one kind of content.
#[async_trait]
pub trait Inspector<T>: Send + Sync {
    /// Looks at what `call` is asked or has come to. Dropped when its time is over.
    async fn inspect(&self, call: &Call, content: &T) -> Result<Finding<T>, InspectorFault>;
}

/// What becomes of a content that an inspector could not look into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnFailure {
    /// It goes on as it is.
    Open,
    /// It does not go on.
    Closed,
}

/// An inspector and how it is asked.
pub struct Inspection<T> {
    pub inspector: Arc<dyn Inspector<T>>,
    /// The longest it may take.
    pub within: Duration,
    /// The most bytes of JSON it is shown, and may answer with.
    pub max_bytes: usize,
    pub on_failure: OnFailure,
}

/// The inspections of a gateway; none by default.
#[derive(Default)]
pub struct Inspections {
    pub input: Option<Inspection<Value>>,
    pub output: Option<Inspection<Output>>,
}

/// What is to be done with a content.
pub(crate) enum Inspected<T> {
    Passed,
    Replaced(T),
    Refused(String),
    /// Nobody could look into it, and without that it does not go on.
    Unseen,
}

impl<T: Serialize> Inspection<T> {
    /// Asks of `what` (arguments, output) of a call.
    pub(crate) async fn ask(&self, call: &Call, what: &'static str, content: &T) -> Inspected<T> {
        match self.found(call, content).await {
            Ok(Finding::Pass) => Inspected::Passed,
            Ok(Finding::Refuse(why)) => Inspected::Refused(why),
            Ok(Finding::Replace(other)) if written_size(&other) <= self.max_bytes => {
                Inspected::Replaced(other)
            }
            Ok(Finding::Replace(_)) => {
                tracing::error!(call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, max_bytes = self.max_bytes, "an inspector replaced the {what} of a call by more than it may, and the call is refused; mend the inspector, or raise its bound");
                Inspected::Unseen
            }
            Err(why) => {
                let meaning = match self.on_failure {
                    OnFailure::Open => "goes on uninspected, as its rule says",
                    OnFailure::Closed => "is refused, as its rule says",
                };
                if !call.is_cancelled() {
                    tracing::warn!(call = %call.id, trace = %call.trace, primitive = %call.entry.primitive.id, %why, "the {what} of a call could not be inspected, and the call {meaning}; check the inspector");
                }
                match self.on_failure {
                    OnFailure::Open => Inspected::Passed,
                    OnFailure::Closed => Inspected::Unseen,
                }
            }
        }
    }

    async fn found(&self, call: &Call, content: &T) -> Result<Finding<T>, InspectorFault> {
        let size = written_size(content);
        if size > self.max_bytes {
            return Err(InspectorFault(format!(
                "it has {size} bytes, and {} may be inspected",
                self.max_bytes
            )));
        }
        let until = call.deadline().min(Instant::now() + self.within);
        tokio::select! {
            biased;
            found = self.inspector.inspect(call, content) => found,
            () = call.cancelled() => Err(InspectorFault("the call was cancelled meanwhile".into())),
            () = tokio::time::sleep_until(until) => Err(InspectorFault("the inspector did not answer in time".into())),
        }
    }
}
