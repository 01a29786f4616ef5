//! Both forms of exceptions, their rejection, and the parts that a change leaves alone.

use super::*;
use asp_proto::snapshot::EdgeServer;

fn exception(org: &str, server: &str, protocol: Protocol, enabled: bool) -> ExposureException {
    ExposureException { org: org.into(), server: server.into(), protocol: protocol as i32, enabled }
}

fn code(position: u32, protocol: Protocol, enabled: bool) -> u32 {
    position << 3 | (protocol as u32) << 1 | u32::from(enabled)
}

/// Returns the servers "s0", "s1" and "s2".
fn message(exposure: &[(&str, &[u32])]) -> EdgeSnapshot {
    let servers = (0..3).map(|number| EdgeServer { name: format!("s{number}"), ..EdgeServer::default() });
    let exposure =
        exposure.iter().map(|(org, codes)| OrgExposure { org: (*org).into(), exceptions: codes.to_vec() });
    EdgeSnapshot { servers: servers.collect(), exposure: exposure.collect(), ..EdgeSnapshot::default() }
}

#[test]
fn an_exception_for_the_protocol_beats_one_for_all_in_both_forms() {
    let named =
        [exception("o", "s1", Protocol::Unspecified, false), exception("o", "s1", Protocol::A2a, true)];
    let codes = [code(1, Protocol::Unspecified, false), code(1, Protocol::A2a, true)];
    let by_name = Exceptions::default().with(&[("o", &named)]).unwrap();
    for exceptions in [Exceptions::index(&message(&[("o", &codes)])).unwrap(), by_name] {
        assert_eq!(exceptions.of("o", "s1", Protocol::Mcp), Some(false));
        assert_eq!(exceptions.of("o", "s1", Protocol::A2a), Some(true));
        for (org, server) in [("p", "s1"), ("o", "s0"), ("o", "s2"), ("o", "t"), ("", "s1")] {
            assert_eq!(exceptions.of(org, server, Protocol::A2a), None, "{org} {server}");
        }
    }
}

#[test]
fn a_server_that_is_not_there_may_be_named_and_takes_no_number_of_another() {
    let named = [exception("o", "gone", Protocol::Mcp, true), exception("o", "s0", Protocol::Mcp, false)];
    let before = Exceptions::index(&message(&[("p", &[code(0, Protocol::Mcp, true)])])).unwrap();
    let exceptions = before.with(&[("o", &named)]).unwrap();
    assert_eq!(exceptions.of("o", "gone", Protocol::Mcp), Some(true));
    assert_eq!(exceptions.of("o", "s0", Protocol::Mcp), Some(false));
    assert_eq!(exceptions.of("p", "s0", Protocol::Mcp), Some(true));
    assert_eq!(exceptions.of("p", "gone", Protocol::Mcp), None);
}

#[test]
fn an_exception_for_a_protocol_of_a_newer_snapshot_shows_nothing_and_hides_what_is_not_named() {
    let newer =
        |enabled: bool| ExposureException { protocol: 4, ..exception("o", "s0", Protocol::Mcp, enabled) };
    let mcp = |exceptions: &Exceptions| exceptions.of("o", "s0", Protocol::Mcp);
    let all = exception("o", "s0", Protocol::Unspecified, true);
    let named = exception("o", "s0", Protocol::Mcp, true);
    for (entries, expected) in [
        (vec![newer(true)], None),
        (vec![newer(false)], Some(false)),
        (vec![newer(false), all.clone()], Some(false)),
        (vec![all, newer(false)], Some(false)),
        (vec![newer(false), named], Some(true)),
    ] {
        let changed = Exceptions::default().with(&[("o", entries.as_slice())]).unwrap();
        assert_eq!(mcp(&changed), expected, "{entries:?}");
    }
}

#[test]
fn every_bad_exception_is_refused_with_its_place() {
    let on = code(0, Protocol::Mcp, true);
    let off = code(0, Protocol::Mcp, false);
    let cases: [(EdgeSnapshot, &str); 7] = [
        (message(&[("", &[])]), "exposure[0].org"),
        (message(&[("o", &[]), ("o", &[])]), "exposure[1]"),
        (message(&[("o", &[code(3, Protocol::Mcp, true)])]), "exposure[0].exceptions[0]"),
        (message(&[("o", &[u32::MAX])]), "exposure[0].exceptions[0]"),
        (message(&[("o", &[on, on])]), "exposure[0].exceptions[1]"),
        (message(&[("o", &[off, on])]), "exposure[0].exceptions[1]"),
        (message(&[("o", &[code(1, Protocol::Mcp, true), on])]), "exposure[0].exceptions[1]"),
    ];
    for (message, place) in cases {
        let error = Exceptions::index(&message).err().unwrap_or_else(|| panic!("{place} was accepted"));
        assert!(error.to_string().starts_with(place), "{place}: {error}");
    }
}

type Change<'a> = &'a [(&'a str, &'a [ExposureException])];

#[test]
fn every_bad_change_is_refused_with_its_place() {
    let twice = [exception("o", "s", Protocol::Mcp, true), exception("o", "s", Protocol::Mcp, true)];
    let foreign = [exception("p", "s", Protocol::Mcp, true)];
    let nameless = [exception("o", "", Protocol::Mcp, true)];
    let cases: [(Change<'_>, &str); 5] = [
        (&[("", &[])], "exposure[\"\"]"),
        (&[("o", &[]), ("o", &[])], "exposure[\"o\"]"),
        (&[("o", &twice)], "exposure[\"o\"][1]"),
        (&[("o", &foreign)], "exposure[\"o\"][0]"),
        (&[("o", &nameless)], "exposure[\"o\"][0]"),
    ];
    for (change, place) in cases {
        let error =
            Exceptions::default().with(change).err().unwrap_or_else(|| panic!("{place} was accepted"));
        assert!(error.to_string().starts_with(place), "{place}: {error}");
    }
}

#[test]
fn a_change_of_one_org_leaves_what_ten_thousand_others_have_where_it_is() {
    let names: Vec<String> = (0..10_000).map(|number| format!("org-{number}")).collect();
    let of_one: Vec<ExposureException> =
        (0..20).map(|number| exception("", &format!("s{number}"), Protocol::Mcp, number % 2 == 0)).collect();
    let all: Vec<(&str, &[ExposureException])> =
        names.iter().map(|name| (name.as_str(), of_one.as_slice())).collect();
    let before = Exceptions::default().with(&all).unwrap();
    let after = before.with(&[("org-7", &of_one[..1]), ("org-8", &[])]).unwrap();
    assert!(Arc::ptr_eq(&before.numbers.by_name, &after.numbers.by_name));
    let shared = before
        .orgs
        .iter()
        .filter(|(org, codes)| after.orgs.get(*org).is_some_and(|known| Arc::ptr_eq(known, codes)));
    assert_eq!(shared.count(), 9_998);
    assert_eq!(after.of("org-7", "s0", Protocol::Mcp), Some(true));
    assert_eq!(after.of("org-7", "s1", Protocol::Mcp), None);
    assert_eq!(after.of("org-8", "s0", Protocol::Mcp), None);
    assert_eq!(after.of("org-9", "s1", Protocol::Mcp), Some(false));
    assert!(Arc::ptr_eq(&after.with(&[]).unwrap().orgs, &after.orgs));
}

/// Invariant I-4: names of servers that are added and removed.
#[test]
fn names_that_nobody_excepts_any_more_are_forgotten() {
    let kept = [exception("kept", "kept", Protocol::Mcp, true)];
    let mut exceptions = Exceptions::default().with(&[("kept", &kept)]).unwrap();
    for number in 0..3 * SPARE_NAMES {
        let entries = [exception("o", &format!("s{number}"), Protocol::Mcp, true)];
        exceptions = exceptions.with(&[("o", &entries)]).unwrap();
        assert!(exceptions.numbers.by_name.len() <= SPARE_NAMES + 8);
        assert_eq!(exceptions.of("o", &format!("s{number}"), Protocol::Mcp), Some(true));
    }
    assert_eq!(exceptions.of("kept", "kept", Protocol::Mcp), Some(true));
    assert_eq!(exceptions.of("o", "s0", Protocol::Mcp), None);
}
