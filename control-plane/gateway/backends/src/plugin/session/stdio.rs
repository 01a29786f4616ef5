//! The lines of a stdio server within its call, read as the messages of an upstream over HTTP are.

use asp_mcp_client::client::downstream::Downstream;
use asp_mcp_client::client::{ClientFault, ServerEvent};
use asp_mcp_client::lines::{self, LineEvent};
use asp_proto::plugin::{LineAnswer, LineNotification};

use super::{AttemptOutcome, WorkerSession};
use crate::conversation::results::output;
use crate::conversation::upstream_call::refusal;

impl WorkerSession<'_> {
    /// Passes a notification of a stdio server on to the callers.
    pub(super) fn notify(&self, notification: &LineNotification) {
        match lines::event(notification) {
            Some(LineEvent::Server(event)) => {
                if let ServerEvent::Log { level, data, .. } = &event {
                    self.job.pass_to_listener(level.as_deref(), data);
                }
                self.job.clients.receive_event(event);
            }
            Some(LineEvent::Updated(uri)) => {
                self.job.execution.platform.resource_changed(self.job.call(), &uri);
            }
            Some(LineEvent::ListsChanged) => self.job.lists_changed(),
            None => {}
        }
    }

    /// Returns the outcome of a call that a stdio server has answered, as for an upstream over HTTP.
    pub(super) fn answered(&self, answer: &LineAnswer) -> AttemptOutcome {
        if let Err(refusal) = self.check_artifacts() {
            return AttemptOutcome::Ended(Err(refusal));
        }
        let call = self.job.call();
        let read = lines::outcome(answer).and_then(|result| {
            let kind = call.entry.primitive.kind();
            let schema = call.entry.output.as_ref();
            output(kind, schema, &result.sent).map_err(ClientFault::Lost)
        });
        AttemptOutcome::Ended(read.map_err(|fault| refusal(call, &[], fault)))
    }
}
