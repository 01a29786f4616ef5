//! The HTTP filters of each Envoy row: none, Envoy's own that enforce what ours does, ours, and a wasm module
//! that does nothing.

use std::path::Path;

use anyhow::{Context, Result};
use asp_e2e::tool;
use asp_proto::snapshot::{AuthScheme, CoarseLimit, EdgeServer, EdgeSnapshot, Protocol, Sessions};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::issuer::Issuer;

/// The server whose callers need a token.
pub(crate) const SERVER: &str = "demo";
/// The same server for anybody, to see what the token costs.
pub(crate) const OPEN_SERVER: &str = "open";
/// The tool that is called.
pub(crate) const TOOL: &str = "echo";
/// The only Origin let through.
pub(crate) const ORIGIN: &str = "https://app.example.com";
/// Largest body let through, in bytes.
pub(crate) const MAX_BODY: u32 = 1 << 20;
/// Requests a second: a limit that is counted and never reached.
const RATE: u32 = 1_000_000;
/// Tokens Envoy's own filter remembers: as many as ours.
const TOKENS: u32 = 8192;

/// A module with every mandatory export and no code: what a VM costs by itself.
const NOTHING: &str = r#"(module
    (memory (export "memory") 2)
    (global $next (mut i32) (i32.const 1024))
    (func (export "proxy_abi_version_0_2_1"))
    (func (export "proxy_on_memory_allocate") (param i32) (result i32)
        (global.set $next (i32.add (global.get $next) (local.get 0)))
        (i32.sub (global.get $next) (local.get 0)))
    (func (export "proxy_on_context_create") (param i32 i32))
    (func (export "proxy_on_request_headers") (param i32 i32 i32) (result i32) (i32.const 0))
    (func (export "proxy_on_request_body") (param i32 i32 i32) (result i32) (i32.const 0)))"#;

/// Which filters an Envoy has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Chain {
    Plain,
    Native,
    Filter,
    Noop,
}

/// What the chains are told.
pub(crate) struct Policy<'a> {
    /// The audience of every token.
    pub public_url: &'a str,
    pub issuers: &'a [Issuer],
}

/// The list of HTTP filters as JSON; files go into `directory`.
pub(crate) fn http_filters(chain: Chain, policy: &Policy<'_>, directory: &Path) -> Result<String> {
    let mut filters = match chain {
        Chain::Plain => Vec::new(),
        Chain::Native => vec![rbac(), jwt_authn(policy), local_ratelimit(), mcp()],
        Chain::Filter => {
            let filter = tool::filter_wasm()?;
            vec![wasm("asp-edge", &filter, &snapshot(policy))?]
        }
        Chain::Noop => {
            let module = directory.join("nothing.wasm");
            std::fs::write(&module, wat::parse_str(NOTHING)?)?;
            vec![wasm("nothing", &module, &[])?]
        }
    };
    filters.push(http_filter("router", "router.v3.Router", json!({})));
    Ok(Value::Array(filters).to_string())
}

fn http_filter(name: &str, kind: &str, mut config: Value) -> Value {
    if let Some(config) = config.as_object_mut() {
        config.insert(
            "@type".into(),
            json!(format!("type.googleapis.com/envoy.extensions.filters.http.{kind}")),
        );
    }
    json!({"name": format!("envoy.filters.http.{name}"), "typed_config": config})
}

/// Known paths only, and the Origin absent or the allowed one.
fn rbac() -> Value {
    let path = |server: &str| json!({"url_path": {"path": {"exact": format!("/{server}/mcp")}}});
    let origin = json!({"or_rules": {"rules": [
        {"not_rule": {"header": {"name": "origin", "present_match": true}}},
        {"header": {"name": "origin", "string_match": {"exact": ORIGIN}}},
    ]}});
    let permission = json!({"and_rules": {"rules": [
        {"or_rules": {"rules": [path(SERVER), path(OPEN_SERVER)]}},
        origin,
    ]}});
    let allowed = json!({"permissions": [permission], "principals": [{"any": true}]});
    http_filter("rbac", "rbac.v3.RBAC", json!({"rules": {"action": "ALLOW", "policies": {"known": allowed}}}))
}

fn jwt_authn(policy: &Policy<'_>) -> Value {
    let provider = |issuer: &Issuer| {
        json!({
            "issuer": issuer.iss(),
            "audiences": [policy.public_url],
            "forward": true,
            "local_jwks": {"inline_string": issuer.jwks().to_string()},
            "jwt_cache_config": {"jwt_cache_size": TOKENS},
        })
    };
    let providers: serde_json::Map<String, Value> =
        policy.issuers.iter().map(|issuer| (issuer.name().to_string(), provider(issuer))).collect();
    let names: Vec<Value> =
        policy.issuers.iter().map(|issuer| json!({"provider_name": issuer.name()})).collect();
    let requires = json!({"requires_any": {"requirements": names}});
    let rule = json!({"match": {"path": format!("/{SERVER}/mcp")}, "requires": requires});
    http_filter(
        "jwt_authn",
        "jwt_authn.v3.JwtAuthentication",
        json!({"providers": providers, "rules": [rule]}),
    )
}

fn local_ratelimit() -> Value {
    let always = json!({"default_value": {"numerator": 100, "denominator": "HUNDRED"}});
    let bucket = json!({"max_tokens": RATE, "tokens_per_fill": RATE, "fill_interval": "1s"});
    http_filter(
        "local_ratelimit",
        "local_ratelimit.v3.LocalRateLimit",
        json!({"stat_prefix": "bench", "token_bucket": bucket, "filter_enabled": always, "filter_enforced": always}),
    )
}

fn mcp() -> Value {
    http_filter(
        "mcp",
        "mcp.v3.Mcp",
        json!({"traffic_mode": "REJECT_NO_MCP", "reject_duplicate_keys": true, "max_request_body_size": MAX_BODY}),
    )
}

fn wasm(name: &str, module: &Path, configuration: &[u8]) -> Result<Value> {
    let file = module.to_str().context("the module's path is UTF-8")?;
    let config = json!({
        "name": name,
        "root_id": name,
        "failure_policy": "FAIL_RELOAD",
        "allow_on_headers_stop_iteration": true,
        "vm_config": {
            "vm_id": name, "runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": file}},
        },
        "configuration": {
            "@type": "type.googleapis.com/google.protobuf.BytesValue", "value": STANDARD.encode(configuration),
        },
    });
    Ok(http_filter("wasm", "wasm.v3.Wasm", json!({"config": config})))
}

/// The edge snapshot that says what the native chain says.
fn snapshot(policy: &Policy<'_>) -> Vec<u8> {
    let server = |name: &str, scheme: AuthScheme| EdgeServer {
        name: name.into(),
        protocols: vec![Protocol::Mcp.into()],
        default_allow: true,
        origins: vec![ORIGIN.into()],
        schemes: vec![scheme.into()],
        issuers: policy.issuers.iter().map(|issuer| issuer.name().to_string()).collect(),
        max_body_bytes: MAX_BODY,
        sessions: Sessions::Stateful.into(),
        ..Default::default()
    };
    let any = || "*".to_string();
    let limit = CoarseLimit {
        org: any(),
        server: any(),
        user: any(),
        wcit: any(),
        primitive: any(),
        rate_per_second: RATE.into(),
        burst: RATE,
        issuer: String::new(),
    };
    let mut snapshot = EdgeSnapshot {
        revision: 1,
        workers: 1,
        servers: vec![server(SERVER, AuthScheme::Jwt), server(OPEN_SERVER, AuthScheme::None)],
        issuers: policy.issuers.iter().map(Issuer::message).collect(),
        coarse_limits: vec![limit],
        public_url: policy.public_url.into(),
        ..Default::default()
    };
    snapshot.digest = Sha256::digest(snapshot.encode_to_vec()).to_vec();
    snapshot.encode_to_vec()
}
