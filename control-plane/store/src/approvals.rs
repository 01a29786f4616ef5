//! Approvals: what calls wait for, what approvers decide, and the grants that calls use.
//!
//! Owns the [`ApprovalStore`] port and the rule who may decide ([`check_approver`]). Refuses: to know policy, which the
//! gateway evaluates, and to authenticate approvers. Keeps true: a request is decided at most once and used at most once,
//! however many processes try at the same moment; a grant fits only the caller, the primitive, the arguments and the
//! policy that it was requested for, and only until it expires; requests are bounded per requester and org (I-4).

use std::time::Duration;

use async_trait::async_trait;

use crate::records::CallId;

/// Random id of a request.
pub type ApprovalId = [u8; 16];
/// Random id of one claim of notifications.
pub type NoticeClaim = [u8; 16];

/// Time in which a request can be decided.
pub const REQUEST_LIFE: Duration = Duration::from_secs(3600);
/// Time in which an approved request can be used.
pub const GRANT_LIFE: Duration = Duration::from_secs(900);
/// Time for which a request is kept after its expiry, for lists.
pub const KEEP_ENDED: Duration = Duration::from_secs(24 * 3600);
/// Maximum number of open requests of a user or machine, through whatever clients.
pub const MAX_OF_REQUESTER: u32 = 20;
/// Maximum number of kept requests of a user or machine, ended ones included: one that requests and withdraws must not fill
/// those of its org.
pub const MAX_KEPT_OF_REQUESTER: u32 = 2_000;
/// Maximum number of open requests of an org.
pub const MAX_OF_ORG: u32 = 1_000;
/// Maximum number of kept requests of an org, ended ones included.
pub const MAX_KEPT_OF_ORG: u32 = 20_000;
/// Maximum size of the shown arguments in bytes.
pub const MAX_SHOWN: usize = 16 * 1024;
/// Maximum length of a decision's reason in bytes.
pub const MAX_REASON: usize = 500;
/// Maximum number of requests in a page.
pub const MAX_PAGE: u32 = 1_000;

/// State of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApprovalState {
    Pending,
    /// Approved, and not used yet.
    Approved,
    Denied,
    Used,
    Expired,
    /// Taken back by its caller.
    Withdrawn,
}

impl ApprovalState {
    const ALL: [ApprovalState; 6] = [
        ApprovalState::Pending,
        ApprovalState::Approved,
        ApprovalState::Denied,
        ApprovalState::Used,
        ApprovalState::Expired,
        ApprovalState::Withdrawn,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            ApprovalState::Pending => "pending",
            ApprovalState::Approved => "approved",
            ApprovalState::Denied => "denied",
            ApprovalState::Used => "used",
            ApprovalState::Expired => "expired",
            ApprovalState::Withdrawn => "withdrawn",
        }
    }

    pub fn parse(name: &str) -> Option<ApprovalState> {
        ApprovalState::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

/// The facts that a grant is bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrantScope {
    pub org: String,
    /// Digest of issuer, org, user and client of the caller.
    pub principal: [u8; 16],
    pub server: String,
    /// `id@version`
    pub primitive: String,
    /// Group that approves.
    pub approvers: String,
    /// `iss` of the issuer whose groups count; empty for every issuer of the org.
    pub approvers_iss: String,
    /// Digest of server, primitive and arguments.
    pub arguments: [u8; 32],
    /// Version of the org's policy.
    pub policy: [u8; 32],
}

/// A request as a gateway stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    pub id: ApprovalId,
    pub scope: GrantScope,
    /// User or machine that called.
    pub requester: String,
    /// Name of the issuer of the requester.
    pub issuer: String,
    pub client: String,
    pub is_machine: bool,
    pub title: String,
    pub protocol: String,
    /// Binding that requires the approval, in words.
    pub rule: String,
    /// Arguments without secrets, at most [`MAX_SHOWN`] bytes.
    pub shown: String,
    pub call: CallId,
}

/// A request as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approval {
    /// Number that rises from request to request.
    pub seq: i64,
    pub request: ApprovalRequest,
    /// State now: an open request or an unused grant past its time is expired.
    pub state: ApprovalState,
    /// Times in Unix milliseconds, by the store's clock; 0 for what has not happened.
    pub created_ms: i64,
    pub expires_ms: i64,
    pub decided_ms: i64,
    pub used_ms: i64,
    pub decided_by: String,
    pub reason: String,
    /// Time since the request was stored.
    pub age: Duration,
    /// Number of attempts to notify of it.
    pub notices: u32,
}

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestReceipt {
    Stored(ApprovalId),
    /// An equal request is open or granted.
    Joined(ApprovalId),
    Full,
}

/// A decision about a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalDecision {
    pub approved: bool,
    /// Approver, for audit.
    pub by: String,
    pub reason: String,
}

/// Selection of requests.
#[derive(Clone, Debug, Default)]
pub struct ApprovalQuery {
    /// Only those of this org; empty for all.
    pub org: String,
    /// Only those in this state now.
    pub state: Option<ApprovalState>,
    /// Only those with a lower number: the next page.
    pub before: Option<i64>,
    /// 1 to [`MAX_PAGE`]; values outside are clamped.
    pub limit: u32,
}

#[derive(Debug, thiserror::Error)]
pub enum ApprovalStoreError {
    #[error("approvals are not available: {0}")]
    Unavailable(String),
}

/// Result of an operation on approvals.
pub type Result<T, E = ApprovalStoreError> = std::result::Result<T, E>;

/// Store of approvals. Data is durable once a method has returned `Ok`.
#[async_trait]
pub trait ApprovalStore: Send + Sync {
    /// Stores a request, or finds the open or granted one of the same scope. With `notify`, its notification is due.
    async fn request_approval(&self, request: &ApprovalRequest, notify: bool) -> Result<RequestReceipt>;

    /// Returns one request.
    async fn approval(&self, id: ApprovalId) -> Result<Option<Approval>>;

    /// Returns requests, latest first.
    async fn approvals(&self, query: &ApprovalQuery) -> Result<Vec<Approval>>;

    /// Decides an open request; false if it is not open any more.
    async fn decide_approval(&self, id: ApprovalId, decision: &ApprovalDecision) -> Result<bool>;

    /// Uses a grant for a call; false unless it is approved, unused, not expired and of this scope.
    async fn use_approval(&self, id: ApprovalId, scope: &GrantScope, call: CallId) -> Result<bool>;

    /// Ends an unused grant before its time, as if it had expired; false if there is none.
    async fn end_grant(&self, id: ApprovalId) -> Result<bool>;

    /// Takes an open request back that this call has stored.
    async fn withdraw_approval(&self, id: ApprovalId, call: CallId) -> Result<bool>;

    /// Returns the ids of requests decided after `since_ms`, with the time of the decision, earliest first.
    async fn decided_approvals(&self, since_ms: i64, limit: u32) -> Result<Vec<(ApprovalId, i64)>>;

    /// Marks open requests and unused grants past their time as expired, and returns those that this call marked.
    async fn expire_approvals(&self, limit: u32) -> Result<Vec<Approval>>;

    /// Claims notifications of open requests for `lease`.
    async fn claim_notices(&self, claim: NoticeClaim, lease: Duration, limit: u32) -> Result<Vec<Approval>>;

    /// Ends a claimed notification: it was received, or is given up.
    async fn end_notice(&self, id: ApprovalId, claim: NoticeClaim) -> Result<bool>;

    /// Ends the claim after a failed attempt; the notification is due `after` this time.
    async fn retry_notice(&self, id: ApprovalId, claim: NoticeClaim, after: Duration) -> Result<bool>;
}

/// A person or machine that wants to decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approver {
    pub org: String,
    /// Names of the person: the user's, and those in other claims of the token.
    pub names: Vec<String>,
    /// `iss` of the issuer of the groups.
    pub iss: String,
    pub groups: Vec<String>,
    pub is_machine: bool,
}

/// Reason why somebody may not decide about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ineligible {
    #[error("the request is of another org")]
    OtherOrg,
    #[error("a machine approves nothing: a person of the group must decide")]
    Machine,
    #[error("the caller does not approve a call of their own: another person of the group must decide")]
    OwnCall,
    #[error("only members of the group that the policy names may decide")]
    NotInGroup,
}

/// Whether somebody may decide about a request. The same name at another issuer, or of a machine, counts as the caller: it may
/// be the same person, whose client has that name.
pub fn check_approver(request: &ApprovalRequest, approver: &Approver) -> std::result::Result<(), Ineligible> {
    let scope = &request.scope;
    if approver.org != scope.org {
        return Err(Ineligible::OtherOrg);
    }
    if approver.is_machine {
        return Err(Ineligible::Machine);
    }
    let is_member = !scope.approvers.is_empty() && approver.groups.contains(&scope.approvers);
    let is_of_issuer = scope.approvers_iss.is_empty() || scope.approvers_iss == approver.iss;
    if !is_member || !is_of_issuer {
        return Err(Ineligible::NotInGroup);
    }
    // Issuers that do not distinguish case may write a name differently in two tokens.
    if approver.names.iter().any(|name| name.eq_ignore_ascii_case(&request.requester)) {
        return Err(Ineligible::OwnCall);
    }
    Ok(())
}

/// Conformance suite of the port; every backend passes it.
#[cfg(any(test, feature = "testing"))]
pub mod suite;

#[cfg(test)]
mod tests {
    use super::*;

    /// Invariant I-12.
    #[test]
    fn only_another_person_of_the_group_at_its_issuer_decides() {
        let request = suite::request("rule", 1);
        let bob = suite::approver("bob");
        assert_eq!(check_approver(&request, &bob), Ok(()));
        let rows = [
            (Approver { org: "globex".into(), ..bob.clone() }, Ineligible::OtherOrg),
            (Approver { is_machine: true, ..bob.clone() }, Ineligible::Machine),
            (Approver { groups: vec!["ops".into()], ..bob.clone() }, Ineligible::NotInGroup),
            (
                Approver { groups: vec!["finance2".into(), "fin".into()], ..bob.clone() },
                Ineligible::NotInGroup,
            ),
            (Approver { iss: "https://other.example".into(), ..bob.clone() }, Ineligible::NotInGroup),
            (suite::approver("alice"), Ineligible::OwnCall),
            (suite::approver("Alice"), Ineligible::OwnCall),
            (Approver { names: vec!["a-1".into(), "alice".into()], ..bob.clone() }, Ineligible::OwnCall),
        ];
        for (approver, expected) in rows {
            assert_eq!(check_approver(&request, &approver), Err(expected), "{approver:?}");
        }
        // A client that has the name of its user is taken for a machine.
        let of_machine = ApprovalRequest { is_machine: true, ..request.clone() };
        assert_eq!(check_approver(&of_machine, &suite::approver("alice")), Err(Ineligible::OwnCall));
        assert_eq!(check_approver(&of_machine, &bob), Ok(()));
        let mut open = request.clone();
        open.scope.approvers_iss = String::new();
        assert_eq!(
            check_approver(&open, &Approver { iss: "https://other.example".into(), ..bob.clone() }),
            Ok(())
        );
        open.scope.approvers = String::new();
        let nobody = Approver { groups: vec![String::new()], ..bob };
        assert_eq!(check_approver(&open, &nobody), Err(Ineligible::NotInGroup));
    }

    #[test]
    fn the_name_of_a_state_is_read_as_that_state() {
        for state in ApprovalState::ALL {
            assert_eq!(ApprovalState::parse(state.as_str()), Some(state));
        }
        for bad in ["", "Pending", "pending ", "open"] {
            assert_eq!(ApprovalState::parse(bad), None, "{bad:?}");
        }
    }
}
