//! Refusals of requests, as errors of A2A with the platform's reason and the headers of its HTTP response.
//!
//! Keeps true: an error contains only a public message, fields of the request, the reason and the trace (I-11).

use asp_a2a::{A2aError, A2aFailure};
use asp_call::call::outcome::Refusal;
use asp_call::call::remote::InputFault;
use asp_edge::{Reason, Trace, reply};
use asp_pipeline::pipeline::lookup::StoreFault;
use asp_pipeline::pipeline::promise::PromiseFault;
use axum::response::Response;
use http::{HeaderName, HeaderValue, header};

use crate::refusal_mark::RefusalMark;
use crate::{MemoryFault, ProtocolRequest, unserved};

/// The reason why a request is refused.
#[derive(Debug)]
pub(super) struct RefusedRequest {
    pub(super) failure: A2aFailure,
    headers: Vec<(HeaderName, String)>,
    /// Whether nothing was begun here, so that another gateway may be tried.
    is_unserved: bool,
    /// Whether the pipeline has logged it with its call.
    is_logged: bool,
    /// Trace of its request, once that is added.
    trace: Option<Trace>,
}

impl From<A2aFailure> for RefusedRequest {
    fn from(failure: A2aFailure) -> RefusedRequest {
        RefusedRequest { failure, headers: Vec::new(), is_unserved: false, is_logged: false, trace: None }
    }
}

impl From<A2aError> for RefusedRequest {
    fn from(error: A2aError) -> RefusedRequest {
        A2aFailure::from(error).into()
    }
}

/// Returns the error with the platform's reason among its details.
fn reasoned(failure: A2aFailure, reason: Reason) -> A2aFailure {
    failure.with("reason", reason.as_str()).with("recoveryHint", reason.recovery_hint())
}

impl RefusedRequest {
    /// A request that another gateway, or a later one, can serve.
    fn unavailable(message: &str) -> RefusedRequest {
        let failure = A2aFailure::new(A2aError::Unavailable, message);
        let failure = reasoned(failure, Reason::UpstreamUnavailable);
        let refused = RefusedRequest { is_unserved: true, ..failure.into() };
        refused.header(header::RETRY_AFTER, "1")
    }

    /// A request that only the gateway that runs the call can serve.
    pub(super) fn runs_remotely() -> RefusedRequest {
        RefusedRequest::unavailable(
            "the task runs at another gateway, which cannot be reached now: send it again",
        )
    }

    pub(super) fn of_store(_: StoreFault) -> RefusedRequest {
        RefusedRequest::unavailable("the store of calls does not answer: send this again")
    }

    pub(super) fn of_memory_fault(fault: &MemoryFault) -> RefusedRequest {
        match fault {
            MemoryFault::TooMuch { .. } => {
                reasoned(A2aFailure::new(A2aError::InvalidRequest, fault.message()), fault.reason()).into()
            }
            MemoryFault::Taken(refusal) => RefusedRequest::of(refusal),
        }
    }

    /// An answer or a cancel for a call at another gateway that was not stored.
    pub(super) fn of_input_fault(fault: InputFault) -> RefusedRequest {
        match fault {
            InputFault::Unavailable | InputFault::Full => RefusedRequest::unavailable(&fault.to_string()),
            InputFault::TooLarge => A2aFailure::new(A2aError::InvalidParams, fault.to_string()).into(),
        }
    }

    /// A new task that could not be promised to its client.
    pub(super) fn of_promise_fault(fault: PromiseFault) -> RefusedRequest {
        match fault {
            PromiseFault::Void(refusal) => RefusedRequest::of(&refusal).of_call(),
            PromiseFault::Unstored => {
                let message =
                    "the store of calls did not accept the task, which has started: send this again";
                RefusedRequest { is_unserved: false, ..RefusedRequest::unavailable(message).of_call() }
            }
        }
    }

    /// A call that was refused before it started.
    pub(super) fn of(refusal: &Refusal) -> RefusedRequest {
        let failure = match refusal {
            Refusal::Unknown => unknown_skill(),
            Refusal::InvalidArguments { pointer, message } => {
                A2aFailure::invalid_field(format!("arguments{}", pointer.replace('/', ".")), message)
            }
            Refusal::KeyConflict | Refusal::IdUsed => {
                A2aFailure::invalid_field("message.messageId", refusal.public_message())
            }
            _ => A2aFailure::from(error_of(refusal)),
        };
        let failure = match refusal {
            Refusal::Unknown => failure,
            refusal => A2aFailure { message: refusal.public_message(), ..failure },
        };
        let failure = match refusal {
            Refusal::Limited { limit, .. } => failure.with("limit", *limit),
            _ => failure,
        };
        let failure = match refusal.remaining_calls() {
            Some(remaining) => failure.with("remaining", remaining.to_string()),
            None => failure,
        };
        let failure =
            refusal.revocation_members().fold(failure, |failure, (name, value)| failure.with(name, value));
        let is_unserved = refusal.reason() == Reason::UpstreamUnavailable;
        let refused = RefusedRequest { is_unserved, ..reasoned(failure, refusal.reason()).into() };
        match refusal.retry_after_seconds() {
            Some(seconds) => refused.header(header::RETRY_AFTER, &seconds.to_string()),
            None => refused,
        }
    }

    /// Returns the challenge for missing scopes. It names every scope of the operation, so that the client can step up
    /// (RFC 6750 section 3).
    pub(super) fn step_up(request: &ProtocolRequest, required: &[String]) -> RefusedRequest {
        let challenge = reply::challenge(
            Reason::InsufficientScope,
            &request.gateway.config.public_url,
            &request.server.message.name,
            required,
        );
        let missing = Refusal::MissingScopes { required: required.to_vec() };
        RefusedRequest::of(&missing).header(header::WWW_AUTHENTICATE, &challenge)
    }

    fn header(mut self, name: HeaderName, value: &str) -> RefusedRequest {
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Marks the refusal as one of a call, which the pipeline has logged.
    pub(super) fn of_call(self) -> RefusedRequest {
        RefusedRequest { is_logged: true, ..self }
    }

    /// Adds the trace, by which a client's report is found in the logs.
    pub(super) fn traced(mut self, trace: Trace) -> RefusedRequest {
        self.trace = Some(trace);
        self.failure = self.failure.with("traceId", trace.to_string());
        self
    }

    /// Returns the HTTP status over JSON-RPC: 200, but for errors that concern HTTP as well.
    pub(super) fn jsonrpc_status(&self) -> u16 {
        match self.failure.error {
            A2aError::Unauthenticated
            | A2aError::PermissionDenied
            | A2aError::RateLimited
            | A2aError::Unavailable => self.failure.error.http_status(),
            _ => 200,
        }
    }

    /// Adds the headers of the refusal to its response.
    pub(super) fn complete(self, response: &mut Response) {
        for (name, value) in self.headers {
            if let Ok(value) = HeaderValue::from_str(&value) {
                response.headers_mut().insert(name, value);
            }
        }
        if self.is_unserved {
            unserved::mark(response.extensions_mut());
        }
        if let Some(trace) = self.trace.filter(|_| !self.is_logged) {
            let mark = RefusalMark { trace, reason: self.failure.error.reason(), cause: None };
            mark.put(response.extensions_mut());
        }
    }
}

/// Returns the refusal of a skill that does not exist or is hidden from the caller (I-10).
pub(super) fn unknown_skill() -> A2aFailure {
    A2aFailure::invalid_field("message.metadata.skill", "this agent has no such skill")
}

const fn error_of(refusal: &Refusal) -> A2aError {
    match refusal {
        Refusal::MissingScopes { .. } | Refusal::NotApproved(_) | Refusal::Barred(_) => {
            A2aError::PermissionDenied
        }
        Refusal::Limited { .. } => A2aError::RateLimited,
        Refusal::MissingCapabilities { .. } => A2aError::UnsupportedOperation,
        Refusal::Unknown
        | Refusal::UnknownResource { .. }
        | Refusal::InvalidArguments { .. }
        | Refusal::KeyConflict
        | Refusal::IdUsed
        | Refusal::Relayed { code: -32602, .. } => A2aError::InvalidParams,
        Refusal::DuplicateId
        | Refusal::InFlight
        | Refusal::Upstream(_)
        | Refusal::Declined(_)
        | Refusal::PagesFirst { .. } => A2aError::Unavailable,
        Refusal::InputExpired | Refusal::Deadline => A2aError::DeadlineExceeded,
        Refusal::Relayed { .. }
        | Refusal::Cancelled
        | Refusal::Withdrawn(_)
        | Refusal::OutcomeUnknown
        | Refusal::InvalidOutput { .. }
        | Refusal::Internal(_) => A2aError::Internal,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_has_the_code_of_its_kind_and_says_what_may_be_shown() {
        for (refusal, error, status, reason) in [
            (Refusal::Unknown, A2aError::InvalidParams, 200, "unknown_primitive"),
            (
                Refusal::MissingScopes { required: vec!["a".into()] },
                A2aError::PermissionDenied,
                403,
                "insufficient_scope",
            ),
            (
                Refusal::Limited { limit: "calls", retry_after_ms: 1500 },
                A2aError::RateLimited,
                429,
                "rate_limited",
            ),
            (Refusal::Upstream("away".into()), A2aError::Unavailable, 503, "upstream_unavailable"),
            (Refusal::Internal("secret".into()), A2aError::Internal, 200, "internal"),
        ] {
            let refused = RefusedRequest::of(&refusal);
            assert_eq!((refused.failure.error, refused.jsonrpc_status()), (error, status), "{refusal:?}");
            assert!(!refused.failure.message.contains("secret"));
            assert!(refused.failure.metadata.contains(&("reason".into(), reason.into())), "{refusal:?}");
        }
        let misfit = Refusal::InvalidArguments { pointer: "/a/b".into(), message: "is no number".into() };
        let failure = RefusedRequest::of(&misfit).failure;
        assert_eq!(failure.violations[0].field, "arguments.a.b");
        let limited = RefusedRequest::of(&Refusal::Limited { limit: "user", retry_after_ms: 1500 });
        assert!(limited.failure.metadata.contains(&("remaining".into(), "0".into())));
        let mut response = Response::new(axum::body::Body::empty());
        limited.complete(&mut response);
        assert_eq!(response.headers()[header::RETRY_AFTER], "2");
    }

    #[test]
    fn no_other_gateway_is_tried_for_what_has_begun() {
        let marked = |refused: RefusedRequest| {
            let mut response = Response::new(axum::body::Body::empty());
            refused.complete(&mut response);
            unserved::is_marked(response.extensions())
        };
        assert!(marked(RefusedRequest::runs_remotely()));
        assert!(!marked(RefusedRequest::of_promise_fault(PromiseFault::Unstored)));
        assert!(!marked(A2aError::TaskNotFound.into()));
    }
}
