//! Resources of the admin API: the path, the permission and the handlers of each.
//!
//! Owns the only list of them: the router is made of it, and the API document states its permissions. Public resources have
//! no permission; `super::router` has them.

use std::sync::Arc;

use axum::routing::{MethodRouter, delete, get, post, put};
use axum::{Extension, Router};

use super::auth::Permission;
use super::{
    AdminState, approvals, artifacts, blocks, bodies, bounds, calls, certificates, changes, disabled,
    explain, explain_token, ids, issuers, kafka, limit_usage, link_providers, links, live, machines, offers,
    orgs, policy, policy_preview, primitives, push, ratelimits, regions, registry, revocations, routes,
    runtimes, status, undo, usage, versions,
};

/// A path of the admin API.
pub(super) struct Resource {
    pub(super) path: &'static str,
    pub(super) permission: Permission,
    handlers: MethodRouter<Arc<AdminState>>,
}

fn resource(path: &'static str, permission: Permission, handlers: MethodRouter<Arc<AdminState>>) -> Resource {
    Resource { path, permission, handlers }
}

/// Returns every resource that needs a token.
pub(super) fn all() -> impl Iterator<Item = Resource> {
    [servers(), of_orgs(), placement(), of_platform()].into_iter().flatten()
}

/// Routes every resource that needs a token.
pub(super) fn router() -> Router<Arc<AdminState>> {
    all().fold(Router::new(), |router, Resource { path, permission, handlers }| {
        router.route(path, handlers.route_layer(Extension(permission)))
    })
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
