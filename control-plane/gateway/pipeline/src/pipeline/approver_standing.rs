//! Standing of the person who gave a grant, when a call uses it.
//!
//! Owns: the lookup of an approver among the revocations and blocks in force. Refuses: to look at single revoked tokens, as
//! the approver's is not known any more. Keeps true: a grant is not used once its approver, or the approver's org, has been
//! revoked or blocked after the decision.

use asp_snapshot::Snapshot;
use asp_store::approvals::Approval;

/// Whether the approver has been revoked since the decision, or is blocked.
pub(super) fn is_revoked(snapshot: &Snapshot, granted: &Approval) -> bool {
    let org = granted.request.scope.org.as_str();
    let decided_at = u64::try_from(granted.decided_ms).unwrap_or_default() / 1_000;
    let names = user_names(&granted.decided_by, org);
    names.into_iter().flatten().any(|user| snapshot.user_revocation(org, user, decided_at).is_some())
}

/// Returns the names that a user may have by the text of a decision: `user@org` by an admin, `issuer:user@org` on a page. As
/// names may have a colon, both are returned; a grant that ends without need is asked for again.
fn user_names<'a>(decided_by: &'a str, org: &str) -> [Option<&'a str>; 2] {
    let whole = decided_by.strip_suffix(org).and_then(|rest| rest.strip_suffix('@')).unwrap_or(decided_by);
    [Some(whole), whole.split_once(':').map(|(_, user)| user)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_an_approver_are_those_before_its_org() {
        for (text, expected) in [
            ("bob@acme", [Some("bob"), None]),
            ("login:bob@acme", [Some("login:bob"), Some("bob")]),
            ("login:bob@example.org@acme", [Some("login:bob@example.org"), Some("bob@example.org")]),
            ("login:b:ob@acme", [Some("login:b:ob"), Some("b:ob")]),
            ("bob@globex", [Some("bob@globex"), None]),
            ("bob", [Some("bob"), None]),
            ("", [Some(""), None]),
        ] {
            assert_eq!(user_names(text, "acme"), expected, "{text}");
        }
    }
}
