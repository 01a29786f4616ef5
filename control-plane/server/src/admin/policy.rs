//! Exposure and bindings of an org.

use asp_store::control::sql::ControlStore;
use asp_store::control::{AtRevision, BindingRecord, Change, Commit, ExposureRecord, StoreError};
use async_trait::async_trait;
use axum::Json;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::lists::{self, OrgRequest, PolicyList};
use super::name_checks::{ForceQuery, Mention};
use super::problem::{Code, Problem, Result};
use super::request::{Body, Query};
use crate::admission::{Admission, AdmissionError};
use crate::patterns;
use crate::policy;
use crate::policy::when::{self, ArgumentCondition};

/// Maximum length of a binding's name, in bytes.
const MAX_NAME: usize = 64;

/// Whether a server is reachable for the org over a protocol.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Exposure {
    pub server: String,
    /// `mcp`, `a2a` or `rest`
    pub protocol: String,
    pub enabled: bool,
}

/// Whether a user, machine, token or group may call a primitive.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Binding {
    pub target: Target,
    pub primitive: PrimitiveSelector,
    pub allowed: bool,
    /// Conditions on the arguments of a call; the binding applies if all hold, and does not affect lists. It denies
    /// such calls (`allowed: false`), or requires a person's approval (`allowed: true`, `approval: true`). At most 8.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<ArgumentCondition>,
    /// Requires a person's approval of the call
    #[serde(default, skip_serializing_if = "is_false")]
    pub approval: bool,
    /// Other persons who approve instead of the caller. Only with `approval`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approvers: Option<Approvers>,
    /// Counts and shows the binding without enforcing it
    #[serde(default, skip_serializing_if = "is_false")]
    pub observe: bool,
    /// Distinguishes bindings with the same target, primitive and protocol: `[a-z0-9._-]`, at most 64
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// The persons who approve calls.
#[derive(Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Approvers {
    /// Exact name of a group
    pub group: String,
    /// Name of the issuer whose groups count; `*`: every issuer. If missing: that of the caller
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub issuer: String,
}

impl Approvers {
    /// Returns the approvers as the API shows them; `None` if the caller approves.
    pub(super) fn of(group: &str, issuer: &str) -> Option<Approvers> {
        let approvers = || Approvers { group: group.to_owned(), issuer: issuer.to_owned() };
        (!group.is_empty()).then(approvers)
    }

    fn check(&self) -> Result<()> {
        if !patterns::valid(&self.group) || self.group.contains('*') {
            return Err(Problem::params("approvers.group must be the name of a group, without `*`"));
        }
        match self.issuer.as_str() {
            "" | policy::EVERY_ISSUER => Ok(()),
            issuer if patterns::is_issuer(issuer) => Ok(()),
            _ => Err(Problem::params("approvers.issuer must be an issuer's name or `*`")),
        }
    }
}

#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Target {
    /// `user`, `machine`, `wcit` or `group`. A machine is not a user: `*` of `user` does not match machines
    #[serde(rename = "type")]
    pub kind: String,
    /// Exact, `prefix*` or `*`
    #[serde(rename = "idOrPattern")]
    pub id_or_pattern: String,
    /// Name of the issuer of the user, token or group. `*`, only for a binding that allows: every issuer. If missing:
    /// every issuer, but a binding that allows a named user, group or token must name the issuer if several serve the
    /// org. Not for machines
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub issuer: String,
}

#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PrimitiveSelector {
    /// Primitive id: exact, `prefix*` or `*`. In a put, an exposed name stands for the one id that the org is offered by
    /// that name
    pub name: String,
    /// `mcp`, `a2a`, `rest` or `*` [default: `*`]
    #[serde(default = "any")]
    pub protocol: String,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn any() -> String {
    "*".to_owned()
}

// === exposure ===

/// Sets one exception, by server and protocol.
#[utoipa::path(put, path = "/api/policy/orgs/{org}/exposure", tag = "policy", request_body = Exposure,
    params(("org" = String, Path), ForceQuery), responses((status = 200, body = Vec<Exposure>), (status = 412, body = Problem), (status = 422, body = Problem)))]
pub async fn put_exposure(
    request: OrgRequest,
    Query(forced): Query<ForceQuery>,
    Body(body): Body<Exposure>,
) -> Result<Response> {
    lists::put::<Exposures>(request, forced, body).await
}

/// Lists the org's exceptions.
#[utoipa::path(get, path = "/api/policy/orgs/{org}/exposure", tag = "policy",
    params(("org" = String, Path)), responses((status = 200, body = Vec<Exposure>)))]
pub async fn get_exposure(request: OrgRequest) -> Result<Response> {
    lists::get::<Exposures>(request).await
}

/// Exception to remove; all if none is given.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ExposureKey {
    server: Option<String>,
    /// `mcp`, `a2a` or `rest`
    protocol: Option<String>,
}

/// Removes one of the org's exceptions, named by server and protocol, or all of them.
#[utoipa::path(delete, path = "/api/policy/orgs/{org}/exposure", tag = "policy",
    params(("org" = String, Path), ExposureKey),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 412, body = Problem)))]
pub async fn delete_exposure(request: OrgRequest, Query(key): Query<ExposureKey>) -> Result<Json<Value>> {
    lists::delete::<Exposures>(request, key).await
}

struct Exposures;

#[async_trait]
impl PolicyList for Exposures {
    type Body = Exposure;
    type Record = ExposureRecord;
    type Key = ExposureKey;
    type Entry = Exposure;

    /// A server that is not offered to an org does not exist for its admins.
    fn unknown_code(platform: bool) -> Code {
        if platform { Code::UnknownName } else { Code::NotFound }
    }

    fn names(record: &ExposureRecord) -> Vec<Mention> {
        vec![Mention::server(&record.server)]
    }

    fn record(org: &str, body: Exposure) -> Result<ExposureRecord> {
        let Exposure { server, protocol, enabled } = body;
        if !patterns::valid(&server) || server.contains('*') {
            return Err(Problem::params("server must be a server's name"));
        }
        policy::protocol(&protocol).map_err(|error| Problem::params(error.to_string()))?;
        Ok(ExposureRecord { org: org.to_owned(), server, protocol, enabled })
    }

    async fn put(
        admission: &Admission,
        platform: bool,
        change: &Change,
        _org: &str,
        record: &ExposureRecord,
    ) -> Result<Commit, AdmissionError> {
        admission.put_exposure(platform, change, record).await
    }

    async fn delete(store: &ControlStore, change: &Change, org: &str, key: ExposureKey) -> Result<Commit> {
        match (key.server, key.protocol) {
            (None, None) => Ok(store.delete_exposure(change, org).await?),
            (Some(server), Some(protocol)) => {
                let key = ExposureRecord { org: org.to_owned(), server, protocol, enabled: false };
                Ok(store.delete_exposure_of(change, &key).await?)
            }
            _ => Err(Problem::params("one exception is named by server and protocol together")),
        }
    }

    async fn stored(store: &ControlStore, org: &str) -> Result<AtRevision<Vec<Exposure>>, StoreError> {
        let AtRevision { revision, value } = store.exposure(org).await?;
        Ok(AtRevision { revision, value: value.iter().map(exposure_body).collect() })
    }
}

// === bindings ===

/// Sets one binding, by target with its issuer, primitive, protocol and name.
#[utoipa::path(put, path = "/api/policy/orgs/{org}/bindings", tag = "policy", request_body = Binding,
    params(("org" = String, Path), ForceQuery), responses((status = 200, body = Vec<Binding>), (status = 412, body = Problem), (status = 422, body = Problem)))]
pub async fn put_binding(
    request: OrgRequest,
    Query(forced): Query<ForceQuery>,
    Body(body): Body<Binding>,
) -> Result<Response> {
    lists::put::<Bindings>(request, forced, body).await
}

/// Lists the org's bindings.
#[utoipa::path(get, path = "/api/policy/orgs/{org}/bindings", tag = "policy",
    params(("org" = String, Path)), responses((status = 200, body = Vec<Binding>)))]
pub async fn get_bindings(request: OrgRequest) -> Result<Response> {
    lists::get::<Bindings>(request).await
}

/// Binding to remove; all if none is given.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub struct BindingKey {
    /// `user`, `machine`, `wcit` or `group`
    target_type: Option<String>,
    /// The stored value: a pattern removes only the binding with that pattern
    id_or_pattern: Option<String>,
    /// The stored issuer [default: none]
    issuer: Option<String>,
    primitive: Option<String>,
    /// The stored protocol [default: `*`, as in a put]
    protocol: Option<String>,
    /// The stored name [default: none]
    name: Option<String>,
}

/// Removes one of the org's bindings, named by its target with its issuer, primitive, protocol and name, or all of
/// them. The other bindings stay in force throughout.
#[utoipa::path(delete, path = "/api/policy/orgs/{org}/bindings", tag = "policy",
    params(("org" = String, Path), BindingKey),
    responses((status = 200, body = Object), (status = 404, body = Problem), (status = 412, body = Problem)))]
pub async fn delete_bindings(request: OrgRequest, Query(key): Query<BindingKey>) -> Result<Json<Value>> {
    lists::delete::<Bindings>(request, key).await
}

struct Bindings;

#[async_trait]
impl PolicyList for Bindings {
    type Body = Binding;
    type Record = BindingRecord;
    type Key = BindingKey;
    type Entry = Binding;

    fn names(record: &BindingRecord) -> Vec<Mention> {
        vec![Mention::primitive(&record.primitive)]
    }

    fn primitives(record: &mut BindingRecord) -> Vec<&mut String> {
        vec![&mut record.primitive]
    }

    fn issuers(record: &BindingRecord) -> Vec<&str> {
        let named = [record.issuer.as_str(), record.approvers_issuer.as_str()];
        named.into_iter().filter(|issuer| !matches!(*issuer, "" | policy::EVERY_ISSUER)).collect()
    }

    fn open_target(record: &BindingRecord) -> Option<String> {
        open_target(record)
    }

    fn record(org: &str, body: Binding) -> Result<BindingRecord> {
        let Binding { target, primitive, allowed, when, approval, approvers, observe, name } = body;
        policy::target_kind(&target.kind).map_err(|error| Problem::params(error.to_string()))?;
        check_issuer(&target, allowed && when.is_empty() && !approval)?;
        if let Some(approvers) = &approvers {
            approvers.check()?;
        }
        policy::protocol_or_any(&primitive.protocol).map_err(|error| Problem::params(error.to_string()))?;
        for (name, pattern) in
            [("target.idOrPattern", &target.id_or_pattern), ("primitive.name", &primitive.name)]
        {
            if !patterns::valid(pattern) {
                return Err(Problem::params(format!("{name} must be exact, prefix* or *")));
            }
        }
        let is_char = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
        if name.len() > MAX_NAME || !name.bytes().all(is_char) {
            return Err(Problem::params(format!("name must be [a-z0-9._-], at most {MAX_NAME}")));
        }
        match (when.is_empty(), approval, allowed) {
            (_, false, _) if approvers.is_some() => {
                return Err(Problem::params("`approvers` needs `approval`"));
            }
            (false, false, true) => {
                let remedy = "set `allowed` to false to deny what `when` is about, or `approval` to true";
                return Err(Problem::params(format!("a binding with `when` allows nothing: {remedy}")));
            }
            (_, true, false) => {
                return Err(Problem::params("a binding with `approval` has `allowed` set to true"));
            }
            _ => {}
        }
        // An earlier version denies what it would otherwise allow without an approval.
        let allowed = allowed && !(approval && (when.is_empty() || approvers.is_some()));
        let (approvers, approvers_issuer) =
            approvers.map(|approvers| (approvers.group, approvers.issuer)).unwrap_or_default();
        Ok(BindingRecord {
            org: org.to_owned(),
            target_type: target.kind,
            target: target.id_or_pattern,
            issuer: target.issuer,
            primitive: primitive.name,
            protocol: primitive.protocol,
            name,
            allowed,
            observed: observe,
            approval,
            when: when::to_store(&when).map_err(Problem::params)?,
            approvers,
            approvers_issuer,
        })
    }

    async fn put(
        admission: &Admission,
        platform: bool,
        change: &Change,
        _org: &str,
        record: &BindingRecord,
    ) -> Result<Commit, AdmissionError> {
        admission.put_binding(platform, change, record).await
    }

    async fn delete(store: &ControlStore, change: &Change, org: &str, key: BindingKey) -> Result<Commit> {
        let BindingKey { target_type, id_or_pattern, issuer, primitive, protocol, name } = key;
        match (target_type, id_or_pattern, primitive) {
            (None, None, None) if issuer.is_none() && protocol.is_none() && name.is_none() => {
                Ok(store.delete_bindings(change, org).await?)
            }
            (Some(target_type), Some(target), Some(primitive)) => {
                let key = BindingRecord {
                    org: org.to_owned(),
                    target_type,
                    target,
                    issuer: issuer.unwrap_or_default(),
                    primitive,
                    protocol: protocol.unwrap_or_else(any),
                    name: name.unwrap_or_default(),
                    ..BindingRecord::default()
                };
                Ok(store.delete_binding(change, &key).await?)
            }
            _ => {
                Err(Problem::params("one binding is named by targetType, idOrPattern and primitive together"))
            }
        }
    }

    async fn stored(store: &ControlStore, org: &str) -> Result<AtRevision<Vec<Binding>>, StoreError> {
        let AtRevision { revision, value } = store.bindings(org).await?;
        Ok(AtRevision { revision, value: value.iter().map(binding_body).collect() })
    }
}

/// Refuses an issuer that the target cannot have. Without an issuer, a binding that does not allow applies to every
/// issuer.
fn check_issuer(target: &Target, allows: bool) -> Result<()> {
    let issuer = target.issuer.as_str();
    match (target.kind.as_str(), issuer) {
        (_, "") => Ok(()),
        (policy::MACHINE, _) => Err(Problem::params("target.issuer: a machine has no issuer")),
        (_, policy::EVERY_ISSUER) if allows => Ok(()),
        (_, policy::EVERY_ISSUER) => Err(Problem::params(
            "target.issuer `*` is only for bindings that allow: leave it out, and the binding applies to every issuer",
        )),
        _ if patterns::is_issuer(issuer) => Ok(()),
        _ => Err(Problem::params("target.issuer must be an issuer's name or `*`")),
    }
}

/// Returns, in words, the target that a binding allows something without naming its issuer. Bindings that require
/// approval, or are only observed, allow nothing by themselves.
pub(super) fn open_target(record: &BindingRecord) -> Option<String> {
    let BindingRecord { target_type, target, issuer, allowed, approval, observed, .. } = record;
    let gives = *allowed && !approval && !observed;
    let is_open = gives && policy::leaves_issuer_open(target_type, target, issuer);
    is_open.then(|| format!("the {target_type} {target}"))
}

/// Validates a binding and converts it to its stored form.
pub(super) fn binding_record(org: &str, body: Binding) -> Result<BindingRecord> {
    Bindings::record(org, body)
}

/// Validates an exception and converts it to its stored form.
pub(super) fn exposure_record(org: &str, body: Exposure) -> Result<ExposureRecord> {
    Exposures::record(org, body)
}

/// Returns an exception in the form of the admin API.
pub(super) fn exposure_body(record: &ExposureRecord) -> Exposure {
    let ExposureRecord { server, protocol, enabled, org: _ } = record.clone();
    Exposure { server, protocol, enabled }
}

/// Returns a binding in the form of the admin API.
pub fn binding_body(record: &BindingRecord) -> Binding {
    Binding {
        target: Target {
            kind: record.target_type.clone(),
            id_or_pattern: record.target.clone(),
            issuer: record.issuer.clone(),
        },
        primitive: PrimitiveSelector { name: record.primitive.clone(), protocol: record.protocol.clone() },
        allowed: record.allowed || record.approval,
        // Conditions that this version cannot read deny, which the standing faults report; here they are only left out.
        when: when::to_admin_form(&record.when).unwrap_or_default(),
        approval: record.approval,
        approvers: Approvers::of(&record.approvers, &record.approvers_issuer),
        observe: record.observed,
        name: record.name.clone(),
    }
}
