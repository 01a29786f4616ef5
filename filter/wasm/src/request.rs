//! One request on its way through the filter: headers, then body or trailers, then nothing.
//!
//! Owns the pause: headers are held back while a body is read, and the end of the body is judged by the same
//! routine whether data or trailers bring it (an HTTP/2 request may end with either). The response is never
//! touched.

use std::rc::Rc;

use asp_edge::{Env, Forward, PEER_HEADER, Pending, Reply, Snapshot, Step, Trace, Verdict};

use crate::host::{Counted, Host};
use crate::map;
use crate::vm::Vm;

/// What Envoy does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    Continue,
    Pause,
}

/// Where a request stands.
#[derive(Default)]
pub enum Request {
    #[default]
    Headers,
    /// Headers are held back; the last known size of the buffered body.
    Body { snapshot: Rc<Snapshot>, pending: Box<Pending>, size: usize },
    /// Let through: everything else passes.
    Passed,
    /// Answered: nothing else passes.
    Answered,
}

impl Request {
    pub fn on_headers(&mut self, vm: &Vm, host: &impl Host, end_of_stream: bool) -> Flow {
        let snapshot = vm.current();
        let map = host.headers();
        let headers = map::pairs(&map);
        let env = env(vm, host, &headers);
        let step = vm.edge.on_headers(&snapshot, &headers, end_of_stream, &env);
        match step {
            Step::NeedBody(pending) => {
                *self = Request::Body { snapshot, pending, size: 0 };
                Flow::Pause
            }
            Step::Decided(verdict) => self.decide(host, verdict),
        }
    }

    /// `size` is the number of bytes buffered so far.
    pub fn on_body(&mut self, vm: &Vm, host: &impl Host, size: usize, end_of_stream: bool) -> Flow {
        let Request::Body { pending, size: known, .. } = self else { return self.settled() };
        *known = size;
        if size > pending.max_body {
            let reply = vm.edge.body_too_large(pending);
            return self.decide(host, Verdict::Reply(reply));
        }
        if end_of_stream { self.finish(vm, host) } else { Flow::Pause }
    }

    /// Trailers end the body as its last byte does.
    pub fn on_trailers(&mut self, vm: &Vm, host: &impl Host) -> Flow {
        match self {
            Request::Body { .. } => self.finish(vm, host),
            _ => self.settled(),
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
        self.decide(host, verdict)
    }

    fn decide(&mut self, host: &impl Host, verdict: Verdict) -> Flow {
        match verdict {
            Verdict::Forward(forward) => {
                pass(host, &forward);
                *self = Request::Passed;
            }
            Verdict::Reply(reply) => {
                answer(host, &reply);
                *self = Request::Answered;
            }
        }
        self.settled()
    }

    fn settled(&self) -> Flow {
        match self {
            Request::Passed => Flow::Continue,
            Request::Headers | Request::Body { .. } | Request::Answered => Flow::Pause,
        }
    }
}

fn pass(host: &impl Host, forward: &Forward) {
    host.count(Counted::Forward);
    for name in &forward.remove {
        host.remove_header(name);
    }
    for (name, value) in &forward.set {
        host.set_header(name, value);
    }
    // Known callers have limits of their own.
    if forward.admitted.caller.is_none()
        && let Some(peer) = host.peer()
    {
        host.set_header(PEER_HEADER, &peer);
    }
    if forward.clear_route {
        host.clear_route_cache();
    }
}

fn answer(host: &impl Host, reply: &Reply) {
    host.count(reply.reason.map_or(Counted::Answer, Counted::Refuse));
    if let (Some(cause), Some(trace)) = (reply.cause, reply.trace) {
        host.warn(&format!("a token of a trusted issuer is refused (trace {trace}): {cause}"));
    }
    host.respond(reply);
}

fn env(vm: &Vm, host: &impl Host, headers: &[(&str, &[u8])]) -> Env {
    let mut random = [0; 24];
    random.chunks_exact_mut(8).for_each(|part| part.copy_from_slice(&vm.random()));
    Env { now_ms: host.now_ms(), random: vm.random(), trace: Trace::of(headers, random) }
}

#[cfg(test)]
mod tests;
