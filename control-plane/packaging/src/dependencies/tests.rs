//! The cache of installed dependencies.

use super::*;

#[test]
fn the_entries_that_were_used_last_stay() {
    let cache = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c", ".work1"] {
        fs::create_dir(cache.path().join(name)).unwrap();
    }
    let at = |name: &str, seconds| {
        let folder = fs::File::open(cache.path().join(name)).unwrap();
        folder.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    };
    at("a", 1);
    at("b", 2);
    at("c", 3);
    mark_used(&cache.path().join("a")).unwrap();
    evict(cache.path(), 2);
    let stays = |name: &str| cache.path().join(name).exists();
    assert!(stays("a") && !stays("b") && stays("c") && stays(".work1"), "work that runs is no entry");
    at(".work1", 1);
    evict(cache.path(), 2);
    assert!(!stays(".work1"), "abandoned");
}

#[test]
fn what_is_installed_is_readable_for_workers() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("site-packages");
    fs::create_dir(&folder).unwrap();
    for (file, mode) in [("x.py", 0o600), ("run", 0o700)] {
        fs::write(folder.join(file), "").unwrap();
        fs::set_permissions(folder.join(file), fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    open_to_all(root.path()).unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&folder), mode(&folder.join("x.py")), mode(&folder.join("run"))), (0o755, 0o644, 0o755));
}

#[test]
fn a_lock_that_is_installed_is_found_and_a_folder_that_brings_its_packages_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("plugin");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("package.json"), r#"{"dependencies": {"lib": "^1"}}"#).unwrap();
    let lock = |version: &str| {
        let lib = serde_json::json!({
            "version": version, "resolved": "https://example.org/lib.tgz", "integrity": "sha512-x",
        });
        let packages = serde_json::json!({"": {"dependencies": {"lib": "^1"}}, "node_modules/lib": lib});
        let lock = serde_json::json!({"lockfileVersion": 3, "packages": packages});
        fs::write(folder.join("package-lock.json"), lock.to_string()).unwrap();
    };
    lock("1.0.0");
    let dependencies = Dependencies::of(&folder, "node").unwrap();
    assert!(Dependencies::of(&folder, "python").is_none());
    let key = dependencies.key(&dependencies.pinned().unwrap()).unwrap();
    let cache = root.path().join("cache");
    fs::create_dir_all(cache.join(&key)).unwrap();
    // Nothing is installed: npm, which would be needed, is stopped before it starts.
    let stop = CancellationToken::new();
    stop.cancel();
    dependencies.ensure_in(&cache, &stop).unwrap();
    lock("1.0.1");
    let other = dependencies.key(&dependencies.pinned().unwrap()).unwrap();
    assert_ne!(other, key);
    assert!(dependencies.ensure_in(&cache, &stop).is_err());
    assert!(!cache.join(&other).exists(), "an entry is complete or not there");
}

#[test]
fn a_link_in_the_place_of_a_lock_is_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let folder = root.path().join("plugin");
    let elsewhere = root.path().join("profile");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("requirements.txt"), "idna==3.7 --hash=sha256:ab\n").unwrap();
    let lock = folder.join("requirements.lock");
    std::os::unix::fs::symlink(&elsewhere, &lock).unwrap();
    python::resolve(&folder, &folder, &CancellationToken::new()).unwrap();
    assert!(!elsewhere.exists());
    let written = fs::symlink_metadata(&lock).unwrap();
    assert!(written.is_file());
    assert_eq!(written.permissions().mode() & 0o444, 0o444, "others may read it");
    assert!(fs::read_to_string(&lock).unwrap().contains("idna==3.7"));
}
