//! The request of a call, as its row in the store keeps it: enough to continue it at another gateway.
//!
//! Refuses: the client's token; only its claims about the caller are kept, and everything is sealed (I-8).

use std::sync::Arc;
use std::time::Duration;

use asp_edge::{Caller, Trace};
use asp_json::{Json, Members};
use asp_proto::snapshot::{Primitive, Protocol};
use asp_snapshot::{Snapshot, version};
use asp_store::records::CallRecord;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

use crate::call::chosen::{ChosenId, Put};
use crate::call::ownership::LedgerClaim;
use crate::call::question::History;
use crate::call::{Call, CallKind, CallRequest, ClientAbilities, IdempotencyKey, Invocation, Parent};
use crate::clock::unix_ms;
use crate::digest;

/// The record of one call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    caller: Caller,
    server: String,
    primitive: String,
    version: String,
    protocol: i32,
    protocol_request_id: String,
    #[serde(default)]
    chosen: Option<ChosenId>,
    session: String,
    #[serde(default)]
    context: String,
    /// Unlike the arguments, it stays in the record of an ended call, for a client that returns.
    #[serde(default, skip_serializing_if = "Option::is_none", serialize_with = "asp_json::raw_option")]
    pub(crate) opening: Option<Json>,
    /// Answered questions of a call with an opening message.
    #[serde(default)]
    pub history: History,
    idempotency_key: Option<String>,
    traceparent: Option<String>,
    elicitation: bool,
    sampling: bool,
    #[serde(default)]
    roots: bool,
    #[serde(default)]
    pages: bool,
    #[serde(default)]
    sampling_tools: bool,
    #[serde(default)]
    sampling_context: bool,
    bytes_in: usize,
    /// The id of the call that started this one, and the nesting depth.
    parent: Option<([u8; 16], u8)>,
    /// Deadline in Unix milliseconds.
    deadline_ms: u64,
    /// Validated arguments, completed with defaults except for primitives of other services; until they are complete, those
    /// that the caller sent.
    #[serde(serialize_with = "asp_json::raw_value")]
    pub arguments: Json,
    #[serde(default = "no_meta", serialize_with = "asp_json::raw_value")]
    meta: Json,
    pub budget: Option<u64>,
    /// The ledger key that the call has claimed.
    pub claim: Option<LedgerClaim>,
    /// Whether a backend may have started it.
    pub handed_over: bool,
    /// Whether a person has approved the call.
    #[serde(default)]
    pub approved: bool,
    /// Whether the call's client has an acknowledgement that the store knows the call.
    #[serde(default)]
    pub announced: bool,
    /// Number of the question for missing arguments that the call waits for; 0 if its arguments are complete.
    #[serde(default)]
    pub question: u32,
    /// Generation of the call when the record was made.
    #[serde(default)]
    pub(crate) generation: u64,
}

/// Returns the `_meta` of a record of an earlier version.
fn no_meta() -> Json {
    Members::default().to_json()
}

impl Record {
    /// Creates the record of a call whose arguments are complete.
    pub fn of(call: &Call, arguments: &Json, budget: Option<u64>, handed_over: bool) -> Record {
        Record {
            caller: Caller::clone(&call.caller),
            server: call.server.message.name.clone(),
            primitive: call.entry.primitive.id.clone(),
            version: call.entry.primitive.version.clone(),
            protocol: call.protocol.into(),
            protocol_request_id: call.protocol_request_id.clone(),
            chosen: call.chosen,
            session: call.session.clone(),
            context: call.context.clone(),
            opening: call.opening.clone(),
            history: call.opening.as_ref().map(|_| call.questions.history()).unwrap_or_default(),
            idempotency_key: call.idempotency_key.clone(),
            traceparent: Some(call.trace.traceparent()),
            elicitation: call.authority.begun_with().elicitation,
            sampling: call.authority.begun_with().sampling,
            roots: call.authority.begun_with().roots,
            pages: call.authority.begun_with().pages,
            sampling_tools: call.authority.begun_with().sampling_tools,
            sampling_context: call.authority.begun_with().sampling_context,
            bytes_in: call.bytes_in,
            parent: call.parent.map(|parent| (parent.call.into_bytes(), parent.depth)),
            deadline_ms: deadline_ms(call),
            arguments: arguments.clone(),
            meta: call.meta.to_json(),
            budget,
            claim: call.ownership.claim().cloned(),
            handed_over,
            approved: call.ruling.is_approved(),
            announced: call.ownership.announced.is_set(),
            question: 0,
            generation: call.events.generation(),
        }
    }

    /// Creates the record of a call that waits for the answer to question `question`: its arguments are not complete, and
    /// nothing of it has started. Its claim is one that no call holds: a gateway of an earlier version, which would run the
    /// call with these arguments, finds nothing under it and ends the call.
    pub fn waiting(call: &Call, arguments: &Json, budget: Option<u64>, question: u32) -> Record {
        let key = digest::of_parts(&["waits for arguments", call.id.to_string().as_str()]);
        let claim = LedgerClaim { key, hash: key, mutating: true };
        Record { claim: Some(claim), question, ..Record::of(call, arguments, budget, false) }
    }

    /// Creates a record from the unencrypted part of a row of `caller` whose own record does not open.
    pub fn from_row(row: &CallRecord, caller: &Caller) -> Record {
        let (primitive, version) = row.plugin.rsplit_once('@').unwrap_or((row.plugin.as_str(), ""));
        Record {
            caller: caller.clone(),
            server: row.server.clone(),
            primitive: primitive.to_owned(),
            version: version.to_owned(),
            protocol: Protocol::Mcp.into(),
            protocol_request_id: String::new(),
            chosen: None,
            session: String::new(),
            context: row.context.clone(),
            opening: None,
            history: History::default(),
            idempotency_key: None,
            traceparent: None,
            elicitation: false,
            sampling: false,
            roots: false,
            pages: false,
            sampling_tools: false,
            sampling_context: false,
            bytes_in: 0,
            parent: None,
            deadline_ms: 0,
            arguments: Value::Null.into(),
            meta: no_meta(),
            budget: None,
            claim: None,
            handed_over: true,
            approved: false,
            announced: false,
            question: 0,
            generation: 0,
        }
    }

    /// Returns the request that created the call, if its client chose the call's id.
    pub fn put(&self) -> Option<Put> {
        Some(Put {
            protocol: Protocol::try_from(self.protocol).unwrap_or_default(),
            name: self.protocol_request_id.clone(),
            context: self.context.clone(),
            primitive: self.primitive.clone(),
            key: self.idempotency_key.clone(),
            chosen: self.chosen?,
        })
    }

    /// Returns the caller and the server.
    pub fn requester(self) -> (Caller, String) {
        (self.caller, self.server)
    }

    /// Whether the call's deadline has passed.
    pub fn is_past(&self) -> bool {
        self.deadline_ms <= unix_ms()
    }

    /// Returns the caller's trace, or a new one if the record has none.
    pub fn trace(&self) -> Trace {
        let sent = self.traceparent.as_deref().and_then(|text| Trace::parse(text.as_bytes()));
        sent.unwrap_or_else(|| Trace::new(rand::random()))
    }

    /// Returns the call as a protocol would request it again; `None` if `snapshot` lacks its primitive in that version.
    pub fn invocation(&self, snapshot: &Snapshot) -> Option<Invocation> {
        self.invocation_where(snapshot, |primitive| primitive.version == self.version)
    }

    /// Returns the request of a call that has ended, with whichever version exists now, preferably of the same major
    /// version.
    pub fn ended(&self, snapshot: &Snapshot) -> Option<Invocation> {
        let is_alike =
            |primitive: &Primitive| version::major(&primitive.version) == version::major(&self.version);
        self.invocation(snapshot)
            .or_else(|| self.invocation_where(snapshot, is_alike))
            .or_else(|| self.invocation_where(snapshot, |_| true))
    }

    fn invocation_where(&self, snapshot: &Snapshot, fits: impl Fn(&Primitive) -> bool) -> Option<Invocation> {
        let server = snapshot.server(&self.server)?.clone();
        let called = |primitive: &Primitive| primitive.id == self.primitive && fits(primitive);
        let entry = server.entries.iter().find(|entry| called(&entry.primitive))?.clone();
        let left = Duration::from_millis(self.deadline_ms.saturating_sub(unix_ms()));
        let request = CallRequest {
            caller: Arc::new(self.caller.clone()),
            server,
            protocol: Protocol::try_from(self.protocol).ok()?,
            entry,
            meta: Members::of(&self.meta),
            kind: CallKind::Invoke,
            protocol_request_id: self.protocol_request_id.clone(),
            chosen: self.chosen,
            session: self.session.clone(),
            context: self.context.clone(),
            opening: self.opening.clone(),
            trace: self.trace(),
            bytes_in: self.bytes_in,
            parent: self.parent.map(|(call, depth)| Parent { call: Uuid::from_bytes(call), depth }),
        };
        Some(Invocation {
            request,
            // No token is stored.
            subject: None,
            arguments: self.arguments.clone(),
            memory: None,
            idempotency_key: self.idempotency_key.clone().map(IdempotencyKey::Explicit),
            deadline: Some(Instant::now() + left),
            abilities: ClientAbilities {
                elicitation: self.elicitation,
                sampling: self.sampling,
                roots: self.roots,
                pages: self.pages,
                sampling_tools: self.sampling_tools,
                sampling_context: self.sampling_context,
                tasks: false,
                // Its session is elsewhere.
                roots_change: false,
                late_arguments: self.question > 0,
            },
        })
    }
}

/// Returns the call's deadline in Unix milliseconds.
pub(crate) fn deadline_ms(call: &Call) -> u64 {
    let left = call.deadline().saturating_duration_since(Instant::now());
    unix_ms().saturating_add(u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
}
