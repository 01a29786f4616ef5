//! Certificates with which machines of an org call (`mtls`): which machine of which org each is.
//!
//! Keeps true: a certificate is one machine's; the next one of a machine is good before the first one goes. An org's
//! admins register single certificates, by their hash. A URI stands for every certificate with it, and to write one down
//! proves nothing: which org a URI belongs to is the platform's to say, as it says whose authorities Envoy trusts.

use std::sync::Arc;

use asp_platform::secret::random_hex;
use asp_store::control::{CertificateName, MachineCertificateRecord, Precondition};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::AdminState;
use super::auth::Admin;
use super::body::Body;
use super::bounds;
use super::machines::Terms;
use super::problem::{Code, Problem};
use super::turns::{self, Topic};
use crate::clock;
use crate::policy::KEY_ID_BYTES;

/// Longest URI.
const MAX_URI: usize = 512;

/// A certificate to register.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename_all = "camelCase")]
pub struct NewCertificate {
    /// The machine's name: policy and limits know it as a machine, revocations and audit as a user of the org
    machine: String,
    /// SHA-256 of the certificate in DER, in hex with or without colons. This or `uri`
    fingerprint: Option<String>,
    /// The URI among its subject alternative names, at most 512 bytes: every certificate with it that Envoy takes. For
    /// admins of the platform only. This or `fingerprint`
    uri: Option<String>,
    /// At most 16
    #[serde(default)]
    groups: Vec<String>,
    /// At most 16
    #[serde(default)]
    scopes: Vec<String>,
    /// 60 to 31,622,400 (366 days); 90 days when missing
    ttl_seconds: Option<u64>,
}

/// A certificate as it is registered.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Revocations of type `token` and bindings of type `wcit` name it
    pub id: String,
    pub machine: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    pub groups: Vec<String>,
    pub scopes: Vec<String>,
    /// Unix milliseconds
    pub created_at: u64,
    /// Unix milliseconds
    pub expires_at: u64,
}

impl From<MachineCertificateRecord> for Certificate {
    fn from(record: MachineCertificateRecord) -> Certificate {
        let MachineCertificateRecord { id, machine, name, groups, scopes, created_at, expires_at, .. } =
            record;
        let (fingerprint, uri) = match name {
            CertificateName::Fingerprint(fingerprint) => (Some(fingerprint), None),
            CertificateName::Uri(uri) => (None, Some(uri)),
        };
        Certificate { id, machine, fingerprint, uri, groups, scopes, created_at, expires_at }
    }
}

/// Registers a certificate. One that the machine has already keeps its id, and has these groups and scopes and this end
/// from now on.
#[utoipa::path(post, path = "/api/machines/orgs/{org}/certificates", tag = "machines",
    request_body = NewCertificate, params(("org" = String, Path)),
    responses((status = 201, body = Certificate), (status = 200, body = Certificate),
        (status = 400, body = Problem), (status = 403, body = Problem), (status = 409, body = Problem)))]
pub async fn register(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(org): Path<String>,
    Body(body): Body<NewCertificate>,
) -> Result<Response, Problem> {
    admin.of_org(&org)?;
    admin.writer()?;
    if body.uri.is_some() && !admin.role.is_platform() {
        let detail =
            "uri: an admin of the platform says whose it is; register single certificates by fingerprint";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let record = record(&org, body, clock::now_ms())?;
    bounds::check(&state, &org, &record.groups, &record.scopes).await?;
    let change = state.change(&admin, Precondition::None);
    let turn = state.turns.to_write(Topic::Policy, &admin).await?;
    let work = {
        let (state, record) = (Arc::clone(&state), record.clone());
        async move {
            let (id, written) = state.store.put_machine_certificate(&change, &record).await?;
            state.published(written);
            Ok::<_, Problem>(id)
        }
    };
    let id = turns::write(turn, work).await??;
    let status = if id == record.id { StatusCode::CREATED } else { StatusCode::OK };
    let known = MachineCertificateRecord { id, ..record };
    Ok((status, Json(Certificate::from(known))).into_response())
}

/// The org's certificates.
#[utoipa::path(get, path = "/api/machines/orgs/{org}/certificates", tag = "machines",
    params(("org" = String, Path)), responses((status = 200, body = Vec<Certificate>)))]
pub async fn list(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(org): Path<String>,
) -> Result<Json<Vec<Certificate>>, Problem> {
    admin.of_org(&org)?;
    let records = state.store.machine_certificates(&org).await?;
    Ok(Json(records.into_iter().map(Certificate::from).collect()))
}

/// Forgets a certificate: within a second it opens nothing any more, and its running calls end.
#[utoipa::path(delete, path = "/api/machines/orgs/{org}/certificates/{id}", tag = "machines",
    params(("org" = String, Path), ("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn delete(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path((org, id)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    admin.of_org(&org)?;
    admin.writer()?;
    let change = state.change(&admin, Precondition::None);
    // As a revocation: nothing of the org's own waits before it.
    let _turn = state.turns.to_write(Topic::Revocations, &admin).await?;
    state.published(state.store.delete_machine_certificate(&change, &org, &id).await?);
    Ok(StatusCode::NO_CONTENT)
}

fn record(org: &str, body: NewCertificate, now_ms: u64) -> Result<MachineCertificateRecord, Problem> {
    let NewCertificate { machine, fingerprint, uri, groups, scopes, ttl_seconds } = body;
    let name = name(fingerprint.as_deref(), uri.as_deref())?;
    let terms = Terms { org, machine: &machine, groups: &groups, scopes: &scopes, ttl_seconds };
    let lives_ms = terms.check(uri.as_deref().map_or(0, str::len))?;
    Ok(MachineCertificateRecord {
        id: random_hex::<KEY_ID_BYTES>(),
        org: org.to_owned(),
        machine,
        name,
        groups,
        scopes,
        created_at: now_ms,
        expires_at: now_ms.saturating_add(lives_ms),
    })
}

fn name(fingerprint: Option<&str>, uri: Option<&str>) -> Result<CertificateName, Problem> {
    match (fingerprint, uri) {
        (Some(fingerprint), None) => {
            let hex = fingerprint.replace(':', "").to_ascii_lowercase();
            let is_hash = hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
            let problem = || Problem::params("fingerprint: SHA-256 of the certificate in DER, 64 hex digits");
            is_hash.then_some(CertificateName::Fingerprint(hex)).ok_or_else(problem)
        }
        (None, Some(uri)) if is_uri(uri) => Ok(CertificateName::Uri(uri.to_owned())),
        (None, Some(_)) => {
            let detail = "uri: scheme://… in visible ASCII without quotes, backslashes, commas and semicolons, at most";
            Err(Problem::params(format!("{detail} {MAX_URI} bytes")))
        }
        _ => Err(Problem::params("fingerprint or uri: one of them says which certificate it is")),
    }
}

/// Whether gateways can find this URI in what Envoy tells them: in the header a comma, a semicolon or a quote would end it.
fn is_uri(uri: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b';');
    let has_scheme = uri.split_once("://").is_some_and(|(scheme, rest)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && !rest.is_empty()
    });
    uri.len() <= MAX_URI && has_scheme && uri.bytes().all(is_plain)
}
