//! The backends of plugins and of stdio MCP servers, over one set of runtimes.
//!
//! Keeps true: shared work (preparation, draining, which primitives are offered) is done once, by the backend of
//! plugins.

use std::sync::Arc;

use asp_call::call::CallKind;
use asp_call::call::outcome::{Output, Refusal};
use asp_call::execution::{Availability, Execution, ResourceSubscription, SubscriptionGuard};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Primitive, RiskClass};
use asp_snapshot::Snapshot;
use async_trait::async_trait;

use super::Plugins;
use super::packages::Package;
use super::reference::{STDIO, language_name, plugin_ref, run_by, stdio_ref};
use crate::accepted::pinned;
use crate::accepted::watching::Upstream;
use crate::backend::{Backend, misplaced, mode};

/// The backend of plugins.
pub struct PluginBackend(pub(crate) Arc<Plugins>);

#[async_trait]
impl Backend for PluginBackend {
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let primitive = &execution.call.entry.primitive;
        let Some(Mode::Plugin(plugin)) = mode(primitive) else { return Err(misplaced(execution)) };
        self.0.run(execution, plugin_ref(primitive, plugin), primitive.id.clone(), None).await
    }

    fn answers(&self, _kind: &CallKind) -> bool {
        true
    }

    fn continues(&self, primitive: &Primitive) -> bool {
        self.0.offers(primitive)
    }

    fn offers(&self, _server: &str, primitive: &Primitive) -> bool {
        self.0.offers(primitive)
    }

    fn offers_changed(&self) -> u64 {
        self.0.preparing.known.changes()
    }

    fn availability(&self, primitive: &Primitive) -> Option<Availability> {
        self.0.availability(primitive)
    }

    /// Starts to prepare the plugins and packages of a new snapshot.
    fn prepare(&self, snapshot: &Snapshot) {
        let plugins = &self.0;
        let primitives = snapshot.primitives().collect::<Vec<_>>();
        plugins.followings.replace(&primitives);
        plugins.preparing.begin(&plugins.runtimes, &plugins.closing.tasks, &primitives);
    }

    /// Starts to report changes of a resource, if its plugin watches.
    fn watch(&self, subscribed: ResourceSubscription<'_>) -> Option<SubscriptionGuard> {
        let plugins = &self.0;
        let primitive = subscribed.primitive;
        if !primitive.watched_by_runtime {
            return None;
        }
        let (plugin, hints) = run_by(primitive)?;
        let fleet = plugins.runtimes.get(&plugin.language)?;
        let language = language_name(&plugin.language)?;
        let place = plugins.location(fleet, language, hints, primitive.risk_class() == RiskClass::High);
        let following = plugins.followings.follow(plugin, place, &subscribed);
        if following.is_none()
            && let Some(count) = plugins.crowded.count()
        {
            tracing::warn!(
                primitive = primitive.id,
                count,
                "clients are not notified when this resource changes: too many resources of plugins are followed, or its URI exceeds 4096 bytes"
            );
        }
        following.map(|following| Box::new(following) as SubscriptionGuard)
    }

    /// Returns once the tunnels of ended calls are closed.
    async fn drained(&self) {
        let plugins = &self.0;
        plugins.preparing.stop();
        plugins.packages.clear();
        plugins.followings.clear();
        plugins.closing.tasks.close();
        plugins.closing.tasks.wait().await;
        plugins.closing.tasks.reopen();
    }
}

/// The backend of stdio MCP servers in the sandbox.
pub struct StdioBackend(pub(crate) Arc<Plugins>);

#[async_trait]
impl Backend for StdioBackend {
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let plugins = &self.0;
        let primitive = &execution.call.entry.primitive;
        let Some(Mode::McpStdio(target)) = mode(primitive) else { return Err(misplaced(execution)) };
        let (plugin, hints) = stdio_ref(primitive, target);
        let server = &execution.call.server.message.name;
        let name = pinned::package(server, primitive, target);
        if let Some(fleet) = plugins.runtimes.get(STDIO) {
            let upstream = Upstream { name: &name, place: &name, again: false };
            let poller = || {
                let place = plugins.location(fleet, STDIO, hints.clone(), false);
                Package::of(plugin.clone(), place, (server.clone(), primitive.id.clone()))
            };
            tokio::select! {
                () = plugins.packages.enter(upstream, poller) => {}
                () = execution.call.cancelled() => return Err(Refusal::Cancelled),
            }
            // A call that another gateway has begun was not refused there.
            if execution.resume_state.is_none() && !plugins.packages.items.offers(server, primitive) {
                // A tool that the package no longer lists is as unknown as one that was never here (I-10).
                return Err(Refusal::Unknown);
            }
        }
        plugins.run(execution, (plugin, hints), target.tool.clone(), Some(name)).await
    }

    fn continues(&self, primitive: &Primitive) -> bool {
        self.0.offers(primitive)
    }

    /// Hides items that their package no longer lists as they were accepted.
    fn offers(&self, server: &str, primitive: &Primitive) -> bool {
        self.0.offers(primitive) && self.0.packages.items.offers(server, primitive)
    }

    fn availability(&self, primitive: &Primitive) -> Option<Availability> {
        self.0.availability(primitive)
    }
}
