//! Offers of a server to orgs, and its state for one of them.
//!
//! Owns who may read and change offers: admins of the platform and of the server. An org switches offered servers on or
//! off ([`super::policy`]); a server that is not offered does not exist for it.

use std::sync::Arc;

use asp_issuers::admin_role::valid_org;
use asp_proto::snapshot::{EdgeServer, Protocol};
use asp_registry::CompiledServer;
use asp_snapshot::protocol::protocol_name;
use asp_store::control::{AtRevision, OfferRecord};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::auth::Admin;
use super::name_checks::{self, ForceQuery};
use super::problem::{Code, Problem, Result};
use super::queues::{self, Topic};
use super::request::{Path, Query, precondition, tagged};
use super::{AdminState, ApiState, change_response, off_thread};
use crate::catalog::offers::{self, OfferSource};

/// An org to which a server is offered.
#[derive(Serialize, ToSchema)]
pub struct Offer {
    pub org: String,
    /// `server.yaml` or `offer`
    pub by: &'static str,
}

/// All orgs to which a server is offered.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Offers {
    pub server: String,
    /// Whether its file has `defaultExposure: allow`
    pub every_org: bool,
    pub offers: Vec<Offer>,
}

/// The state of a server for an org.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Standing)]
pub struct ServerState {
    pub server: String,
    pub org: String,
    pub offered: bool,
    /// `defaultExposure`, `server.yaml` or `offer`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offered_by: Option<&'static str>,
    /// Protocols of the server, each with whether it is switched on for the org
    pub on: Vec<Switch>,
}

/// State of a server's protocol for an org.
#[derive(Serialize, ToSchema)]
pub struct Switch {
    pub protocol: &'static str,
    pub on: bool,
}

/// Returns the protocols of a server, each with whether it is switched on for an org: by the org's `exception`, or else by the
/// server's default.
pub(super) fn switches(edge: &EdgeServer, exception: impl Fn(Protocol) -> Option<bool>) -> Vec<Switch> {
    let spoken = edge.protocols().filter(|protocol| *protocol != Protocol::Unspecified);
    let switch = |protocol| Switch {
        protocol: protocol_name(protocol),
        on: exception(protocol).unwrap_or(edge.default_allow),
    };
    spoken.map(switch).collect()
}

/// Returns the API's word for the reason of an offer.
pub fn word(source: OfferSource) -> &'static str {
    match source {
        OfferSource::Everybody => "defaultExposure",
        OfferSource::File => "server.yaml",
        OfferSource::Offer => "offer",
    }
}

/// Returns the server's last good form, if there is one.
async fn compiled(state: &AdminState, admin: &Admin, name: &str) -> Result<Option<Arc<CompiledServer>>> {
    let record = name_checks::server(state, admin, name).await?;
    let compiler = state.compiler.clone();
    off_thread(move || compiler.compile_one(&record)).await
}

/// Lists all offers of a server: those in its file, and the stored ones.
#[utoipa::path(get, path = "/api/registry/servers/{server}/offers", tag = "registry",
    params(("server" = String, Path)), responses((status = 200, body = Offers), (status = 404, body = Problem)))]
pub async fn list(admin: Admin, State(state): ApiState, Path(name): Path<String>) -> Result<Response> {
    show(&state, &admin, &name).await
}

async fn show(state: &AdminState, admin: &Admin, name: &str) -> Result<Response> {
    let server = compiled(state, admin, name).await?;
    let AtRevision { revision, value: stored } = state.store.offers(name).await?;
    let by_file = server.as_deref().map(|server| server.offered_to.clone()).unwrap_or_default();
    let stored = stored.into_iter().map(|record| record.org).filter(|org| !by_file.contains(org));
    let stored = stored.map(|org| Offer { org, by: word(OfferSource::Offer) }).collect::<Vec<_>>();
    let mut all: Vec<Offer> =
        by_file.into_iter().map(|org| Offer { org, by: word(OfferSource::File) }).collect();
    all.extend(stored);
    all.sort_by(|a, b| a.org.cmp(&b.org));
    let every_org = server.is_some_and(|server| server.edge.default_allow);
    Ok(tagged(revision, Offers { server: name.to_owned(), every_org, offers: all }))
}

/// Returns one offer.
#[utoipa::path(get, path = "/api/registry/servers/{server}/offers/{org}", tag = "registry",
    params(("server" = String, Path), ("org" = String, Path)),
    responses((status = 200, body = Offer), (status = 404, body = Problem)))]
pub async fn get(
    _admin: Admin,
    State(state): ApiState,
    Path((name, org)): Path<(String, String)>,
) -> Result<Response> {
    let revision = state.store.offers(&name).await?.revision;
    let by = state.admission.offered(&name, &org).await?.ok_or_else(Problem::not_found)?;
    Ok(tagged(revision, Offer { org, by: word(by) }))
}

/// Offers a server to an org, which may then switch it on. An unknown org is refused unless forced, but not for admins
/// of the server: the refusal would tell them which orgs exist.
#[utoipa::path(put, path = "/api/registry/servers/{server}/offers/{org}", tag = "registry",
    params(("server" = String, Path), ("org" = String, Path), ForceQuery),
    responses((status = 200, body = Offers), (status = 404, body = Problem), (status = 412, body = Problem),
        (status = 422, body = Problem)))]
pub async fn put(
    admin: Admin,
    State(state): ApiState,
    Path((name, org)): Path<(String, String)>,
    Query(ForceQuery { force }): Query<ForceQuery>,
    headers: HeaderMap,
) -> Result<Response> {
    let record = offer(&name, org)?;
    let change = state.change(&admin, precondition(&headers)?);
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    name_checks::server(&state, &admin, &name).await?;
    if !force && admin.role.server().is_none() {
        name_checks::check_org(&state, &admin, &record.org).await?;
    }
    let work = {
        let state = Arc::clone(&state);
        async move {
            let written = state.store.put_offer(&change, &record).await?;
            if force && written.changed {
                let (actor, revision) = (&change.actor, written.revision);
                let OfferRecord { server, org } = &record;
                tracing::info!(%actor, server, org, revision, "forced offer stored; its organisation was not checked");
            }
            Ok::<_, Problem>(state.notify_publisher(written))
        }
    };
    queues::write(permit, work).await??;
    show(&state, &admin, &name).await
}

/// Withdraws an offer. The org loses the server; its switch is kept, and takes effect again with a new offer.
#[utoipa::path(delete, path = "/api/registry/servers/{server}/offers/{org}", tag = "registry",
    params(("server" = String, Path), ("org" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 409, body = Problem),
        (status = 412, body = Problem)))]
pub async fn delete(
    admin: Admin,
    State(state): ApiState,
    Path((name, org)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<Value>> {
    let record = offer(&name, org)?;
    let by_itself =
        compiled(&state, &admin, &name).await?.and_then(|server| offers::source(&server, &record.org, false));
    let remedy = match by_itself {
        Some(OfferSource::Everybody) => {
            "`defaultExposure: allow`: write `deny`, and name in `offeredTo` who keeps it"
        }
        Some(_) => "`offeredTo`: take the organisation out of it",
        None => "",
    };
    if !remedy.is_empty() {
        let detail = format!("{name}/server.yaml offers it, by {remedy}, and apply the server");
        return Err(Problem::new(Code::OfferedByServer, detail));
    }
    let change = state.change(&admin, precondition(&headers)?);
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let work = async move {
        Ok::<_, Problem>(state.notify_publisher(state.store.delete_offer(&change, &record).await?))
    };
    Ok(change_response(queues::write(permit, work).await??))
}

fn offer(name: &str, org: String) -> Result<OfferRecord> {
    if !valid_org(&org) || org.contains('*') {
        return Err(Problem::params("the org is named as tokens name it, without a pattern"));
    }
    Ok(OfferRecord { server: name.to_owned(), org })
}

/// Returns whether a server is offered to an org, and which of its protocols are switched on.
#[utoipa::path(get, path = "/api/registry/orgs/{org}/servers/{server}", tag = "registry",
    params(("org" = String, Path), ("server" = String, Path)),
    responses((status = 200, body = ServerState), (status = 404, body = Problem)))]
pub async fn standing(
    admin: Admin,
    State(state): ApiState,
    Path((org, name)): Path<(String, String)>,
) -> Result<Json<ServerState>> {
    let source = state.admission.offered(&name, &org).await?;
    if source.is_none() && admin.role.org().is_some() {
        return Err(Problem::not_found());
    }
    let server = compiled(&state, &admin, &name).await?.ok_or_else(Problem::not_found)?;
    let exposure = state.store.exposure(&org).await?.value;
    let on = switches(&server.edge, |protocol| {
        let text = protocol_name(protocol);
        let mut written = exposure.iter().filter(|record| record.server == name && record.protocol == text);
        written.next().map(|record| record.enabled)
    });
    Ok(Json(ServerState { server: name, org, offered: source.is_some(), offered_by: source.map(word), on }))
}
