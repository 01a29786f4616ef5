//! Accounts that users have linked, for admins: who has which, and their removal.
//!
//! Keeps true: no token is shown; an admin of an org sees and removes only that org's; each removal is audited before it is made.

use asp_platform::time::rfc3339;
use asp_store::control::{Note, Precondition};
use asp_store::linked_accounts::{LinkFilter, LinkRow};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::auth::Admin;
use super::problem::{Problem, Result};
use super::queues::Topic;
use super::request::Query;

/// Default and maximum number of links in a response.
const PAGE: u32 = 100;
const MAX_PAGE: u32 = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct LinksParams {
    /// Only those of this org.
    org: Option<String>,
    /// Only those of users of the issuer with this name.
    issuer: Option<String>,
    /// Only those of this user.
    user: Option<String>,
    /// Only those at this provider.
    provider: Option<String>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

impl LinksParams {
    /// Returns the filter that the admin may use.
    fn filter<'a>(&'a self, admin: &'a Admin) -> Result<LinkFilter<'a>> {
        if let Some(org) = &self.org {
            admin.of_org(org)?;
        }
        Ok(LinkFilter {
            org: self.org.as_deref().or(admin.role.org()).unwrap_or_default(),
            issuer: self.issuer.as_deref().unwrap_or_default(),
            subject: self.user.as_deref().unwrap_or_default(),
            provider: self.provider.as_deref().unwrap_or_default(),
            bound: "",
        })
    }
}

/// A linked account.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = LinkedAccount)]
pub struct LinkView {
    org: String,
    /// Name of the user's issuer.
    issuer: String,
    user: String,
    provider: String,
    /// Whether the service accepted the link so far.
    live: bool,
    scopes: Vec<String>,
    /// Times are RFC 3339.
    created_at: String,
    /// Absent if it was not used yet. Noted once a minute.
    #[serde(skip_serializing_if = "Option::is_none")]
    used_at: Option<String>,
    expires_at: String,
}

impl LinkView {
    fn of(link: LinkRow) -> LinkView {
        let time = |ms: i64| rfc3339(u64::try_from(ms).unwrap_or_default());
        LinkView {
            org: link.key.org,
            issuer: link.key.issuer,
            user: link.key.subject,
            provider: link.key.provider,
            live: link.is_live,
            scopes: link.scopes.split_ascii_whitespace().map(str::to_owned).collect(),
            created_at: time(link.created_ms),
            used_at: (link.used_ms > 0).then(|| time(link.used_ms)),
            expires_at: time(link.expires_ms),
        }
    }
}

/// Lists linked accounts, newest first.
#[utoipa::path(get, path = "/api/links", tag = "links", params(LinksParams),
    responses((status = 200, body = [LinkView])))]
pub async fn list(
    admin: Admin,
    State(state): ApiState,
    Query(params): Query<LinksParams>,
) -> Result<Json<Vec<LinkView>>> {
    let limit = params.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE);
    let links = state.links.links(params.filter(&admin)?, limit).await?;
    Ok(Json(links.into_iter().map(LinkView::of).collect()))
}

/// Removes the linked accounts of a user, of a provider, or of a user at a provider. No gateway uses them from now on; their
/// tokens are revoked at the provider a moment later.
#[utoipa::path(delete, path = "/api/links", tag = "links", params(LinksParams),
    responses((status = 200, body = Object), (status = 422, body = Problem)))]
pub async fn remove(
    admin: Admin,
    State(state): ApiState,
    Query(params): Query<LinksParams>,
) -> Result<Json<Value>> {
    let filter = params.filter(&admin)?;
    admin.writer()?;
    if filter.subject.is_empty() && filter.provider.is_empty() {
        return Err(Problem::params("name a user, a provider or both"));
    }
    let _permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let any = |text: &str| if text.is_empty() { "*" } else { text }.to_owned();
    let resource = format!("links/{}/{}", any(filter.provider), any(filter.subject));
    let detail = format!("issuer {}", any(filter.issuer));
    let note = Note { action: "links.remove", resource: &resource, org: filter.org, detail: &detail };
    state.store.note(&state.change(&admin, Precondition::None), note).await?;
    let removed = state.links.remove_links(filter).await?;
    Ok(Json(json!({ "removed": removed })))
}
