//! The gateway role: the gateway itself, its subscription, its listener.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use asp_gateway::executors::plugin::runtimes::{RuntimeTarget, RuntimeTls, Runtimes};
use asp_gateway::{Gateway, Stores};
use asp_platform::secret::Secret;
use asp_store::blobs::DiskBlobs;
use asp_store::calls::SqliteCalls;
use secrecy::SecretSlice;
use tokio::net::TcpListener;
use tokio_util::task::TaskTracker;

use super::{GRACE, Process, ports};
use crate::listen;
use crate::settings::{PeerSection, SealKeys};
use crate::stack::runtime::LocalRuntime;
use crate::xds::client::{self, Target};

/// Ledger and audit of calls, below the state directory.
const CALLS_FILE: &str = "calls.db";
/// The artifacts of plugin calls, below the state directory.
const ARTIFACTS: &str = "artifacts";
const SWEEP_CALLS_EVERY: Duration = Duration::from_secs(600);
/// Bytes of a generated seal key.
const SEAL_KEY: usize = 32;

/// Starts the gateway role; returns when it is listening.
pub(super) async fn start(
    process: &Process,
    listener: TcpListener,
    drains: &TaskTracker,
) -> anyhow::Result<()> {
    let settings = &process.settings;
    let file = settings.state_dir.join(CALLS_FILE);
    let calls = Arc::new(SqliteCalls::open(&file).await.with_context(|| format!("open {}", file.display()))?);
    let directory = settings.state_dir.join(ARTIFACTS);
    let artifacts =
        DiskBlobs::open(&directory).await.with_context(|| format!("open {}", directory.display()))?;
    let gateway = Gateway::new(asp_gateway::Config {
        seal_keys: seal_keys(settings.gateway.seal.as_ref()),
        public_url: process.public_url.clone(),
        dev: settings.dev,
        stores: Stores {
            ledger: calls.clone(),
            audit: calls.clone(),
            active: calls.clone(),
            blobs: Arc::new(artifacts),
        },
        runtimes: runtimes(process)?,
    })
    .context("start the gateway")?;
    let local = ports::local(settings, process.ports.gateway);
    let xds_url = match &settings.gateway.xds_url {
        Some(url) => url.clone(),
        None => {
            let scheme = if process.peer.is_some() { "https" } else { "http" };
            format!("{scheme}://{}", ports::local(settings, process.ports.xds))
        }
    };
    let advertise = settings.gateway.advertise.clone().unwrap_or_else(|| local.to_string());
    let target = Target {
        uri: xds_url.parse().with_context(|| format!("read the xDS url {xds_url}"))?,
        node_id: format!("gateway-{advertise}"),
        advertise,
        pool: settings.gateway.pool.clone(),
        peer: process.peer.clone(),
    };
    let applying = Arc::clone(&gateway);
    let apply: client::Apply = Arc::new(move |snapshot| applying.apply(snapshot));
    // Ends with the first stop: Envoy learns at once that this replica takes no new requests.
    process.tasks.spawn(client::run(target, apply, process.stop.clone()));
    let sweep = Gateway::sweep(Arc::downgrade(&gateway));
    let (stop, ending) = (process.stop_background.clone(), Arc::clone(&gateway));
    process.tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = sweep => {}
            () = sweep_calls(calls) => {}
        }
        // The listeners have drained by now: what still runs waits for nobody.
        ending.stop().await;
    });
    drains.spawn(listen::serve(listener, gateway.router(), process.stop.clone(), GRACE));
    Ok(())
}

/// The configured language runtimes, and the one that this process starts.
fn runtimes(process: &Process) -> anyhow::Result<Runtimes> {
    let settings = &process.settings;
    let own = process.runtime.as_ref().map(LocalRuntime::address);
    let mut targets = Vec::new();
    for address in settings.gateway.runtimes.iter().cloned().chain(own) {
        let tls = if address.url.starts_with("https://") { settings.peer.as_ref() } else { None };
        let tls = tls.map(runtime_tls).transpose()?;
        targets.push(RuntimeTarget { languages: address.languages, url: address.url, tls });
    }
    Runtimes::new(targets).context("use the language runtimes")
}

/// The gateway proves itself to a runtime as it does to the control plane.
fn runtime_tls(peer: &PeerSection) -> anyhow::Result<RuntimeTls> {
    let read =
        |path: &Path| std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    Ok(RuntimeTls {
        certificate: read(&peer.certificate)?,
        key: read(&peer.key)?.into(),
        authority: read(&peer.authority)?,
    })
}

/// Deletes what is past its retention.
async fn sweep_calls(calls: Arc<SqliteCalls>) {
    let mut ticks = tokio::time::interval(SWEEP_CALLS_EVERY);
    loop {
        ticks.tick().await;
        if let Err(error) = calls.sweep().await {
            tracing::warn!(error = %error, "sweep of the calls store failed");
        }
    }
}

/// The configured keys; in development, where none need be, a fresh one for this process.
fn seal_keys(configured: Option<&SealKeys>) -> asp_gateway::SealKeys {
    let bytes = |secret: &Secret| SecretSlice::from(secret.expose().as_bytes().to_vec());
    match configured {
        Some(keys) => asp_gateway::SealKeys {
            current: bytes(&keys.current),
            previous: keys.previous.as_ref().map(bytes),
        },
        None => asp_gateway::SealKeys {
            current: SecretSlice::from(rand::random::<[u8; SEAL_KEY]>().to_vec()),
            previous: None,
        },
    }
}
