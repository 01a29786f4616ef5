//! Providers at which users link accounts.
//!
//! Keeps true: only admins of the platform see and change them; a client's secret is sealed before it is stored, and shown
//! nowhere; each change is audited before it is made.

use asp_platform::secret::Secret;
use asp_platform::time::rfc3339;
use asp_store::control::{Note, Precondition};
use asp_store::linked_accounts::{
    ClientAuth, LinkFilter, LinkProvider, LinkedAccountsError, MAX_PROVIDERS, PROVIDER_TABLE, Preset,
    ProviderRow,
};
use asp_vault::Place;
use axum::Json;
use axum::extract::State;
use bytes::Bytes;
use http::StatusCode;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::request::{Body, Path};
use super::{AdminState, ApiState};

/// A provider to store.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct LinkProviderBody {
    /// Known provider whose values `document` completes: `github`, `google`, `microsoft`, `atlassian`, `slack` or `salesforce`.
    #[serde(default)]
    preset: Option<String>,
    /// Issuer identifier whose endpoints are found by discovery (OpenID Connect Discovery 1.0, RFC 8414).
    #[serde(default)]
    discover: Option<String>,
    /// Secret of the client. When absent, the stored one stays.
    #[serde(default)]
    client_secret: Option<String>,
    /// Members of the provider (docs/linked-accounts.md), which replace those of the preset and of the discovery.
    #[serde(default)]
    #[schema(value_type = Object)]
    document: Map<String, Value>,
}

/// Lists the providers.
#[utoipa::path(get, path = "/api/link-providers", tag = "links",
    responses((status = 200, body = Object), (status = 403, body = Problem)))]
pub async fn list(_admin: Admin, State(state): ApiState) -> Result<Json<Value>> {
    let rows = state.links.providers().await?;
    let list = rows.iter().map(provider_json).collect::<Result<Vec<Value>>>()?;
    Ok(Json(json!({ "providers": list })))
}

/// Returns one provider.
#[utoipa::path(get, path = "/api/link-providers/{name}", tag = "links", params(("name" = String, Path)),
    responses((status = 200, body = Object), (status = 404, body = Problem)))]
pub async fn get(_admin: Admin, State(state): ApiState, Path(name): Path<String>) -> Result<Json<Value>> {
    let row = state.links.provider(&name).await?.ok_or_else(Problem::not_found)?;
    Ok(Json(provider_json(&row)?))
}

/// Adds or replaces a provider, in force at every gateway within a second.
#[utoipa::path(put, path = "/api/link-providers/{name}", tag = "links", request_body = LinkProviderBody,
    params(("name" = String, Path)),
    responses((status = 200, body = Object), (status = 422, body = Problem)))]
pub async fn put(
    admin: Admin,
    State(state): ApiState,
    Path(name): Path<String>,
    Body(mut body): Body<LinkProviderBody>,
) -> Result<Json<Value>> {
    if !is_name(&name) {
        return Err(Problem::params("the name must have 1 to 63 of the characters A-Z a-z 0-9 - _ ."));
    }
    let secret = body.client_secret.take().filter(|secret| !secret.is_empty()).map(Secret::new);
    let provider = provider(&state, &name, body).await?;
    check(&state, &provider)?;
    let former = state.links.provider(&name).await?;
    let is_public = provider.client_auth == ClientAuth::None;
    let sealed = match secret.filter(|_| !is_public) {
        Some(secret) => seal(&state, &name, &secret).await?,
        None => {
            let kept = former.filter(|former| !is_public && goes_to_the_same(former, &provider));
            kept.map(|former| former.sealed).unwrap_or_default()
        }
    };
    if sealed.is_empty() && !is_public {
        let detail = "clientSecret: is required, unless clientAuth is `none` or the endpoints stay the same";
        return Err(Problem::params(detail));
    }
    let detail = format!("client {}, for {}", provider.client_id, provider.primitives.join(" "));
    note(&state, &admin, "link-provider.put", &name, &detail).await?;
    let document = serde_json::to_string(&provider).map_err(|error| Problem::params(error.to_string()))?;
    if !state.links.put_provider(&name, &document, &sealed).await? {
        return Err(Problem::params(format!("there are {MAX_PROVIDERS} providers already")));
    }
    let row = state.links.provider(&name).await?.ok_or_else(Problem::not_found)?;
    Ok(Json(provider_json(&row)?))
}

/// Deletes a provider that no user has an account at, and where no token waits for its revocation.
#[utoipa::path(delete, path = "/api/link-providers/{name}", tag = "links", params(("name" = String, Path)),
    responses((status = 204), (status = 404, body = Problem), (status = 422, body = Problem)))]
pub async fn delete(admin: Admin, State(state): ApiState, Path(name): Path<String>) -> Result<StatusCode> {
    let of_provider = LinkFilter { provider: &name, ..LinkFilter::default() };
    // Their tokens could not be revoked any more.
    if !state.links.links(of_provider, 1).await?.is_empty() {
        let detail =
            format!("users have accounts at {name}: remove them first (DELETE /api/links?provider={name})");
        return Err(Problem::params(detail));
    }
    if state.links.provider(&name).await?.is_none() {
        return Err(Problem::not_found());
    }
    note(&state, &admin, "link-provider.delete", &name, "").await?;
    match state.links.delete_provider(&name).await? {
        true => Ok(StatusCode::NO_CONTENT),
        false => Err(Problem::params(format!(
            "tokens of {name} still wait for their revocation: try again later, or store the provider without `revocation`"
        ))),
    }
}

/// Completes a document with its preset or with the endpoints that are found by discovery.
async fn provider(state: &AdminState, name: &str, body: LinkProviderBody) -> Result<LinkProvider> {
    let LinkProviderBody { preset, discover, mut document, .. } = body;
    let base = match (preset, discover) {
        (Some(_), Some(_)) => return Err(Problem::params("preset and discover exclude each other")),
        (Some(preset), None) => {
            let known = Preset::parse(&preset);
            let known = known.ok_or_else(|| Problem::params(format!("{preset:?} is not a preset")))?;
            json!(known.document.provider())
        }
        (None, Some(iss)) => {
            let found = state.keeper.fetcher().endpoints(&iss).await;
            let found = found.map_err(|fault| Problem::params(format!("discover: {fault}")))?;
            let mut base = json!({
                "title": name,
                "issuer": found.issuer,
                "issParameter": found.iss_parameter,
                "authorizationEndpoint": found.authorization_endpoint,
                "tokenEndpoint": found.token_endpoint,
            });
            if let (Some(endpoint), Some(base)) = (found.revocation_endpoint, base.as_object_mut()) {
                base.insert("revocation".into(), json!({ "endpoint": endpoint }));
            }
            base
        }
        (None, None) => Value::Null,
    };
    if let Value::Object(base) = base {
        for (member, value) in base {
            document.entry(member).or_insert(value);
        }
    }
    serde_json::from_value(Value::Object(document))
        .map_err(|error| Problem::params(format!("document: {error}")))
}

/// Checks a provider; reports all faults together.
fn check(state: &AdminState, provider: &LinkProvider) -> Result<()> {
    let mut faults = provider.faults();
    let revocation = provider.revocation.as_ref().map(|revocation| &revocation.endpoint);
    let urls = [Some(&provider.token_endpoint), revocation].into_iter().flatten();
    faults.extend(urls.filter_map(|url| state.keeper.fetcher().may_reach(url).err()));
    match faults.is_empty() {
        true => Ok(()),
        false => Err(Problem::params(faults.join("; "))),
    }
}

/// Whether a stored secret is sent to no other endpoints than before: else who may change a provider could read it.
fn goes_to_the_same(former: &ProviderRow, provider: &LinkProvider) -> bool {
    let Ok(former) = serde_json::from_str::<LinkProvider>(&former.document) else { return false };
    let endpoint = |provider: &LinkProvider| provider.revocation.as_ref().map(|one| one.endpoint.clone());
    former.token_endpoint == provider.token_endpoint
        && (provider.revocation.is_none() || endpoint(&former) == endpoint(provider))
}

async fn seal(state: &AdminState, name: &str, secret: &Secret) -> Result<Bytes> {
    let place = Place { tenant: "", table: PROVIDER_TABLE, row: name };
    let sealed = state.vault.seal(&place, secret.expose().as_bytes()).await;
    sealed.map(Bytes::from).map_err(|error| {
        tracing::error!(%error, "the secret of a provider could not be sealed and an admin's request got an internal error; check the vault");
        Problem::new(Code::Internal, "the vault is not available at the moment")
    })
}

async fn note(state: &AdminState, admin: &Admin, action: &str, name: &str, detail: &str) -> Result<()> {
    let resource = format!("link-providers/{name}");
    let note = Note { action, resource: &resource, org: "", detail };
    state.store.note(&state.change(admin, Precondition::None), note).await?;
    Ok(())
}

fn provider_json(row: &ProviderRow) -> Result<Value> {
    let document: Value = serde_json::from_str(&row.document).map_err(|error| {
        tracing::error!(%error, provider = %row.name, "a stored provider is not JSON and an admin's request got an internal error");
        Problem::new(Code::Internal, "")
    })?;
    Ok(json!({
        "name": row.name,
        "revision": row.revision,
        "updatedAt": rfc3339(u64::try_from(row.updated_ms).unwrap_or_default()),
        "hasSecret": !row.sealed.is_empty(),
        "document": document,
    }))
}

fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=63).contains(&text.len()) && text.bytes().all(plain)
}

impl From<LinkedAccountsError> for Problem {
    fn from(error: LinkedAccountsError) -> Problem {
        tracing::error!(
            %error,
            "linked accounts cannot be read and an admin's request got an internal error; check the database of calls"
        );
        Problem::new(Code::Internal, "linked accounts cannot be read at the moment")
    }
}
