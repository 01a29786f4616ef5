//! Looks at stdio packages: through a separate tunnel to one of the package's workers, which lists its items.
//!
//! Keeps true: a look belongs to no call: it has no caller and no token, and its runtime refuses requests of the
//! server during it. It runs in the same sandbox as calls, so that it sees what calls will find, and separately for
//! each server, because another server may have other secrets and networks, with which the package lists different
//! items.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use asp_json::Json;
use asp_mcp_client::lists::Lists;
use asp_proto::envelope::packed;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{self as ppp, ListResourcesRequest, McpLists, client_message};
use asp_proto::supervisor::{AllocateWorkerRequest, Context, PluginRef, RuntimeHints, tunnel_event};
use asp_runtime_client::lease::TunnelContext;
use asp_runtime_client::runtimes::Fleet;
use asp_runtime_client::tunnel::{self, AllocationRequest, FirstMessages, OpenFault, Tunnel, TunnelMessage};
use async_trait::async_trait;
use serde_json::Value;

use super::availability::KnownPlugins;
use super::reference::{STDIO, called_as};
use crate::accepted::pinned::PinnedItems;
use crate::accepted::watching::{PollResult, Poller, Watches};

/// Maximum time that a call waits for a look: the package's process may have to start first, for which the call would
/// wait too.
const PATIENCE: Duration = Duration::from_secs(10);
/// Timeout of one look in its worker.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of items in one list, as for an upstream over HTTP.
const MAX_ITEMS: usize = 10_000;
/// Tenant of looks: no organisation has such a name.
const TENANT: &str = "@platform";

/// Number of the next look of this process.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Creates the watches over the packages of one gateway.
pub(super) fn watches(items: Arc<PinnedItems>) -> Arc<Watches> {
    Arc::new(Watches::of(items, PATIENCE))
}

/// One package.
pub(super) struct Package {
    plugin: PluginRef,
    hints: RuntimeHints,
    place: PackageLocation,
    /// The server that the look is for, and the primitive of its first call, whose networks and secrets the look
    /// uses.
    called_as: (String, String),
}

/// Location of a package's workers.
pub(super) struct PackageLocation {
    pub fleet: Arc<Fleet>,
    pub known: Arc<KnownPlugins>,
    pub closing: TunnelContext,
}

impl Package {
    pub(super) fn of(
        (plugin, hints): (PluginRef, RuntimeHints),
        place: PackageLocation,
        called_as: (String, String),
    ) -> Package {
        Package { plugin, hints, place, called_as }
    }

    /// Opens a tunnel to one of its workers, which starts to list.
    async fn open(&self) -> Result<Tunnel, String> {
        let PackageLocation { fleet, known, closing } = &self.place;
        let taken = known.choose(fleet, &self.plugin, None, &[]).ok_or("no runtime is available")?;
        // Random, because other gateways look at the same workers.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let request_id = format!("look-{:016x}-{number}", rand::random::<u64>());
        let ctx = Context {
            tenant_id: TENANT.into(),
            correlation_id: request_id.clone(),
            mcp_request_id: request_id.clone(),
            ..Context::default()
        };
        let request = AllocateWorkerRequest {
            plugin: Some(called_as(&self.plugin, &self.called_as.0, &self.called_as.1)),
            ctx: Some(ctx),
            hints: Some(self.hints.clone()),
            soft_deadline: prost_types::Duration::try_from(TIMEOUT).ok(),
            ..AllocateWorkerRequest::default()
        };
        let ctx = ppp::Context { tenant_id: TENANT.into(), ..ppp::Context::default() };
        let init = ppp::InitRequest { ctx: Some(ctx.clone()), ..ppp::InitRequest::default() };
        let work = ListResourcesRequest { ctx: Some(ctx), request_id, mcp: true };
        let opening = FirstMessages {
            init: tunnel::pack(client_message::Payload::Init(init)),
            work: packed(&work),
            owner: None,
        };
        let runtime = Arc::clone(&taken);
        let wanted = AllocationRequest { runtime, language: STDIO, request, closing: closing.clone() };
        match Tunnel::open(wanted, opening).await {
            Ok((tunnel, _)) => Ok(tunnel),
            Err(OpenFault::Rejected(rejection)) => Err(format!("no worker: {rejection:?}")),
            Err(OpenFault::Lost(status)) => Err(status.message().to_owned()),
        }
    }
}

#[async_trait]
impl Poller for Package {
    async fn poll(&mut self) -> Result<PollResult, String> {
        use tunnel_event::Type;
        let mut tunnel = self.open().await?;
        loop {
            match tunnel.next().await.map_err(|fault| fault.to_string())? {
                TunnelMessage::Listed(listed) => {
                    return read(listed.mcp.ok_or("it lists what a plugin does")?);
                }
                TunnelMessage::Message(Payload::Failed(failed)) => {
                    return Err(format!("{}: {}", failed.code, failed.message));
                }
                TunnelMessage::Event(event) => match event.r#type() {
                    Type::TunnelReady => tunnel.ready(None).await.map_err(|fault| fault.to_string())?,
                    Type::AllocationQueued
                    | Type::AllocationStarted
                    | Type::CredentialRefused
                    | Type::Unspecified => {}
                    ended => return Err(format!("{}: {}", ended.as_str_name(), event.message)),
                },
                TunnelMessage::End => return Err("it ended without a list".into()),
                TunnelMessage::Message(_)
                | TunnelMessage::Content(_)
                | TunnelMessage::Prompt(_)
                | TunnelMessage::Updated(_) => {}
            }
        }
    }

    /// Never returns: a change is reported to calls.
    async fn changed(&mut self) {
        std::future::pending().await
    }
}

/// Reads the lists. Items that are not JSON objects are kept, but none of them can have been accepted.
fn read(said: McpLists) -> Result<PollResult, String> {
    let McpLists { tools, prompts, resources, templates, tells_of_changes } = said;
    let list = |json: Option<ppp::Json>| -> Result<Vec<Value>, String> {
        let bytes = json.map(|json| json.value).unwrap_or_default();
        if bytes.is_empty() {
            return Ok(Vec::new());
        }
        let list = Json::parse(&bytes).ok().and_then(|list| list.as_array().cloned());
        let items = list.ok_or("a malformed list")?;
        if items.len() > MAX_ITEMS {
            return Err(format!("more than {MAX_ITEMS} items"));
        }
        Ok(items)
    };
    let lists = Lists {
        tools: list(tools)?,
        prompts: list(prompts)?,
        resources: list(resources)?,
        templates: list(templates)?,
        ..Lists::default()
    };
    Ok(PollResult { lists, tells_of_changes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(tools: &str) -> Result<PollResult, String> {
        let tools = Some(ppp::Json { value: tools.as_bytes().to_vec() });
        read(McpLists { tools, tells_of_changes: true, ..McpLists::default() })
    }

    #[test]
    fn what_a_runtime_says_of_a_package_is_read_within_bounds() {
        let looked = said(r#"[{"name": "a"}]"#).unwrap();
        assert!(looked.tells_of_changes && looked.lists.prompts.is_empty());
        assert_eq!(looked.lists.tools, [serde_json::json!({"name": "a"})]);
        assert!(said("").unwrap().lists.tools.is_empty());
        let cut = said(r#"[{"name": "a", "description": "cut \ud83d", "n": 1e400}]"#).unwrap();
        assert_eq!(cut.lists.tools[0]["description"], "cut \u{fffd}");
        let many = format!("[{}0]", "0,".repeat(MAX_ITEMS));
        for bad in ["{}", "[", "null", &many] {
            assert!(said(bad).is_err());
        }
    }
}
