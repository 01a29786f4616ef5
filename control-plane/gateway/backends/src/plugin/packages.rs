//! Looks at stdio packages: through separate tunnels to the package's workers, which list its items.
//!
//! Keeps true: a look belongs to no call: it has no caller and no token, and requests of the server during it are refused.
//! It runs in the same sandbox as calls, so that it sees what calls will find, and separately for each server, because
//! another server may have other secrets and networks, with which the package lists different items.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asp_mcp_client::client::ClientFault;
use asp_mcp_client::lines::{self, LineEvent};
use asp_mcp_client::listing::Lister;
use asp_mcp_client::message::UpstreamObject;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{self as ppp, LineRequest, client_message};
use asp_proto::supervisor::{AllocateWorkerRequest, PluginRef, tunnel_event};
use asp_runtime_client::tunnel::{self, Tunnel, TunnelMessage};
use async_trait::async_trait;
use serde_json::Value;

use super::availability::{PluginLocation, unopened};
use super::reference::called_as;
use crate::accepted::pinned::PinnedItems;
use crate::accepted::watching::{PollResult, Poller, Watches};

/// Maximum time that a call waits for a look: the package's process may have to start first, for which the call would
/// wait too.
const PATIENCE: Duration = Duration::from_secs(10);
/// Timeout of one request of a look in its worker.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Tenant of looks: no organisation has such a name.
const TENANT: &str = "@platform";

/// Number of the next request of this process's looks.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Creates the watches over the packages of one gateway.
pub(super) fn watches(items: Arc<PinnedItems>) -> Arc<Watches> {
    Arc::new(Watches::of(items, PATIENCE))
}

/// One package.
pub(super) struct Package {
    plugin: PluginRef,
    place: PluginLocation,
    /// The server that the look is for, and the primitive of its first call, whose networks and secrets the look
    /// uses.
    called_as: (String, String),
    /// Whether the package reported changed lists during the last look.
    has_changed: bool,
}

impl Package {
    pub(super) fn of(plugin: PluginRef, place: PluginLocation, called_as: (String, String)) -> Package {
        Package { plugin, place, called_as, has_changed: false }
    }

    /// Opens a tunnel to one of its workers for one request.
    async fn open(&self, method: &str, params: &Value) -> Result<Tunnel, String> {
        // Random, because other gateways look at the same workers.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let request_id = format!("look-{:016x}-{number}", rand::random::<u64>());
        let plugin = called_as(&self.plugin, &self.called_as.0, &self.called_as.1);
        let (request, ctx, init) = self.place.request(plugin, TENANT, &request_id, "");
        let request = AllocateWorkerRequest {
            soft_deadline: prost_types::Duration::try_from(TIMEOUT).ok(),
            lines: Some(lines::protocol()),
            ..request
        };
        let work = LineRequest {
            ctx: Some(ctx),
            request_id,
            method: method.to_owned(),
            params: Some(ppp::Json { value: params.to_string().into_bytes() }),
            ..LineRequest::default()
        };
        let messages = [init, tunnel::pack(client_message::Payload::LineRequest(work))];
        match self.place.open(&self.plugin, request, messages).await {
            Ok((tunnel, _)) => Ok(tunnel),
            Err(fault) => Err(unopened(&fault)),
        }
    }

    /// Handles a message of the worker before the answer.
    async fn hear(&mut self, tunnel: &mut Tunnel, payload: Payload) -> Result<(), String> {
        match payload {
            Payload::McpRequested(request) if !request.withdrawn => {
                let refusal = lines::refusal(&request);
                let sent = tunnel.send(client_message::Payload::McpAnswer(refusal)).await;
                sent.map_err(|fault| fault.to_string())
            }
            Payload::LineNotification(notification) => {
                self.has_changed |= lines::event(&notification) == Some(LineEvent::ListsChanged);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Lister for Package {
    async fn ask(&mut self, method: &str, params: Value) -> Result<UpstreamObject, ClientFault> {
        use tunnel_event::Type;
        let mut tunnel = self.open(method, &params).await.map_err(ClientFault::Lost)?;
        loop {
            let heard = tunnel.next().await.map_err(|fault| ClientFault::Lost(fault.to_string()))?;
            let handled = match heard {
                TunnelMessage::Message(Payload::LineAnswer(answer)) => return lines::page(&answer),
                TunnelMessage::Message(Payload::Failed(failed)) => {
                    Err(format!("{}: {}", failed.code, failed.message))
                }
                TunnelMessage::Message(payload) => self.hear(&mut tunnel, payload).await,
                TunnelMessage::Event(event) => match event.r#type() {
                    Type::TunnelReady => tunnel.ready().await.map_err(|fault| fault.to_string()),
                    Type::AllocationQueued
                    | Type::AllocationStarted
                    | Type::CredentialRefused
                    | Type::Unspecified => Ok(()),
                    ended => Err(format!("{}: {}", ended.as_str_name(), event.message)),
                },
                TunnelMessage::End => Err("it ended without an answer".into()),
                TunnelMessage::Content(_)
                | TunnelMessage::Prompt(_)
                | TunnelMessage::Listed(_)
                | TunnelMessage::Updated(_) => Ok(()),
            };
            handled.map_err(ClientFault::Lost)?;
        }
    }
}

#[async_trait]
impl Poller for Package {
    async fn poll(&mut self) -> Result<PollResult, String> {
        let follows_its_own = std::mem::take(&mut self.has_changed);
        let (lists, tells_of_changes) = lines::list(self).await.map_err(|fault| fault.to_string())?;
        // A server that reports a change whenever it is listed is not polled all the time.
        self.has_changed &= !follows_its_own;
        Ok(PollResult { lists, tells_of_changes })
    }

    /// Returns at once if the last look was overtaken by a change; other changes are reported to calls.
    async fn changed(&mut self) {
        if !self.has_changed {
            std::future::pending::<()>().await;
        }
    }
}
