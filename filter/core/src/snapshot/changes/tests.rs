//! Valid changes, and the parts that they leave in place.

use super::*;
use asp_proto::snapshot::{Issuer, Protocol, Route};

fn base() -> BasePart {
    BasePart {
        public_url: "https://h".into(),
        issuers: vec![Issuer { name: "dev".into(), iss: "asp-dev".into(), ..Issuer::default() }],
        ..BasePart::default()
    }
}

fn server(name: &str) -> EdgeServer {
    EdgeServer { name: name.into(), issuers: vec!["dev".into()], ..EdgeServer::default() }
}

fn exception(server: &str, enabled: bool) -> ExposureException {
    ExposureException { server: server.into(), enabled, ..ExposureException::default() }
}

/// Returns the servers "a" and "b"; "b" is hidden from "o" only.
fn first() -> Snapshot {
    let (base, a, b) = (base(), server("a"), EdgeServer { default_allow: true, ..server("b") });
    let hidden = [exception("b", false)];
    let changes = Changes {
        revision: 1,
        base: Some(&base),
        servers: vec![&a, &b],
        exposure: vec![("o", &hidden)],
        revoked: Some(RevokedPart { through: 10, ..RevokedPart::default() }),
        recent: Some(RecentRevocations { revision: 1, since: 10, until: 20, ..RecentRevocations::default() }),
        ..Changes::default()
    };
    Snapshot::boot().changed(changes).unwrap()
}

#[test]
fn a_snapshot_made_from_parts_judges_as_a_whole_one() {
    let snapshot = first();
    assert!(!snapshot.is_boot() && snapshot.accepts_tokens());
    assert_eq!((snapshot.revision(), snapshot.public_url()), (1, "https://h"));
    assert!(snapshot.exposed("b", "p", Protocol::Mcp) && !snapshot.exposed("b", "o", Protocol::Mcp));
    assert!(!snapshot.exposed("a", "p", Protocol::Mcp));
}

#[test]
fn servers_come_change_and_go_by_name() {
    let changed = EdgeServer { scopes: vec!["x".into()], ..server("a") };
    let added = server("c");
    let changes = Changes {
        revision: 2,
        servers: vec![&changed, &added],
        servers_gone: vec!["b", "unknown", "c"],
        ..Changes::default()
    };
    let before = first();
    let snapshot = before.changed(changes).unwrap();
    assert_eq!(snapshot.required_scopes("a"), ["x"]);
    assert!(snapshot.server("b").is_none() && snapshot.server("c").is_some());
    assert!(before.server("b").is_some() && before.required_scopes("a").is_empty());
    // Its exceptions still exist when the server returns.
    let back = EdgeServer { default_allow: true, ..server("b") };
    let again = snapshot.changed(Changes { servers: vec![&back], ..Changes::default() }).unwrap();
    assert!(!again.exposed("b", "o", Protocol::Mcp) && again.exposed("b", "p", Protocol::Mcp));
}

#[test]
fn a_new_base_comes_with_every_server_and_leaves_the_rest() {
    let base = BasePart { public_url: "https://other".into(), ..base() };
    let b = EdgeServer { default_allow: true, ..server("b") };
    let before = first();
    let changes = Changes { revision: 2, base: Some(&base), servers: vec![&b], ..Changes::default() };
    let snapshot = before.changed(changes).unwrap();
    assert!(snapshot.server("a").is_none());
    assert_eq!(snapshot.server("b").unwrap().audiences[0], "https://other");
    assert!(!snapshot.exposed("b", "o", Protocol::Mcp) && snapshot.accepts_tokens());
}

#[test]
fn no_token_is_accepted_before_both_parts_of_the_revocations_came() {
    let base = base();
    let begun = Snapshot::boot().changed(Changes { base: Some(&base), ..Changes::default() }).unwrap();
    assert!(!begun.accepts_tokens());
    let whole = asp_proto::snapshot::EdgeSnapshot { public_url: "https://h".into(), ..Default::default() };
    let whole = Snapshot::from_message(whole).unwrap();
    assert!(whole.accepts_tokens());
    assert!(!whole.changed(Changes::default()).unwrap().accepts_tokens());
}

#[test]
fn every_bad_change_is_refused_and_named() {
    let good = base();
    let bad_url = BasePart { public_url: "h".into(), ..base() };
    let bad_issuer = BasePart { issuers: vec![Issuer::default()], ..base() };
    let bad_route = BasePart { routes: vec![Route::default()], ..base() };
    let (named, foreign, twice) =
        (server("A"), EdgeServer { issuers: vec!["x".into()], ..server("a") }, server("a"));
    let entries = [exception("a", true), exception("a", false)];
    let cut = || vec![1; 15];
    let cases = [
        ("public_url", Changes { base: Some(&bad_url), ..Changes::default() }),
        ("issuers[0]", Changes { base: Some(&bad_issuer), ..Changes::default() }),
        ("routes[0]", Changes { base: Some(&bad_route), ..Changes::default() }),
        ("name", Changes { servers: vec![&named], ..Changes::default() }),
        ("unknown issuer", Changes { servers: vec![&foreign], ..Changes::default() }),
        ("twice", Changes { servers: vec![&twice, &twice], ..Changes::default() }),
        ("exposure", Changes { exposure: vec![("o", &entries)], ..Changes::default() }),
        (
            "revoked",
            Changes {
                revoked: Some(RevokedPart { revoked: cut(), ..Default::default() }),
                ..Changes::default()
            },
        ),
        (
            "revoked",
            Changes {
                recent: Some(RecentRevocations { revoked: cut(), ..Default::default() }),
                ..Changes::default()
            },
        ),
    ];
    for (place, changes) in cases {
        let error = first().changed(changes).err().unwrap_or_else(|| panic!("{place} was accepted"));
        assert!(error.to_string().contains(place), "{place}: {error}");
    }
    let early = Snapshot::boot().changed(Changes { servers: vec![&twice], ..Changes::default() });
    assert!(early.err().is_some_and(|error| error.to_string().starts_with("base")));
    assert!(first().changed(Changes { base: Some(&good), ..Changes::default() }).is_ok());
}

/// Cost of one change with many orgs and servers.
#[test]
fn one_change_of_many_shares_everything_else() {
    let base = base();
    let servers: Vec<EdgeServer> = (0..1000).map(|number| server(&format!("s{number}"))).collect();
    let names: Vec<String> = (0..10_000).map(|number| format!("org-{number}")).collect();
    let entries = [exception("s1", true), exception("s2", true)];
    let before = Snapshot::boot()
        .changed(Changes {
            base: Some(&base),
            servers: servers.iter().collect(),
            exposure: names.iter().map(|name| (name.as_str(), &entries[..])).collect(),
            revoked: Some(RevokedPart::default()),
            recent: Some(RecentRevocations::default()),
            ..Changes::default()
        })
        .unwrap();
    let shares_rest = |after: &Snapshot| {
        Arc::ptr_eq(&before.issuers, &after.issuers) && Arc::ptr_eq(&before.routes, &after.routes)
    };

    // A revocation copies no map at all.
    let recent = RecentRevocations { revision: 1, revoked: vec![1; 16], ..RecentRevocations::default() };
    let after = before.changed(Changes { recent: Some(recent), ..Changes::default() }).unwrap();
    assert!(shares_rest(&after) && Arc::ptr_eq(&before.servers, &after.servers));
    assert!(
        before.exceptions.shares_all(&after.exceptions) && before.revocations.shares_base(&after.revocations)
    );

    // A changed org leaves the servers in place.
    let after = before.changed(Changes { exposure: vec![("org-7", &[])], ..Changes::default() }).unwrap();
    assert!(shares_rest(&after) && Arc::ptr_eq(&before.servers, &after.servers));
    assert!(after.exposed("s1", "org-8", Protocol::Mcp) && !after.exposed("s1", "org-7", Protocol::Mcp));

    // A changed server leaves the others in place.
    let after = before.changed(Changes { servers: vec![&servers[7]], ..Changes::default() }).unwrap();
    assert!(shares_rest(&after) && before.exceptions.shares_all(&after.exceptions));
    let same = before
        .servers
        .iter()
        .filter(|(name, server)| after.servers.get(*name).is_some_and(|other| Arc::ptr_eq(server, other)));
    assert_eq!(same.count(), 999);
}
