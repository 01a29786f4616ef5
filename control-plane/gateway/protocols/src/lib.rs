//! The protocols: codecs around one Call (I-2). No policy, limit, validation, ledger or audit here.
//!
//! Keeps true: the memory of a request is reserved before anything is built from its body, until the end of its call,
//! and no org's requests can take all of it. A body of short values takes a hundred times its own size.

use std::sync::Arc;

use asp_call::call::outcome::Refusal;
use asp_call::call::{CallKind, CallRequest, ClientAbilities, HeldMemory, Invocation};
use asp_edge::{Caller, Reason, RequestFacts};
use asp_json::{Json, Members, held};
use asp_pipeline::pipeline::admission::AdmissionPermit;
use asp_platform::secret::Secret;
use asp_proto::snapshot::Protocol;
use asp_snapshot::{ListedPrimitive, Snapshot, VirtualServer};
use axum::body::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, Method, Uri};

pub mod a2a;
pub mod approval_webhook;
pub mod approvals;
pub mod connect;
mod events;
pub mod home;
pub mod html;
pub mod login;
pub mod mcp;
pub mod message_turns;
mod public_issuers;
pub mod push;
pub mod refusal_mark;
pub mod registry;
pub mod replica;
pub mod request_state;
pub mod rest;
pub mod unserved;
pub mod wellknown;

use refusal_mark::RefusalMark;
use replica::Replica;

/// Largest estimate that is not counted, in bytes: the limit of running calls suffices for these.
const LITTLE: usize = 16 << 10;

/// Returns an upper bound of the memory that a body of JSON needs, in bytes.
fn estimate(body: &[u8]) -> usize {
    whole(held::once_read(body), body)
}

/// Returns an upper bound of the memory that a body needs, in bytes: the body, its message of `once_read` bytes, and the
/// arguments again for its call.
fn whole(once_read: usize, body: &[u8]) -> usize {
    once_read.saturating_mul(2).saturating_add(body.len())
}

/// The reason why memory for a request could not be reserved.
pub(crate) enum MemoryFault {
    /// The request needs more than its org's limit.
    TooMuch { bytes: usize, most: usize },
    /// Other requests hold the memory.
    Taken(Refusal),
}

impl MemoryFault {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            MemoryFault::TooMuch { .. } => Reason::BodyTooLarge,
            MemoryFault::Taken(_) => Reason::RateLimited,
        }
    }

    pub(crate) fn message(&self) -> String {
        match self {
            MemoryFault::TooMuch { bytes, most } => format!(
                "the body holds too many values: they would take {bytes} bytes of memory, and the limit is {most}; send fewer values, or one text"
            ),
            MemoryFault::Taken(refusal) => refusal.public_message(),
        }
    }
}

/// A server that admits a request which was sent to the server that stands for all others.
#[derive(Clone)]
pub struct ReachedServer {
    pub server: Arc<VirtualServer>,
    /// Caller of the request at this server.
    pub caller: Arc<Caller>,
}

/// One admitted HTTP request from an authenticated caller.
pub struct ProtocolRequest {
    pub gateway: Arc<Replica>,
    pub snapshot: Arc<Snapshot>,
    pub server: Arc<VirtualServer>,
    pub caller: Arc<Caller>,
    pub admitted: RequestFacts,
    /// Servers that the request reaches, by name, if its own stands for all others.
    pub reached: Option<Vec<ReachedServer>>,
    pub method: Method,
    pub uri: Uri,
    pub headers: HeaderMap,
    pub body: Bytes,
    /// Memory reserved for the request, at first for its body alone; `None` if it needs too little to be counted.
    pub memory: Option<HeldMemory>,
}

impl ProtocolRequest {
    /// Returns the caller's token if a backend of the server is called with a token exchanged for it.
    fn subject(&self) -> Option<Arc<Secret>> {
        if !self.server.exchanges {
            return None;
        }
        // The edge's code has already accepted it as a single bearer token (RFC 6750 section 2.1).
        let (scheme, token) = self.headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| Arc::new(token.trim_start_matches(' ').into()))
    }

    /// Logs a message of the request that was refused before its call started, if no response is for it alone.
    fn log_refusal(&self, mark: RefusalMark) {
        let org = self.caller.org.as_str();
        let path = self.uri.path();
        self.gateway.pipeline.log_refusal(&mark.described(org, path));
    }

    /// Returns an invocation of a primitive by this request, without what only some protocols and methods have.
    fn invocation(&self, protocol: Protocol, entry: &Arc<ListedPrimitive>, arguments: Json) -> Invocation {
        let request = CallRequest {
            caller: self.caller.clone(),
            server: self.server.clone(),
            protocol,
            entry: entry.clone(),
            meta: Members::default(),
            kind: CallKind::Invoke,
            chosen: None,
            protocol_request_id: String::new(),
            session: String::new(),
            context: String::new(),
            opening: None,
            trace: self.admitted.trace,
            bytes_in: self.body.len(),
            parent: None,
        };
        Invocation {
            request,
            subject: self.subject(),
            arguments,
            idempotency_key: None,
            deadline: None,
            abilities: ClientAbilities::default(),
            memory: self.memory.clone(),
        }
    }

    /// Reserves the memory of the whole request, whose body is JSON.
    fn hold(&mut self) -> Result<(), MemoryFault> {
        self.hold_bytes(estimate(&self.body))
    }

    /// Reserves this much memory for the whole request.
    fn hold_bytes(&mut self, bytes: usize) -> Result<(), MemoryFault> {
        if bytes <= LITTLE {
            return Ok(());
        }
        // The reservation made while the body arrived is included in the new one.
        self.memory = None;
        self.memory = Some(Arc::new(self.take_memory(bytes)?));
        Ok(())
    }

    /// Reserves this much memory besides that of the request; returns both.
    fn hold_more(&self, bytes: usize) -> Result<Option<HeldMemory>, MemoryFault> {
        if bytes <= LITTLE {
            return Ok(self.memory.clone());
        }
        let both: HeldMemory = Arc::new((self.memory.clone(), self.take_memory(bytes)?));
        Ok(Some(both))
    }

    fn take_memory(&self, bytes: usize) -> Result<AdmissionPermit, MemoryFault> {
        let memory = &self.gateway.memory.of_callers;
        let most = memory.most_of_org();
        if bytes > most {
            return Err(MemoryFault::TooMuch { bytes, most });
        }
        memory.take(&self.caller.org, bytes).map_err(MemoryFault::Taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_requests_are_not_counted_and_texts_take_little_more_than_they_are() {
        let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"order","arguments":{"item":"tea","count":2},"_meta":{"progressToken":1}}}"#;
        assert!(estimate(call.as_bytes()) <= LITTLE);
        let text = format!(r#"{{"data":"{}"}}"#, "a".repeat(1 << 20));
        assert!(estimate(text.as_bytes()) < 4 << 20);
    }
}
