//! Refusals as problem documents (RFC 9457), with the closed set of reasons.
//!
//! Keeps true: on its own, each reason has one HTTP status everywhere; a document contains only the reason, the
//! refusal's public message and the trace (I-11).

use asp_call::call::outcome::Refusal;
use asp_call::call::remote::InputFault;
use asp_edge::{Reason, Trace, reply};
use asp_pipeline::pipeline::lookup::StoreFault;
use axum::response::{IntoResponse, Response};
use http::{HeaderName, StatusCode, header};
use serde_json::{Map, Value};

use crate::MemoryFault;
use crate::refusal_mark::RefusalMark;
use crate::unserved;

/// The reason why a request is refused.
#[derive(Debug)]
pub(super) struct Problem {
    status: StatusCode,
    reason: Reason,
    detail: String,
    members: Map<String, Value>,
    headers: Vec<(HeaderName, String)>,
    /// Whether the call runs here, so that the request must not be sent to another gateway.
    begun: bool,
    /// Whether the pipeline has logged the refusal as the end of a call.
    is_logged: bool,
}

impl Problem {
    pub(super) fn new(status: StatusCode, reason: Reason, detail: &str) -> Problem {
        let (members, headers) = (Map::new(), Vec::new());
        Problem { status, reason, detail: detail.into(), members, headers, begun: false, is_logged: false }
    }

    /// A resource that does not exist or is hidden from the caller (I-10).
    pub(super) fn not_found(detail: &str) -> Problem {
        Problem::new(StatusCode::NOT_FOUND, Reason::UnknownPrimitive, detail)
    }

    /// A path without this method.
    pub(super) fn no_method(allowed: &str) -> Problem {
        let problem = Problem::new(
            StatusCode::METHOD_NOT_ALLOWED,
            Reason::UnknownMethod,
            "the path does not support this method",
        );
        problem.header(header::ALLOW, allowed)
    }

    /// An unreadable header or body.
    pub(super) fn unreadable(status: StatusCode, detail: &str) -> Problem {
        Problem::new(status, Reason::InvalidRequest, detail)
    }

    pub(super) fn invalid(status: StatusCode, detail: &str) -> Problem {
        Problem::new(status, Reason::InvalidParams, detail)
    }

    /// A request that only the gateway that runs the call can serve.
    pub(super) fn runs_remotely() -> Problem {
        let detail = "the call runs at another gateway, which cannot be reached now: send it again";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, Reason::UpstreamUnavailable, detail).retry_after(1)
    }

    pub(super) fn of_memory_fault(fault: &MemoryFault) -> Problem {
        let reason = fault.reason();
        let status = match fault {
            MemoryFault::TooMuch { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            MemoryFault::Taken(refusal) => status(refusal),
        };
        let problem = Problem::new(status, reason, &fault.message());
        match fault {
            MemoryFault::TooMuch { .. } => problem,
            MemoryFault::Taken(refusal) => problem.until_later(refusal),
        }
    }

    pub(super) fn of_store(_: StoreFault) -> Problem {
        let detail = "the store of calls does not answer: send this again";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, Reason::UpstreamUnavailable, detail).retry_after(1)
    }

    /// An answer or a cancel for a call at another gateway that was not stored.
    pub(super) fn of_input_fault(fault: InputFault) -> Problem {
        let detail = fault.to_string();
        match fault {
            InputFault::Unavailable | InputFault::Full => {
                let status = StatusCode::SERVICE_UNAVAILABLE;
                Problem::new(status, Reason::UpstreamUnavailable, &detail).retry_after(1)
            }
            InputFault::TooLarge => Problem::invalid(StatusCode::PAYLOAD_TOO_LARGE, &detail),
        }
    }

    /// A call that began here and is known only to this gateway.
    pub(super) fn unstored() -> Problem {
        let detail = "the store of calls did not accept the call, which has started: send this again";
        let problem = Problem::new(StatusCode::SERVICE_UNAVAILABLE, Reason::UpstreamUnavailable, detail);
        Problem { begun: true, ..problem.retry_after(1) }
    }

    /// A call that was refused before it began.
    pub(super) fn of(refusal: &Refusal) -> Problem {
        let problem = Problem::new(status(refusal), refusal.reason(), &refusal.public_message());
        let problem = problem.until_later(refusal);
        let add = |problem: Problem, (name, value): (&str, String)| problem.member(name, value.into());
        let problem = refusal.revocation_members().fold(problem, add);
        match refusal {
            Refusal::Limited { limit, retry_after_ms } => {
                let problem =
                    problem.member("retryAfterMs", (*retry_after_ms).into()).member("limit", (*limit).into());
                match refusal.remaining_calls() {
                    Some(remaining) => problem.member("remaining", remaining.into()),
                    None => problem,
                }
            }
            Refusal::InvalidArguments { pointer, .. } => problem.member("pointer", pointer.as_str().into()),
            _ => problem,
        }
    }

    /// Marks the problem as the end of a call, which the pipeline has logged.
    pub(super) fn of_call(self) -> Problem {
        Problem { is_logged: true, ..self }
    }

    pub(super) fn header(mut self, name: HeaderName, value: &str) -> Problem {
        self.headers.push((name, value.to_owned()));
        self
    }

    fn retry_after(self, seconds: u64) -> Problem {
        self.header(header::RETRY_AFTER, &seconds.to_string())
    }

    /// Adds `Retry-After` if retrying helps.
    fn until_later(self, refusal: &Refusal) -> Problem {
        match refusal.retry_after_seconds() {
            Some(seconds) => self.retry_after(seconds),
            None => self,
        }
    }

    fn member(mut self, name: &str, value: Value) -> Problem {
        self.members.insert(name.into(), value);
        self
    }

    pub(super) fn respond(self, trace: Trace) -> Response {
        let mut document = reply::problem(self.reason, title(self.reason), self.status.as_u16());
        if let Some(document) = document.as_object_mut() {
            document.insert("detail".into(), self.detail.into());
            document.extend(self.members);
            document.insert("traceId".into(), trace.to_string().into());
        }
        let headers =
            [(header::CONTENT_TYPE, "application/problem+json"), (header::CACHE_CONTROL, "no-store")];
        let mut response = (self.status, headers, document.to_string()).into_response();
        if self.reason == Reason::UpstreamUnavailable && !self.begun {
            unserved::mark(response.extensions_mut());
        }
        if !self.begun && !self.is_logged {
            let mark = RefusalMark { trace, reason: self.reason.as_str(), cause: None };
            mark.put(response.extensions_mut());
        }
        for (name, value) in self.headers {
            super::set(&mut response, name, &value);
        }
        response
    }
}

/// Returns the title of a reason; replaces those worded for JSON-RPC.
const fn title(reason: Reason) -> &'static str {
    match reason {
        Reason::InvalidRequest => "the request is not valid",
        Reason::UnknownMethod => "no such method",
        reason => reason.message(),
    }
}

const fn status(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::Unknown | Refusal::UnknownResource { .. } => StatusCode::NOT_FOUND,
        Refusal::MissingScopes { .. } | Refusal::NotApproved(_) | Refusal::Barred(_) => StatusCode::FORBIDDEN,
        Refusal::MissingCapabilities { .. } => StatusCode::BAD_REQUEST,
        Refusal::Limited { .. } => StatusCode::TOO_MANY_REQUESTS,
        Refusal::InvalidArguments { .. } | Refusal::KeyConflict | Refusal::Relayed { code: -32602, .. } => {
            StatusCode::UNPROCESSABLE_ENTITY
        }
        Refusal::Relayed { .. } => StatusCode::BAD_GATEWAY,
        Refusal::DuplicateId | Refusal::IdUsed | Refusal::InFlight => StatusCode::CONFLICT,
        Refusal::InputExpired | Refusal::Deadline => StatusCode::REQUEST_TIMEOUT,
        Refusal::Cancelled | Refusal::Withdrawn(_) => StatusCode::CONFLICT,
        Refusal::Upstream(_) | Refusal::Declined(_) | Refusal::PagesFirst { .. } => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Refusal::OutcomeUnknown | Refusal::InvalidOutput { .. } | Refusal::Internal(_) => {
            StatusCode::INTERNAL_SERVER_ERROR
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_other_gateway_is_asked_to_begin_what_has_begun() {
        let marked =
            |problem: Problem| unserved::is_marked(problem.respond(Trace::new([1; 24])).extensions());
        assert!(marked(Problem::runs_remotely()));
        assert!(marked(Problem::of_input_fault(InputFault::Unavailable)));
        assert!(!marked(Problem::of_input_fault(InputFault::TooLarge)), "no other one takes it either");
        assert!(!marked(Problem::unstored()));
    }
}
