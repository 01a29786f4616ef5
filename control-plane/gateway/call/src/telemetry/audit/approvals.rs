//! Events about approvals by another person: request, decision, use and expiry. They have no arguments.

use asp_store::approvals::ApprovalRequest;
use asp_store::audit::CallEvent;
use serde::Serialize;
use uuid::Uuid;

use super::event_now;

/// One fact about an approval.
#[derive(Clone, Copy, Debug)]
pub struct ApprovalFact<'a> {
    /// `approval.request`, `approval.decision`, `approval.use` or `approval.expiry`
    pub event: &'static str,
    /// Call that requested or used it.
    pub call: Uuid,
    /// State of the request after the event.
    pub state: &'static str,
    /// Approver; empty for none.
    pub by: &'a str,
    /// Reason that the approver gave; empty for none.
    pub reason: &'a str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ApprovalEvent<'a> {
    event: &'static str,
    approval: String,
    state: &'static str,
    call: String,
    user: &'a str,
    issuer: &'a str,
    server: &'a str,
    primitive: &'a str,
    protocol: &'a str,
    approvers: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    by: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    reason: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    rule: &'a str,
}

/// Returns the event of a fact about a request.
pub fn approval(request: &ApprovalRequest, fact: ApprovalFact<'_>) -> CallEvent {
    let event = ApprovalEvent {
        event: fact.event,
        approval: Uuid::from_bytes(request.id).to_string(),
        state: fact.state,
        call: fact.call.to_string(),
        user: &request.requester,
        issuer: &request.issuer,
        server: &request.scope.server,
        primitive: &request.scope.primitive,
        protocol: &request.protocol,
        approvers: &request.scope.approvers,
        by: fact.by,
        reason: fact.reason,
        rule: &request.rule,
    };
    event_now(&request.scope.org, &event)
}
