//! Approvals that calls wait for: lists, and the decision of an approver.
//!
//! Keeps true: an admin of an org sees and decides only that org's; who approves is a person of the group that the policy
//! names, by the groups in the admin's own token, and never the caller or a machine (`asp_store::approvals`), whatever the
//! admin's role; a role that may write the org's policy may deny. Each decision is audited before it is stored.

use asp_platform::time::rfc3339;
use asp_store::approvals::{
    Approval, ApprovalDecision, ApprovalId, ApprovalQuery, ApprovalRequest, ApprovalState,
    ApprovalStoreError, Approver, MAX_REASON, check_approver,
};
use asp_store::control::{Note, Precondition};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::auth::Admin;
use super::problem::{Code, Problem, Result};
use super::queues::Topic;
use super::request::{Body, Path, Query};
use super::{AdminState, ApiState};

/// Default and maximum number of requests in a response.
const PAGE: u32 = 100;
const MAX_PAGE: u32 = 1_000;

#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ApprovalsParams {
    /// Only those of this org.
    org: Option<String>,
    /// `pending`, `approved`, `denied`, `used`, `expired` or `withdrawn` [default: all]
    state: Option<String>,
    /// Only those with a lower number, for the next page.
    before: Option<i64>,
    /// 1 to 1000 [default: 100]; other values are clamped.
    #[param(format = Int64)]
    limit: Option<u32>,
}

/// A request for approval by another person.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Approval)]
pub struct ApprovalView {
    id: String,
    /// Later requests have higher numbers.
    number: i64,
    org: String,
    /// `pending`, `approved`, `denied`, `used`, `expired` or `withdrawn`
    state: &'static str,
    /// User or machine that called
    user: String,
    issuer: String,
    client: String,
    machine: bool,
    server: String,
    /// `id@version`
    primitive: String,
    title: String,
    protocol: String,
    /// Id of the call
    call: String,
    /// Group whose members decide
    approvers: String,
    /// `iss` of the issuer whose groups count; empty for every issuer
    approvers_issuer: String,
    /// Binding that requires the approval, in words
    rule: String,
    /// Arguments as JSON text, without secrets
    arguments: String,
    /// RFC 3339
    created_at: String,
    /// Time until which it can be decided, or used (RFC 3339)
    expires_at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    decided_at: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    used_at: Option<String>,
    decided_by: String,
    reason: String,
}

impl ApprovalView {
    fn of(approval: Approval) -> ApprovalView {
        let at = |ms: i64| rfc3339(u64::try_from(ms).unwrap_or_default());
        let since = |ms: i64| (ms > 0).then(|| at(ms));
        let Approval { seq, request, state, decided_by, reason, .. } = approval;
        let ApprovalRequest { id, scope, requester, issuer, client, is_machine, title, .. } = request;
        ApprovalView {
            id: Uuid::from_bytes(id).to_string(),
            number: seq,
            org: scope.org,
            state: state.as_str(),
            user: requester,
            issuer,
            client,
            machine: is_machine,
            server: scope.server,
            primitive: scope.primitive,
            title,
            protocol: request.protocol,
            call: Uuid::from_bytes(request.call).to_string(),
            approvers: scope.approvers,
            approvers_issuer: scope.approvers_iss,
            rule: request.rule,
            arguments: request.shown,
            created_at: at(approval.created_ms),
            expires_at: at(approval.expires_ms),
            decided_at: since(approval.decided_ms),
            used_at: since(approval.used_ms),
            decided_by,
            reason,
        }
    }
}

/// A decision about a request.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = ApprovalDecision)]
pub struct Decision {
    /// `approve` or `deny`
    pub decision: String,
    /// Reason for the audit, at most 500 bytes
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reason: String,
}

/// Lists requests for approval, latest first.
#[utoipa::path(get, path = "/api/approvals", tag = "approvals", params(ApprovalsParams),
    responses((status = 200, body = [ApprovalView])))]
pub async fn list(
    admin: Admin,
    State(state): ApiState,
    Query(params): Query<ApprovalsParams>,
) -> Result<Json<Vec<ApprovalView>>> {
    if let Some(org) = &params.org {
        admin.of_org(org)?;
    }
    let only = match params.state.as_deref() {
        None => None,
        Some(name) => Some(
            ApprovalState::parse(name).ok_or_else(|| Problem::params("state is not one of an approval"))?,
        ),
    };
    let query = ApprovalQuery {
        org: params.org.as_deref().or(admin.role.org()).unwrap_or_default().to_owned(),
        state: only,
        before: params.before,
        limit: params.limit.unwrap_or(PAGE).clamp(1, MAX_PAGE),
    };
    let found = state.approvals.approvals(&query).await?;
    Ok(Json(found.into_iter().map(ApprovalView::of).collect()))
}

/// Returns one request for approval.
#[utoipa::path(get, path = "/api/approvals/{id}", tag = "approvals", params(("id" = String, Path)),
    responses((status = 200, body = ApprovalView), (status = 404, body = Problem)))]
pub async fn get(admin: Admin, State(state): ApiState, Path(id): Path<String>) -> Result<Json<ApprovalView>> {
    Ok(Json(ApprovalView::of(find(&state, &admin, &id).await?)))
}

/// Decides a request, once. A person of the group that the policy names approves, and never the caller.
#[utoipa::path(post, path = "/api/approvals/{id}/decision", tag = "approvals", request_body = Decision,
    params(("id" = String, Path)),
    responses((status = 200, body = ApprovalView), (status = 403, body = Problem), (status = 404, body = Problem),
        (status = 409, body = Problem)))]
pub async fn decide(
    admin: Admin,
    State(state): ApiState,
    Path(id): Path<String>,
    Body(body): Body<Decision>,
) -> Result<Json<ApprovalView>> {
    let Approval { request, state: is_in, .. } = find(&state, &admin, &id).await?;
    let approved = match body.decision.as_str() {
        "approve" => true,
        "deny" => false,
        _ => return Err(Problem::params("decision must be `approve` or `deny`")),
    };
    if body.reason.len() > MAX_REASON || body.reason.contains(char::is_control) {
        return Err(Problem::params(format!("reason is a line of at most {MAX_REASON} bytes")));
    }
    check(&admin, &request, approved)?;
    if is_in != ApprovalState::Pending {
        return Err(not_open());
    }
    let _permit = state.queues.to_write(Topic::Policy, &admin).await?;
    note(&state, &admin, &request, &body).await?;
    let decision = ApprovalDecision { approved, by: admin.actor(), reason: body.reason };
    if !state.approvals.decide_approval(request.id, &decision).await? {
        return Err(not_open());
    }
    Ok(Json(ApprovalView::of(find(&state, &admin, &id).await?)))
}

/// Requires that the admin may decide so.
fn check(admin: &Admin, request: &ApprovalRequest, approved: bool) -> Result<()> {
    if !approved && admin.role.may_write() {
        return Ok(());
    }
    let approver = Approver {
        // An admin of the platform is of no org, and nobody's approver.
        org: admin.role.org().unwrap_or_default().to_owned(),
        names: admin.names.clone(),
        iss: admin.iss.clone(),
        groups: admin.groups.clone(),
        is_machine: admin.is_machine,
    };
    check_approver(request, &approver).map_err(|why| Problem::new(Code::Forbidden, why.to_string()))
}

/// Audits a decision.
async fn note(state: &AdminState, admin: &Admin, request: &ApprovalRequest, body: &Decision) -> Result<()> {
    let resource = format!("approvals/{}", Uuid::from_bytes(request.id));
    let action = format!("approval.{}", body.decision);
    let scope = &request.scope;
    let detail = format!(
        "{} of {} by {}:{}, call {}{}",
        scope.primitive,
        scope.server,
        request.issuer,
        request.requester,
        Uuid::from_bytes(request.call),
        if body.reason.is_empty() { String::new() } else { format!(", reason: {}", body.reason) },
    );
    let note = Note { action: &action, resource: &resource, org: &scope.org, detail: &detail };
    state.store.note(&state.change(admin, Precondition::None), note).await?;
    Ok(())
}

/// Finds a request that the admin may see.
async fn find(state: &AdminState, admin: &Admin, id: &str) -> Result<Approval> {
    let id: ApprovalId = Uuid::parse_str(id).map_err(|_| Problem::not_found())?.into_bytes();
    let found = state.approvals.approval(id).await?.ok_or_else(Problem::not_found)?;
    admin.of_org(&found.request.scope.org)?;
    Ok(found)
}

fn not_open() -> Problem {
    Problem::new(Code::NotOpen, "it was decided, used or withdrawn before, or has expired")
}

impl From<ApprovalStoreError> for Problem {
    fn from(error: ApprovalStoreError) -> Problem {
        tracing::error!(
            %error,
            "approvals cannot be read and an admin's request got an error; check the database of calls"
        );
        Problem::new(Code::StoreUnavailable, "approvals cannot be read or decided at the moment")
    }
}
