//! A KMS plugin, behind the server that Kubernetes publishes for plugins.

use asp_e2e::kms;
use asp_vault::plugin::KmsPlugin;
use asp_vault::{VaultError, key_id_of};
use rustix::process::Signal;

use crate::support::{ELSEWHERE, PLACE, open, vault};

#[tokio::test]
async fn a_record_opens_at_its_place_and_a_rotation_makes_it_outdated() {
    let plugin = kms::KmsPlugin::start("key-1").await.unwrap();
    let service = || KmsPlugin::open(&plugin.socket).unwrap();
    let here = vault(service(), Vec::new());
    here.check().await.unwrap();
    let old = here.seal(&PLACE, b"token").await.unwrap();
    assert_eq!(key_id_of(&old).as_deref(), Some("plugin:key-1"));
    assert_eq!(open(&vault(service(), Vec::new()), &old).await.unwrap(), (b"token".to_vec(), false));
    assert_eq!(here.open(&ELSEWHERE, &old).await.unwrap_err(), VaultError::NotOpened);
    plugin.set("key-2").unwrap();
    // A process that has not asked before.
    let there = vault(service(), Vec::new());
    assert_eq!(open(&there, &old).await.unwrap(), (b"token".to_vec(), true));
    let new = there.reseal(&PLACE, &old, b"token").await.unwrap();
    assert_eq!(key_id_of(&new).as_deref(), Some("plugin:key-2"));
    assert_eq!(open(&here, &new).await.unwrap().0, b"token");
}

#[tokio::test]
async fn a_plugin_that_ends_leaves_what_was_used_recently() {
    let mut plugin = kms::KmsPlugin::start("key-1").await.unwrap();
    let used = vault(KmsPlugin::open(&plugin.socket).unwrap(), Vec::new());
    let unused = vault(KmsPlugin::open(&plugin.socket).unwrap(), Vec::new());
    let sealed = used.seal(&PLACE, b"token").await.unwrap();
    plugin.process.signal(Signal::KILL).unwrap();
    plugin.process.wait(asp_e2e::wait::START).await.unwrap();
    assert_eq!(open(&used, &sealed).await.unwrap(), (b"token".to_vec(), false));
    let error = open(&unused, &sealed).await.unwrap_err();
    assert!(matches!(error, VaultError::Unavailable { service: "plugin", .. }), "{error}");
}
