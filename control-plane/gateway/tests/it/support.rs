//! A gateway with the repository's primitives, a few of the tests' own, and a development issuer.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use asp_gateway::executors::delegate::endpoint::Endpoints;
use asp_gateway::executors::plugin::runtimes::Runtimes;
use asp_gateway::gateway::{Config, Gateway, SealKeys, Stores};
use asp_gateway::minting::TokenKeys;
use asp_gateway::pipeline::admission::Bounds;
use asp_proto::snapshot::{ClaimNames, GatewaySnapshot, Issuer, Key};
use asp_registry::{Inputs, Source, assemble, check, read_dir};
use asp_store::active::MemoryActive;
use asp_store::audit::MemoryAudit;
use asp_store::ledger::MemoryLedger;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use axum::body::Body;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::BodyExt;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tower::ServiceExt;

pub(crate) const PUBLIC_URL: &str = "https://mcp.example.com";

/// The issuer's key, made once a process.
struct Signer {
    pkcs8: Vec<u8>,
    jwk: String,
}

fn signer() -> &'static Signer {
    static SIGNER: OnceLock<Signer> = OnceLock::new();
    SIGNER.get_or_init(|| {
        let _ = jsonwebtoken::crypto::aws_lc::DEFAULT_PROVIDER.install_default();
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(
            &ECDSA_P256_SHA256_FIXED_SIGNING,
            &aws_lc_rs::rand::SystemRandom::new(),
        )
        .unwrap();
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8.as_ref()).unwrap();
        let point = pair.public_key().as_ref();
        let (x, y) = (URL_SAFE_NO_PAD.encode(&point[1..33]), URL_SAFE_NO_PAD.encode(&point[33..]));
        let jwk = json!({"kty": "EC", "crv": "P-256", "x": x, "y": y}).to_string();
        Signer { pkcs8: pkcs8.as_ref().to_vec(), jwk }
    })
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
    let mut header = Header::new(Algorithm::ES256);
    header.typ = Some("at+jwt".into());
    header.kid = Some("k1".into());
    jsonwebtoken::encode(&header, claims, &EncodingKey::from_ec_der(&signer().pkcs8)).unwrap()
}

pub(crate) fn token(user: &str) -> String {
    sign(&claims(user))
}

pub(crate) fn token_with_scopes(user: &str, scope: &str) -> String {
    let mut claims = claims(user);
    claims["scope"] = scope.into();
    sign(&claims)
}

/// The tests' own server: primitives that need policy.
const TEST_SERVER: &str = "apiVersion: asp/v1\nname: policy\ntitle: Policy\ndescription: For tests.\nversion: 1.0.0\n\
         protocols: [mcp]\nsessions: both\ndefaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\n\
         primitives: [{ref: policy/policy.open}, {ref: policy/policy.scoped}, {ref: policy/policy.wipe}, {ref: policy/policy.once}, {ref: policy/policy.few}]\n";

/// Primitives that run as plugins.
const PLUGIN_SERVER: &str = "apiVersion: asp/v1\nname: plugins\ntitle: Plugins\ndescription: For tests.\nversion: 1.0.0\n\
         protocols: [mcp]\nsessions: both\ndefaultExposure: allow\nauth: {schemes: [jwt], issuers: [dev]}\n\
         primitives: [{ref: plugins/sweep}, {ref: plugins/order}, {ref: plugins/page}, {ref: plugins/advice}, {ref: plugins/book}, {ref: plugins/purge}, {ref: plugins/fetch}]\n";
const PLUGIN_HEAD: &str =
    "version: 1.0.0\nowner: t@example.com\nsummary: A plugin.\ntags: [test]\nsecurity: {riskClass: low}\n";
const PLUGIN_RUNTIME: &str = "runtime: {mode: plugin, language: python, entrypoint: main.py}\n";

/// `sweep` only reads and asks; `book` and `purge` have effects and ask; `fetch` reaches other services; `order` has effects; `page` is a resource template; `advice` is a prompt.
fn plugin_sources() -> Vec<Source> {
    let asks = "primitiveDependencies:\n  elicitations: [{id: plugins.name}]\n  delegations: [{id: plugins.label}]\n";
    let schema = "primitiveSchema:\n  input_schema: {type: object, properties: {n: {type: integer, default: 1}}}\n  \
                  output_schema: {type: object, required: [ok], properties: {ok: {type: boolean}}}\n";
    let can = "capabilities: {supportsProgress: true, supportsCancellation: true, supportsElicitation: true, \
               supportsDelegation: true, inputTimeoutSeconds: 2}\n";
    let rows = [
        ("server", PLUGIN_SERVER.to_owned()),
        (
            "sweep",
            format!("id: sweep\nname: Sweep\ntype: task\nmutation: read_only\n{PLUGIN_HEAD}{can}{asks}{schema}{PLUGIN_RUNTIME}"),
        ),
        (
            "order",
            format!("id: order\nname: Order\ntype: tool\nmutation: non_idempotent\n{PLUGIN_HEAD}{schema}{PLUGIN_RUNTIME}"),
        ),
        (
            "book",
            format!("id: book\nname: Book\ntype: task\nmutation: non_idempotent\n{PLUGIN_HEAD}{can}{asks}{schema}{PLUGIN_RUNTIME}"),
        ),
        (
            "purge",
            format!("id: purge\nname: Purge\ntype: task\nmutation: destructive\n{PLUGIN_HEAD}{can}{asks}{schema}{PLUGIN_RUNTIME}"),
        ),
        (
            "fetch",
            format!("id: fetch\nname: Fetch\ntype: tool\nmutation: non_idempotent\n{PLUGIN_HEAD}{schema}{PLUGIN_RUNTIME}").replace(
                "security: {riskClass: low}",
                "security: {riskClass: low, allowedDomains: [api.example.com, files.example.org], auth: {type: jwt, scopes: ['x:read']}}",
            ),
        ),
        (
            "page",
            format!(
                "id: page\nname: Page\ntype: resource_template\n{PLUGIN_HEAD}primitiveSchema: {{uriTemplate: 'page://{{id}}'}}\n{PLUGIN_RUNTIME}"
            ),
        ),
        (
            "advice",
            format!(
                "id: advice\nname: Advice\ntype: prompt\n{PLUGIN_HEAD}primitiveSchema: {{arguments: [{{name: topic, required: true}}]}}\n{PLUGIN_RUNTIME}"
            ),
        ),
        (
            "name",
            "id: plugins.name\nname: A name\ntype: elicitation\nversion: 1.0.0\nowner: t@example.com\n\
             primitiveSchema: {message: Which name?, fields: [{name: name, type: string, required: true}]}\n"
                .to_owned(),
        ),
        (
            "label",
            "id: plugins.label\nname: Label\ntype: delegate\nversion: 1.0.0\nowner: t@example.com\nsummary: Labels.\n\
             primitiveSchema: {sampling: {systemPrompt: Answer in JSON., maxTokens: 64}}\n"
                .to_owned(),
        ),
    ];
    rows.into_iter().map(|(file, text)| Source { path: format!("plugins/{file}.yaml"), text }).collect()
}

fn spec(id: &str, name: &str, mutation: &str, extra: &str) -> String {
    format!(
        "id: {id}\nname: {name}\ntype: tool\nversion: 1.0.0\nowner: t@example.com\nsummary: A tool.\ntags: [test]\n\
         mutation: {mutation}\nprimitiveSchema:\n  input_schema:\n    type: object\n    properties:\n      \
         message: {{type: string, default: none}}\n      to: {{type: integer, default: 1}}\n      \
         delayMs: {{type: integer, default: 0}}\n{extra}"
    )
}

/// The repository's servers and the tests' own.
pub(crate) fn sources() -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives");
    let mut sources = read_dir(&root).unwrap();
    sources.push(Source { path: "policy/server.yaml".into(), text: TEST_SERVER.into() });
    let echo = "runtime: {mode: builtin, entrypoint: echo}\n";
    let low = "security: {riskClass: low}\n";
    for (file, text) in [
        ("open", spec("policy.open", "Open", "read_only", &format!("{low}{echo}"))),
        (
            "scoped",
            spec(
                "policy.scoped",
                "Scoped",
                "read_only",
                &format!(
                    "security: {{riskClass: low, auth: {{type: jwt, scopes: ['x:read', 'x:write']}}}}\n{echo}"
                ),
            ),
        ),
        ("wipe", spec("policy.wipe", "Wipe", "destructive", &format!("{low}{echo}"))),
        (
            "once",
            spec(
                "policy.once",
                "Once",
                "non_idempotent",
                &format!("{low}runtime: {{mode: builtin, entrypoint: clock}}\n"),
            ),
        ),
        (
            "few",
            spec(
                "policy.few",
                "Few",
                "read_only",
                "security: {riskClass: low, rateLimitMax: {invocationCount: 2, timeUnitCount: 3600, timeUnit: seconds, \
                 concurrentInvocations: 5}}\nruntime: {mode: builtin, entrypoint: echo}\n",
            ),
        ),
    ] {
        sources.push(Source { path: format!("policy/{file}.yaml"), text });
    }
    sources.extend(plugin_sources());
    sources
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
            keys: vec![Key { kid: "k1".into(), alg: "ES256".into(), jwk: signer().jwk.clone() }],
            typ: vec!["at+jwt".into()],
            audiences: Vec::new(),
            claims: Some(ClaimNames::default()),
            max_lifetime_seconds: 0,
            orgs: Vec::new(),
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
    pub audit: Arc<MemoryAudit>,
    pub active: Arc<MemoryActive>,
    pub ledger: Arc<MemoryLedger>,
}

/// What a gateway under test is made of.
struct Parts {
    snapshot: GatewaySnapshot,
    key: u8,
    stores: Stores,
    runtimes: Runtimes,
    delegates: Endpoints,
    bounds: Bounds,
    audit: Arc<MemoryAudit>,
    active: Arc<MemoryActive>,
    ledger: Arc<MemoryLedger>,
}

impl Parts {
    fn new(snapshot: GatewaySnapshot) -> Parts {
        let audit = Arc::new(MemoryAudit::default());
        let active = Arc::new(MemoryActive::default());
        let ledger = Arc::new(MemoryLedger::default());
        let stores = Stores {
            audit: audit.clone(),
            active: active.clone(),
            ledger: ledger.clone(),
            ..Stores::in_memory()
        };
        Parts {
            snapshot,
            key: 7,
            stores,
            runtimes: Runtimes::none(),
            delegates: Endpoints::default(),
            bounds: Bounds::default(),
            audit,
            active,
            ledger,
        }
    }

    fn start(self) -> Fixture {
        let gateway = Gateway::new(Config {
            token_keys: Arc::new(TokenKeys::generate().unwrap()),
            seal_keys: SealKeys { current: vec![self.key; 32].into(), previous: None },
            public_url: PUBLIC_URL.into(),
            dev: true,
            stores: self.stores,
            runtimes: self.runtimes,
            delegates: self.delegates,
            bounds: self.bounds,
        })
        .unwrap();
        gateway.apply(self.snapshot).unwrap();
        Fixture { gateway, audit: self.audit, active: self.active, ledger: self.ledger }
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
        let mut parts = Parts { runtimes, ..Parts::new(snapshot()) };
        change(&mut parts.stores);
        parts.start()
    }

    /// Another gateway over the same stores and keys.
    pub(crate) fn beside(&self, runtimes: Runtimes) -> Fixture {
        let mut parts = Parts { runtimes, ..Parts::new(snapshot()) };
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

    /// Another gateway with few places for calls.
    pub(crate) fn bounded(&self, bounds: Bounds) -> Fixture {
        Fixture { gateway: Parts { bounds, ..Parts::new(snapshot()) }.start().gateway, ..self.clone() }
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
        asp_gateway::http::router(self.gateway.clone()).oneshot(request.body(body).unwrap()).await.unwrap()
    }
}

/// A legacy client with one session.
pub(crate) struct Legacy {
    pub fixture: Fixture,
    pub server: String,
    pub token: String,
    pub session: String,
    pub revision: String,
}

impl Legacy {
    pub(crate) async fn connect(
        fixture: &Fixture,
        server: &str,
        user: &str,
        revision: &str,
        capabilities: Value,
    ) -> Legacy {
        Legacy::connect_as(fixture, server, token(user), revision, capabilities).await
    }

    pub(crate) async fn connect_as(
        fixture: &Fixture,
        server: &str,
        token: String,
        revision: &str,
        capabilities: Value,
    ) -> Legacy {
        let mut client = Legacy {
            fixture: fixture.clone(),
            server: server.into(),
            token,
            session: String::new(),
            revision: revision.into(),
        };
        let answer = client
            .request(
                1,
                "initialize",
                json!({"protocolVersion": revision, "capabilities": capabilities,
                     "clientInfo": {"name": "test", "version": "1"}}),
            )
            .await;
        assert_eq!(answer.status, StatusCode::OK, "{}", answer.text);
        assert_eq!(answer.json()["result"]["protocolVersion"], revision);
        client.session = answer.headers["mcp-session-id"].to_str().unwrap().into();
        let answer = client.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED);
        client
    }

    pub(crate) fn headers(&self) -> Vec<(&'static str, String)> {
        let mut headers = vec![
            ("authorization", format!("Bearer {}", self.token)),
            ("content-type", "application/json".into()),
            ("accept", "application/json, text/event-stream".into()),
        ];
        if !self.session.is_empty() {
            headers.push(("mcp-session-id", self.session.clone()));
            headers.push(("mcp-protocol-version", self.revision.clone()));
        }
        headers
    }

    pub(crate) async fn request(&self, id: u64, method: &str, params: Value) -> Answer {
        self.post(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await
    }

    pub(crate) async fn post(&self, message: &Value) -> Answer {
        let headers = self.headers();
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.fixture
            .send(Method::POST, &format!("/{}/mcp", self.server), &headers, &message.to_string())
            .await
    }

    /// Sends a request and returns with the headers, the body still open.
    pub(crate) async fn open(&self, message: &Value) -> axum::response::Response {
        let headers = self.headers();
        let headers: Vec<(&str, &str)> =
            headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        self.fixture
            .open(Method::POST, &format!("/{}/mcp", self.server), &headers, &message.to_string())
            .await
    }
}

/// A modern request with everything the revision requires.
pub(crate) struct Modern {
    pub headers: Vec<(String, String)>,
    pub body: Value,
    pub server: String,
}

impl Modern {
    pub(crate) fn new(server: &str, token: &str, method: &str, mut params: Value) -> Modern {
        params["_meta"] = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
            "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"}});
        let mut headers = vec![
            ("authorization".into(), format!("Bearer {token}")),
            ("content-type".into(), "application/json".into()),
            ("accept".into(), "application/json, text/event-stream".into()),
            ("mcp-protocol-version".into(), "2026-07-28".into()),
            ("mcp-method".into(), method.into()),
        ];
        if let Some(name) = params.get("name").or(params.get("uri")).and_then(Value::as_str) {
            headers.push(("mcp-name".into(), name.into()));
        }
        let body = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
        Modern { headers, body, server: server.into() }
    }

    pub(crate) fn without(mut self, header: &str) -> Modern {
        self.headers.retain(|(name, _)| name != header);
        self
    }

    pub(crate) fn with(self, header: &str, value: &str) -> Modern {
        let mut without = self.without(header);
        without.headers.push((header.into(), value.into()));
        without
    }

    pub(crate) fn capabilities(mut self, capabilities: Value) -> Modern {
        self.body["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        self
    }

    pub(crate) async fn send(&self, fixture: &Fixture) -> Answer {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        fixture.send(Method::POST, &format!("/{}/mcp", self.server), &headers, &self.body.to_string()).await
    }

    pub(crate) async fn open(&self, fixture: &Fixture) -> axum::response::Response {
        let headers: Vec<(&str, &str)> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        fixture.open(Method::POST, &format!("/{}/mcp", self.server), &headers, &self.body.to_string()).await
    }
}
