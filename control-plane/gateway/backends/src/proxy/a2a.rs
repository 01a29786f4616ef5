//! Calls to a remote A2A agent, in both versions and over JSON-RPC and REST.
//!
//! Owns: when a card is looked at, the way from a call to a message, and from the task that it starts to the call's outcome.
//! The wire is `asp-a2a`. Keeps true: the client's token is never forwarded (I-8); progress, questions, artifacts and a cancel
//! are relayed; agents that delegate to each other in a circle are stopped.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::lineage::{self, Lineage};
use asp_call::call::outcome::{Output, Refusal};
use asp_call::execution::Execution;
use asp_outbound::{Outbound, OutboundError};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Primitive, ProxyA2a};
use async_trait::async_trait;
use tokio_util::task::TaskTracker;

use crate::accepted::pinned::{self, PinnedItems};
use crate::accepted::watching::{Upstream, Watches};
use crate::backend::{Backend, misplaced, mode};
use crate::outbound::auth::Authorizer;
use crate::outbound::breaker::Breakers;
use crate::outbound::upstream::requested_by;

mod agent;
mod asking;
mod cancel;
mod card;
mod content;
mod message;
mod run;
mod task;

use agent::Agent;
use cancel::CancelNotice;
use card::CardPoller;
use run::AgentCall;

/// Longest silence of a connection; the silence of an agent within a call is bounded there.
const SILENCE: Duration = Duration::from_secs(3600);
/// Maximum time that a call waits for the first look at the agent's card.
const PATIENCE: Duration = Duration::from_secs(2);

/// The backend of remote A2A agents.
pub struct A2aBackend {
    outbound: Arc<Outbound>,
    breakers: Arc<Breakers>,
    authorizer: Arc<Authorizer>,
    watches: Watches,
    cancel_notices: TaskTracker,
}

impl A2aBackend {
    /// Creates the backend; `items` are the accepted items of all upstreams, which another backend keeps up to date.
    pub(crate) fn new(
        breakers: Arc<Breakers>,
        authorizer: Arc<Authorizer>,
        items: Arc<PinnedItems>,
    ) -> Result<A2aBackend, OutboundError> {
        Ok(A2aBackend {
            outbound: Arc::new(Outbound::with_silence(SILENCE)?),
            breakers,
            authorizer,
            watches: Watches::of(items, PATIENCE),
            cancel_notices: TaskTracker::new(),
        })
    }

    /// Looks at the agent's card, and refuses a skill that it no longer lists as it was accepted: such a skill is as unknown
    /// as one that was never here (I-10).
    async fn check_card(&self, target: &ProxyA2a, execution: &Execution) -> Result<(), Refusal> {
        if target.card.is_empty() || target.pin.is_empty() {
            return Ok(());
        }
        let call = &execution.call;
        let primitive = &call.entry.primitive;
        let upstreams = &execution.snapshot.upstreams;
        let destination = self.outbound.destination(&target.card, upstreams, requested_by(call));
        let destination = destination.map_err(|error| Refusal::Upstream(error.to_string()))?;
        let auth = primitive.service_auth.as_ref();
        let name = pinned::agent(target, auth);
        let place = destination.url.to_string();
        let upstream = Upstream { name: &name, place: &place, again: false };
        let poller = || CardPoller::new(&self.outbound, &self.authorizer, target, execution);
        self.watches.enter(upstream, poller).await;
        match self.watches.items.offers(&call.server.message.name, primitive) {
            true => Ok(()),
            false => Err(Refusal::Unknown),
        }
    }
}

#[async_trait]
impl Backend for A2aBackend {
    /// Sends a message with the arguments to the agent, and follows the task that it starts.
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let call = &execution.call;
        let Some(Mode::ProxyA2a(target)) = mode(&call.entry.primitive) else {
            return Err(misplaced(execution));
        };
        let mut started = execution.started();
        let hop = lineage::hop(execution.snapshot.edge.public_url(), &call.server.message.name);
        let lineage = Lineage::of(&call.meta).extend(hop)?;
        self.check_card(target, execution).await?;
        let agent = Agent::new(&self.outbound, &self.authorizer, target, execution)?;
        // As for HTTP, a breaker's refusal is this gateway's answer.
        started.mark_sent();
        let permit = self.breakers.enter_for(call, &target.url)?;
        let cancel_notice = CancelNotice::new(&agent, &self.cancel_notices);
        let called = AgentCall::new(execution, target, &agent, (started, cancel_notice, lineage));
        let running = Box::pin(called.run());
        let result = tokio::select! {
            ended = running => ended,
            () = call.cancelled() => Err(Refusal::Cancelled),
        };
        permit.leave(call, &result);
        result
    }

    /// Hides skills that an agent no longer lists as they were accepted.
    fn offers(&self, server: &str, primitive: &Primitive) -> bool {
        self.watches.items.offers(server, primitive)
    }

    /// Returns once all cancel requests are sent.
    async fn drained(&self) {
        self.watches.clear();
        self.cancel_notices.close();
        self.cancel_notices.wait().await;
        self.cancel_notices.reopen();
    }
}
