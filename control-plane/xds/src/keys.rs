//! Refresh of an issuer's keys at a gateway's request, because a token names a key that is not known.
//!
//! Owns both ends of `asp.control.v1.IssuerKeys`. Refuses callers that may not subscribe as a gateway.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::control::issuer_keys_client::IssuerKeysClient;
use asp_proto::control::issuer_keys_server::{IssuerKeys, IssuerKeysServer};
use asp_proto::control::{RefreshRequest, RefreshResponse};
use async_trait::async_trait;
use tokio::sync::Mutex;
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::client::{SubscriptionTarget, connect};
use super::contract::Kind;
use super::peer::{Caller, PeerProof};

/// Maximum size of a request, which names one issuer.
const MAX_REQUEST: usize = 4 * 1024;
/// Longest wait of a gateway, whose client waits as well.
const WITHIN: Duration = Duration::from_secs(11);

/// Fetches the keys of issuers.
#[async_trait]
pub trait RefreshKeys: Send + Sync {
    /// Fetches the keys of an issuer of clients, unless that was done a moment ago; returns the store revision that has
    /// them, 0 if it is not known.
    async fn refresh(&self, issuer: &str) -> u64;
}

/// Returns the control plane's end.
pub(super) fn service(keys: Arc<dyn RefreshKeys>, proof: PeerProof) -> IssuerKeysServer<impl IssuerKeys> {
    IssuerKeysServer::new(KeysService { keys, proof }).max_decoding_message_size(MAX_REQUEST)
}

struct KeysService {
    keys: Arc<dyn RefreshKeys>,
    proof: PeerProof,
}

#[tonic::async_trait]
impl IssuerKeys for KeysService {
    async fn refresh(&self, request: Request<RefreshRequest>) -> Result<Response<RefreshResponse>, Status> {
        let caller = Caller::of(&request, &self.proof)?;
        caller.may_subscribe(Kind::Gateway).map_err(Status::permission_denied)?;
        let revision = self.keys.refresh(&request.into_inner().issuer).await;
        Ok(Response::new(RefreshResponse { revision }))
    }
}

/// A gateway's end; connects on first use.
pub struct KeysClient {
    target: SubscriptionTarget,
    channel: Mutex<Option<Channel>>,
}

impl KeysClient {
    pub fn new(target: SubscriptionTarget) -> KeysClient {
        KeysClient { target, channel: Mutex::default() }
    }

    /// Returns the revision that has the result; an error if no control plane answered.
    pub async fn refresh(&self, issuer: &str) -> Result<u64, Status> {
        let channel = self.channel().await?;
        let mut request = Request::new(RefreshRequest { issuer: issuer.to_owned() });
        request.set_timeout(WITHIN);
        let asked =
            tokio::time::timeout(WITHIN, async { IssuerKeysClient::new(channel).refresh(request).await });
        let answer = match asked.await {
            Ok(answer) => answer,
            Err(_) => Err(Status::deadline_exceeded("no answer")),
        };
        if answer.is_err() {
            // Next time another control plane may answer.
            *self.channel.lock().await = None;
        }
        Ok(answer?.into_inner().revision)
    }

    async fn channel(&self) -> Result<Channel, Status> {
        let mut channel = self.channel.lock().await;
        if let Some(channel) = &*channel {
            return Ok(channel.clone());
        }
        let mut fault = Status::unavailable("no control plane is configured");
        for uri in &self.target.uris {
            match connect(&self.target, uri).await {
                Ok(connected) => return Ok(channel.insert(connected).clone()),
                Err(error) => fault = Status::unavailable(error.to_string()),
            }
        }
        Err(fault)
    }
}
