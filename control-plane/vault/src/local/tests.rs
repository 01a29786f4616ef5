use super::*;
use crate::vault::Vault;

const PLACE: Place<'static> = Place { tenant: "acme", table: "linked_accounts", row: "bob/github" };

fn vault(path: &Path) -> Vault {
    Vault::new(Arc::new(LocalKeys::of_this_machine(path)))
}

#[tokio::test]
async fn a_record_opens_at_its_place_only() {
    let dir = tempfile::tempdir().unwrap();
    let vault = vault(&dir.path().join("vault-key"));
    let sealed = vault.seal(&PLACE, b"token").await.unwrap();
    let opened = vault.open(&PLACE, &sealed).await.unwrap();
    assert_eq!((opened.plain.expose(), opened.outdated), (&b"token"[..], false));
    for place in [
        Place { tenant: "other", ..PLACE },
        Place { table: "other", ..PLACE },
        Place { row: "eve/github", ..PLACE },
    ] {
        assert_eq!(vault.open(&place, &sealed).await.unwrap_err(), VaultError::NotOpened, "{place:?}");
    }
}

#[tokio::test]
async fn each_record_has_a_data_key_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let vault = vault(&dir.path().join("vault-key"));
    let one = vault.seal(&PLACE, b"token").await.unwrap();
    let other = vault.seal(&PLACE, b"token").await.unwrap();
    let wrapped = |sealed: &[u8]| crate::record::Record::parse(sealed).unwrap().wrapped_key();
    assert_ne!(wrapped(&one).bytes, wrapped(&other).bytes);
    assert_eq!(wrapped(&one).key_id, wrapped(&other).key_id);
}

#[tokio::test(start_paused = true)]
async fn after_a_rotation_old_records_open_and_are_outdated_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vault-key");
    // Two processes with one file.
    let here = vault(&path);
    let there = vault(&path);
    let old = here.seal(&PLACE, b"token").await.unwrap();
    there.open(&PLACE, &old).await.unwrap();
    let new_key = rotate(&path, 0).unwrap();
    assert!(new_key.from_ms > 0);
    tokio::time::advance(CHECK_EVERY).await;
    wait_until_current(&new_key).await;
    let new = here.seal(&PLACE, b"token").await.unwrap();
    assert_eq!(crate::key_id_of(&new), Some(format!("local:{}", new_key.id)));
    for vault in [&here, &there] {
        let opened = vault.open(&PLACE, &old).await.unwrap();
        assert_eq!((opened.plain.expose(), opened.outdated), (&b"token"[..], true));
        let opened = vault.open(&PLACE, &new).await.unwrap();
        assert_eq!((opened.plain.expose(), opened.outdated), (&b"token"[..], false));
    }
}

/// The new key becomes current a millisecond after the former one, which may have been created in this millisecond.
async fn wait_until_current(key: &KeyDescription) {
    while asp_platform::clock::now_ms() < key.from_ms {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_key_that_is_not_known_yet_is_looked_for_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vault-key");
    let here = vault(&path);
    let there = vault(&path);
    let old = here.seal(&PLACE, b"token").await.unwrap();
    there.open(&PLACE, &old).await.unwrap();
    let new_key = rotate(&path, 0).unwrap();
    wait_until_current(&new_key).await;
    // A process that starts now; time stands still, so the other has read the file this very moment.
    let new = vault(&path).seal(&PLACE, b"token").await.unwrap();
    assert!(there.open(&PLACE, &new).await.is_ok(), "it looks at the file once more");
}

#[tokio::test]
async fn a_record_of_a_lost_key_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vault-key");
    let sealed = vault(&path).seal(&PLACE, b"token").await.unwrap();
    std::fs::remove_file(&path).unwrap();
    let lost = vault(&path).open(&PLACE, &sealed).await.unwrap_err();
    assert!(matches!(&lost, VaultError::KeyFile(cause) if cause.contains("restore it")), "{lost}");
    assert!(!path.exists(), "opening creates no key");
    rotate(&path, 0).unwrap();
    let unknown = vault(&path).open(&PLACE, &sealed).await.unwrap_err();
    assert!(matches!(unknown, VaultError::UnknownKey { .. }), "{unknown}");
}

#[tokio::test(start_paused = true)]
async fn a_file_that_vanishes_is_not_replaced_and_its_keys_still_open() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vault-key");
    let vault = vault(&path);
    let sealed = vault.seal(&PLACE, b"token").await.unwrap();
    std::fs::rename(&path, dir.path().join("elsewhere")).unwrap();
    tokio::time::advance(CHECK_EVERY).await;
    assert_eq!(vault.open(&PLACE, &sealed).await.unwrap().plain.expose(), b"token");
    assert!(matches!(vault.seal(&PLACE, b"token").await, Err(VaultError::KeyFile(_))));
    assert!(!path.exists());
    std::fs::rename(dir.path().join("elsewhere"), &path).unwrap();
    assert!(vault.seal(&PLACE, b"token").await.is_ok());
}

#[tokio::test]
async fn a_shared_file_is_never_created() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("vault-key");
    let vault = Vault::new(Arc::new(LocalKeys::shared(&path)));
    assert!(matches!(vault.seal(&PLACE, b"token").await, Err(VaultError::KeyFile(_))));
    assert!(!path.exists());
    rotate(&path, 0).unwrap();
    assert!(vault.seal(&PLACE, b"token").await.is_ok());
}

#[tokio::test]
async fn a_wrapped_key_that_was_altered_or_moved_stays_shut() {
    let dir = tempfile::tempdir().unwrap();
    let keys = LocalKeys::of_this_machine(&dir.path().join("vault-key"));
    let data_key = DataKey::random().unwrap();
    let wrapped = keys.wrap(&data_key, &PLACE).await.unwrap();
    assert_eq!(keys.unwrap(&wrapped, &PLACE).await.unwrap().expose(), data_key.expose());
    let elsewhere = Place { tenant: "other", ..PLACE };
    assert_eq!(keys.unwrap(&wrapped, &elsewhere).await.unwrap_err(), VaultError::NotOpened);
    for at in 0..wrapped.bytes.len() {
        let mut altered = wrapped.clone();
        altered.bytes[at] ^= 1;
        assert_eq!(keys.unwrap(&altered, &PLACE).await.unwrap_err(), VaultError::NotOpened, "byte {at}");
        altered.bytes.truncate(at);
        assert_eq!(keys.unwrap(&altered, &PLACE).await.unwrap_err(), VaultError::NotOpened, "{at} bytes");
    }
}
