//! The admin API through its router: a real store, a real issuer, no network.

mod a2a;
mod access;
mod approvals;
mod arbitrary;
mod artifacts;
mod audit;
mod blocks;
mod bounds;
mod certificates;
mod console;
mod disabled;
mod explained;
mod explained_token;
mod host_check;
mod hostile_issuers;
mod identity;
mod ids;
mod in_flight;
mod iss_parameter;
mod issuer_outage;
mod issuers;
mod kafka;
mod known;
mod limit_kinds;
mod limit_usage;
mod links;
mod live;
mod machines;
mod nul;
mod offers;
mod orgs;
mod placement;
mod policy;
mod policy_preview;
mod publisher;
mod publishing;
mod push;
mod queues;
mod registry;
mod targets;
mod undo;
mod usage;

use std::path::Path as FilePath;
use std::sync::atomic::{AtomicBool, Ordering};

use asp_issuers::fetch::Fetcher;
use asp_issuers::refresh::Keeper;
use asp_issuers::trust::Trust;
use asp_issuers::trusted_issuer::MAX_TTL;
use asp_platform::runtime_health::{RuntimeHealth, RuntimeState};
use asp_proto::snapshot::RecentRevocations;
use asp_store::audit::MemoryAudit;
use asp_store::control::Position;
use asp_store::packages::{DiskPackages, Quota};
use asp_store::sqlite::{SqliteAudit, SqliteCalls};
use asp_store::usage::MemoryUsage;
use asp_xds::endpoints::Endpoints;
use axum::body::Body;
use axum::response::Response;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::catalog::StaticConfig;
use crate::catalog::build::SnapshotBuild;
use crate::catalog::usage::Usage;
use crate::publisher::stored::StoreSource;
use crate::publisher::{Publisher, RevocationUpdate, SnapshotSource};
use crate::testkit::TestIssuer;

struct Api {
    router: Router,
    issuer: TestIssuer,
    /// The audit log of calls.
    calls: Arc<MemoryAudit>,
    /// Sums of calls.
    call_usage: Arc<MemoryUsage>,
    /// Running calls and sessions.
    live: Arc<SqliteAudit>,
    /// The records of calls, with their push notifications.
    pushes: Arc<SqliteCalls>,
    _state: tempfile::TempDir,
    keeper: Arc<Keeper>,
    trust: Trust,
    stop: tokio_util::sync::CancellationToken,
    _stop: tokio_util::sync::DropGuard,
    xds_state: asp_xds::published::XdsStateReceiver,
    store: Arc<ControlStore>,
    queues: Arc<OrgQueues>,
    standing: tokio::sync::watch::Receiver<crate::publisher::PublicationStatus>,
    /// Makes publication fail.
    fails: Arc<AtomicBool>,
}

/// Source that reads the store until it is made to fail.
struct Failing {
    source: StoreSource,
    fails: Arc<AtomicBool>,
}

#[async_trait::async_trait]
impl SnapshotSource for Failing {
    async fn position(&self) -> anyhow::Result<Position> {
        self.source.position().await
    }

    async fn build(&self, raise: bool) -> anyhow::Result<SnapshotBuild> {
        anyhow::ensure!(!self.fails.load(Ordering::SeqCst), "told to fail");
        self.source.build(raise).await
    }

    async fn overtake(&self, recent: &RecentRevocations, after: u64) -> anyhow::Result<RevocationUpdate> {
        self.source.overtake(recent, after).await
    }
}

/// One runtime, which does not answer.
struct Nobody;

struct Keys(Value);

#[async_trait::async_trait]
impl PublicKeys for Keys {
    async fn jwks(&self) -> Value {
        json!({ "keys": [self.0] })
    }
}

#[async_trait::async_trait]
impl Runtimes for Nobody {
    async fn health(&self) -> Vec<RuntimeHealth> {
        let url = "unix:/nobody.sock".to_owned();
        let stats = Value::Null;
        vec![RuntimeHealth {
            languages: vec!["node".into()],
            url,
            address: None,
            state: RuntimeState::Unreachable,
            stats,
            off: Vec::new(),
        }]
    }
}

struct Answer {
    status: StatusCode,
    etag: Option<String>,
    content_type: String,
    body: Value,
}

impl Api {
    async fn start() -> Api {
        Api::with(true, Vec::new()).await
    }

    /// Creates an API that fetches keys, also from these origins on this machine.
    async fn with_issuers(origins: Vec<String>) -> Api {
        let api = Api::with(true, origins).await;
        tokio::spawn(Arc::clone(&api.keeper).run(api.stop.clone()));
        api
    }

    /// Creates an API whose control plane has no snapshot yet.
    async fn without_publisher() -> Api {
        Api::with(false, Vec::new()).await
    }

    async fn with(publishes: bool, origins: Vec<String>) -> Api {
        let state_dir = tempfile::tempdir().unwrap();
        let store = match origins.is_empty() {
            true => ControlStore::in_memory().await,
            // With paused time the store may reconnect, and an in-memory database belongs to its connection.
            false => ControlStore::file(&state_dir.path().join("control.db")).await,
        };
        Api::of_store(Arc::new(store.unwrap()), state_dir, publishes, origins).await
    }

    /// Creates another control plane on the same store.
    async fn another(&self) -> Api {
        let store = Arc::clone(&self.store);
        Api::of_store(store, tempfile::tempdir().unwrap(), true, Vec::new()).await
    }

    #[allow(clippy::too_many_lines, reason = "all that the handlers share")]
    async fn of_store(
        store: Arc<ControlStore>,
        state_dir: tempfile::TempDir,
        publishes: bool,
        origins: Vec<String>,
    ) -> Api {
        let issuer = TestIssuer::new();
        let config = StaticConfig {
            public_url: "http://127.0.0.1:8080".into(),
            dev: true,
            workers: 1,
            trust: issuer.trust(),
            upstreams: Vec::new(),
            default_agent: String::new(),
            agent_hosts: Vec::new(),
            all_servers: false,
            unauthenticated_rate: 0,
        };
        let trust = config.trust.clone();
        let kept_trust = trust.clone();
        let compiler = Compiler::new(config);
        let usage: Arc<Usage> = Arc::default();
        let fails: Arc<AtomicBool> = Arc::default();
        let source = StoreSource::new(Arc::clone(&store), compiler.clone(), Arc::clone(&usage));
        let source = Failing { source, fails: Arc::clone(&fails) };
        let (publisher, handle) =
            Publisher::new(Arc::new(source), "/f.wasm".into(), Endpoints::new().subscribe());
        let stop = tokio_util::sync::CancellationToken::new();
        if publishes {
            tokio::spawn(publisher.run(stop.clone()));
        }
        let standing = handle.status();
        let xds_state = handle.xds_state();
        let packages = state_dir.path().join("packages");
        let packages = DiskPackages::open(&packages, Quota { bytes: 1000, count: 3 }).await.unwrap();
        let calls = Arc::new(MemoryAudit::default());
        let call_usage = Arc::new(MemoryUsage::default());
        let live = SqliteAudit::open(&state_dir.path().join("audit.db"), 1 << 30).await.unwrap();
        let live = Arc::new(live);
        let pushes = Arc::new(SqliteCalls::open(&state_dir.path().join("calls.db")).await.unwrap());
        let news = handle.clone();
        let keeper =
            Keeper::new(Arc::clone(&store), trust.clone(), Fetcher::new(origins).unwrap(), move || {
                news.changed()
            });
        let queues = OrgQueues::new();
        let state = AdminState {
            admission: Admission::new(Arc::clone(&store), compiler.clone(), usage),
            store: Arc::clone(&store),
            servers: super::stored_servers::StoredServers::default(),
            calls: calls.clone(),
            call_usage: call_usage.clone(),
            live: live.clone(),
            pushes: pushes.clone(),
            approvals: pushes.clone(),
            links: pushes.clone(),
            packages: Arc::new(packages),
            compiler,
            publisher: handle,
            subscribers: Subscribers::new(),
            runtimes: Arc::new(Nobody),
            verifier: Verifier::new(trust),
            emergencies: Emergencies::default(),
            keeper: Arc::clone(&keeper),
            refusals: Refusals::default(),
            in_flight: Arc::default(),
            queues: Arc::clone(&queues),
            jwks: Arc::new(Keys(issuer.jwk().clone())),
            feed: None,
            vault: asp_vault::Vault::in_memory().unwrap(),
            dev: true,
        };
        Api {
            router: router(Arc::new(state)),
            issuer,
            calls,
            call_usage,
            live,
            pushes,
            _state: state_dir,
            keeper,
            trust: kept_trust,
            _stop: stop.clone().drop_guard(),
            stop,
            xds_state,
            store,
            queues,
            standing,
            fails,
        }
    }

    fn token(&self, role: &str) -> String {
        self.issuer.admin(role, MAX_TTL.as_secs())
    }

    async fn raw(&self, request: Request<Body>) -> Response {
        self.router.clone().oneshot(request).await.unwrap()
    }

    /// Sends a JSON body with a role's token and extra headers.
    async fn send(
        &self,
        role: &str,
        method: Method,
        path: &str,
        body: Option<Value>,
        headers: &[(&str, &str)],
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "127.0.0.1:8081")
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token(role)));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let body = match body {
            Some(body) => {
                if !headers.iter().any(|(name, _)| *name == "content-type") {
                    request = request.header(header::CONTENT_TYPE, "application/json");
                }
                match body {
                    Value::String(text) => Body::from(text),
                    other => Body::from(other.to_string()),
                }
            }
            None => Body::empty(),
        };
        read(self.raw(request.body(body).unwrap()).await).await
    }

    async fn get(&self, role: &str, path: &str) -> Answer {
        self.send(role, Method::GET, path, None, &[]).await
    }

    /// Puts a body; policy may use unknown names.
    async fn put(&self, role: &str, path: &str, body: Value) -> Answer {
        let is_policy = path.starts_with("/api/policy/") || path.starts_with("/api/ratelimits/");
        let path =
            if is_policy && !path.contains('?') { format!("{path}?force=true") } else { path.to_owned() };
        self.send(role, Method::PUT, &path, Some(body), &[]).await
    }

    /// Lets machines of acme have these groups and scopes.
    async fn allow_machines(&self, groups: &[&str], scopes: &[&str]) {
        let bound = json!({ "groups": groups, "scopes": scopes });
        let answer = self.put("platform", "/api/machines/orgs/acme/bound", bound).await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    }

    async fn published(&mut self, wanted: impl Fn(&asp_proto::snapshot::GatewaySnapshot) -> bool) {
        self.xds_state
            .wait_for(|xds_state| {
                xds_state.snapshot.as_ref().is_some_and(|published| wanted(&published.whole()))
            })
            .await
            .unwrap();
    }
}

async fn read(response: Response) -> Answer {
    // A copy, because a borrowed body cannot be sent to another thread.
    let headers = response.headers().clone();
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap().to_owned());
    let etag = text(header::ETAG);
    let content_type = text(header::CONTENT_TYPE).unwrap_or_default();
    let status = response.status();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&bytes).unwrap_or(Value::Null);
    Answer { status, etag, content_type, body }
}

/// The files of one sample server, as `asp apply` sends them.
fn sample(server: &str) -> Value {
    let root = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives");
    let sources = asp_registry::read_dir(&root).unwrap();
    let found = asp_registry::check(&sources).catalog.unwrap();
    let bundles = crate::catalog::bundles(&sources, found);
    let bundle = bundles.into_iter().find(|bundle| bundle.server.server.name == server).unwrap();
    json!({ "files": bundle.files })
}

const DEMO: &str = "/api/registry/servers/demo";
