//! The parts of a gateway that are built from several others.

use std::sync::Arc;

use asp_store::answers::{Answers, QuickLedger};
use asp_store::ledger::{Ledger, MemoryLedger};
use asp_store::plugin_storage::PluginStorage;
use asp_store::push::PushStore;
use asp_store::records::CallRecords;

use asp_backends::outbound::auth::{Authorizer, CallHeaders};
use asp_backends::plugin::{PluginBackend, PluginDeps};
use asp_backends::{BackendTable, OutboundError};
use asp_call::call::registry::CallRegistry;
use asp_call::durable::active::ActiveTable;
use asp_call::durable::pushes::Pushes;
use asp_call::durable::shared_calls::SharedCalls;
use asp_call::durable::storage::SealedStorage;
use asp_call::seal::Sealer;
use asp_call::telemetry::metrics::Metrics;
use asp_identity::issuers::Issuers;
use asp_identity::linked::LinkDeps;
use asp_identity::minting::{Minter, TokenAudiences, TokenKeys};
use asp_pipeline::pipeline::Pipeline;
use asp_pipeline::pipeline::ledger::Ledgers;
use asp_pipeline::subscriptions::{self, Subscriptions};
use asp_protocols::push::{PushOrigins, PushService};
use asp_protocols::replica::Settings;
use asp_runtime_client::runtimes::Runtimes;
use asp_vault::Vault;

/// Returns the metrics of the gateway, with those of its vault.
pub(super) fn metrics(vault: &Vault, links: Option<&LinkDeps>) -> Arc<Metrics> {
    let mut metrics = Metrics::default();
    vault.register(metrics.registry_mut());
    if let Some(links) = links {
        links.metrics.register(metrics.registry_mut());
    }
    Arc::new(metrics)
}

/// Returns what mints the platform's tokens.
pub(super) fn minter(keys: Arc<TokenKeys>, settings: &Settings, audiences: TokenAudiences) -> Arc<Minter> {
    Arc::new(Minter::new(keys, settings.public_url.clone(), audiences))
}

pub(super) fn authorizer(minter: &Arc<Minter>, issuers: &Issuers, told: CallHeaders) -> Authorizer {
    let authorizer =
        Authorizer::new(minter.clone(), issuers.credentials.clone(), issuers.exchanges.clone(), told);
    authorizer.with_links(issuers.links.clone())
}

/// Returns the backends of all calls.
pub(super) fn backends(
    deps: PluginDeps,
    runtimes: &Arc<Runtimes>,
    metrics: &Arc<Metrics>,
) -> Result<BackendTable, OutboundError> {
    let artifacts = deps.artifacts.clone();
    let delegates = deps.delegates.clone();
    let authorizer = deps.authorizer.clone();
    let plugins = PluginBackend::new(runtimes.clone(), metrics.clone(), deps);
    BackendTable::new(plugins, artifacts, delegates, metrics.upstreams.clone(), authorizer)
}

/// Returns the table of active calls. Its rows belong to the same run as the keys published with its lease.
pub(super) fn active_table(
    store: Arc<dyn CallRecords>,
    minter: &Minter,
    sealer: &Arc<Sealer>,
    registry: &Arc<CallRegistry>,
    of_calls: Option<SharedCalls>,
) -> Arc<ActiveTable> {
    Arc::new(ActiveTable::new(store, minter.keys.owner(), sealer.clone(), registry.clone(), of_calls))
}

/// Returns the subscriptions, registered as the pipeline's listener for changes of resources.
pub(super) fn listening(
    pipeline: &Arc<Pipeline>,
    bounds: subscriptions::SubscriptionBounds,
) -> Arc<Subscriptions> {
    let subscriptions = Subscriptions::new(pipeline.clone(), bounds);
    let listener = Arc::downgrade(&subscriptions);
    pipeline.listen(listener);
    subscriptions
}

/// Returns what sends push notifications, if there is a store for them.
pub(super) fn push_service(
    store: Option<Arc<dyn PushStore>>,
    active: &Arc<ActiveTable>,
    sealer: &Arc<Sealer>,
    origins: PushOrigins,
) -> Result<Option<PushService>, OutboundError> {
    let pushes = store.map(|store| Arc::new(Pushes::new(store, active.clone(), sealer.clone())));
    pushes.map(|pushes| PushService::new(pushes, origins)).transpose()
}

/// Returns the storage of plugins, if there is a store for it.
pub(super) fn storage(
    store: Option<Arc<dyn PluginStorage>>,
    sealer: &Arc<Sealer>,
) -> Option<Arc<SealedStorage>> {
    store.map(|store| Arc::new(SealedStorage::new(store, sealer.clone())))
}

pub(super) fn ledgers(
    durable: Arc<dyn Ledger>,
    answers: Option<Arc<dyn Answers>>,
    active: &ActiveTable,
    sealer: &Arc<Sealer>,
) -> Ledgers {
    let quick: Arc<dyn Ledger> = match answers {
        None => Arc::new(MemoryLedger::default()),
        Some(answers) => Arc::new(QuickLedger::new(answers)),
    };
    Ledgers::new(durable, quick, active.owner(), sealer.clone())
}
