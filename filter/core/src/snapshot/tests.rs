//! Rules for snapshots, and their rejection.

use super::*;
use asp_proto::snapshot::{EdgeServer, Issuer, Key, Route};

fn good() -> EdgeSnapshot {
    EdgeSnapshot {
        revision: 7,
        public_url: "https://h:8443".into(),
        issuers: vec![Issuer { name: "dev".into(), iss: "asp-dev".into(), ..Issuer::default() }],
        servers: vec![EdgeServer {
            name: "demo".into(),
            issuers: vec!["dev".into()],
            ..EdgeServer::default()
        }],
        ..EdgeSnapshot::default()
    }
}

#[test]
fn no_bytes_are_the_boot_snapshot() {
    let boot = Snapshot::decode(b"").unwrap();
    assert!(boot.is_boot() && boot.revision() == 0);
    assert!(!boot.exposed("demo", "acme", Protocol::Mcp));
}

#[test]
fn a_good_message_is_indexed() {
    let snapshot = Snapshot::decode(&prost::Message::encode_to_vec(&good())).unwrap();
    assert!(!snapshot.is_boot());
    assert_eq!((snapshot.revision(), snapshot.public_url()), (7, "https://h:8443"));
    assert_eq!(snapshot.server("demo").unwrap().max_body, 1 << 20);
}

#[test]
fn unknown_fields_are_ignored() {
    let mut bytes = prost::Message::encode_to_vec(&good());
    // Field 1000, length-delimited, three bytes.
    bytes.extend([0xc2, 0x3e, 3, 1, 2, 3]);
    assert!(Snapshot::decode(&bytes).is_ok());
}

/// Name of a fault, and the change that brings it into a valid snapshot.
type Fault = (&'static str, fn(&mut EdgeSnapshot));

#[test]
fn every_fault_is_refused_and_named() {
    let faults: [Fault; 16] = [
        ("public_url", |message| message.public_url = String::new()),
        ("public_url", |message| message.public_url = "https://h/".into()),
        ("public_url", |message| message.public_url = "https://h\"".into()),
        ("public_url", |message| message.public_url = "ftp://h".into()),
        ("name", |message| message.servers[0].name = "Demo".into()),
        ("name", |message| message.servers[0].name = String::new()),
        ("twice", |message| message.servers.push(message.servers[0].clone())),
        ("unknown issuer", |message| message.servers[0].issuers.push("other".into())),
        ("scopes", |message| message.servers[0].scopes.push("a\"b".into())),
        ("issuers[1]", |message| message.issuers.push(message.issuers[0].clone())),
        ("issuers[1]", |message| {
            message.issuers.push(Issuer { name: "dev".into(), iss: "x".into(), ..Issuer::default() });
        }),
        ("issuers[0]", |message| message.issuers[0].iss = String::new()),
        ("keys[0]", |message| {
            let key = Key { kid: "k".into(), alg: "HS256".into(), jwk: r#"{"kty":"oct","k":"AA"}"#.into() };
            message.issuers[0].keys.push(key);
        }),
        ("keys[0]", |message| message.issuers[0].keys.push(Key { kid: "a b".into(), ..Key::default() })),
        ("revoked", |message| message.revoked = vec![0; 15]),
        ("routes[0]", |message| message.routes.push(Route { cluster: "a\nb".into(), ..Route::default() })),
    ];
    for (named, spoil) in faults {
        let mut message = good();
        spoil(&mut message);
        let error = Snapshot::from_message(message).err().unwrap_or_else(|| panic!("{named} was accepted"));
        assert!(error.to_string().contains(named), "{named}: {error}");
    }
    assert!(matches!(Snapshot::decode(b"\x08"), Err(SnapshotError::Decode(_))));
}

#[test]
fn exposure_is_the_default_unless_the_org_has_an_exception() {
    use asp_proto::snapshot::OrgExposure;
    let mut message = good();
    message.servers[0].default_allow = true;
    let hidden_over_mcp = (Protocol::Mcp as u32) << 1;
    message.exposure.push(OrgExposure { org: "acme".into(), exceptions: vec![hidden_over_mcp] });
    let snapshot = Snapshot::from_message(message).unwrap();
    assert!(!snapshot.exposed("demo", "acme", Protocol::Mcp));
    assert!(snapshot.exposed("demo", "acme", Protocol::A2a));
    assert!(snapshot.exposed("demo", "", Protocol::Mcp));
    assert!(!snapshot.exposed("other", "acme", Protocol::A2a));
}
