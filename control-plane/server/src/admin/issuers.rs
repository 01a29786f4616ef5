//! Trusted issuers of clients' and admins' tokens, managed without a restart.
//!
//! Keeps true: only admins of the platform see and change them; the operator's file is read, never written; an issuer
//! that a stored server names is not deleted; an issuer's URLs are reachable by the rules of [`asp_issuers::fetch`]
//! before it is stored. No document contains a secret: it refers to the operator's credentials by name.

use std::sync::Arc;

use asp_issuers::document::{Document, KeySource};
use asp_issuers::faults;
use asp_store::control::{IssuerRecord, Side};
use axum::Json;
use axum::extract::State;
use axum::response::Response;
use http::HeaderMap;
use serde::Deserialize;
use serde_json::{Value, json};
use utoipa::IntoParams;

use super::AdminState;
use super::auth::Admin;
use super::off_thread;
use super::problem::{Code, Problem, Result};
use super::request::{Body, Path, Query, precondition, tagged};

/// Lists the issuers in the store, and the status of all issuers whose keys are fetched.
#[utoipa::path(get, path = "/api/issuers", tag = "issuers",
    responses((status = 200, body = Object), (status = 403, body = Problem)))]
pub async fn list(_admin: Admin, State(state): State<Arc<AdminState>>) -> Result<Json<Value>> {
    let stored = state.store.issuers().await?;
    let list = stored.iter().map(|record| issuer_json(&state, record)).collect::<Result<Vec<Value>>>()?;
    Ok(Json(json!({ "issuers": list, "fetched": fetched(&state).await? })))
}

/// Returns one issuer in the store.
#[utoipa::path(get, path = "/api/issuers/{side}/{name}", tag = "issuers",
    params(("side" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem)))]
pub async fn get(
    _admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path((side, name)): Path<(String, String)>,
) -> Result<Response> {
    let side = side_of(&side)?;
    let record = state.store.issuer(side, &name).await?.ok_or_else(Problem::not_found)?;
    Ok(tagged(record.revision, issuer_json(&state, &record)?))
}

/// Option for an issuer with a deleted one's name but another `iss`.
#[derive(Clone, Copy, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct TakeOverQuery {
    /// Confirms that the users of the deleted issuer are this one's: they keep bindings, stored answers and revocations
    /// by name.
    #[serde(default)]
    pub take_over: bool,
}

/// Adds or replaces an issuer, in force with the next snapshot, a moment later. Its keys are fetched at once.
#[utoipa::path(put, path = "/api/issuers/{side}/{name}", tag = "issuers", request_body = Document,
    params(("side" = String, Path), ("name" = String, Path), TakeOverQuery),
    responses((status = 200, body = Object), (status = 409, body = Problem), (status = 412, body = Problem),
        (status = 422, body = Problem)))]
pub async fn put(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path((side, name)): Path<(String, String)>,
    Query(TakeOverQuery { take_over }): Query<TakeOverQuery>,
    headers: HeaderMap,
    Body(document): Body<Document>,
) -> Result<Json<Value>> {
    let side = side_of(&side)?;
    if !document.name.is_empty() && document.name != name {
        return Err(Problem::params("the name in the document is not the one in the path"));
    }
    let document = Document { name: name.clone(), ..document };
    check(&state, side, &document, take_over).await?;
    let change = state.change(&admin, precondition(&headers)?);
    let text = serde_json::to_string(&document).map_err(|error| Problem::params(error.to_string()))?;
    let written = state.notify_publisher(state.store.put_issuer(&change, side, &name, &text).await?);
    state.apply_issuers().await?;
    Ok(Json(json!({
        "side": side.as_str(), "name": name, "revision": written.revision, "changed": written.changed,
    })))
}

/// Removes an issuer: its tokens are refused from the next snapshot on.
#[utoipa::path(delete, path = "/api/issuers/{side}/{name}", tag = "issuers",
    params(("side" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 409, body = Problem)))]
pub async fn delete(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path((side, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> Result<Json<Value>> {
    let side = side_of(&side)?;
    if side == Side::Clients {
        let users = users(&state, &name).await?;
        if !users.is_empty() && state.store.issuer(side, &name).await?.is_some() {
            let detail = format!("servers name it in auth.issuers: {}", users.join(", "));
            return Err(Problem::new(Code::IssuerInUse, detail));
        }
    }
    let change = state.change(&admin, precondition(&headers)?);
    let written = state.notify_publisher(state.store.delete_issuer(&change, side, &name).await?);
    state.apply_issuers().await?;
    Ok(Json(json!({
        "side": side.as_str(), "name": name, "revision": written.revision, "changed": written.changed,
    })))
}

/// Returns the endpoints for the login of admins from a terminal (`asp login`). Public: it holds no secret, and callers
/// have no token yet.
#[utoipa::path(get, path = "/api/login", tag = "issuers", security(()), responses((status = 200, body = Object)))]
pub async fn login(State(state): State<Arc<AdminState>>) -> Json<Value> {
    Json(json!({ "issuers": state.compiler.trust().in_force().logins }))
}

fn side_of(text: &str) -> Result<Side> {
    Side::parse(text).ok_or_else(Problem::not_found)
}

/// Checks that an issuer can be in force; reports all faults together.
async fn check(state: &AdminState, side: Side, document: &Document, take_over: bool) -> Result<()> {
    let name = &document.name;
    let trust = state.compiler.trust();
    if trust.is_configured(side, name) {
        let detail = format!("{name} stands in the operator's file (ASP_ISSUERS): change it there");
        return Err(Problem::new(Code::IssuerGiven, detail));
    }
    let mut found = faults::of_document(side, document);
    if !trust.is_development() {
        found.extend(faults::list_faults(document));
    }
    if side == Side::Clients && document.orgs.is_empty() {
        found.push("orgs: say for which orgs it speaks (`*` for every one)".into());
    }
    let stored = state.store.issuers().await?;
    let own = stored.iter().find(|record| record.side == side && record.name == *name);
    let own_iss = own.and_then(iss_of);
    let is_its_own = own_iss.as_ref() == Some(&document.iss);
    let former = match &own_iss {
        None if !take_over => state.store.former_iss(side, name).await?,
        _ => None,
    };
    found.extend(identity_fault(document, own_iss.as_deref(), former.as_deref()));
    if !is_its_own && trust.has_iss(side, &document.iss) {
        found.push(format!("iss: another issuer has {}", document.iss));
    }
    let login = document.login.as_ref();
    let source = document.source();
    let urls = [
        source.url(),
        document.introspection.as_ref().and_then(|given| given.url.as_deref()),
        login.and_then(|login| login.token_endpoint.as_deref()),
    ];
    found.extend(urls.into_iter().flatten().filter_map(|url| state.keeper.fetcher().may_reach(url).err()));
    if found.is_empty() {
        return Ok(());
    }
    Err(Problem::params(found.join("; ")))
}

/// Refuses a change of `iss` under one name, compared with the issuer of that name or the last deleted one. Users,
/// their stored answers and their bindings are stored by the issuer's name.
fn identity_fault(document: &Document, own: Option<&str>, former: Option<&str>) -> Option<String> {
    let Document { name, iss, .. } = document;
    let why = "under the same name, users of another provider would count as its users";
    match (own, former) {
        (Some(own), _) if own != iss => {
            Some(format!("iss: {name} is {own}; {why}: store {iss} under another name"))
        }
        (None, Some(former)) if former != iss => Some(format!(
            "iss: {name} was {former} until it was deleted; {why}: store {iss} under another name, or send ?takeOver=true \
             where they are the same people"
        )),
        _ => None,
    }
}

fn iss_of(record: &IssuerRecord) -> Option<String> {
    serde_json::from_str::<Document>(&record.document).ok().map(|document| document.iss)
}

/// Returns the stored servers that accept the issuer's tokens.
async fn users(state: &AdminState, name: &str) -> Result<Vec<String>> {
    let stored = state.store.servers().await?.value;
    let compiler = state.compiler.clone();
    let servers = off_thread(move || compiler.compile_all(&stored)).await?;
    let uses = servers.iter().filter(|server| server.edge.issuers.iter().any(|issuer| issuer == name));
    Ok(uses.map(|server| server.server.name.clone()).collect())
}

fn issuer_json(state: &AdminState, record: &IssuerRecord) -> Result<Value> {
    let document: Value = serde_json::from_str(&record.document).map_err(|error| {
        tracing::error!(%error, issuer = %record.name, "a stored issuer is not JSON and an admin's request got an internal error");
        Problem::new(Code::Internal, "")
    })?;
    Ok(json!({
        "side": record.side.as_str(),
        "name": record.name,
        "revision": record.revision,
        "updatedAt": record.updated_at,
        "document": document,
        "fault": state.keeper.fault(record.side, &record.name),
    }))
}

/// Returns the status of all issuers whose keys are fetched, including those in the operator's file.
async fn fetched(state: &AdminState) -> Result<Vec<Value>> {
    let times = state.store.issuer_keys().await?;
    let in_force = state.compiler.trust().in_force();
    let wanted = in_force.wanted.iter().map(|wanted| {
        let is_its = |record: &&asp_store::control::IssuerKeysRecord| {
            record.side == wanted.side
                && record.name == wanted.name
                && Some(record.source.as_str()) == wanted.source.url()
        };
        let at = times.iter().find(is_its).map(|record| record.fetched_at);
        let how = match wanted.source {
            KeySource::Keys(_) => "jwksUri",
            KeySource::Discovery(_) | KeySource::Written => "discovery",
        };
        json!({
            "side": wanted.side.as_str(),
            "name": wanted.name,
            "by": how,
            "keys": wanted.keys,
            "fetchedAt": at,
            "fault": state.keeper.fault(wanted.side, &wanted.name),
        })
    });
    Ok(wanted.collect())
}
