//! Certificates of machines, and the revocations that hit them.

use super::{change, revocation};
use crate::control::sql::ControlStore;
use crate::control::{
    AuditQuery, CertificateName, Change, MAX_MACHINE_CERTIFICATES_PER_ORG, MachineCertificateRecord,
    RevocationRecord, StoreError,
};

/// Milliseconds, like all times here.
const CREATED: u64 = 50_500;
const EXPIRES: u64 = 900_000;
const URI: &str = "spiffe://example.org/press";

fn certificate(id: &str, machine: &str, name: CertificateName) -> MachineCertificateRecord {
    MachineCertificateRecord {
        id: id.into(),
        org: "robots".into(),
        machine: machine.into(),
        name,
        proved: false,
        groups: vec!["robots".into()],
        scopes: vec![],
        created_at: CREATED,
        expires_at: EXPIRES,
    }
}

fn hash(number: usize) -> CertificateName {
    CertificateName::Fingerprint(format!("{number:0>64}"))
}

fn uri() -> CertificateName {
    CertificateName::Uri(URI.into())
}

fn at(at: u64) -> Change {
    Change { at, ..change() }
}

async fn put(store: &ControlStore, when: u64, record: &MachineCertificateRecord) -> String {
    store.put_machine_certificate(&at(when), record).await.unwrap().0
}

pub(super) async fn are_one_machines_until_they_end(store: &ControlStore) {
    let (one, named) = (certificate("c1", "press", hash(1)), certificate("c2", "press", uri()));
    for record in [&one, &named] {
        assert_eq!(put(store, CREATED, record).await, record.id);
    }
    let listed = async || store.machine_certificates("robots").await.unwrap();
    assert_eq!(listed().await, [one.clone(), named.clone()]);
    assert_eq!(store.machine_certificates("others").await.unwrap(), []);
    assert_eq!(store.load().await.unwrap().machines.certificates, [one.clone(), named.clone()]);
    // Another machine, or another org, is refused.
    for name in [hash(1), uri()] {
        let other_org =
            MachineCertificateRecord { org: "others".into(), ..certificate("c3", "press", name.clone()) };
        for record in [certificate("c3", "arm", name), other_org] {
            let taken = store.put_machine_certificate(&at(CREATED), &record).await;
            assert!(matches!(taken, Err(StoreError::Taken { .. })), "{record:?}");
        }
    }
    // The machine itself renews it, under the id that policy and audit know.
    let renewed = MachineCertificateRecord {
        groups: vec![],
        scopes: vec!["x:read".into()],
        created_at: CREATED + 1,
        expires_at: EXPIRES + 1,
        ..certificate("c4", "press", uri())
    };
    assert_eq!(put(store, CREATED, &renewed).await, "c2");
    assert_eq!(listed().await, [one.clone(), MachineCertificateRecord { id: "c2".into(), ..renewed }]);
    let query = AuditQuery { org: Some("robots".into()), limit: 1, ..AuditQuery::default() };
    let told = store.audit(&query).await.unwrap().remove(0);
    assert_eq!(
        (told.action.as_str(), told.resource.as_str()),
        ("machine_certificate.renew", "machine_certificate/c2")
    );
    assert!(told.detail.contains(URI), "{}", told.detail);
    for (org, id) in [("others", "c1"), ("robots", "c4")] {
        let gone = store.delete_machine_certificate(&at(CREATED), org, id).await;
        assert!(matches!(gone, Err(StoreError::NotFound)), "{org} {id}");
    }
    for id in ["c1", "c2"] {
        store.delete_machine_certificate(&at(CREATED), "robots", id).await.unwrap();
    }
    // Expired certificates free capacity, and their names.
    for number in 0..MAX_MACHINE_CERTIFICATES_PER_ORG {
        put(store, CREATED, &certificate(&format!("n{number}"), "arm", hash(number))).await;
    }
    let full = store.put_machine_certificate(&at(CREATED), &certificate("more", "arm", uri())).await;
    assert!(matches!(full, Err(StoreError::Full { .. })));
    assert_eq!(
        put(store, CREATED, &certificate("more", "arm", hash(0))).await,
        "n0",
        "a renewal takes no room"
    );
    let later =
        MachineCertificateRecord { expires_at: 2 * EXPIRES, ..certificate("later", "press", hash(0)) };
    assert_eq!(put(store, EXPIRES, &later).await, "later");
    assert_eq!(listed().await, [later]);
    store.delete_machine_certificate(&at(EXPIRES), "robots", "later").await.unwrap();
}

/// Otherwise anyone who knows the hash of a certificate could claim its expired URI.
pub(super) async fn keep_their_uri_after_they_have_ended(store: &ControlStore) {
    let named = certificate("u1", "press", uri());
    put(store, CREATED, &named).await;
    put(store, CREATED, &certificate("u2", "press", hash(1))).await;
    let other = MachineCertificateRecord { expires_at: 2 * EXPIRES, ..certificate("u3", "arm", hash(2)) };
    put(store, EXPIRES, &other).await;
    assert_eq!(store.machine_certificates("robots").await.unwrap(), [named, other]);
    let others = MachineCertificateRecord {
        org: "others".into(),
        expires_at: 2 * EXPIRES,
        ..certificate("u4", "press", uri())
    };
    assert_eq!(put(store, EXPIRES, &others).await, "u4", "whom it belongs to may be said again");
    assert_eq!(store.machine_certificates("robots").await.unwrap().len(), 1);
    store.delete_machine_certificate(&at(EXPIRES), "robots", "u3").await.unwrap();
    store.delete_machine_certificate(&at(EXPIRES), "others", "u4").await.unwrap();
}

/// Otherwise a certificate would be valid again when its revocation is deleted after a day, which suffices for tokens.
pub(super) async fn stay_revoked_as_long_as_they_are_registered(store: &ControlStore) {
    let of = |id: &str, kind: &str, org: &str, target: &str| RevocationRecord {
        kind: kind.into(),
        target: target.into(),
        created_at: CREATED + 5_000,
        by_platform: false,
        ..revocation(id, org, 100_000)
    };
    put(store, CREATED, &certificate("c1", "press", hash(1))).await;
    let (own, foreign) = (format!("{:0>64}", 1), format!("{:0>64}", 2));
    let revoke = async |id: &str, kind: &str, org: &str, target: &str| {
        store.add_revocation(&at(CREATED), &of(id, kind, org, target)).await.unwrap();
        store.revocation(id).await.unwrap().unwrap().until
    };
    assert_eq!(revoke("m1", "user", "robots", "press").await, EXPIRES);
    assert_eq!(revoke("m2", "org", "", "robots").await, EXPIRES);
    assert_eq!(revoke("m3", "token", "robots", "c1").await, EXPIRES);
    assert_eq!(revoke("m4", "token_hash", "", &own).await, EXPIRES);
    assert_eq!(revoke("m5", "token_hash", "others", &own).await, 100_000);
    assert_eq!(revoke("m6", "token_hash", "robots", &foreign).await, 100_000);
    assert_eq!(revoke("m7", "user", "robots", "arm").await, 100_000);
    // While a URI is registered, a hash may belong to one of its certificates.
    put(
        store,
        CREATED,
        &MachineCertificateRecord { expires_at: EXPIRES + 5, ..certificate("c2", "arm", uri()) },
    )
    .await;
    assert_eq!(revoke("m8", "token_hash", "robots", &foreign).await, EXPIRES + 5);
    // A revocation is extended with the registration that it matches.
    let renewed = MachineCertificateRecord {
        created_at: CREATED + 60_000,
        expires_at: 2 * EXPIRES,
        ..certificate("c3", "arm", uri())
    };
    assert_eq!(put(store, CREATED, &renewed).await, "c2");
    let until = async |id: &str| store.revocation(id).await.unwrap().unwrap().until;
    assert_eq!((until("m8").await, until("m6").await, until("m3").await), (2 * EXPIRES, 100_000, EXPIRES));
    for id in ["c1", "c2"] {
        store.delete_machine_certificate(&at(CREATED), "robots", id).await.unwrap();
    }
    for id in ["m1", "m2", "m3", "m4", "m5", "m6", "m7", "m8"] {
        store.delete_revocation(&at(CREATED), id).await.unwrap();
    }
}

/// Anyone who has seen a certificate can register its hash.
pub(super) async fn are_whose_who_proves_to_hold_the_key(store: &ControlStore) {
    put(store, CREATED, &certificate("w1", "press", hash(7))).await;
    let written = MachineCertificateRecord { org: "others".into(), ..certificate("w2", "press", hash(7)) };
    let taken = store.put_machine_certificate(&at(CREATED), &written).await;
    assert!(matches!(taken, Err(StoreError::Taken { .. })), "first come, first served");
    let holder = MachineCertificateRecord { proved: true, ..written };
    assert_eq!(put(store, CREATED, &holder).await, "w2");
    assert_eq!(store.machine_certificates("robots").await.unwrap(), []);
    assert_eq!(store.machine_certificate_named(&hash(7)).await.unwrap(), Some(holder.clone()));
    // A renewal without proof keeps the earlier proof, and nobody else can take the name.
    let renewed = MachineCertificateRecord { id: "w3".into(), proved: false, ..holder.clone() };
    assert_eq!(put(store, CREATED, &renewed).await, "w2");
    assert!(store.machine_certificate_named(&hash(7)).await.unwrap().unwrap().proved);
    for proved in [false, true] {
        let other = MachineCertificateRecord { proved, ..certificate("w4", "press", hash(7)) };
        let taken = store.put_machine_certificate(&at(CREATED), &other).await;
        assert!(matches!(taken, Err(StoreError::Taken { .. })), "{proved}");
    }
    store.delete_machine_certificate(&at(CREATED), "others", "w2").await.unwrap();
}
