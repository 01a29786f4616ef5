//! The admin API: registry, policy, limits, revocations, and the status of the control plane.
//!
//! Owns the routes (the only list of them: the router is made of it, and the API document states its permissions) and the
//! order of checks: Host and Origin, token, role, body, precondition. Contains no domain logic:
//! the registry compiles, the store stores, the publisher pushes. Keeps true: every refusal is a problem document with
//! a stable code; every change is audited; an admin of one org cannot tell whether another exists.

pub mod approvals;
pub mod artifacts;
pub mod auth;
pub mod blocks;
pub mod bodies;
pub mod bounds;
pub mod calls;
pub mod certificates;
pub mod changes;
mod console;
pub mod disabled;
pub mod emergency;
pub mod explain;
pub mod explain_token;
pub mod ids;
pub mod in_flight;
pub mod inline;
pub mod issuers;
pub mod kafka;
pub mod limit_usage;
pub mod link_providers;
pub mod links;
pub mod lists;
pub mod live;
pub mod machines;
pub mod name_checks;
pub mod offers;
pub mod openapi;
mod optimistic;
pub mod orgs;
pub mod policy;
pub mod policy_preview;
pub mod primitives;
pub mod problem;
pub mod push;
pub mod queues;
pub mod ratelimits;
pub mod refusals;
pub mod regions;
pub mod registry;
pub mod request;
pub mod revocations;
pub mod routes;
pub mod runtimes;
pub mod status;
pub mod stored_servers;
pub mod undo;
mod undo_effects;
pub mod usage;
pub mod versions;

use std::sync::Arc;

use asp_issuers::refresh::Keeper;
use asp_platform::clock;
use asp_store::approvals::ApprovalStore;
use asp_store::audit::AuditLog;
use asp_store::control::sql::ControlStore;
use asp_store::control::{Change, Precondition};
use asp_store::linked_accounts::LinkedAccounts;
use asp_store::live::LiveStore;
use asp_store::packages::Packages;
use asp_store::push::PushStore;
use asp_store::usage::UsageStore;
use asp_vault::Vault;
use asp_xds::subscribers::Subscribers;
use async_trait::async_trait;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post, put};
use axum::{Extension, Json, Router};
use http::{HeaderMap, HeaderValue, header};
use serde_json::{Value, json};

use crate::admission::Admission;
use crate::catalog::Compiler;
use crate::events::feed::Feed;
use crate::publisher;
use crate::runtimes::Runtimes;
use auth::{Admin, Permission, Verifier};
use emergency::Emergencies;
use in_flight::InFlight;
use problem::{Code, Problem, Result};
use queues::OrgQueues;
use refusals::Refusals;
use stored_servers::StoredServers;

/// Maximum size of a request body, which may hold the files of one server.
pub const MAX_BODY: usize = 4 * 1024 * 1024;

/// The platform's own public keys, which rotate.
#[async_trait]
pub trait PublicKeys: Send + Sync {
    /// Returns the keys as a JWK set (RFC 7517 section 5).
    async fn jwks(&self) -> serde_json::Value;
}

/// Shared state of the handlers.
pub struct AdminState {
    pub store: Arc<ControlStore>,
    /// Cache of the stored servers.
    pub servers: StoredServers,
    /// The audit log of calls, written by the gateways that use this state directory.
    pub calls: Arc<dyn AuditLog>,
    /// Sums of calls, written by the same gateways.
    pub call_usage: Arc<dyn UsageStore>,
    /// Running calls and sessions, reported by the same gateways.
    pub live: Arc<dyn LiveStore>,
    /// Push notifications of calls, sent by the gateways that use the same database.
    pub pushes: Arc<dyn PushStore>,
    /// Approvals that calls wait for at the gateways that use the same database.
    pub approvals: Arc<dyn ApprovalStore>,
    /// Accounts that users link, used by the same gateways.
    pub links: Arc<dyn LinkedAccounts>,
    /// The artifact store: package files of plugins.
    pub packages: Arc<dyn Packages>,
    /// Evaluation of every write that may grow a snapshot.
    pub admission: Admission,
    pub compiler: Compiler,
    pub publisher: publisher::Handle,
    pub subscribers: Arc<Subscribers>,
    /// The language runtimes in this process's configuration.
    pub runtimes: Arc<dyn Runtimes>,
    pub verifier: Verifier,
    /// Emergency tokens whose use has been audited.
    pub emergencies: Emergencies,
    /// Fetches the keys of issuers.
    pub keeper: Arc<Keeper>,
    pub refusals: Refusals,
    /// Unanswered requests of orgs, teams and installers.
    pub in_flight: Arc<InFlight>,
    pub queues: Arc<OrgQueues>,
    /// The platform's own public keys.
    pub jwks: Arc<dyn PublicKeys>,
    /// The topic of revocations; `None` if this process reads none.
    pub feed: Option<Arc<Feed>>,
    /// Opens and seals the records of linked accounts.
    pub vault: Vault,
    /// Whether only loopback names are allowed in Host.
    pub dev: bool,
}

/// Shared state as a handler extracts it.
type ApiState = State<Arc<AdminState>>;

impl AdminState {
    /// Returns the change that a write by `admin` passes to the store.
    fn change(&self, admin: &Admin, precondition: Precondition) -> Change {
        Change { actor: admin.actor(), at: clock::now_ms(), precondition, based_on: None, undoes: None }
    }

    /// Applies stored issuers to the next request of this process, published or not.
    async fn apply_issuers(&self) -> Result<()> {
        let loaded = self.store.issuers_of_now().await?;
        let trust = self.compiler.trust().clone();
        off_thread(move || trust.take(&loaded, trust.clock().now_ms())).await?;
        self.keeper.changed();
        Ok(())
    }

    /// Notifies the publisher of a write.
    fn notify_publisher(&self, written: asp_store::control::Commit) -> asp_store::control::Commit {
        if written.changed {
            self.publisher.changed();
        }
        written
    }
}

/// Returns the response to a write that has nothing else to show.
fn change_response(written: asp_store::control::Commit) -> Json<Value> {
    Json(json!({ "revision": written.revision, "changed": written.changed }))
}

/// Runs work that takes milliseconds (compiling, decoding) off the threads that serve requests.
async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "work for an admin request was aborted and the request got an internal error; a panic is logged above, report it");
        Problem::new(Code::Internal, "")
    })
}

/// Returns the router of the admin port.
pub fn router(state: Arc<AdminState>) -> Router {
    let with_token = resources().fold(Router::new(), |router, Resource { path, permission, handlers }| {
        router.route(path, handlers.route_layer(Extension(permission)))
    });
    Router::new()
        .route("/", get(openapi::root))
        .route("/healthz", get(status::health))
        .route("/readyz", get(status::ready))
        .route("/metrics", get(status::metrics))
        .route("/.well-known/jwks.json", get(status::jwks))
        .route("/admin", get(console::page))
        .route("/admin/page.js", get(console::script))
        .route("/admin/page.css", get(console::style))
        .route("/api/openapi.json", get(openapi::document))
        .route("/api/docs", get(openapi::page))
        .route("/api/login", get(issuers::login))
        .merge(with_token)
        .fallback(|| async { Problem::not_found() })
        .method_not_allowed_fallback(|| async { Problem::method_not_allowed() })
        .layer(axum::middleware::from_fn(request::refuse_nul))
        .layer(axum::middleware::from_fn(in_flight::track))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&state), refusals::audit))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&state), check_host))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(state)
}

/// Middleware that checks Host and Origin and sets response headers. In development only loopback names are allowed, so
/// that a web page cannot reach the port through a name that it controls (DNS rebinding).
async fn check_host(State(state): State<Arc<AdminState>>, request: Request, next: Next) -> Response {
    let authority = request.uri().authority().map(|authority| authority.as_str().to_owned());
    if let Err(problem) = check_host_headers(request.headers(), authority.as_deref(), state.dev) {
        return problem.into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    response
}

/// Checks the headers; `authority` is that of the request's URI (HTTP/2 has no Host header).
fn check_host_headers(headers: &HeaderMap, authority: Option<&str>, dev: bool) -> Result<()> {
    let host = match headers.get(header::HOST) {
        Some(value) => value.to_str().ok(),
        None => authority,
    };
    let Some(host) = host else {
        return Err(Problem::new(Code::HostDenied, ""));
    };
    if dev && !is_loopback(host) {
        return Err(Problem::new(Code::HostDenied, ""));
    }
    let Some(origin) = headers.get(header::ORIGIN) else {
        return Ok(());
    };
    let name = origin.to_str().ok().and_then(|text| text.split_once("://")).map(|(_, name)| name);
    match name {
        Some(name) if name.eq_ignore_ascii_case(host) || (dev && is_loopback(name)) => Ok(()),
        _ => Err(Problem::new(Code::OriginDenied, "")),
    }
}

/// Whether `host[:port]` names this machine.
fn is_loopback(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    name.eq_ignore_ascii_case("localhost") || matches!(name, "127.0.0.1" | "[::1]")
}

// === resources ===

/// A path of the admin API.
struct Resource {
    path: &'static str,
    permission: Permission,
    handlers: MethodRouter<Arc<AdminState>>,
}

fn resource(path: &'static str, permission: Permission, handlers: MethodRouter<Arc<AdminState>>) -> Resource {
    Resource { path, permission, handlers }
}

/// Returns every resource that needs a token. Public ones have no permission; [`router`] has them.
fn resources() -> impl Iterator<Item = Resource> {
    [servers(), of_orgs(), placement(), of_platform()].into_iter().flatten()
}

/// Servers, their versions and offers, and the ids of their primitives.
fn servers() -> Vec<Resource> {
    let server = put(registry::put_server).get(registry::get_server).delete(registry::delete_server);
    let whole = put(disabled::disable).delete(disabled::enable);
    let primitive = put(disabled::disable_primitive).delete(disabled::enable_primitive);
    let offer = put(offers::put).get(offers::get).delete(offers::delete);
    vec![
        resource("/api/registry/validate", Permission::Question, post(registry::validate)),
        resource("/api/registry/compile", Permission::Question, post(registry::compile)),
        resource("/api/registry/servers", Permission::Servers, get(registry::list_servers)),
        resource("/api/registry/servers/{server}", Permission::Server, server),
        resource("/api/registry/servers/{server}/a2a", Permission::Server, put(registry::confirm_a2a)),
        resource("/api/registry/servers/{server}/disabled", Permission::Server, whole),
        resource("/api/registry/servers/{server}/disabled/{primitive}", Permission::Server, primitive),
        resource("/api/registry/servers/{server}/versions", Permission::Server, get(versions::list)),
        resource(
            "/api/registry/servers/{server}/versions/{revision}",
            Permission::Server,
            get(versions::get),
        ),
        resource("/api/registry/servers/{server}/rollback", Permission::Server, post(versions::rollback)),
        resource("/api/registry/servers/{server}/offers", Permission::Server, get(offers::list)),
        resource("/api/registry/servers/{server}/offers/{org}", Permission::Offer, offer),
        resource("/api/registry/orgs/{org}/servers/{server}", Permission::Standing, get(offers::standing)),
        resource("/api/registry/orgs/{org}/primitives", Permission::Org, get(primitives::org_primitives)),
        resource("/api/registry/primitives/{id}/servers", Permission::Platform, get(ids::list)),
        resource(
            "/api/registry/primitives/{id}/servers/{server}",
            Permission::Platform,
            put(ids::grant).delete(ids::withdraw),
        ),
    ]
}

/// Policy, limits, machines and revocations of orgs, and what they may read of themselves.
fn of_orgs() -> Vec<Resource> {
    let exposure = put(policy::put_exposure).get(policy::get_exposure).delete(policy::delete_exposure);
    let bindings = put(policy::put_binding).get(policy::get_bindings).delete(policy::delete_bindings);
    let limits = put(ratelimits::put).get(ratelimits::get).delete(ratelimits::delete);
    let of_all =
        put(ratelimits::put_platform).get(ratelimits::get_platform).delete(ratelimits::delete_platform);
    let bound = put(bounds::put).get(bounds::get).delete(bounds::delete);
    let keys = post(machines::add).get(machines::list);
    let certificates = post(certificates::register).get(certificates::list);
    let certificate = delete(certificates::delete);
    let revocations = post(revocations::add).get(revocations::list).delete(revocations::delete_matching);
    let revocation = delete(revocations::delete).get(revocations::get);
    let blocks = post(blocks::add).get(blocks::list).delete(blocks::delete);
    let letter = get(push::get).delete(push::delete);
    let artifact = put(artifacts::put).get(artifacts::get).delete(artifacts::delete);
    vec![
        resource("/api/policy/orgs/{org}/exposure", Permission::Org, exposure),
        resource("/api/policy/orgs/{org}/bindings", Permission::Org, bindings),
        resource("/api/policy/explain", Permission::Question, post(explain::explain)),
        resource("/api/explain", Permission::Question, post(explain_token::explain_token)),
        resource("/api/orgs", Permission::Orgs, get(orgs::list)),
        resource("/api/ratelimits/orgs/{org}", Permission::Org, limits),
        resource("/api/ratelimits/platform", Permission::Platform, of_all),
        resource("/api/ratelimits/orgs/{org}/usage", Permission::Org, get(limit_usage::get)),
        resource("/api/machines/orgs/{org}/bound", Permission::OrgBound, bound),
        resource("/api/machines/orgs/{org}/keys", Permission::Org, keys),
        resource("/api/machines/orgs/{org}/keys/{id}", Permission::Org, delete(machines::delete)),
        resource("/api/machines/orgs/{org}/certificates", Permission::Org, certificates),
        resource("/api/machines/orgs/{org}/certificates/{id}", Permission::Org, certificate),
        resource("/api/revocations", Permission::Orgs, revocations),
        resource("/api/revocations/batch", Permission::Orgs, post(revocations::add_several)),
        resource("/api/revocations/{id}", Permission::Orgs, revocation),
        resource("/api/blocks", Permission::Orgs, blocks),
        resource("/api/artifacts", Permission::Orgs, get(artifacts::list)),
        resource("/api/artifacts/{sha256}", Permission::Package, artifact),
        resource("/api/audit", Permission::Orgs, get(status::audit)),
        resource("/api/audit/{revision}/undo", Permission::Orgs, get(undo::preview).post(undo::undo)),
        resource("/api/audit/calls", Permission::Audit, get(calls::list)),
        resource("/api/audit/calls/export", Permission::Audit, get(calls::export)),
        resource("/api/audit/calls/{call}/bodies", Permission::Bodies, get(bodies::get)),
        resource("/api/audit/approvals", Permission::Audit, get(calls::approvals)),
        resource("/api/audit/changes", Permission::Audit, get(changes::list)),
        resource("/api/push/dead-letters", Permission::Orgs, get(push::list)),
        resource("/api/push/dead-letters/{id}", Permission::Orgs, letter),
        resource("/api/push/dead-letters/{id}/replay", Permission::Orgs, post(push::replay)),
        resource("/api/schemas", Permission::Orgs, get(status::schemas)),
        resource("/api/approvals", Permission::Orgs, get(approvals::list)),
        resource("/api/approvals/{id}", Permission::Orgs, get(approvals::get)),
        resource("/api/approvals/{id}/decision", Permission::Orgs, post(approvals::decide)),
        resource("/api/policy/preview", Permission::Question, post(policy_preview::preview)),
        resource("/api/calls", Permission::Orgs, get(live::calls)),
        resource("/api/calls/{id}", Permission::Orgs, delete(live::cancel_call)),
        resource("/api/sessions", Permission::Orgs, get(live::sessions)),
        resource("/api/sessions/{id}", Permission::Orgs, delete(live::end_session)),
        resource("/api/usage", Permission::Orgs, get(usage::get)),
        resource("/api/usage/unused", Permission::Orgs, get(usage::unused)),
        resource("/api/links", Permission::Orgs, get(links::list).delete(links::remove)),
    ]
}

/// Gateway pools and regions that requests go to.
fn placement() -> Vec<Resource> {
    let routes = put(routes::put).get(routes::get).delete(routes::delete);
    let regions = put(regions::put).get(regions::get).delete(regions::delete);
    let home = put(regions::put_home).get(regions::get_home).delete(regions::delete_home);
    vec![
        resource("/api/routes", Permission::Platform, routes),
        resource("/api/pools", Permission::Platform, get(routes::pools)),
        resource("/api/regions", Permission::Platform, regions),
        resource("/api/regions/orgs", Permission::Platform, get(regions::homes)),
        resource("/api/regions/orgs/{org}", Permission::OrgHome, home),
    ]
}

/// Issuers, and the state of the platform.
fn of_platform() -> Vec<Resource> {
    let issuer = put(issuers::put).get(issuers::get).delete(issuers::delete);
    let provider = put(link_providers::put).get(link_providers::get).delete(link_providers::delete);
    vec![
        resource("/api/issuers", Permission::Platform, get(issuers::list)),
        resource("/api/issuers/{side}/{name}", Permission::Platform, issuer),
        resource("/api/link-providers", Permission::Platform, get(link_providers::list)),
        resource("/api/link-providers/{name}", Permission::Platform, provider),
        resource("/api/snapshot", Permission::Platform, get(status::snapshot)),
        resource("/api/runtimes", Permission::Platform, get(runtimes::list)),
        resource("/api/kafka/parked", Permission::Platform, get(kafka::parked)),
        resource("/api/kafka/parked/{id}", Permission::Platform, delete(kafka::drop_parked)),
    ]
}

#[cfg(test)]
mod tests;
