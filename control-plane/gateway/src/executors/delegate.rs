//! Answers delegations on the platform: by a model behind an OpenAI-compatible endpoint, or by another
//! primitive of the same server.
//!
//! Owns: who answers, and the words for why nobody did. Refuses: addresses the operator did not allow, and keys
//! outside their own endpoint (I-8). Keeps true: an answer is bounded, read the same way whoever gave it, and
//! fits the delegate's output schema; nothing outlives the call it is for.

use std::sync::Arc;

use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{OtherPrimitive, ProxyOpenai};
use serde_json::{Map, Value};
use tokio::time::Instant;

use super::proxy::breaker::Breakers;
use super::proxy::outbound::{Outbound, OutboundError};
use crate::call::pipeline::Pipeline;
use crate::call::{Call, ClientAbilities};
use crate::live::{Dependency, Live};

pub mod answer;
mod chat;
pub mod endpoint;
mod exchange;
mod nested;
pub mod record;

use answer::Answered;
use endpoint::Endpoints;

/// Longest silence of a model, which says nothing until it has thought: the longest delegation.
const SILENCE: std::time::Duration = std::time::Duration::from_secs(600);

/// Why a delegation has no answer (runtime/README.md, closed set).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The primitive's spec does not name this delegate.
    Undeclared,
    /// Neither the caller's client nor the platform has anything that answers.
    Unsupported,
    /// The input is beyond its bound.
    TooLarge,
    /// The input does not fit.
    InvalidInput,
    /// A rate limit, or too many delegations at a time.
    Limited,
    /// It was understood and not done: by policy, or by whoever was asked.
    Refused,
    /// Whoever is to answer cannot be reached, fails, or speaks another language.
    Unavailable,
    /// Nothing came in time.
    Expired,
    /// There is an answer, and it does not fit the output schema.
    InvalidOutput,
    /// The call was cancelled.
    Cancelled,
    /// Whoever was asked failed, in its own words, which may be empty.
    Failed(String),
}

impl Fault {
    /// The word of the closed set.
    pub const fn word(&self) -> &'static str {
        match self {
            Fault::Undeclared => "undeclared",
            Fault::Unsupported => "unsupported",
            Fault::TooLarge => "too_large",
            Fault::InvalidInput => "invalid_input",
            Fault::Limited => "limited",
            Fault::Refused => "refused",
            Fault::Unavailable => "unavailable",
            Fault::Expired => "expired",
            Fault::InvalidOutput => "invalid_output",
            Fault::Cancelled => "cancelled",
            Fault::Failed(_) => "failed",
        }
    }

    /// What the plugin is told: the word, and after `failed` the words of whoever failed.
    pub fn text(&self) -> String {
        match self {
            Fault::Failed(said) if !said.is_empty() => format!("failed: {said}"),
            other => other.word().to_owned(),
        }
    }
}

/// Who answers a delegation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The caller's client, with its own model.
    Client,
    /// A model of the platform's.
    Model,
    /// Another primitive.
    Primitive,
}

impl Way {
    /// The name in metrics and audit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Way::Client => "client",
            Way::Model => "model",
            Way::Primitive => "primitive",
        }
    }
}

/// One delegation, with all that answering it takes.
pub struct Delegation {
    pub call: Arc<Call>,
    pub live: Arc<Live>,
    pub pipeline: Arc<Pipeline>,
    /// The delegate's id.
    pub id: String,
    /// Unique within the call.
    pub correlation: String,
    pub input: Value,
    /// The parameters of MCP's `sampling/createMessage`.
    pub sampling: Map<String, Value>,
    pub began: Instant,
    /// No answer counts after this; never later than the call's deadline.
    pub until: Instant,
}

impl Delegation {
    /// The delegate; present in the snapshot the delegation was made with.
    pub(super) fn delegate(&self) -> Result<&Dependency, Fault> {
        self.live.dependencies.get(&self.id).ok_or(Fault::Undeclared)
    }
}

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

    /// Who answers: a primitive where the spec names one; else the client if it can, unless the spec prefers the
    /// platform; else the platform, where the spec or the operator names an endpoint.
    pub fn way(&self, delegate: &Dependency, abilities: ClientAbilities) -> Result<Way, Fault> {
        if other_primitive(delegate).is_some() {
            return Ok(Way::Primitive);
        }
        let platform = openai(delegate).is_some() || self.endpoints.default.is_some();
        let prefers_platform = delegate.entry.primitive.prefer_platform;
        match (abilities.sampling, platform) {
            (true, false) => Ok(Way::Client),
            (true, true) if !prefers_platform => Ok(Way::Client),
            (_, true) => Ok(Way::Model),
            (false, false) => Err(Fault::Unsupported),
        }
    }

    /// Answers on the platform; ends by itself with the call, and when there is no time left.
    pub async fn answer(&self, way: Way, delegation: &Delegation) -> Result<Answered, Fault> {
        let delegate = delegation.delegate()?;
        let (live, call) = (&delegation.live, &delegation.call);
        if !is_allowed(live, call, delegate) {
            return Err(Fault::Refused);
        }
        let _grant = delegation
            .pipeline
            .limiter
            .admit_delegation(live, &call.server, &call.caller, &delegate.entry)
            .await
            .map_err(|_| Fault::Limited)?;
        match (way, other_primitive(delegate)) {
            (Way::Primitive, Some(other)) => nested::run(delegation, other).await,
            (Way::Model, _) => self.model(delegation, delegate).await,
            (Way::Client | Way::Primitive, _) => Err(Fault::Unsupported),
        }
    }

    async fn model(&self, delegation: &Delegation, delegate: &Dependency) -> Result<Answered, Fault> {
        let endpoint = self.endpoints.of(openai(delegate)).ok_or(Fault::Unsupported)?;
        let asked = exchange::Asked {
            endpoint: &endpoint,
            body: chat::body(&endpoint, &delegation.sampling, &delegate.entry),
            upstreams: &delegation.live.upstreams,
            until: endpoint
                .timeout
                .map_or(delegation.until, |most| delegation.until.min(delegation.began + most)),
        };
        let asking = exchange::ask(&self.outbound, &self.breakers, &asked);
        tokio::select! {
            said = asking => said,
            () = delegation.call.cancelled() => Err(Fault::Cancelled),
        }
    }
}

/// An explicit "no" of policy counts for a delegate as for a primitive; what needs an approval needs an explicit
/// allow here, since nobody can be asked.
fn is_allowed(live: &Live, call: &Call, delegate: &Dependency) -> bool {
    let ruling = live.policy.rule(&call.caller, &delegate.entry.primitive, call.protocol);
    matches!(ruling, crate::policy::Ruling::Allowed(_))
}

fn openai(delegate: &Dependency) -> Option<&ProxyOpenai> {
    match delegate.entry.primitive.runtime.as_ref()?.mode.as_ref()? {
        Mode::ProxyOpenai(openai) => Some(openai),
        _ => None,
    }
}

fn other_primitive(delegate: &Dependency) -> Option<&OtherPrimitive> {
    match delegate.entry.primitive.runtime.as_ref()?.mode.as_ref()? {
        Mode::Primitive(other) => Some(other),
        _ => None,
    }
}
