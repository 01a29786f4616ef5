//! Linked accounts that end with a revocation or a block.

use super::RevocationRecord;

/// Maximum number of endings that wait for the database of calls: all live revocations twice.
pub const MAX_LINK_ENDINGS: usize = 300_000;

/// Links that end with a revocation: those that match every part that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedLinks {
    /// Id of the revocation.
    pub id: String,
    pub org: String,
    pub subject: String,
    pub provider: String,
    /// Token to which links are bound.
    pub token: String,
    /// Time of the write that revoked, in Unix milliseconds.
    pub created_at: u64,
    /// Whether the revocation no longer exists, so that callers may link again.
    pub is_lifted: bool,
}

impl EndedLinks {
    /// Returns the links that end with a revocation; `None` if it ends none.
    pub fn of(record: &RevocationRecord) -> Option<EndedLinks> {
        let org = record.org.as_str();
        let target = record.target.as_str();
        let (org, subject, provider, token) = match record.kind.as_str() {
            // Without an org it is an admin of the platform, who has no links.
            "user" | "block_user" if !org.is_empty() => (org, target, "", ""),
            "org" | "block_org" => (target, "", "", ""),
            "token" | "token_hash" => (org, "", "", target),
            "linked_token" => {
                let (provider, subject) = linked_token_target(target)?;
                (org, subject, provider, "")
            }
            _ => return None,
        };
        // No part would match every link of the platform.
        if [org, subject, provider, token].iter().all(|part| part.is_empty()) {
            return None;
        }
        Some(EndedLinks {
            id: record.id.clone(),
            org: org.to_owned(),
            subject: subject.to_owned(),
            provider: provider.to_owned(),
            token: token.to_owned(),
            created_at: record.created_at,
            is_lifted: false,
        })
    }
}

/// Returns the provider and the user that a revocation of linked tokens names, the user empty for all; `None` unless the text is
/// `provider` or `provider/user`. An empty part must not stand for everybody: its writer may have lost a name.
pub fn linked_token_target(target: &str) -> Option<(&str, &str)> {
    let (provider, subject) = match target.split_once('/') {
        Some((_, "")) => return None,
        Some(parts) => parts,
        None => (target, ""),
    };
    (!provider.is_empty()).then_some((provider, subject))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(kind: &str, org: &str, target: &str) -> Option<[String; 4]> {
        let record = RevocationRecord {
            id: "r".into(),
            kind: kind.into(),
            org: org.into(),
            target: target.into(),
            issuer: String::new(),
            reason: String::new(),
            created_at: 1,
            until: 2,
            by_platform: true,
        };
        EndedLinks::of(&record).map(|found| [found.org, found.subject, found.provider, found.token])
    }

    #[test]
    fn each_kind_of_revocation_ends_its_links_and_no_others() {
        for (kind, org, target, expected) in [
            ("user", "acme", "bob", Some(["acme", "bob", "", ""])),
            ("block_user", "acme", "bob", Some(["acme", "bob", "", ""])),
            ("user", "", "ops", None),
            ("org", "acme", "acme", Some(["acme", "", "", ""])),
            ("block_org", "acme", "acme", Some(["acme", "", "", ""])),
            ("token", "", "jti", Some(["", "", "", "jti"])),
            ("token_hash", "acme", "00ff", Some(["acme", "", "", "00ff"])),
            ("linked_token", "", "github", Some(["", "", "github", ""])),
            ("linked_token", "acme", "github", Some(["acme", "", "github", ""])),
            ("linked_token", "acme", "github/bob/2", Some(["acme", "bob/2", "github", ""])),
            ("linked_token", "", "", None),
            ("linked_token", "acme", "", None),
            ("linked_token", "acme", "/", None),
            ("linked_token", "acme", "/bob", None),
            ("linked_token", "acme", "github/", None),
            ("org", "", "", None),
            ("token", "", "", None),
            ("session", "acme", "x", None),
        ] {
            let expected = expected.map(|parts| parts.map(str::to_owned));
            assert_eq!(ending(kind, org, target), expected, "{kind} {org} {target}");
        }
    }
}
