//! The pages for an approver: a request with its form, and what became of it.

use asp_edge::Caller;
use asp_pipeline::pipeline::approvals::{Approval, ApprovalState};
use asp_platform::time::rfc3339;
use axum::response::Response;
use http::StatusCode;

use crate::html::{self, escaped};

/// Returns the page of an open request with its form.
pub(super) fn request(approval: &Approval, approver: &Caller, ticket: &str) -> Response {
    let body = format!(
        "<h1>Approve this call?</h1>{}\
         <form method=post><input type=hidden name=ticket value=\"{}\">\
         <p><label>Reason, for the audit: <input name=reason maxlength=400 size=40></label></p>\
         <button name=decision value=approve>Approve</button><button name=decision value=deny>Deny</button></form>\
         <p>You are {}. The call runs once, with exactly these arguments.</p>",
        facts(approval),
        escaped(ticket),
        escaped(&approver.user),
    );
    // Browsers send a form's Origin only to where its referrer may go (Fetch, "append a request Origin header").
    html::page(StatusCode::OK, "Approval", &body, "same-origin")
}

/// Returns the page of a request that is not open any more.
pub(super) fn ended(approval: &Approval) -> Response {
    let state = match approval.state {
        ApprovalState::Pending => "open",
        ApprovalState::Approved => "approved, and not used yet",
        ApprovalState::Denied => "denied",
        ApprovalState::Used => "approved and used",
        ApprovalState::Expired => "expired",
        ApprovalState::Withdrawn => "withdrawn by its caller",
    };
    let by = match approval.decided_by.as_str() {
        "" => String::new(),
        by => format!("<p>Decided by {}. {}</p>", escaped(by), escaped(&approval.reason)),
    };
    let body = format!("<h1>This request is {state}</h1>{by}{}", facts(approval));
    html::page(StatusCode::OK, "Approval", &body, "no-referrer")
}

/// Returns the page after a decision.
pub(super) fn decided(approval: &Approval, approved: bool) -> Response {
    let (title, rest) = match approved {
        true => ("Approved", "The call runs now, or when its caller repeats it soon."),
        false => ("Denied", "The call does not run."),
    };
    let body = format!("<h1>{title}</h1><p>{rest}</p>{}", facts(approval));
    html::page(StatusCode::OK, title, &body, "no-referrer")
}

/// Returns a page that says why there is nothing to decide.
pub(super) fn refusal(status: StatusCode, why: &str) -> Response {
    html::page(status, "Approval", &format!("<h1>Approval</h1><p>{}</p>", escaped(why)), "no-referrer")
}

/// Returns who wants to call what, with which arguments.
fn facts(approval: &Approval) -> String {
    let request = &approval.request;
    let kind = if request.is_machine { "The machine" } else { "The user" };
    let until = rfc3339(u64::try_from(approval.expires_ms).unwrap_or_default());
    let rule = match request.rule.as_str() {
        "" => String::new(),
        rule => format!("<p>Rule: <code>{}</code></p>", escaped(rule)),
    };
    format!(
        "<p>{kind} <strong>{user}</strong> of {org} wants to call <strong>{title}</strong> \
         (<code>{primitive}</code> of <code>{server}</code>) with these arguments:</p><pre>{arguments}</pre>{rule}\
         <p>Client: <code>{client}</code>. Until {until}.</p>",
        user = escaped(&request.requester),
        org = escaped(&request.scope.org),
        title = escaped(&request.title),
        primitive = escaped(&request.scope.primitive),
        server = escaped(&request.scope.server),
        arguments = escaped(&request.shown),
        client = escaped(&request.client),
    )
}
