//! `asp serve`: starts the roles in order, and stops them in reverse.
//!
//! Owns the listeners, the tasks and the signals. Keeps true: every port is bound before anything is announced, and a stop
//! lets open requests finish for at most [`DRAIN_LIMIT`].

mod announce;
mod certificates;
mod control;
mod gateway;
mod kafka;
mod objects;
mod ports;
mod runtimes;
mod session;
mod shared;
mod stack;
mod standing;
pub(crate) mod stop;
pub(crate) mod stores;
mod traces;
mod vault;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use anyhow::{Context, Result};
use asp_backends::plugin::LogListener;
use asp_command::environment::{Environment, ProcessEnvironment};
use asp_command::failure::Failure;
use asp_command::state_dir;
use asp_gateway::gateway::Gateway;
use asp_identity::minting::{self, TokenKeys};
use asp_packaging::languages::Languages;
use asp_packaging::{tool, trust};
use asp_peer::Accounts;
use asp_pipeline::pipeline::EndListener;
use asp_platform::telemetry;
use asp_proto::grace::DRAIN_LIMIT;
use asp_store::published_keys::{MemoryKeys, PublishedKeys};
use asp_vault::Vault;
use tokio::sync::RwLock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::args::ServeArgs;
use crate::dev_issuer::DevIssuer;
use crate::dev_login::DevLogin;
use crate::settings::Settings;
use crate::settings::source::{Coverage, ListNote};
use crate::stack::runtime::LocalRuntime;
use crate::token_keys;
use certificates::Certificates;
use control::ControlRole;
use ports::Ports;
use session::SessionContext;
pub(crate) use session::{DevSession, Readers};
use stack::Stack;
use standing::RuntimeFailure;
use stores::{CallStores, Stores};

/// Longest time for open requests after a stop without Envoy, whose stop would end the clients' streams: clients hold
/// these open, and a developer waits.
const DIRECT_DRAIN_LIMIT: Duration = Duration::from_secs(1);

/// Time that work on other threads has after everything else: a build is ended together with the processes it started.
const BLOCKING: Duration = tool::KILL_AFTER.saturating_add(Duration::from_secs(1));

/// Runs until SIGTERM, SIGINT or SIGHUP.
pub fn run(args: &ServeArgs) -> Result<(), Failure> {
    let environment = ProcessEnvironment;
    telemetry::start(environment.get(telemetry::ENV_LOG).as_deref());
    let settings = Settings::read(args, &environment).map_err(Failure::Configuration)?;
    if let (Some(_), Some(primitives)) = (&settings.stack, &settings.primitives) {
        trust::ask(primitives)?;
    }
    run_with(settings, None)
}

/// Runs with the given settings, and with a session if a directory is to be followed.
pub(crate) fn run_with(settings: Settings, session: Option<DevSession>) -> Result<(), Failure> {
    asp_inbound::raise_open_files();
    let certificates = Certificates::open(&settings)?;
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().context("start the runtime")?;
    let outcome = runtime.block_on(serve(settings, certificates, session));
    runtime.shutdown_timeout(BLOCKING);
    Ok(outcome?)
}

/// State shared by the roles.
struct Process {
    settings: Settings,
    public_url: String,
    ports: Ports,
    dev_issuer: Option<Arc<DevIssuer>>,
    /// Login of clients at the development issuer.
    dev_login: Option<Arc<DevLogin>>,
    /// Keys of the platform's tokens; `None` if this process neither signs nor publishes any.
    token_keys: Option<Arc<TokenKeys>>,
    certificates: Certificates,
    /// Seals what must not be readable in the database, such as the tokens of linked accounts.
    vault: Vault,
    /// The gateway, once it has started, for queries about its state.
    gateway: Arc<OnceLock<Weak<Gateway>>>,
    /// Language runtime that `--stack` starts.
    runtime: Option<Arc<LocalRuntime>>,
    /// Languages that the runtime cannot run, each with the variable that is missing.
    absent: Vec<(&'static str, String)>,
    /// Receiver of the lines that plugins log during calls, in addition to their callers.
    plugin_logs: Option<LogListener>,
    /// Receiver of the end of every call.
    call_ends: Option<EndListener>,
    /// Held for writing by a session while it changes specs and code, so that no request meets only one of them.
    gate: Option<Arc<RwLock<()>>>,
    tasks: TaskTracker,
    /// Cancelled first: no new work is accepted, listeners drain.
    stop: CancellationToken,
    /// Cancelled when the listeners have drained: until then snapshots are followed.
    stop_background: CancellationToken,
}

impl Process {
    fn drain_limit(&self) -> Duration {
        if self.settings.is_direct() { DIRECT_DRAIN_LIMIT } else { DRAIN_LIMIT }
    }

    /// Lets the listeners drain and the gateway sign off; then stops the control plane and the background tasks.
    async fn end(&self, drains: &TaskTracker) {
        self.stop.cancel();
        drains.close();
        drains.wait().await;
        self.stop_background.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        tracing::info!("stopped");
    }
}

async fn serve(settings: Settings, certificates: Certificates, session: Option<DevSession>) -> Result<()> {
    create_state_dir(&settings.state_dir)?;
    let (ports, listeners) = ports::bind(&settings).await?;
    let public_url = settings.public_url.clone().unwrap_or_else(|| own_url(&settings, ports.edge));
    warn_of_exposure(&settings, &public_url);
    log_operator_lists(&settings);
    let dev_issuer = if settings.dev { Some(dev_issuer(&settings, &public_url)?) } else { None };
    let dev_login = dev_login(&settings, dev_issuer.as_ref(), &public_url, ports.admin);
    let (stores, calls, token_keys) = Box::pin(open_stores(&settings)).await?;
    let mut signalled = std::pin::pin!(stop::wait_for_signal());
    let languages = tokio::select! {
        languages = languages(&settings) => languages,
        outcome = &mut signalled => return outcome.map(drop),
    };
    let absent = languages.absent.clone();
    let runtime = settings.stack.as_ref().and_then(|stack| LocalRuntime::find(&settings, stack, languages));
    let process = Process {
        vault: vault::open(&settings)?,
        settings,
        certificates,
        gateway: Arc::default(),
        runtime: runtime.map(Arc::new),
        absent,
        plugin_logs: session.as_ref().map(DevSession::log_listener),
        call_ends: session.as_ref().map(DevSession::end_listener),
        gate: session.is_some().then(Arc::default),
        public_url,
        ports,
        dev_issuer,
        dev_login,
        token_keys,
        tasks: TaskTracker::new(),
        stop: CancellationToken::new(),
        stop_background: CancellationToken::new(),
    };
    ports::write(&process)?;
    let drains = TaskTracker::new();
    let mut control = match listeners.control {
        // May build plugins, which takes as long as their tools do.
        Some(listeners) => tokio::select! {
            started = control::start(&process, listeners, (&stores, calls.as_ref()), &drains) => Some(started?),
            outcome = &mut signalled => return outcome.map(drop),
        },
        None => None,
    };
    if let Some(listener) = listeners.gateway {
        gateway::start(&process, listener, (&stores, calls), &drains).await?;
    }
    let not_installed = control.as_mut().map(|control| std::mem::take(&mut control.not_installed));
    let listener = session.as_ref().map(DevSession::listener);
    let mut stack = Stack::start(&process, not_installed.unwrap_or_default(), listener)?;
    let ended = session.as_ref().map(|session| session.ended.clone()).unwrap_or_default();
    if let (Some(session), Some(control)) = (session, control) {
        stack.until_stopped(session.run(session_parts(&process, control, stack.died())?));
    }
    let outcome = wait_for_end(&mut stack, signalled, &ended).await;
    // Envoy first: this ends the streams that would delay the gateway's drain.
    stack.end().await;
    process.end(&drains).await;
    outcome
}

/// Waits for a signal, a failure of the stack or the end of the development session.
async fn wait_for_end<T>(
    stack: &mut Stack,
    signalled: impl Future<Output = Result<T>>,
    ended: &CancellationToken,
) -> Result<()> {
    tokio::select! {
        outcome = signalled => outcome.map(drop),
        error = stack.wait_for_failure() => Err(error),
        () = ended.cancelled() => Ok(()),
    }
}

fn create_state_dir(path: &Path) -> Result<()> {
    state_dir::create(path).with_context(|| format!("create {}", path.display()))
}

/// Returns the URL of the edge as seen from this machine.
fn own_url(settings: &Settings, port: u16) -> String {
    let scheme = if settings.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", SocketAddr::new(settings.listen.bind, port))
}

/// Finds the languages that a stack can run. May have to start interpreters, and takes as long as they do.
async fn languages(settings: &Settings) -> Languages {
    match settings.stack {
        Some(_) => Languages::find_async().await,
        None => Languages::default(),
    }
}

/// Returns the parts of the process that a session uses.
fn session_parts(process: &Process, control: ControlRole, died: RuntimeFailure) -> Result<SessionContext> {
    Ok(SessionContext {
        store: control.store,
        compiler: control.compiler,
        publisher: control.publisher,
        gateway: process.gateway.get().cloned().context("a session has a gateway")?,
        gate: process.gate.clone().unwrap_or_default(),
        runtime: process.runtime.clone(),
        died,
        machine: announce::machine(process, control.not_installed),
        issuer: process.dev_issuer.clone().context("a session is for development")?,
        state_dir: process.settings.state_dir.clone(),
        urls: announce::urls(process),
    })
}

/// Warns of settings that expose something to others, which the operator may not have intended.
fn warn_of_exposure(settings: &Settings, public_url: &str) {
    if settings.dev && is_beyond_this_machine(public_url) {
        tracing::warn!(
            public_url,
            "development mode behind a public name: anyone who can read the state directory can mint tokens for any user, \
             and servers with the scheme none are open to everyone; start without --dev and set ASP_ISSUERS"
        );
    }
}

/// Logs the entries of operator lists that apply to every primitive, because development mode reads them so, or to none.
fn log_operator_lists(settings: &Settings) {
    for ListNote { list, entry, served } in &settings.list_notes {
        match served {
            Coverage::Every => tracing::warn!(
                list,
                entry,
                "operator's entry without `for` applies to every primitive, because this is development mode"
            ),
            Coverage::None => tracing::warn!(
                list,
                entry,
                "operator's entry applies to no primitive: its `for` is empty; name primitives or remove the entry"
            ),
        }
    }
}

/// Whether clients reach the platform under a name other than this machine's loopback names.
fn is_beyond_this_machine(public_url: &str) -> bool {
    let uri = public_url.parse::<http::Uri>().ok();
    let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
    !asp_platform::address::is_this_machine(host)
}

/// Reads or creates the development issuer and stores the audience of its tokens.
fn dev_issuer(settings: &Settings, public_url: &str) -> Result<Arc<DevIssuer>> {
    let mut issuer = DevIssuer::load_or_create(&settings.state_dir).context("open the development issuer")?;
    issuer.set_audience(public_url).context("record the audience")?;
    Ok(Arc::new(issuer))
}

/// Returns the login of clients in development, if only this machine can reach it: it asks for no password.
fn dev_login(
    settings: &Settings,
    issuer: Option<&Arc<DevIssuer>>,
    public_url: &str,
    admin_port: u16,
) -> Option<Arc<DevLogin>> {
    let admin = settings.listen.admin();
    // A gateway of its own does not know where to log in.
    let is_whole = settings.roles.control && settings.roles.gateway;
    let is_local = is_whole
        && admin.is_loopback()
        && settings.admin_tls.is_none()
        && !is_beyond_this_machine(public_url);
    let issuer = issuer.filter(|_| is_local)?;
    let accounts = Accounts::new(&settings.listen.xds_accounts);
    let admin = SocketAddr::new(admin, admin_port);
    Some(Arc::new(DevLogin::new(Arc::clone(issuer), public_url, admin, accounts)))
}

/// Opens the stores, including those of a gateway if there is one, and the keys of its tokens: the operator's key or
/// generated ones.
async fn open_stores(settings: &Settings) -> Result<(Stores, Option<CallStores>, Option<Arc<TokenKeys>>)> {
    let stores = Stores::open(settings).await?;
    let calls = match settings.roles.gateway {
        true => Some(stores.calls(settings).await?),
        false => None,
    };
    let store: Arc<dyn PublishedKeys> = match &calls {
        Some(calls) => calls.calls(),
        None => Arc::new(MemoryKeys::default()),
    };
    let keys = match &settings.gateway.token_key {
        Some(current) => {
            let previous = settings.gateway.token_key_previous.as_deref();
            TokenKeys::fixed(token_keys::read(current, previous)?, store, minting::wall_clock())
        }
        None if calls.is_some() => TokenKeys::start(store, minting::wall_clock()).await?,
        None => return Ok((stores, calls, None)),
    };
    Ok((stores, calls, Some(Arc::new(keys))))
}
