//! The refusal that a response reports, for the log line that every protocol gets from the HTTP entry.
//!
//! Keeps true: a refusal that ended a call is not marked, because the pipeline has logged it with the call.

use asp_call::telemetry::failures::RequestRefusal;
use asp_edge::{Cause, Reply, Trace};
use http::Extensions;

/// The refusal of a request whose call did not start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusalMark {
    pub trace: Trace,
    pub reason: &'static str,
    /// Fault of a token that a trusted issuer signed.
    pub cause: Option<Cause>,
}

impl RefusalMark {
    /// Returns the mark of a reply of the edge's code; `None` if it is no refusal of a request.
    pub fn of(reply: &Reply) -> Option<RefusalMark> {
        Some(RefusalMark { trace: reply.trace?, reason: reply.reason?.as_str(), cause: reply.cause })
    }

    /// Returns the refusal of a request for `path` by a caller of `org`, which is empty if the caller is unknown.
    pub fn described<'a>(&self, org: &'a str, path: &'a str) -> RequestRefusal<'a> {
        let RefusalMark { trace, reason, cause } = *self;
        RequestRefusal { trace, org, path, reason, cause }
    }

    pub fn put(self, extensions: &mut Extensions) {
        extensions.insert(self);
    }

    /// Returns the mark of a response.
    pub fn of_response(extensions: &Extensions) -> Option<RefusalMark> {
        extensions.get().copied()
    }
}
