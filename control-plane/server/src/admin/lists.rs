//! Put, get and delete of the lists in an org's policy, with one implementation for all lists.
//!
//! Owns the order: org and role, body, precondition, the org's queue, evaluation, store, and the resulting list. The
//! entries of a list are defined by [`PolicyList`].

use std::sync::Arc;

use asp_snapshot::limits::EVERY_ORG;
use asp_store::control::sql::ControlStore;
use asp_store::control::{AtRevision, Change, Commit, StoreError};
use async_trait::async_trait;
use axum::Json;
use axum::extract::FromRequestParts;
use axum::response::Response;
use http::HeaderMap;
use http::request::Parts;
use serde::Serialize;
use serde_json::Value;

use super::auth::Admin;
use super::name_checks::{self, ForceQuery, Mention};
use super::problem::{Code, Problem, Result};
use super::queues::{self, Topic};
use super::request::{Path, precondition, tagged};
use super::{AdminState, change_response};
use crate::admission::{Admission, AdmissionError};

/// A list of an org's policy.
#[async_trait]
pub trait PolicyList {
    /// Body of a put.
    type Body: Send + 'static;
    /// Stored form of the body.
    type Record: Send + Sync + 'static;
    /// Selector of a delete.
    type Key: Send + 'static;
    /// Entry in the form of the admin API.
    type Entry: Serialize;

    /// Returns the code for the refusal of unknown names.
    fn unknown_code(_platform: bool) -> Code {
        Code::UnknownName
    }

    /// Returns the servers and primitives that a record names.
    fn names(record: &Self::Record) -> Vec<Mention>;

    /// Returns the primitives that a record names, to replace exposed names by ids.
    fn primitives(_record: &mut Self::Record) -> Vec<&mut String> {
        Vec::new()
    }

    /// Validates a record as a whole, once it names primitives by their ids.
    fn check(_record: &Self::Record) -> Result<()> {
        Ok(())
    }

    /// Returns the issuers that a record names.
    fn issuers(_record: &Self::Record) -> Vec<&str> {
        Vec::new()
    }

    /// Returns, in words, the user, group or token that a record allows something without naming its issuer.
    fn open_target(_record: &Self::Record) -> Option<String> {
        None
    }

    /// Validates a body and converts it to a record.
    fn record(org: &str, body: Self::Body) -> Result<Self::Record>;

    async fn put(
        admission: &Admission,
        platform: bool,
        change: &Change,
        org: &str,
        record: &Self::Record,
    ) -> Result<Commit, AdmissionError>;

    async fn delete(store: &ControlStore, change: &Change, org: &str, key: Self::Key) -> Result<Commit>;

    async fn stored(store: &ControlStore, org: &str) -> Result<AtRevision<Vec<Self::Entry>>, StoreError>;
}

/// A request about the org in its path.
pub struct OrgRequest {
    admin: Admin,
    state: Arc<AdminState>,
    org: String,
    headers: HeaderMap,
}

impl FromRequestParts<Arc<AdminState>> for OrgRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<AdminState>) -> Result<OrgRequest> {
        let admin = Admin::from_request_parts(parts, state).await?;
        let Path(org) = Path::from_request_parts(parts, state).await?;
        Ok(OrgRequest { admin, state: Arc::clone(state), org, headers: parts.headers.clone() })
    }
}

/// A request of the platform about the list that counts for all orgs together.
pub struct PlatformRequest(pub OrgRequest);

impl FromRequestParts<Arc<AdminState>> for PlatformRequest {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &Arc<AdminState>) -> Result<PlatformRequest> {
        let admin = Admin::from_request_parts(parts, state).await?;
        let state = Arc::clone(state);
        let headers = parts.headers.clone();
        Ok(PlatformRequest(OrgRequest { admin, state, org: EVERY_ORG.to_owned(), headers }))
    }
}

/// Stores an entry, or the whole list, and returns the list. Unknown names are refused unless forced.
pub async fn put<L: PolicyList>(
    request: OrgRequest,
    ForceQuery { force }: ForceQuery,
    body: L::Body,
) -> Result<Response> {
    let OrgRequest { admin, state, org, headers } = request;
    let mut record = L::record(&org, body)?;
    let change = state.change(&admin, precondition(&headers)?);
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    if !force {
        name_checks::resolve(&state, &org, L::primitives(&mut record)).await?;
    }
    L::check(&record)?;
    if !force {
        let code = L::unknown_code(admin.role.is_platform());
        name_checks::check(&state, &admin, &org, L::names(&record), code).await?;
        name_checks::check_issuers(&state, &org, &L::issuers(&record))?;
    }
    name_checks::check_open_target(&state, &org, L::open_target(&record))?;
    let platform = admin.role.is_platform();
    let work = {
        let state = Arc::clone(&state);
        let org = org.clone();
        async move {
            let written = L::put(&state.admission, platform, &change, &org, &record).await?;
            if force && written.changed {
                let (actor, revision) = (&change.actor, written.revision);
                tracing::info!(%actor, org, revision, "forced policy write stored; its names were not checked");
            }
            Ok::<_, AdmissionError>(state.notify_publisher(written))
        }
    };
    queues::write(permit, work).await??;
    show::<L>(&state, &org).await
}

/// Returns the list.
pub async fn get<L: PolicyList>(request: OrgRequest) -> Result<Response> {
    show::<L>(&request.state, &request.org).await
}

/// Deletes the entries that `key` selects.
pub async fn delete<L: PolicyList>(request: OrgRequest, key: L::Key) -> Result<Json<Value>> {
    let OrgRequest { admin, state, org, headers } = request;
    let change = state.change(&admin, precondition(&headers)?);
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let work = async move {
        let written = L::delete(state.store.as_ref(), &change, &org, key).await?;
        Ok::<_, Problem>(state.notify_publisher(written))
    };
    let written = queues::write(permit, work).await??;
    Ok(change_response(written))
}

async fn show<L: PolicyList>(state: &AdminState, org: &str) -> Result<Response> {
    let stored = L::stored(state.store.as_ref(), org).await?;
    Ok(tagged(stored.revision, stored.value))
}
