//! One request in the filter: headers, then body or trailers.
//!
//! Owns the pause: headers are held back while a body is read, and the same routine evaluates the whole body whether
//! data or trailers end it (an HTTP/2 request may end with either). The response is never changed; its status is read if
//! only the gateway could verify the request's credential.

use std::rc::Rc;

use asp_edge::{
    CredentialAttempt, Env, Forward, Network, PEER_HEADER, PendingBody, Reply, Snapshot, Step, Trace, Verdict,
};

use crate::host::{Host, VerdictLabel};
use crate::map;
use crate::vm::Vm;

/// Instruction to Envoy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Pause,
}

/// State of a request.
#[derive(Default)]
pub enum Request {
    #[default]
    Headers,
    /// Headers are held back; `size` is the last known size of the buffered body.
    Body { snapshot: Rc<Snapshot>, pending: Box<PendingBody>, size: usize },
    /// Forwarded: all further data passes.
    Passed,
    /// Forwarded in the same way; the response tells whether the gateway accepted the credential.
    Unproved(CredentialAttempt),
    /// Answered: no further data passes.
    Answered,
}

impl Request {
    pub fn on_headers(&mut self, vm: &Vm, host: &impl Host, end_of_stream: bool) -> Flow {
        let snapshot = vm.current();
        let map = host.headers();
        let headers = map::pairs(&map);
        let env = env(vm, host, &headers);
        let network = || host.peer().and_then(|peer| Network::parse(&peer));
        let step = vm.edge.on_headers_from(&network, &snapshot, &headers, end_of_stream, &env);
        match step {
            Step::NeedBody(pending) => {
                *self = Request::Body { snapshot, pending, size: 0 };
                Flow::Pause
            }
            Step::Decided(verdict) => self.decide(vm, host, verdict),
        }
    }

    /// Handles body data; `size` is the number of bytes buffered so far.
    pub fn on_body(&mut self, vm: &Vm, host: &impl Host, size: usize, end_of_stream: bool) -> Flow {
        let Request::Body { pending, size: known, .. } = self else { return self.settled() };
        *known = size;
        if size > pending.max_body {
            let reply = vm.edge.body_too_large(pending);
            return self.decide(vm, host, Verdict::Reply(reply));
        }
        if end_of_stream { self.finish(vm, host) } else { Flow::Pause }
    }

    /// Handles trailers, which end the body as its last byte does.
    pub fn on_trailers(&mut self, vm: &Vm, host: &impl Host) -> Flow {
        match self {
            Request::Body { .. } => self.finish(vm, host),
            _ => self.settled(),
        }
    }

    /// Handles the headers of the response.
    pub fn on_response(&mut self, vm: &Vm, host: &impl Host) {
        if let Request::Unproved(attempt) = self {
            let [status, grpc_status] = [":status", "grpc-status"].map(|name| host.response_header(name));
            vm.edge.settle(attempt, status.as_deref().unwrap_or_default(), grpc_status.as_deref());
            *self = Request::Passed;
        }
    }

    fn finish(&mut self, vm: &Vm, host: &impl Host) -> Flow {
        let Request::Body { snapshot, pending, size } = std::mem::replace(self, Request::Answered) else {
            return self.settled();
        };
        let body = if size == 0 { Vec::new() } else { host.body(size) };
        // The affinity key was drawn with the headers.
        let env = Env { now_ms: host.now_ms(), random: [0; 8], trace: pending.admitted.trace };
        let verdict = vm.edge.on_body(&snapshot, *pending, &body, &env);
        self.decide(vm, host, verdict)
    }

    fn decide(&mut self, vm: &Vm, host: &impl Host, verdict: Verdict) -> Flow {
        match verdict {
            Verdict::Forward(forward) => {
                pass(host, &forward);
                *self = forward.admitted.attempt.map_or(Request::Passed, Request::Unproved);
            }
            Verdict::Reply(reply) => {
                answer(vm, host, &reply);
                *self = Request::Answered;
            }
        }
        self.settled()
    }

    fn settled(&self) -> Flow {
        match self {
            Request::Passed | Request::Unproved(_) => Flow::Continue,
            Request::Headers | Request::Body { .. } | Request::Answered => Flow::Pause,
        }
    }
}

fn pass(host: &impl Host, forward: &Forward) {
    host.count(VerdictLabel::Forward);
    for name in &forward.remove {
        host.remove_header(name);
    }
    for (name, value) in &forward.set {
        host.set_header(name, value);
    }
    // Callers that are known have limits of their own.
    if forward.admitted.caller.is_none()
        && let Some(peer) = host.peer()
    {
        host.set_header(PEER_HEADER, &peer);
    }
    if forward.clear_route {
        host.clear_route_cache();
    }
}

fn answer(vm: &Vm, host: &impl Host, reply: &Reply) {
    host.count(reply.reason.map_or(VerdictLabel::Answer, VerdictLabel::Refuse));
    if let Some(org) = &reply.org {
        host.count_refusal_of(org);
    }
    if let Some(kind) = reply.limited {
        host.count_limited(kind);
    }
    vm.refusals.note(host, reply);
    host.respond(reply);
}

fn env(vm: &Vm, host: &impl Host, headers: &[(&str, &[u8])]) -> Env {
    let mut random = [0; 24];
    random.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&vm.random()));
    Env { now_ms: host.now_ms(), random: vm.random(), trace: Trace::of(headers, random) }
}

#[cfg(test)]
mod tests;
