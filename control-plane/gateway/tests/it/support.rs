//! A gateway under test: its stores, its snapshot and a development issuer.

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use asp_backends::delegate::endpoint::Endpoints;
use asp_backends::outbound::auth::CallHeaders;
use asp_edge::testkit::SigningKey;
use asp_runtime_client::runtimes::Runtimes;

use asp_call::seal::Sealer;
use asp_call::telemetry::metrics::LinkMetrics;
use asp_gateway::gateway::{Config, Gateway, Stores};
use asp_identity::issuers::IssuerDeps;
use asp_identity::linked::LinkDeps;
use asp_identity::minting::{TokenAudiences, TokenKeys};
use asp_pipeline::pipeline::admission::{AdmissionBounds, MEMORY};
use asp_pipeline::subscriptions;
use asp_proto::snapshot::{Binding, ClaimNames, GatewaySnapshot, Issuer, Key, Protocol, TargetKind};
use asp_protocols::push::PushOrigins;
use asp_protocols::replica::Settings;
use asp_registry::{Inputs, assemble, check};
use asp_store::audit::MemoryAudit;
use asp_store::blobs::MemoryBlobs;
use asp_store::counter::MemoryCounters;
use asp_store::ledger::MemoryLedger;
use asp_store::linked_accounts::LinkedAccounts;
use asp_store::records::MemoryRecords;
use asp_vault::Vault;
use axum::body::Body;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

#[path = "support/clients.rs"]
mod clients;
#[path = "support/exchange.rs"]
pub(crate) mod exchange;
#[path = "support/ledger.rs"]
pub(crate) mod ledger;
#[path = "support/log_lines.rs"]
pub(crate) mod log_lines;
#[path = "support/records.rs"]
pub(crate) mod records;
#[path = "support/specs.rs"]
mod specs;

pub(crate) use clients::{Legacy, Modern};
use specs::sources;

pub(crate) const PUBLIC_URL: &str = "https://mcp.example.com";

/// The issuer's key, made once a process.
fn signer() -> &'static SigningKey {
    static SIGNER: OnceLock<SigningKey> = OnceLock::new();
    SIGNER.get_or_init(|| {
        let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
        SigningKey::es256()
    })
}

/// Vault of all gateways, made once a process.
pub(crate) fn vault() -> &'static Vault {
    static VAULT: OnceLock<Vault> = OnceLock::new();
    VAULT.get_or_init(|| Vault::in_memory().unwrap())
}

pub(crate) fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs()
}

/// Claims of a valid token.
pub(crate) fn claims(user: &str) -> Value {
    json!({"iss": "asp-dev", "sub": user, "org": "acme", "aud": PUBLIC_URL, "client_id": "cli", "scope": "",
           "jti": format!("t-{user}"), "iat": now() - 10, "exp": now() + 600})
}

pub(crate) fn sign(claims: &Value) -> String {
    signer().access_token("k1", claims)
}

pub(crate) fn denied_to_alice(primitive: impl Into<String>, protocol: Protocol) -> Binding {
    Binding {
        org: "acme".into(),
        target_kind: TargetKind::User.into(),
        target: "alice".into(),
        primitive: primitive.into(),
        protocol: protocol.into(),
        allowed: false,
        ..Binding::default()
    }
}

pub(crate) fn token(user: &str) -> String {
    sign(&claims(user))
}

pub(crate) fn token_with_scopes(user: &str, scope: &str) -> String {
    let mut claims = claims(user);
    claims["scope"] = scope.into();
    sign(&claims)
}

pub(crate) fn inputs() -> Inputs {
    let report = check(&sources());
    assert!(report.faults.is_empty(), "{:#?}", report.faults);
    let servers = report.catalog.unwrap().servers;
    Inputs {
        revision: 1,
        servers,
        issuers: vec![Issuer {
            name: "dev".into(),
            iss: "asp-dev".into(),
            keys: vec![Key { kid: "k1".into(), alg: "ES256".into(), jwk: signer().jwk().to_string() }],
            typ: vec!["at+jwt".into()],
            audiences: Vec::new(),
            claims: Some(ClaimNames::default()),
            max_lifetime_seconds: 0,
            orgs: Vec::new(),
            keys_refreshed: false,
        }],
        public_url: PUBLIC_URL.into(),
        dev: true,
        workers: 1,
        ..Inputs::default()
    }
}

pub(crate) fn snapshot() -> GatewaySnapshot {
    assemble(inputs())
}

/// A gateway under test.
#[derive(Clone)]
pub(crate) struct Fixture {
    pub gateway: Arc<Gateway>,
    /// Identity of the connection's authenticated peer, from the listener.
    pub peer: Option<asp_peer::Identity>,
    pub audit: Arc<MemoryAudit>,
    pub active: Arc<MemoryRecords>,
    pub ledger: Arc<MemoryLedger>,
}

/// Parts of a gateway under test.
struct Parts {
    snapshot: GatewaySnapshot,
    key: u8,
    stores: Stores,
    runtimes: Runtimes,
    delegates: Endpoints,
    registry: bool,
    bounds: AdmissionBounds,
    memory: AdmissionBounds,
    subscriptions: subscriptions::SubscriptionBounds,
    issuers: IssuerDeps,
    told: CallHeaders,
    token_keys: TokenKeys,
    token_audiences: TokenAudiences,
    approval_webhook: Option<String>,
    audit: Arc<MemoryAudit>,
    active: Arc<MemoryRecords>,
    ledger: Arc<MemoryLedger>,
}

impl Parts {
    fn new(snapshot: GatewaySnapshot) -> Parts {
        let audit = Arc::new(MemoryAudit::default());
        let active = Arc::new(MemoryRecords::default());
        let ledger = Arc::new(MemoryLedger::default());
        let stores = Stores {
            audit: audit.clone(),
            active: active.clone(),
            ledger: ledger.clone(),
            blobs: Arc::new(MemoryBlobs::default()),
            counters: Arc::new(MemoryCounters::default()),
            pushes: None,
            storage: None,
            approvals: None,
            shared: None,
        };
        Parts {
            snapshot,
            key: 7,
            stores,
            runtimes: Runtimes::none(),
            delegates: Endpoints::default(),
            registry: true,
            bounds: AdmissionBounds::default(),
            memory: MEMORY,
            subscriptions: subscriptions::SubscriptionBounds::default(),
            issuers: IssuerDeps::default(),
            told: CallHeaders::default(),
            token_keys: TokenKeys::alone().unwrap(),
            token_audiences: TokenAudiences::Every,
            approval_webhook: None,
            audit,
            active,
            ledger,
        }
    }

    fn start(self) -> Fixture {
        let gateway = Gateway::new(Config {
            token_keys: Arc::new(self.token_keys),
            token_audiences: self.token_audiences,
            push_origins: PushOrigins::Every,
            approval_webhook: self.approval_webhook.map(Into::into),
            told: self.told,
            sealer: Arc::new(Sealer::new(&[self.key; 32], None).unwrap()),
            vault: vault().clone(),
            settings: Settings {
                public_url: PUBLIC_URL.into(),
                dev: true,
                registry: self.registry,
                in_mesh: false,
            },
            stores: self.stores,
            runtimes: self.runtimes,
            delegates: self.delegates,
            bounds: self.bounds,
            memory: self.memory,
            subscriptions: self.subscriptions,
            issuers: self.issuers,
            listener: None,
        })
        .unwrap();
        gateway.apply(self.snapshot).unwrap();
        Fixture { gateway, peer: None, audit: self.audit, active: self.active, ledger: self.ledger }
    }
}

/// An answer, read whole.
pub(crate) struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub text: String,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|e| panic!("{e}: {:?}", self.text))
    }

    /// The JSON messages of a server-sent event stream.
    pub(crate) fn events(&self) -> Vec<Value> {
        assert_eq!(self.headers["content-type"], "text/event-stream", "{}", self.text);
        self.text
            .lines()
            .filter_map(|line| line.strip_prefix("data: "))
            .map(|data| serde_json::from_str(data).unwrap())
            .collect()
    }

    /// The answer itself, alone or after the other messages of a stream.
    pub(crate) fn last(&self) -> Value {
        match self.headers.get("content-type").is_some_and(|is| is == "text/event-stream") {
            true => self.events().pop().unwrap(),
            false => self.json(),
        }
    }

    pub(crate) fn reason(&self) -> String {
        self.json()["error"]["data"]["reason"].as_str().unwrap_or_default().to_owned()
    }
}

impl Fixture {
    pub(crate) fn new() -> Fixture {
        Fixture::of(snapshot())
    }

    pub(crate) fn of(snapshot: GatewaySnapshot) -> Fixture {
        Fixture::sealed_with(snapshot, 7)
    }

    /// A gateway whose servers not everybody may list.
    pub(crate) fn without_registry(snapshot: GatewaySnapshot) -> Fixture {
        Parts { registry: false, ..Parts::new(snapshot) }.start()
    }

    /// A gateway that opens nothing another key sealed.
    pub(crate) fn sealed_with(snapshot: GatewaySnapshot, key: u8) -> Fixture {
        Fixture::with(snapshot, key, Runtimes::none())
    }

    /// A gateway with plugin runtimes.
    pub(crate) fn with(snapshot: GatewaySnapshot, key: u8, runtimes: Runtimes) -> Fixture {
        Fixture::with_models(snapshot, key, runtimes, Endpoints::default())
    }

    /// A gateway with plugin runtimes and models.
    pub(crate) fn with_models(
        snapshot: GatewaySnapshot,
        key: u8,
        runtimes: Runtimes,
        delegates: Endpoints,
    ) -> Fixture {
        Parts { runtimes, delegates, key, ..Parts::new(snapshot) }.start()
    }

    /// A gateway with plugin runtimes, some of whose stores are the test's own.
    pub(crate) fn with_runtimes_and(runtimes: Runtimes, change: impl FnOnce(&mut Stores)) -> Fixture {
        Fixture::with_snapshot_and(snapshot(), runtimes, change)
    }

    /// The same with another snapshot.
    pub(crate) fn with_snapshot_and(
        snapshot: GatewaySnapshot,
        runtimes: Runtimes,
        change: impl FnOnce(&mut Stores),
    ) -> Fixture {
        let mut parts = Parts { runtimes, ..Parts::new(snapshot) };
        change(&mut parts.stores);
        parts.start()
    }

    /// A gateway that mints its tokens for these audiences.
    pub(crate) fn minting(
        snapshot: GatewaySnapshot,
        runtimes: Runtimes,
        audiences: TokenAudiences,
    ) -> Fixture {
        Parts { runtimes, token_audiences: audiences, ..Parts::new(snapshot) }.start()
    }

    /// A gateway that asks issuers, and the control plane about them.
    pub(crate) fn asking(snapshot: GatewaySnapshot, issuers: IssuerDeps) -> Fixture {
        Parts { issuers, ..Parts::new(snapshot) }.start()
    }

    /// A gateway that asks issuers, and notifies a webhook of requests for approval.
    pub(crate) fn approving(
        snapshot: GatewaySnapshot,
        issuers: IssuerDeps,
        webhook: Option<String>,
        change: impl FnOnce(&mut Stores),
    ) -> Fixture {
        let mut parts = Parts { issuers, approval_webhook: webhook, ..Parts::new(snapshot) };
        change(&mut parts.stores);
        parts.start()
    }

    /// A gateway that asks issuers, and tells services what its operator chose.
    pub(crate) fn telling(snapshot: GatewaySnapshot, issuers: IssuerDeps, told: CallHeaders) -> Fixture {
        Parts { issuers, told, ..Parts::new(snapshot) }.start()
    }

    /// A gateway whose users link accounts.
    pub(crate) fn linking(
        snapshot: GatewaySnapshot,
        issuers: IssuerDeps,
        links: Arc<dyn LinkedAccounts>,
    ) -> Fixture {
        let links = Some(LinkDeps { store: links, vault: vault().clone(), metrics: LinkMetrics::default() });
        Parts { issuers: IssuerDeps { links, ..issuers }, ..Parts::new(snapshot) }.start()
    }

    /// A gateway with plugin runtimes that has credentials of its operator's.
    pub(crate) fn lending(snapshot: GatewaySnapshot, issuers: IssuerDeps, runtimes: Runtimes) -> Fixture {
        Parts { issuers, runtimes, ..Parts::new(snapshot) }.start()
    }

    /// Another gateway over the same stores and keys.
    pub(crate) fn beside(&self, runtimes: Runtimes) -> Fixture {
        let mut parts = Parts { runtimes, ..Parts::new(snapshot()) };
        parts.stores.audit = self.audit.clone();
        parts.stores.active = self.active.clone();
        parts.stores.ledger = self.ledger.clone();
        Fixture { gateway: parts.start().gateway, ..self.clone() }
    }

    /// Another gateway over the same stores and keys, which asks issuers.
    pub(crate) fn beside_asking(&self, snapshot: GatewaySnapshot, issuers: IssuerDeps) -> Fixture {
        self.beside_lending(snapshot, issuers, Runtimes::none())
    }

    /// The same with plugin runtimes.
    pub(crate) fn beside_lending(
        &self,
        snapshot: GatewaySnapshot,
        issuers: IssuerDeps,
        runtimes: Runtimes,
    ) -> Fixture {
        let mut parts = Parts { issuers, runtimes, ..Parts::new(snapshot) };
        parts.stores.audit = self.audit.clone();
        parts.stores.active = self.active.clone();
        parts.stores.ledger = self.ledger.clone();
        Fixture { gateway: parts.start().gateway, ..self.clone() }
    }

    /// Another gateway, some of whose stores are the test's own.
    pub(crate) fn with_stores(&self, snapshot: GatewaySnapshot, change: impl FnOnce(&mut Stores)) -> Fixture {
        let mut parts = Parts::new(snapshot);
        change(&mut parts.stores);
        Fixture { gateway: parts.start().gateway, ..self.clone() }
    }

    /// A gateway of this snapshot whose requests have as much memory, in bytes; an org half of it.
    pub(crate) fn remembering(snapshot: GatewaySnapshot, whole: usize) -> Fixture {
        let memory = AdmissionBounds { whole, per_org: whole / 2 };
        Parts { memory, ..Parts::new(snapshot) }.start()
    }

    /// Another gateway with few places for calls.
    pub(crate) fn bounded(&self, bounds: AdmissionBounds) -> Fixture {
        Fixture { gateway: Parts { bounds, ..Parts::new(snapshot()) }.start().gateway, ..self.clone() }
    }

    /// A gateway at which few wait to be told of changes.
    pub(crate) fn listened_to_by(subscriptions: subscriptions::SubscriptionBounds) -> Fixture {
        Parts { subscriptions, ..Parts::new(snapshot()) }.start()
    }

    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        self.send_body(method, path, headers, Body::from(body.to_owned())).await
    }

    pub(crate) async fn send_body(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> Answer {
        let response = self.open_body(method, path, headers, body).await;
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        Answer {
            status: parts.status,
            headers: parts.headers,
            text: String::from_utf8(bytes.to_vec()).unwrap(),
        }
    }

    /// Sends and returns with the headers, the body still open.
    pub(crate) async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> axum::response::Response {
        self.open_body(method, path, headers, Body::from(body.to_owned())).await
    }

    async fn open_body(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Body,
    ) -> axum::response::Response {
        let mut request = Request::builder().method(method).uri(path).header("host", "mcp.example.com");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some(peer) = &self.peer {
            request = request.extension(peer.clone());
        }
        asp_gateway::http::router(self.gateway.clone()).oneshot(request.body(body).unwrap()).await.unwrap()
    }
}
