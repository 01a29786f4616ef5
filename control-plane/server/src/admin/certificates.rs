//! Certificates with which machines of an org call (`mtls`), each registered for one machine.
//!
//! Keeps true: a certificate belongs to one machine; a machine's next certificate may be registered before the previous
//! one ends. An org's admins register single certificates and prove possession of the key, because anyone who has seen
//! a certificate knows its hash. A URI stands for every certificate with it, and knowing it proves nothing either: only
//! the platform assigns URIs to orgs, as it also decides which authorities Envoy trusts.

use std::sync::Arc;

use asp_peer::{PROOF_LEEWAY, SentCertificate};
use asp_platform::clock;
use asp_platform::secret::random_hex;
use asp_store::control::{CertificateName, MachineCertificateRecord, Precondition, StoreError};
use axum::Json;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::StatusCode;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use utoipa::ToSchema;

use super::AdminState;
use super::auth::Admin;
use super::bounds;
use super::machines::Terms;
use super::problem::{Code, Problem, Result};
use super::queues::{self, Topic};
use super::request::Body;
use crate::policy::KEY_ID_BYTES;

/// Maximum length of a URI, in bytes.
const MAX_URI: usize = 512;
/// Maximum number of URIs in a certificate; each costs a lookup.
const MAX_URIS: usize = 8;
/// Maximum length of a certificate in PEM, and of a signature in Base64.
const MAX_CERTIFICATE: usize = 16 * 1024;

/// A certificate to register.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct NewCertificate {
    /// The machine's name: a machine in policy and limits, a user of the org in revocations and audit
    machine: String,
    /// The certificate in PEM, at most 16 KiB and with at most 8 URIs, with `proof`. Exactly one of this, `fingerprint`
    /// and `uri`
    certificate: Option<String>,
    /// Proof of possession of the certificate's key
    proof: Option<Proof>,
    /// SHA-256 of the certificate in DER, in hex with or without colons; needs no proof. Only for admins of the
    /// platform
    fingerprint: Option<String>,
    /// URI in its subject alternative names, at most 512 bytes: every certificate with it that Envoy accepts. Only for
    /// admins of the platform
    uri: Option<String>,
    /// Groups of the machine, at most 16
    #[serde(default)]
    groups: Vec<String>,
    /// Scopes of the machine, at most 16
    #[serde(default)]
    scopes: Vec<String>,
    /// 60 to 31,622,400 (366 days) [default: 90 days]
    ttl_seconds: Option<u64>,
}

/// A signature by the certificate's key, as made by `asp machines certificates register --key`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Proof {
    /// Unix seconds, at most 300 from now
    at: u64,
    /// Base64 of the signature (RSA, ECDSA in DER, Ed25519) of these lines, each ended by a line feed:
    /// `asp machine certificate`, `org=…`, `machine=…`, `sha256=…` (of the certificate in DER, lower-case hex), `at=…`
    signature: String,
}

/// A registered certificate.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Certificate {
    /// Id for revocations of type `token` and bindings of type `wcit`
    pub id: String,
    pub machine: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fingerprint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub uri: Option<String>,
    /// Whether possession of its key was proved on registration, or for a `uri`, the platform assigned it. Without a
    /// proof it identifies no caller if a URI of the certificate is registered
    pub proved: bool,
    pub groups: Vec<String>,
    pub scopes: Vec<String>,
    /// Unix milliseconds
    pub created_at: u64,
    /// Unix milliseconds
    pub expires_at: u64,
}

impl From<MachineCertificateRecord> for Certificate {
    fn from(record: MachineCertificateRecord) -> Certificate {
        let MachineCertificateRecord {
            id,
            machine,
            name,
            proved,
            groups,
            scopes,
            created_at,
            expires_at,
            ..
        } = record;
        let (fingerprint, uri) = match name {
            CertificateName::Fingerprint(fingerprint) => (Some(fingerprint), None),
            CertificateName::Uri(uri) => (None, Some(uri)),
        };
        Certificate { id, machine, fingerprint, uri, proved, groups, scopes, created_at, expires_at }
    }
}

/// Registers a certificate. If the machine has it already, it keeps its id and gets these groups, scopes and expiry.
#[utoipa::path(post, path = "/api/machines/orgs/{org}/certificates", tag = "machines",
    request_body = NewCertificate, params(("org" = String, Path)),
    responses((status = 201, body = Certificate), (status = 200, body = Certificate),
        (status = 400, body = Problem), (status = 403, body = Problem), (status = 409, body = Problem)))]
pub async fn register(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(org): Path<String>,
    Body(body): Body<NewCertificate>,
) -> Result<Response> {
    let is_platform = admin.role.is_platform();
    if body.uri.is_some() && !is_platform {
        let detail = "uri: only an admin of the platform registers a URI; register single certificates, with a proof of \
                      their keys";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    if body.fingerprint.is_some() && !is_platform {
        let detail = "fingerprint: anyone who has seen a certificate knows it; send the certificate with a proof of its key \
                      (asp machines certificates register --certificate FILE --key FILE)";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    let (record, uris) = record(&org, body, clock::now_ms())?;
    refuse_foreign(&state, &org, uris).await?;
    bounds::check(&state, &org, &record.groups, &record.scopes).await?;
    let change = state.change(&admin, Precondition::None);
    let permit = state.queues.to_write(Topic::Policy, &admin).await?;
    let work = {
        let (state, record) = (Arc::clone(&state), record.clone());
        async move {
            let (id, written) = state.store.put_machine_certificate(&change, &record).await?;
            state.notify_publisher(written);
            Ok::<_, Problem>(id)
        }
    };
    let id = queues::write(permit, work).await??;
    let status = if id == record.id { StatusCode::CREATED } else { StatusCode::OK };
    let known = MachineCertificateRecord { id, ..record };
    Ok((status, Json(Certificate::from(known))).into_response())
}

/// Lists the org's certificates.
#[utoipa::path(get, path = "/api/machines/orgs/{org}/certificates", tag = "machines",
    params(("org" = String, Path)), responses((status = 200, body = Vec<Certificate>)))]
pub async fn list(
    _admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path(org): Path<String>,
) -> Result<Json<Vec<Certificate>>> {
    let records = state.store.machine_certificates(&org).await?;
    Ok(Json(records.into_iter().map(Certificate::from).collect()))
}

/// Deletes a certificate: within a second it grants no access any more, and its running calls end.
#[utoipa::path(delete, path = "/api/machines/orgs/{org}/certificates/{id}", tag = "machines",
    params(("org" = String, Path), ("id" = String, Path)),
    responses((status = 204), (status = 404, body = Problem)))]
pub async fn delete(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Path((org, id)): Path<(String, String)>,
) -> Result<StatusCode> {
    let change = state.change(&admin, Precondition::None);
    // In the queue of revocations, so that it does not wait for the org's policy writes.
    let _permit = state.queues.to_write(Topic::Revocations, &admin).await?;
    state.notify_publisher(state.store.delete_machine_certificate(&change, &org, &id).await?);
    Ok(StatusCode::NO_CONTENT)
}

/// Refuses a certificate if another org has registered one of its URIs, even if that registration has expired.
async fn refuse_foreign(state: &AdminState, org: &str, uris: Vec<String>) -> Result<()> {
    for uri in uris {
        let known = state.store.machine_certificate_named(&CertificateName::Uri(uri)).await?;
        if known.is_some_and(|known| known.org != org) {
            return Err(StoreError::Taken { what: "the certificate" }.into());
        }
    }
    Ok(())
}

/// Returns the record, and the URIs of a certificate that was sent as PEM.
fn record(org: &str, body: NewCertificate, now_ms: u64) -> Result<(MachineCertificateRecord, Vec<String>)> {
    let NewCertificate { machine, certificate, proof, fingerprint, uri, groups, scopes, ttl_seconds } = body;
    let terms = Terms { org, machine: &machine, groups: &groups, scopes: &scopes, ttl_seconds };
    let lives_ms = terms.check(uri.as_deref().map_or(0, str::len))?;
    let (name, proved, uris) = match (certificate, proof, fingerprint, uri) {
        (Some(certificate), Some(proof), None, None) => {
            let (name, uris) = proved_name((org, &machine), &certificate, &proof, now_ms / 1_000)?;
            (name, true, uris)
        }
        (None, None, fingerprint, uri) => {
            (name(fingerprint.as_deref(), uri.as_deref())?, uri.is_some(), Vec::new())
        }
        _ => {
            return Err(Problem::params("certificate goes with proof, and with neither fingerprint nor uri"));
        }
    };
    let record = MachineCertificateRecord {
        id: random_hex::<KEY_ID_BYTES>(),
        org: org.to_owned(),
        machine,
        name,
        proved,
        groups,
        scopes,
        created_at: now_ms,
        expires_at: now_ms.saturating_add(lives_ms),
    };
    Ok((record, uris))
}

/// Verifies a proof of possession; returns the certificate's name and URIs.
fn proved_name(
    (org, machine): (&str, &str),
    certificate: &str,
    proof: &Proof,
    now: u64,
) -> Result<(CertificateName, Vec<String>)> {
    if certificate.len() > MAX_CERTIFICATE || proof.signature.len() > MAX_CERTIFICATE {
        return Err(Problem::params(format!(
            "certificate and proof.signature: at most {MAX_CERTIFICATE} bytes"
        )));
    }
    let sent = SentCertificate::from_pem(certificate)
        .map_err(|fault| Problem::params(format!("certificate: {fault}")))?;
    if sent.uris.len() > MAX_URIS {
        return Err(Problem::params(format!("certificate: at most {MAX_URIS} URIs")));
    }
    if proof.at.abs_diff(now) > PROOF_LEEWAY {
        return Err(Problem::params(format!("proof.at: must be within {PROOF_LEEWAY} seconds of {now}")));
    }
    let fingerprint: String = Sha256::digest(&sent.der).iter().map(|byte| format!("{byte:02x}")).collect();
    let signature = STANDARD
        .decode(&proof.signature)
        .map_err(|error| Problem::params(format!("proof.signature: {error}")))?;
    let statement = asp_peer::statement(org, machine, &fingerprint, proof.at);
    if !sent.has_signed(&statement, &signature) {
        let detail = "proof.signature: the certificate's key did not sign for this org, machine and moment";
        return Err(Problem::params(detail));
    }
    Ok((CertificateName::Fingerprint(fingerprint), sent.uris))
}

fn name(fingerprint: Option<&str>, uri: Option<&str>) -> Result<CertificateName> {
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
        _ => Err(Problem::params("certificate, fingerprint or uri: exactly one of them is needed")),
    }
}

/// Whether gateways can find this URI in Envoy's header, where a comma, a semicolon or a quote would end it.
fn is_uri(uri: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\' | b',' | b';');
    let has_scheme = uri.split_once("://").is_some_and(|(scheme, rest)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && !rest.is_empty()
    });
    uri.len() <= MAX_URI && has_scheme && uri.bytes().all(is_plain)
}
