//! The gateway role: the gateway itself, its snapshot subscription and its listener.

use std::sync::Arc;

use anyhow::Context;
use asp_call::seal::Sealer;
use asp_call::telemetry::metrics::LinkMetrics;
use asp_call::telemetry::usage::UsageMeter;
use asp_command::state_dir;
use asp_gateway::gateway::{Gateway, Shared, Stores};
use asp_identity::issuers::IssuerDeps;
use asp_identity::issuers::fresh_keys::AskControl;
use asp_identity::linked::LinkDeps;
use asp_peer::Role;
use asp_platform::secret::SecretBytes;
use asp_store::blobs::Blobs;
use asp_store::counter::Counters;
use asp_xds::client::{self, SubscriptionTarget};
use asp_xds::keys;
use async_trait::async_trait;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ports::GatewayListeners;
use super::{Process, objects, ports, runtimes, shared, stores, traces};
use crate::settings::Settings;

mod reports;

/// File of the generated seal key, below the state directory.
const SEAL_KEY_FILE: &str = "seal-key";

/// Keeps trying to open a database that was unreachable when this process started.
fn open_database(process: &Process, stores: &stores::Stores, gateway: &Arc<Gateway>) {
    let Some(database) = stores.postgres().cloned() else { return };
    let gateway = Arc::clone(gateway);
    let opening = async move {
        database.keep_opening(|is_refused| gateway.set_refused_by_store(is_refused)).await;
    };
    let background = process.stop_background.clone();
    process.tasks.spawn(async move { background.run_until_cancelled_owned(Box::pin(opening)).await });
}

/// Handles messages from other gateways until the process ends.
fn receive_bus_messages(process: &Process, gateway: &Arc<Gateway>) {
    let hearing = asp_protocols::mcp::elsewhere::listen(Arc::downgrade(&gateway.replica));
    let background = process.stop_background.clone();
    process.tasks.spawn(async move { background.run_until_cancelled_owned(hearing).await });
}

/// Sends push notifications until this process stops accepting work; what is due then is sent by another gateway.
fn send_pushes(process: &Process, gateway: &Gateway) {
    let sending = gateway.send_pushes();
    let stop = process.stop.clone();
    process.tasks.spawn(async move { stop.run_until_cancelled_owned(sending).await });
}

/// Watches over approvals, and notifies of requests, until this process stops accepting work.
fn watch_approvals(process: &Process, gateway: &Arc<Gateway>) {
    let watching = Gateway::keep_approvals(Arc::downgrade(gateway));
    let background = process.stop_background.clone();
    process.tasks.spawn(async move { background.run_until_cancelled_owned(watching).await });
    let sending = gateway.send_approval_notices();
    let stop = process.stop.clone();
    process.tasks.spawn(async move { stop.run_until_cancelled_owned(sending).await });
}

/// Revokes the tokens of ended linked accounts until this process stops accepting work; another gateway revokes the rest.
fn keep_links(process: &Process, gateway: &Gateway) {
    let keeping = gateway.keep_links();
    let stop = process.stop.clone();
    process.tasks.spawn(async move { stop.run_until_cancelled_owned(keeping).await });
}

/// Takes over calls that other gateways have left behind, and completes their audit, until this process stops accepting work.
fn take_over(process: &Process, gateway: &Arc<Gateway>) {
    let taking = Gateway::take_over_calls(Arc::downgrade(gateway));
    let finishing = Gateway::finish_lost_calls(Arc::downgrade(gateway));
    let stop = process.stop.clone();
    process.tasks.spawn(async move { stop.run_until_cancelled_owned(finishing).await });
    let stop = process.stop.clone();
    let gateway = Arc::clone(gateway);
    process.tasks.spawn(async move {
        stop.run_until_cancelled(taking).await;
        // Listeners can drain only when the streams that wait for changes have ended.
        gateway.subscriptions.end_all();
    });
}

/// Counts calls in the store of usage, and reports running calls and sessions, until the process ends; the gateway's stop writes
/// the last sums.
fn count_usage(process: &Process, calls: &stores::CallStores, gateway: &Arc<Gateway>) {
    let meter = Arc::new(UsageMeter::new(calls.usage(), process.settings.gateway.model_price));
    gateway.pipeline.count_usage(Arc::clone(&meter));
    let background = process.stop_background.clone();
    process.tasks.spawn(async move {
        background.run_until_cancelled_owned(async move { meter.keep_writing().await }).await
    });
    let reporting = Gateway::report_live(Arc::downgrade(gateway), calls.live());
    let background = process.stop_background.clone();
    process.tasks.spawn(async move { background.run_until_cancelled_owned(reporting).await });
}

/// Returns the stores of a gateway with one database of calls.
fn gateway_stores(
    calls: &stores::CallStores,
    blobs: Arc<dyn Blobs>,
    (counters, shared): (Arc<dyn Counters>, Option<Shared>),
) -> Stores {
    Stores {
        ledger: calls.calls(),
        audit: calls.audit(),
        active: calls.calls(),
        blobs,
        counters,
        pushes: Some(calls.calls()),
        storage: Some(calls.calls()),
        approvals: Some(calls.calls()),
        shared,
    }
}

/// Starts the gateway role; returns when it is listening.
pub(super) async fn start(
    process: &Process,
    listeners: GatewayListeners,
    (stores, calls): (&stores::Stores, Option<stores::CallStores>),
    drains: &TaskTracker,
) -> anyhow::Result<()> {
    let calls = calls.context("a gateway has a store of calls")?;
    let settings = &process.settings;
    let limits_and_shared = shared::open(&settings.gateway)?;
    let artifacts = objects::artifacts(settings, stores).await?;
    let gateway = Gateway::new(asp_gateway::gateway::Config {
        sealer: Arc::new(sealer(settings)?),
        vault: process.vault.clone(),
        token_keys: process.token_keys.clone().context("a gateway has a token key")?,
        token_audiences: settings.gateway.token_audiences.clone(),
        push_origins: settings.gateway.push_origins.clone(),
        approval_webhook: settings.gateway.approval_webhook.clone(),
        settings: public_settings(process),
        stores: gateway_stores(&calls, artifacts, limits_and_shared),
        runtimes: runtimes::open(process)?,
        delegates: settings.gateway.delegates.clone(),
        issuers: issuers(process, &calls)?,
        told: settings.gateway.told,
        bounds: settings.calls.bounds(),
        memory: settings.calls.memory(),
        subscriptions: asp_pipeline::subscriptions::SubscriptionBounds::default(),
        listener: process.plugin_logs.clone(),
    })
    .context("start the gateway")?;
    if let Some(listener) = &process.call_ends {
        gateway.pipeline.listen_to_ends(Arc::clone(listener));
    }
    count_usage(process, &calls, &gateway);
    traces::start(process, &gateway)?;
    subscribe(process, &gateway, drains)?;
    let sweep = Gateway::sweep(Arc::downgrade(&gateway));
    let keep = Gateway::keep_calls(Arc::downgrade(&gateway));
    let signing = Gateway::keep_token_keys(Arc::downgrade(&gateway));
    open_database(process, stores, &gateway);
    take_over(process, &gateway);
    receive_bus_messages(process, &gateway);
    send_pushes(process, &gateway);
    watch_approvals(process, &gateway);
    keep_links(process, &gateway);
    let stop = process.stop_background.clone();
    let ending = Arc::clone(&gateway);
    process.tasks.spawn(async move {
        let background = async {
            tokio::select! {
                () = sweep => {}
                () = signing => {}
                () = calls.keep() => {}
            }
        };
        run(&stop, Box::pin(background), keep, Box::pin(ending.stop())).await;
    });
    serve(process, listeners, &gateway, drains)?;
    // Err: cannot happen, there is one gateway.
    let _ = process.gateway.set(Arc::downgrade(&gateway));
    Ok(())
}

/// Applies what the control plane publishes.
fn subscribe(process: &Process, gateway: &Arc<Gateway>, drains: &TaskTracker) -> anyhow::Result<()> {
    let target = target(process)?;
    let applying = Arc::clone(gateway);
    let apply: client::Apply =
        Arc::new(move |revision, covers, changes| applying.apply_changes(revision, covers, changes));
    let noting = Arc::clone(gateway);
    let note_fresh: client::NoteFresh = Arc::new(move || noting.control_is_fresh());
    // Unsubscribes at the first stop, so that Envoy learns at once that this replica takes no new requests. A control plane
    // in this process still receives that, since it ends after everything has drained.
    let sources = reports::sources(gateway);
    drains.spawn(client::run(target, (apply, note_fresh), sources, process.stop.clone()));
    Ok(())
}

/// Returns the public part of the configuration.
fn public_settings(process: &Process) -> asp_protocols::replica::Settings {
    let settings = &process.settings;
    asp_protocols::replica::Settings {
        public_url: process.public_url.clone(),
        dev: settings.dev,
        registry: settings.dev || settings.gateway.registry,
        in_mesh: settings.in_mesh(),
    }
}

/// Runs the gateway's background tasks until `stop`, and then `end`. The lease is renewed until `end` completes, so that no
/// other gateway takes its calls over before its last results are stored.
async fn run(
    stop: &CancellationToken,
    background: impl Future<Output = ()>,
    keep: impl Future<Output = ()>,
    end: impl Future<Output = ()>,
) {
    tokio::pin!(keep);
    tokio::select! {
        () = stop.cancelled() => {}
        () = background => {}
        () = &mut keep => {}
    }
    // The listeners have drained by now, so no client waits for the remaining calls.
    tokio::select! {
        () = end => {}
        () = keep => {}
    }
}

/// Serves clients and health checks in plaintext on this machine and in a mesh; elsewhere only health checks. Envoys that
/// present a certificate may forward the certificates of their clients.
fn serve(
    process: &Process,
    listeners: GatewayListeners,
    gateway: &Arc<Gateway>,
    drains: &TaskTracker,
) -> anyhow::Result<()> {
    let router = match &process.gate {
        Some(gate) => asp_gateway::http::gated_router(Arc::clone(gateway), Arc::clone(gate)),
        None => asp_gateway::http::router(Arc::clone(gateway)),
    };
    let (stop, limit) = (&process.stop, process.drain_limit());
    let plain = match process.settings.requires_mutual_tls() {
        true => asp_gateway::http::probe_router(Arc::clone(gateway)),
        false => router.clone(),
    };
    drains.spawn(asp_inbound::serve(listeners.plain, plain, stop.clone(), limit));
    if let Some(listener) = listeners.mtls {
        let peer =
            process.certificates.peer.clone().context("a gateway with mutual TLS has a certificate")?;
        drains.spawn(asp_inbound::serve_proved(
            listener,
            router,
            (peer, &[Role::Envoy]),
            stop.clone(),
            limit,
        ));
    }
    Ok(())
}

/// Returns the control planes that this gateway gets snapshots from, and its own name there.
fn target(process: &Process) -> anyhow::Result<SubscriptionTarget> {
    let settings = &process.settings;
    let port = match process.ports.gateway_mtls {
        0 => process.ports.gateway,
        mtls => mtls,
    };
    let local = ports::local(settings.listen.gateway(), port);
    let own = || {
        let scheme = if process.certificates.peer.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", ports::local(settings.listen.xds(), process.ports.xds))
    };
    let urls = settings.gateway.xds_urls.clone().unwrap_or_else(|| vec![own()]);
    let uris = urls.iter().map(|url| url.parse().with_context(|| format!("read the xDS url {url}")));
    let advertise = settings.gateway.advertise.clone().unwrap_or_else(|| local.to_string());
    Ok(SubscriptionTarget {
        uris: uris.collect::<anyhow::Result<_>>()?,
        node_id: format!("gateway-{advertise}"),
        advertise,
        pool: settings.gateway.pool.clone(),
        peer: process.certificates.peer.clone(),
        name: settings.peer.as_ref().and(settings.certificates.peer_name.clone()),
    })
}

/// Returns what the gateway needs to talk to issuers.
fn issuers(process: &Process, calls: &stores::CallStores) -> anyhow::Result<IssuerDeps> {
    let settings = &process.settings;
    let of_login = process.dev_login.iter().map(|login| login.origin().to_owned());
    Ok(IssuerDeps {
        control: Some(Arc::new(ControlClient(keys::KeysClient::new(target(process)?)))),
        credentials: settings.gateway.credentials.clone(),
        origins: settings.issuer_origins.iter().cloned().chain(of_login).collect(),
        links: Some(LinkDeps {
            store: calls.calls(),
            vault: process.vault.clone(),
            metrics: LinkMetrics::default(),
        }),
    })
}

/// Client that asks the control plane of this gateway for keys.
struct ControlClient(keys::KeysClient);

#[async_trait]
impl AskControl for ControlClient {
    async fn newest_keys(&self, issuer: &str) -> Option<u64> {
        match self.0.refresh(issuer).await {
            Ok(revision) => Some(revision),
            Err(status) => {
                tracing::warn!(
                    issuer, %status,
                    "newest keys of an issuer could not be requested from the control plane; tokens that may be signed with \
                     one of them are rejected"
                );
                None
            }
        }
    }
}

/// Creates the sealer with the configured keys; in development, where none are required, with a key that this machine keeps, so
/// that state sealed before a restart can still be opened.
fn sealer(settings: &Settings) -> anyhow::Result<Sealer> {
    if let Some(current) = &settings.gateway.seal_key {
        let previous = settings.gateway.seal_key_previous.as_ref().map(|key| key.expose().as_bytes());
        return Ok(Sealer::new(current.expose().as_bytes(), previous)?);
    }
    let path = settings.state_dir.join(SEAL_KEY_FILE);
    state_dir::create_once(&path, SecretBytes::random().expose())
        .with_context(|| format!("create {}", path.display()))?;
    let key = SecretBytes::read(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(Sealer::new(key.expose(), None)?)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::*;

    async fn renews(renewals: &AtomicU32) {
        let mut ticks = tokio::time::interval(Duration::from_secs(2));
        loop {
            ticks.tick().await;
            renewals.fetch_add(1, Ordering::AcqRel);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_lease_is_renewed_until_the_gateway_has_ended() {
        let renewals = AtomicU32::new(0);
        let while_it_ended = AtomicU32::new(0);
        // Simulates a slow store: longer than a lease.
        let end = async {
            let before = renewals.load(Ordering::Acquire);
            tokio::time::sleep(Duration::from_secs(19)).await;
            while_it_ended.store(renewals.load(Ordering::Acquire) - before, Ordering::Release);
        };
        let stop = CancellationToken::new();
        stop.cancel();
        run(&stop, std::future::pending(), renews(&renewals), end).await;
        let renewed = while_it_ended.load(Ordering::Acquire);
        assert!(renewed >= 9, "{renewed} renewals in 19 s");
    }
}
