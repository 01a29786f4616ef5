//! Looks at an agent's card, in which changes of accepted skills are found.
//!
//! Keeps true: a card that none of the accepted keys signs is reported, and says nothing about its skills; the keys are read
//! at the card's own origin, wherever the card says that they are, and nowhere that the operator does not let the primitive go.

use std::sync::Arc;

use asp_a2a::Generation;
use asp_a2a::card::{AgentCard, CardKey, CardSignature, verify};
use asp_a2a::version::VERSION_HEADER;
use asp_call::execution::Execution;
use asp_call::telemetry::log_limit::LogLimit;
use asp_json::{Json, held, unmarked};
use asp_mcp_client::listing::Lists;
use asp_outbound::{Destination, Outbound, Requester};
use asp_proto::snapshot::service_auth::Kind;
use asp_proto::snapshot::{ProxyA2a, Upstream};
use async_trait::async_trait;
use reqwest::Url;
use reqwest::header::ACCEPT;

use crate::accepted::watching::{PollResult, Poller};
use crate::outbound::auth::Authorizer;

/// Maximum size of a card, and of a set of keys, in bytes.
const MAX_CARD: usize = 1 << 20;

/// Poller of one card.
pub(super) struct CardPoller {
    outbound: Arc<Outbound>,
    upstreams: Arc<Vec<Upstream>>,
    /// Server and primitive by which the operator's lists decide.
    server: String,
    primitive: String,
    /// URL of the card in the spec.
    card: String,
    /// Thumbprints of the accepted keys; empty if the card may be unsigned.
    signers: Vec<String>,
    authorizer: Arc<Authorizer>,
    /// Name of the operator's credential with which the card is read.
    credential: Option<String>,
    unsigned: LogLimit,
}

impl CardPoller {
    /// Creates the poller for a call's primitive, whose runtime is `target`.
    pub(super) fn new(
        outbound: &Arc<Outbound>,
        authorizer: &Arc<Authorizer>,
        target: &ProxyA2a,
        execution: &Execution,
    ) -> CardPoller {
        let primitive = &execution.call.entry.primitive;
        let credential = match primitive.service_auth.as_ref().and_then(|auth| auth.kind.as_ref()) {
            Some(Kind::Credential(name)) => Some(name.clone()),
            Some(Kind::Token(_) | Kind::Exchange(_) | Kind::Linked(_)) | None => None,
        };
        CardPoller {
            outbound: outbound.clone(),
            upstreams: execution.snapshot.upstreams.clone(),
            server: execution.call.server.message.name.clone(),
            primitive: primitive.id.clone(),
            card: target.card.clone(),
            signers: target.signers.clone(),
            authorizer: authorizer.clone(),
            credential,
            unsigned: LogLimit::default(),
        }
    }

    async fn get(&self, address: &str) -> Result<Json, String> {
        let by = Requester { server: &self.server, primitive: &self.primitive };
        let destination = self.outbound.destination(address, &self.upstreams, by);
        let Destination { client, url } = destination.map_err(|error| error.to_string())?;
        let mut request = client.get(url.clone()).header(ACCEPT, "application/json");
        // An agent of both versions may serve clients of 0.3 a form of its card that it does not sign.
        request = request.header(VERSION_HEADER, Generation::V10.as_str());
        if let Some(credential) = &self.credential
            && let Some((name, value)) = self.authorizer.standing(credential, &url).await
        {
            request = request.header(name, value);
        }
        let response = request.send().await.map_err(|_| "the agent did not answer".to_owned())?;
        if !response.status().is_success() {
            return Err(format!("the agent answered {}", response.status().as_u16()));
        }
        let body = asp_outbound::body(response, MAX_CARD).await?;
        if held::is_too_much(&body) {
            return Err("the agent's card holds too many JSON values".to_owned());
        }
        Json::parse(unmarked(&body)).map_err(|_| "the agent's card is not JSON".to_owned())
    }

    /// Returns the keys at the path that a card names, at the card's own origin.
    async fn keys(&self, named: &Url) -> Result<Vec<CardKey>, String> {
        let mut url = Url::parse(&self.card).map_err(|error| error.to_string())?;
        url.set_path(named.path());
        url.set_query(named.query());
        let mut keys = CardKey::of_jwks(self.get(url.as_str()).await?.text());
        keys.retain(|key| self.signers.contains(&key.thumbprint()));
        Ok(keys)
    }

    /// Checks that an accepted key signs the card.
    async fn check_signature(&self, card: &Json) -> Result<(), String> {
        if self.signers.is_empty() {
            return Ok(());
        }
        let mut fault = "no signature names its keys".to_owned();
        for jku in CardSignature::all_of(card).into_iter().filter_map(|signature| signature.jku) {
            let Ok(named) = Url::parse(&jku) else { continue };
            let verified = self.keys(&named).await.map(|keys| verify(card, &keys));
            match verified {
                Ok(Ok(_)) => return Ok(()),
                Ok(Err(found)) => fault = found.to_string(),
                Err(found) => fault = found,
            }
        }
        if let Some(count) = self.unsigned.count() {
            let card = self.card.as_str();
            tracing::warn!(
                card,
                fault,
                count,
                "an agent's card is not signed by an accepted key, so its changes are not looked at; review it with asp import"
            );
        }
        Err(fault)
    }
}

#[async_trait]
impl Poller for CardPoller {
    async fn poll(&mut self) -> Result<PollResult, String> {
        let card = self.get(&self.card).await?;
        self.check_signature(&card).await?;
        let read = AgentCard::read(&card).ok_or_else(|| "the document is not an agent card".to_owned())?;
        let tools = read.skills.iter().map(|skill| skill.to_item()).collect();
        // Nobody reports changes of a card, and calls do not wait until it is read each time.
        Ok(PollResult { lists: Lists { tools, ..Lists::default() }, tells_of_changes: true })
    }

    /// Never returns: the card is read at intervals.
    async fn changed(&mut self) {
        std::future::pending().await
    }
}
