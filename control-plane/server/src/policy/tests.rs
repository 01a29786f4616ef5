//! Records of policy and revocations, and what a snapshot says of them.

use super::*;

fn revocation(kind: &str, org: &str, target: &str) -> RevocationRecord {
    RevocationRecord {
        id: target.into(),
        kind: kind.into(),
        org: org.into(),
        target: target.into(),
        issuer: String::new(),
        reason: String::new(),
        created_at: 5_999,
        until: 10_000,
        by_platform: false,
    }
}

#[test]
fn a_revoked_jti_is_hashed_with_each_issuer() {
    let issuers = ["asp-dev".to_owned(), "https://login.example".to_owned()];
    let all = revoked(&[revocation("token", "", "j1")], &issuers, 6_000);
    assert_eq!(all.tokens.len(), 2);
    let mut one = revocation("token", "", "j1");
    one.issuer = "asp-dev".into();
    let one = revoked(&[one], &issuers, 6_000);
    // printf 'token\0asp-dev\0j1' | sha256sum
    let hex: String = one.tokens.concat().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "824aaad2c955bcf4fb104d6c1844263a");
    assert!(all.tokens.contains(&one.tokens[0]));
}

#[test]
fn what_may_be_the_id_of_a_machines_key_is_revoked_as_one_too() {
    let marks = |id: &str| revoked(&[revocation("token", "acme", id)], &["a".to_owned()], 6_000).tokens;
    assert_eq!(marks("0123456789abcdef").len(), 2);
    assert!(marks("0123456789abcdef").contains(&token_entry(MACHINE_ISSUER, "acme", "0123456789abcdef")));
    for other in ["0123456789abcde", "0123456789abcdeff", "0123456789ABCDEF", "0123456789abcdeg", "j1"] {
        assert_eq!(marks(other).len(), 1, "{other}");
    }
}

#[test]
fn a_token_is_revoked_by_its_jti_or_by_its_hash() {
    let mut by_jti = revocation("token", "", "j1");
    by_jti.issuer = "asp-dev".into();
    // printf 'a.b.c' | sha256sum
    let hash = "845e30448809e2bc8958eb025bfc795235d13b077a53d0c3abbd2385170dc9b8";
    let by_hash = revocation("token_hash", "", hash);
    let edge = edge(&[by_jti, by_hash]);
    let token = presented("acme");
    assert!(hits(&edge, &token));
    assert!(hits(&edge, &PresentedToken { jti: "j2", compact: "a.b.c", ..token }));
    assert!(!hits(&edge, &PresentedToken { jti: "j2", ..presented("acme") }));
    assert!(!hits(&edge, &PresentedToken { iss: "other", ..presented("acme") }), "another issuer's jti");
}

fn edge(records: &[RevocationRecord]) -> EdgeSnapshot {
    let RevocationEntries { mut tokens, before, .. } = revoked(records, &["asp-dev".to_owned()], 6_000);
    tokens.sort_unstable();
    EdgeSnapshot { revoked: tokens.concat(), revoked_before: before, ..EdgeSnapshot::default() }
}

fn hits(edge: &EdgeSnapshot, token: &PresentedToken<'_>) -> bool {
    is_revoked(&[edge.into()], token)
}

fn presented(org: &str) -> PresentedToken<'_> {
    PresentedToken { iss: "asp-dev", jti: "j1", org, user: "alice", issued_at: 5, compact: "x.y.z" }
}

#[test]
fn what_an_org_recorded_hits_no_token_of_another_org() {
    // printf 'x.y.z' | sha256sum
    let hash = "f7304f12be673526050bf784fcb0aeac9d6a9f6516b4acbf99a375891644b123";
    for record in [revocation("token", "acme", "j1"), revocation("token_hash", "acme", hash)] {
        let edge = edge(&[record]);
        assert!(hits(&edge, &presented("acme")));
        assert!(!hits(&edge, &presented("globex")));
        assert!(!hits(&edge, &presented("")), "the platform's own");
    }
    // printf 'org_token\0asp-dev\0acme\0j1' | sha256sum
    let edge = edge(&[revocation("token", "acme", "j1")]);
    let hex: String = edge.revoked.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, "bdbbbb6c28ab9e96a7f10378a37da842");
}

#[test]
fn a_user_or_an_org_is_revoked_up_to_the_second_for_admins_too() {
    for record in [revocation("user", "acme", "alice"), revocation("org", "acme", "acme")] {
        let edge = edge(&[record]);
        assert!(hits(&edge, &presented("acme")));
        let at = |issued_at| PresentedToken { issued_at, ..presented("acme") };
        assert!(hits(&edge, &at(5 + LEEWAY_SECONDS)) && !hits(&edge, &at(6 + LEEWAY_SECONDS)));
        assert!(!hits(&edge, &presented("globex")) && !hits(&edge, &presented("")));
    }
    let edge = edge(&[revocation("user", "", "alice")]);
    assert!(hits(&edge, &presented("")) && !hits(&edge, &presented("acme")));
}

#[test]
fn users_and_orgs_are_revoked_up_to_the_second_of_the_revocation() {
    let records = [revocation("user", "acme", "alice"), revocation("org", "", "evil")];
    let revoked = revoked(&records, &[], 6_000);
    let entry = |org: &str, user: &str| RevokedBefore {
        org: org.into(),
        user: user.into(),
        not_after_iat: 5 + LEEWAY_SECONDS,
        since_ms: 5_999,
        ..RevokedBefore::default()
    };
    assert_eq!(revoked.before, [entry("acme", "alice"), entry("evil", ""),]);
}

#[test]
fn a_block_hits_tokens_that_are_issued_later_too() {
    for record in [revocation(BLOCK_USER, "acme", "alice"), revocation(BLOCK_ORG, "acme", "acme")] {
        let edge = edge(&[RevocationRecord { reason: "left".repeat(100), ..record }]);
        let [entry] = edge.revoked_before.as_slice() else { panic!("{:?}", edge.revoked_before) };
        assert_eq!((entry.since_ms, entry.reason.len(), entry.block), (5_999, MAX_SHOWN_REASON, true));
        assert!(hits(&edge, &PresentedToken { issued_at: u64::MAX, ..presented("acme") }));
        assert!(!hits(&edge, &presented("globex")) && !hits(&edge, &presented("")));
    }
    let edge = edge(&[revocation(BLOCK_USER, "acme", "bob")]);
    assert!(!hits(&edge, &presented("acme")), "another user");
}

#[test]
fn an_expired_revocation_is_left_out_and_an_unknown_one_revokes_its_org() {
    assert_eq!(revoked(&[revocation("token_hash", "", "aa")], &[], 10_000), RevocationEntries::default());
    let newer = revoked(&[revocation("session", "acme", "x"), revocation("user", "acme", "al")], &[], 6_000);
    assert_eq!(newer.unknown, ["x"]);
    let dead: Vec<&str> = newer.before.iter().map(|before| before.user.as_str()).collect();
    assert_eq!(dead, ["", "al"], "the rest goes on");
}

#[test]
fn records_become_what_the_snapshot_says() {
    let record = LimitRecord {
        server: "*".into(),
        primitive: "cc.compliance.search".into(),
        user: "*".into(),
        wcit: "*".into(),
        issuer: "*".into(),
        machine: "*".into(),
        capacity: 20,
        refill: "1/s".into(),
        observe: false,
        ..LimitRecord::default()
    };
    let limit = limit("acme", &record).unwrap();
    assert_eq!((limit.org.as_str(), limit.capacity, limit.refill_per_second), ("acme", 20, 1.0));
    assert_eq!(protocol_or_any("*").unwrap(), Protocol::Unspecified);
    assert!(protocol("*").is_err());
}
