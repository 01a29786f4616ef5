//! The control role: store, publisher, xDS server and pruning.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use asp_control::admin::auth::Verifier;
use asp_control::admin::emergency::Emergencies;
use asp_control::admin::queues::OrgQueues;
use asp_control::admin::refusals::Refusals;
use asp_control::admin::{self, AdminState, PublicKeys};
use asp_control::admission::Admission;
use asp_control::apply;
use asp_control::catalog::offers::{self, LostServer};
use asp_control::catalog::usage::Usage;
use asp_control::catalog::{Compiler, StaticConfig, ids};
use asp_control::link_endings;
use asp_control::publisher::stored::StoreSource;
use asp_control::publisher::{Handle, Publisher};
use asp_identity::minting::TokenKeys;
use asp_issuers::document::Document;
use asp_issuers::fetch::Fetcher;
use asp_issuers::refresh::Keeper;
use asp_issuers::trust::{StaticIssuers, Trust};
use asp_peer::Accounts;
use asp_platform::clock;
use asp_platform::operator_list::EVERY_PRIMITIVE;
use asp_proto::snapshot::Upstream;
use asp_registry::Catalog;
use asp_store::control::sql::ControlStore;
use asp_store::control::{Change, ControlState, Side};
use asp_store::packages::Packages;
use asp_xds::context::Context as XdsContext;
use asp_xds::endpoints::Endpoints;
use asp_xds::peer::PeerProof;
use asp_xds::service;
use asp_xds::subscribers::Subscribers;
use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::ports::ControlListeners;
use super::{Process, kafka, objects, runtimes, stores};
use crate::break_glass::BreakGlass;
use crate::dev_login;
use crate::stack::everything;
use crate::stack::plugins::MissingPlugin;
use crate::stack::runtime::LocalRuntime;
use crate::stack::secrets::{ENV_SECRETS, UnusedSecret};

/// One hour in milliseconds.
const HOUR: u64 = 60 * 60 * 1_000;
/// Interval at which expired revocations and old audit rows are deleted.
const PRUNE_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of servers logged at start because orgs have lost them.
const MOST_LOST: usize = 20;
/// Number of audit rows kept.
const KEEP_AUDIT: u64 = 1_000_000;

/// The running control role, as other parts of this process use it.
pub(super) struct ControlRole {
    pub(super) store: Arc<ControlStore>,
    pub(super) compiler: Compiler,
    pub(super) publisher: Handle,
    /// Plugins of `--stack` that could not be installed.
    pub(super) not_installed: Vec<MissingPlugin>,
}

/// Returns how gateways and Envoys authenticate to the control plane.
fn proof(process: &Process) -> PeerProof {
    match (&process.certificates.peer, process.settings.in_mesh()) {
        (Some(peer), _) => PeerProof::Certificate(peer.clone()),
        (None, true) => PeerProof::Mesh,
        (None, false) => PeerProof::Account(Accounts::new(&process.settings.listen.xds_accounts)),
    }
}

/// Starts the control role; returns when it is listening.
pub(super) async fn start(
    process: &Process,
    listeners: ControlListeners,
    (stores, calls): (&stores::Stores, Option<&stores::CallStores>),
    drains: &TaskTracker,
) -> anyhow::Result<ControlRole> {
    let settings = &process.settings;
    let store = stores.control(settings).await?;
    ids::take_stored(store.as_ref()).await.context("record the ids of the stored servers")?;
    let trust = trust(process, store.as_ref()).await?;
    let compiler = compiler(process, trust.clone());
    let not_installed = apply_directory(process, store.as_ref(), &compiler).await?;
    let endpoints = endpoints(process, stores);
    let usage: Arc<Usage> = Arc::default();
    let source = Arc::new(StoreSource::new(Arc::clone(&store), compiler.clone(), Arc::clone(&usage)));
    let wasm = settings.filter_wasm.to_string_lossy().into_owned();
    let (publisher, handle) = Publisher::new(source, wasm, endpoints.subscribe());
    process.tasks.spawn(publisher.run(process.stop_background.clone()));
    process.tasks.spawn(warn_of_closed_servers(process, &store, &compiler, &handle));
    let packages = objects::packages(settings, stores).await?;
    process.tasks.spawn(prune(Arc::clone(&store), Arc::clone(&packages), process.stop_background.clone()));
    let keeper = keep_issuers(process, &store, &trust, &handle)?;
    let subscribers = Subscribers::new();
    let xds = xds_context(process, &handle, endpoints, (&subscribers, &keeper));
    process.tasks.spawn(serve_xds(listeners.xds, xds));
    let control = ControlRole {
        store: Arc::clone(&store),
        compiler: compiler.clone(),
        publisher: handle.clone(),
        not_installed: not_installed.clone(),
    };
    let feed = kafka::start(process, (&store, &compiler), &usage, &handle);
    let call_database = end_links(process, &store, stores.call_database(settings, calls).await?);
    let admin = AdminState {
        admission: Admission::new(Arc::clone(&store), compiler.clone(), usage),
        store,
        servers: Default::default(),
        calls: stores.audit(),
        call_usage: stores.usage(),
        live: stores.live(),
        pushes: call_database.clone(),
        approvals: call_database.clone(),
        links: call_database,
        packages,
        compiler,
        publisher: handle,
        subscribers,
        runtimes: Arc::new(runtimes::Health::of(process, not_installed)?),
        verifier: Verifier::new(trust),
        emergencies: Emergencies::default(),
        keeper,
        refusals: Refusals::default(),
        in_flight: Arc::default(),
        queues: OrgQueues::with_write_rate(settings.calls.writes()),
        jwks: Arc::new(Keys::of(process)),
        feed,
        vault: process.vault.clone(),
        dev: settings.dev,
    };
    serve_admin(process, listeners.admin, admin, drains);
    Ok(control)
}

/// Starts to end the links of revoked callers in the database of calls; returns the database.
fn end_links(
    process: &Process,
    store: &Arc<ControlStore>,
    calls: Arc<dyn stores::CallDatabase>,
) -> Arc<dyn stores::CallDatabase> {
    let stop = process.stop_background.clone();
    process.tasks.spawn(link_endings::run(Arc::clone(store), calls.clone(), stop));
    calls
}

/// Stores the servers of the process's directory and installs their plugins; returns the plugins that could not be installed.
async fn apply_directory(
    process: &Process,
    store: &ControlStore,
    compiler: &Compiler,
) -> anyhow::Result<Vec<MissingPlugin>> {
    let Some(directory) = &process.settings.primitives else { return Ok(Vec::new()) };
    let catalog = apply::directory(store, compiler, directory).await?;
    match &process.runtime {
        Some(runtime) => install(runtime, catalog, directory).await,
        None => Ok(Vec::new()),
    }
}

/// Warns once, when a snapshot is published, of servers that orgs have switched on and are not offered.
fn warn_of_closed_servers(
    process: &Process,
    store: &Arc<ControlStore>,
    compiler: &Compiler,
    publisher: &Handle,
) -> impl Future<Output = ()> + Send + use<> {
    let (store, compiler) = (Arc::clone(store), compiler.clone());
    let (mut published, stop) = (publisher.xds_state(), process.stop_background.clone());
    let look = async move {
        published.wait_for(|state| state.snapshot.is_some()).await.context("wait for a snapshot")?;
        let state = store.load().await?;
        let lost = spawn_blocking(move || offers::unoffered_servers(&compiler, &state)).await?;
        anyhow::Ok(lost)
    };
    async move {
        match stop.run_until_cancelled(look).await {
            Some(Ok(lost)) => warn_of_lost(&lost),
            Some(Err(error)) => tracing::warn!(
                error = format!("{error:#}"),
                "servers that orgs have switched on and are not offered could not be determined; check each with `asp servers show`"
            ),
            None => {}
        }
    }
}

fn warn_of_lost(lost: &[LostServer]) {
    for server in lost.iter().take(MOST_LOST) {
        tracing::warn!(
            server = server.server,
            orgs = server.orgs.len(),
            command = server.command(),
            "server is switched on by orgs that it is not offered to; they do not have it"
        );
    }
    let more = lost.len().saturating_sub(MOST_LOST);
    if more > 0 {
        tracing::warn!(more, "more servers are switched on by orgs that they are not offered to");
    }
}

/// Returns the gateways connected to this control plane and to others with the same store, kept up to date by a task.
fn endpoints(process: &Process, stores: &stores::Stores) -> Arc<Endpoints> {
    let endpoints = Endpoints::new();
    process.tasks.spawn(Arc::clone(&endpoints).run(process.stop_background.clone()));
    if let Some(gateways) = stores.connected_gateways() {
        process.tasks.spawn(Arc::clone(&endpoints).share(gateways, process.stop_background.clone()));
    }
    endpoints
}

/// Serves the admin API, over TLS if it has a certificate.
fn serve_admin(process: &Process, listener: TcpListener, state: AdminState, drains: &TaskTracker) {
    let mut router = admin::router(Arc::new(state));
    if let Some(login) = &process.dev_login {
        router = router.merge(dev_login::router(Arc::clone(login)));
    }
    let (stop, limit) = (process.stop.clone(), process.drain_limit());
    match process.certificates.admin.clone() {
        Some(certificate) => drains.spawn(asp_inbound::serve_tls(listener, router, certificate, stop, limit)),
        None => drains.spawn(asp_inbound::serve(listener, router, stop, limit)),
    };
}

/// Returns the configured issuers and those of the store: servers of a directory may name either.
async fn trust(process: &Process, store: &ControlStore) -> anyhow::Result<Trust> {
    let trust = Trust::new(configured_issuers(process)?);
    let stored = store.issuers_of_now().await.context("read the issuers of the store")?;
    if !process.settings.dev {
        warn_of_lists(&stored);
    }
    // Issuers that are not in force are reported with the first snapshot.
    trust.take(&stored, clock::now_ms());
    Ok(trust)
}

/// Warns of stored token exchange audiences that apply to no primitive, because they name none.
fn warn_of_lists(stored: &ControlState) {
    for record in stored.issuers.iter().filter(|record| record.side == Side::Clients) {
        let Ok(document) = serde_json::from_str::<Document>(&record.document) else { continue };
        for fault in asp_issuers::faults::list_faults(&document) {
            tracing::warn!(issuer = record.name, %fault, "audience of an issuer applies to no primitive; store the issuer again");
        }
    }
}

/// Returns what the xDS service serves, and to whom.
fn xds_context(
    process: &Process,
    publisher: &Handle,
    endpoints: Arc<Endpoints>,
    (subscribers, keeper): (&Arc<Subscribers>, &Arc<Keeper>),
) -> XdsContext {
    XdsContext {
        xds_state: publisher.xds_state(),
        freshness: publisher.freshness(),
        subscribers: Arc::clone(subscribers),
        endpoints,
        seen_revisions: publisher.seen_revisions(),
        proof: proof(process),
        keys: keeper.clone(),
        stop: process.stop_background.clone(),
    }
}

/// Starts fetching the keys of issuers.
fn keep_issuers(
    process: &Process,
    store: &Arc<ControlStore>,
    trust: &Trust,
    publisher: &Handle,
) -> anyhow::Result<Arc<Keeper>> {
    let origins = process.settings.issuer_origins.clone();
    let fetcher = Fetcher::new(origins).context("create the HTTP client for issuers")?;
    let news = publisher.clone();
    let keeper = Keeper::new(Arc::clone(store), trust.clone(), fetcher, move || news.changed());
    process.tasks.spawn(Arc::clone(&keeper).run(process.stop_background.clone()));
    Ok(keeper)
}

/// Builds and installs the plugins; a running build is ended when this future is dropped.
async fn install(
    runtime: &Arc<LocalRuntime>,
    catalog: Catalog,
    directory: &Path,
) -> anyhow::Result<Vec<MissingPlugin>> {
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    for UnusedSecret { name, pattern } in runtime.unused_secrets(catalog.servers.iter()) {
        // The runtime itself logs an empty `for`.
        let Some(pattern) = pattern else { continue };
        tracing::warn!(
            list = ENV_SECRETS,
            entry = name,
            pattern,
            "pattern in an operator's entry matches no primitive served here; fix or remove it"
        );
    }
    let runtime = Arc::clone(runtime);
    let directory = directory.to_owned();
    let installing = spawn_blocking(move || runtime.install(&catalog, &directory, &stop));
    installing.await.context("install the plugins")
}

fn compiler(process: &Process, trust: Trust) -> Compiler {
    Compiler::new(StaticConfig {
        public_url: process.public_url.clone(),
        dev: process.settings.dev,
        workers: process.settings.edge_workers,
        trust,
        upstreams: upstreams(process),
        default_agent: process.settings.default_agent.clone().unwrap_or_default(),
        agent_hosts: process.settings.agent_hosts.clone(),
        all_servers: process.settings.dev || process.settings.all_servers,
        unauthenticated_rate: process.settings.unauthenticated_rate,
    })
}

async fn serve_xds(listener: tokio::net::TcpListener, xds: XdsContext) {
    if let Err(error) = service::run(listener, xds).await {
        tracing::error!(
            %error,
            "xDS server ended: edges and gateways keep their last snapshot and get no new one; restart this process"
        );
    }
}

/// Public keys of the development issuer's tokens, and of the tokens signed by gateways that share this process's store.
struct Keys {
    development: Option<Value>,
    tokens: Option<Arc<TokenKeys>>,
}

impl Keys {
    fn of(process: &Process) -> Keys {
        let development = process.dev_issuer.as_ref().map(|issuer| issuer.jwk().clone());
        Keys { development, tokens: process.token_keys.clone() }
    }
}

#[async_trait]
impl PublicKeys for Keys {
    async fn jwks(&self) -> Value {
        let tokens = match &self.tokens {
            Some(tokens) => tokens.jwks().await,
            None => Value::Null,
        };
        let tokens = tokens.get("keys").and_then(Value::as_array).into_iter().flatten();
        json!({ "keys": self.development.iter().chain(tokens).collect::<Vec<_>>() })
    }
}

/// Returns the issuers trusted regardless of the store: those of the operator's file, in development the development issuer,
/// and the emergency key.
fn configured_issuers(process: &Process) -> anyhow::Result<StaticIssuers> {
    let mut given = StaticIssuers { dev: process.settings.dev, ..StaticIssuers::default() };
    if let Some(path) = &process.settings.issuers {
        given.file = asp_issuers::read(path).context("read the issuers")?;
    }
    if let Some(development) = &process.dev_issuer {
        given.clients.push(development.snapshot());
        given.access.extend(process.dev_login.iter().map(|login| login.access()));
        given.admins.push(development.trusted().context("read the development issuer's key")?);
    }
    if process.settings.break_glass {
        let key =
            BreakGlass::load_or_create(&process.settings.state_dir).context("open the emergency key")?;
        given.admins.push(key.trusted().context("read the emergency key")?);
    }
    Ok(given)
}

/// Returns the operator's entries, and the sample MCP server of `--stack`.
fn upstreams(process: &Process) -> Vec<Upstream> {
    let mut upstreams = process.settings.upstreams.clone();
    if process.ports.everything != 0 {
        let url = format!("http://127.0.0.1:{}", process.ports.everything);
        let primitives = vec![EVERY_PRIMITIVE.to_owned()];
        upstreams.push(Upstream { name: everything::HOST.into(), url, primitives });
    }
    upstreams
}

/// Deletes expired and old records until `stop` is cancelled. The publisher notices the new revision when it polls.
async fn prune(store: Arc<ControlStore>, packages: Arc<dyn Packages>, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PRUNE_EVERY) => {}
        }
        // Rounded to the hour: each deleted revocation makes edges reload the whole long list.
        let change = Change::unconditional("retention", clock::now_ms() / HOUR * HOUR);
        match store.prune(&change, KEEP_AUDIT).await {
            Ok(0) => {}
            Ok(pruned) => tracing::info!(pruned, "expired revocations and old audit rows deleted"),
            Err(error) => tracing::error!(
                %error,
                "expired revocations and old audit rows could not be deleted, retrying in a minute; check the database"
            ),
        }
        if let Err(error) = packages.sweep().await {
            tracing::warn!(
                %error,
                "remains of deleted or incomplete packages could not be removed and take space, retrying in a minute; check the \
                 artifact store"
            );
        }
    }
}
