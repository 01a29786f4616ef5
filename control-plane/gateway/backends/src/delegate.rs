//! Answers delegations on the platform: by a model behind an OpenAI-compatible endpoint, or by another primitive of
//! the same server.
//!
//! Owns: the choice of who answers, and the reasons for a missing answer. Refuses: addresses that the operator did
//! not allow, and the use of a key outside its own endpoint (I-8). Keeps true: an answer is bounded, read in the same
//! way for every source, and valid for the delegate's output schema; nothing outlives the call that it is for.

use asp_call::call::Call;
use asp_call::call::sampling::needs_tools;
use asp_outbound::{Outbound, OutboundError, Requester};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{OtherPrimitive, ProxyOpenai};
use asp_snapshot::{Dependency, Snapshot};
use serde_json::{Map, Value};

use crate::delegate::delegation::{Delegation, DelegationFault, Way};
use crate::outbound::breaker::Breakers;

pub mod answer;
mod blocks;
mod chat;
pub(crate) mod conversation;
pub mod delegation;
pub mod endpoint;
mod exchange;
mod nested;
pub(crate) mod pending;
pub mod record;

use answer::DelegateAnswer;
use endpoint::Endpoints;

/// Longest silence of a model, which sends nothing until it has finished thinking: the longest delegation.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(600);

/// The platform's own delegates of one gateway.
pub struct Delegates {
    outbound: Outbound,
    breakers: Breakers,
    endpoints: Endpoints,
}

impl Delegates {
    pub fn new(endpoints: Endpoints) -> Result<Delegates, OutboundError> {
        Ok(Delegates { outbound: Outbound::with_silence(SILENCE)?, breakers: Breakers::default(), endpoints })
    }

    /// Chooses the answerer in a call: a primitive, if the spec names one; only the client for its roots, and if the
    /// spec requires the client; otherwise the client if it can, unless the spec prefers the platform; otherwise the
    /// platform, if the spec or the operator names an endpoint for it.
    ///
    /// `sampling` is the request for a model. A conversation has not been validated against an input schema, so the
    /// platform's models are asked in one only if the spec says so and has no such schema.
    pub fn way(
        &self,
        call: &Call,
        delegate: &Dependency,
        sampling: &Map<String, Value>,
        is_conversation: bool,
    ) -> Result<Way, DelegationFault> {
        let abilities = call.abilities();
        let uses_tools = needs_tools(sampling);
        let client = abilities.sampling && (abilities.sampling_tools || !uses_tools);
        if other_primitive(delegate).is_some() {
            return Ok(Way::Primitive);
        }
        let primitive = &delegate.entry.primitive;
        if primitive.asks_roots || primitive.client_only {
            let can = if primitive.asks_roots { abilities.roots } else { client };
            return if can { Ok(Way::Client) } else { Err(DelegationFault::Unsupported) };
        }
        let has_model =
            openai(delegate).is_some() || self.endpoints.default_for(requested_by(call, delegate)).is_some();
        let prefers_platform = primitive.prefer_platform;
        let platform = has_model && (is_conversational(delegate) || !(uses_tools || is_conversation));
        match (client, platform) {
            (true, false) => Ok(Way::Client),
            (true, true) if !prefers_platform => Ok(Way::Client),
            (_, true) => Ok(Way::Model),
            (false, false) => Err(DelegationFault::Unsupported),
        }
    }

    /// Answers on the platform; ends with the call, and at the delegation's time limit.
    pub async fn answer(&self, way: Way, delegation: &Delegation) -> Result<DelegateAnswer, DelegationFault> {
        let delegate = delegation.delegate()?;
        let snapshot = &delegation.snapshot;
        let call = &delegation.call;
        if !is_allowed(snapshot, call, delegate) {
            return Err(DelegationFault::Refused);
        }
        let _grant = delegation
            .platform
            .admit_delegation(snapshot, call, &delegate.entry)
            .await
            .map_err(|_| DelegationFault::Limited)?;
        match (way, other_primitive(delegate)) {
            (Way::Primitive, Some(other)) => nested::run(delegation, other).await,
            (Way::Model, _) => self.model(delegation, delegate).await,
            (Way::Client | Way::Primitive, _) => Err(DelegationFault::Unsupported),
        }
    }

    async fn model(
        &self,
        delegation: &Delegation,
        delegate: &Dependency,
    ) -> Result<DelegateAnswer, DelegationFault> {
        let by = requested_by(&delegation.call, delegate);
        let endpoint = self.endpoints.of(openai(delegate), by).ok_or(DelegationFault::Unsupported)?;
        let asked = exchange::ChatRequest {
            endpoint: &endpoint,
            body: chat::body(&endpoint, &delegation.sampling, &delegate.entry)
                .ok_or(DelegationFault::Unsupported)?,
            upstreams: &delegation.snapshot.upstreams,
            by,
            until: endpoint
                .timeout
                .map_or(delegation.until, |most| delegation.until.min(delegation.began + most)),
        };
        let asking = exchange::ask(&self.outbound, &self.breakers, &asked);
        tokio::select! {
            said = asking => said,
            () = delegation.call.cancelled() => Err(DelegationFault::Cancelled),
        }
    }
}

/// Whether policy allows the delegate. An explicit deny applies to a delegate as to a primitive; a primitive that
/// needs an approval needs an explicit allow here, because nobody can approve.
fn is_allowed(snapshot: &Snapshot, call: &Call, delegate: &Dependency) -> bool {
    // Conditions are about the arguments of calls: none holds for null.
    let none = serde_json::Value::Null;
    let decision = snapshot.policy.decide(&call.caller, &delegate.entry.primitive, call.protocol, &none);
    decision.effect == asp_snapshot::policy::Effect::Allow
}

/// Returns the delegate in the form that operator lists use.
fn requested_by<'a>(call: &'a Call, delegate: &'a Dependency) -> Requester<'a> {
    Requester { server: &call.server.message.name, primitive: &delegate.entry.primitive.id }
}

/// Whether the spec lets a model of the platform answer conversations.
fn is_conversational(delegate: &Dependency) -> bool {
    let primitive = &delegate.entry.primitive;
    primitive.sampling_tools
        && delegate.entry.input.is_none()
        && (primitive.prefer_platform || openai(delegate).is_some())
}

fn openai(delegate: &Dependency) -> Option<&ProxyOpenai> {
    match delegate.entry.primitive.runtime.as_ref()?.mode.as_ref()? {
        Mode::ProxyOpenai(openai) => Some(openai),
        _ => None,
    }
}

/// Returns the primitive that answers for the delegate, if its spec names one.
pub(crate) fn other_primitive(delegate: &Dependency) -> Option<&OtherPrimitive> {
    match delegate.entry.primitive.runtime.as_ref()?.mode.as_ref()? {
        Mode::Primitive(other) => Some(other),
        _ => None,
    }
}
