//! Forms of parts as last published.

use super::{change, files};
use crate::control::sql::ControlStore;
use crate::control::{ExposureRecord, MAX_FORM_BYTES, PublishedForm};

fn form(part: &str, revision: u64, form: &[u8]) -> PublishedForm {
    PublishedForm { part: part.into(), revision, form: form.into() }
}

pub(super) async fn are_kept_and_never_replaced_by_those_of_an_earlier_revision(store: &ControlStore) {
    store.put_server(&change(), "formed", &files("a"), "h1").await.unwrap();
    let acme = ExposureRecord {
        org: "formed".into(),
        server: "formed".into(),
        protocol: "mcp".into(),
        enabled: true,
    };
    store.put_exposure(&change(), &acme).await.unwrap();
    let revision = store.revision().await.unwrap();
    let parts = ["server/formed", "org/formed", "org/other"].map(str::to_owned);
    assert_eq!(store.published_forms(&parts).await.unwrap(), []);

    let (server, org) = (form("server/formed", 5, &[0, 255]), form("org/formed", 7, b"a"));
    store.put_published_forms(&[server.clone(), org.clone()]).await.unwrap();
    assert_eq!(store.published_forms(&parts).await.unwrap(), [server.clone(), org.clone()]);
    let many: Vec<String> = ["org/formed".to_owned()]
        .into_iter()
        .chain((0..100).map(|number| format!("server/none-{number}")))
        .chain(["server/formed".to_owned()])
        .collect();
    assert_eq!(store.published_forms(&many).await.unwrap(), [org.clone(), server.clone()], "in their order");
    store
        .put_published_forms(&[form("server/formed", 4, b"late"), form("org/formed", 7, b"b")])
        .await
        .unwrap();
    let of_now = form("org/formed", 7, b"b");
    assert_eq!(store.published_forms(&parts).await.unwrap(), [server.clone(), of_now.clone()]);
    let large = vec![0; MAX_FORM_BYTES + 1];
    store.put_published_forms(&[form("server/formed", 9, &large)]).await.unwrap();
    assert_eq!(store.published_forms(&parts[..1]).await.unwrap(), [server]);
    assert_eq!(store.revision().await.unwrap(), revision, "it is no change");

    store.forget_published_forms(&[("org/formed".into(), 6)]).await.unwrap();
    assert_eq!(
        store.published_forms(&parts[1..]).await.unwrap(),
        [of_now],
        "another process published it since"
    );
    store.forget_published_forms(&[("org/formed".into(), 7)]).await.unwrap();
    assert_eq!(store.published_forms(&parts[1..]).await.unwrap(), []);
}

pub(super) async fn go_with_what_they_are_of(store: &ControlStore) {
    let parts = ["server/formed", "org/formed", "org/other"].map(str::to_owned);
    let all: Vec<PublishedForm> = parts.iter().map(|part| form(part, 9, b"a")).collect();
    store.put_published_forms(&all).await.unwrap();
    store.prune(&change(), 1_000_000).await.unwrap();
    assert_eq!(store.published_forms(&parts).await.unwrap(), all[..2], "nothing is stored of the other org");
    store.delete_server(&change(), "formed").await.unwrap();
    assert_eq!(store.published_forms(&parts).await.unwrap(), all[1..2]);
    // Written by a slow control plane, or by one of an earlier version.
    store.put_published_forms(&all[..1]).await.unwrap();
    store.put_server(&change(), "formed", &files("a"), "h1").await.unwrap();
    assert_eq!(store.published_forms(&parts[..1]).await.unwrap(), [], "the new server is another one");
    store.delete_server(&change(), "formed").await.unwrap();
    store.delete_exposure(&change(), "formed").await.unwrap();
    store.prune(&change(), 1_000_000).await.unwrap();
    assert_eq!(store.published_forms(&parts).await.unwrap(), []);
}
