//! Conformance suite of [`Packages`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt;

use super::{Digest, MAX_PACKAGE, PackageError, Packages, UploadOutcome};
use crate::hex::hex;

/// Stores bytes under their own digest.
pub async fn put(
    packages: &dyn Packages,
    owner: &str,
    bytes: &[u8],
) -> Result<(Digest, UploadOutcome), PackageError> {
    let digest = Digest::parse(&hex(&Sha256::digest(bytes))).unwrap();
    let mut upload = packages.create(owner).await?;
    upload.write(bytes).await?;
    let stored = upload.finish(&digest, "a-1.0.0.tgz", 7).await?;
    Ok((digest, stored))
}

/// Runs the suite against an empty store.
pub async fn run(packages: &dyn Packages) {
    keeps_a_package_whole_and_once(packages).await;
    keeps_owners_apart(packages).await;
    shows_nothing_under_a_wrong_digest(packages).await;
    bounds_one_package(packages).await;
}

async fn keeps_a_package_whole_and_once(packages: &dyn Packages) {
    let (digest, stored) = put(packages, "", b"one").await.unwrap();
    assert_eq!(stored, UploadOutcome::New);
    assert_eq!(put(packages, "", b"one").await.unwrap().1, UploadOutcome::Known);
    let meta = packages.find(Some(""), &digest).await.unwrap().unwrap();
    assert_eq!((meta.size, meta.name.as_str(), meta.created_ms), (3, "a-1.0.0.tgz", 7));
    let mut bytes = Vec::new();
    packages.open(&meta).await.unwrap().unwrap().read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes, b"one");
    assert_eq!(packages.list(Some("")).await.unwrap(), std::slice::from_ref(&meta));
    assert!(packages.delete("", &digest).await.unwrap());
    assert!(!packages.delete("", &digest).await.unwrap());
    assert!(packages.find(None, &digest).await.unwrap().is_none());
    assert!(packages.open(&meta).await.unwrap().is_none());
}

async fn keeps_owners_apart(packages: &dyn Packages) {
    let (digest, _) = put(packages, "acme", b"two").await.unwrap();
    assert!(packages.find(Some("globex"), &digest).await.unwrap().is_none());
    assert!(packages.find(Some(""), &digest).await.unwrap().is_none());
    assert_eq!(packages.find(None, &digest).await.unwrap().unwrap().owner, "acme");
    assert!(!packages.delete("globex", &digest).await.unwrap());
    assert_eq!(put(packages, "globex", b"two").await.unwrap().1, UploadOutcome::New);
    assert!(packages.delete("acme", &digest).await.unwrap());
    assert_eq!(packages.find(None, &digest).await.unwrap().unwrap().owner, "globex");
    assert_eq!(packages.list(None).await.unwrap().len(), 1);
    assert!(packages.list(Some("acme")).await.unwrap().is_empty());
    assert!(packages.list(Some("nobody")).await.unwrap().is_empty());
    packages.delete("globex", &digest).await.unwrap();
}

async fn shows_nothing_under_a_wrong_digest(packages: &dyn Packages) {
    let wrong = Digest::parse(&"ab".repeat(32)).unwrap();
    let mut upload = packages.create("acme").await.unwrap();
    upload.write(b"three").await.unwrap();
    let refused = upload.finish(&wrong, "a.tgz", 1).await.unwrap_err();
    let PackageError::Mismatch { found } = refused else { panic!("{refused}") };
    let found = Digest::parse(&found).unwrap();
    for digest in [&wrong, &found] {
        assert!(packages.find(None, digest).await.unwrap().is_none());
    }
    let mut half = packages.create("acme").await.unwrap();
    half.write(b"three").await.unwrap();
    drop(half);
    assert!(packages.list(None).await.unwrap().is_empty());
}

async fn bounds_one_package(packages: &dyn Packages) {
    let mut upload = packages.create("acme").await.unwrap();
    let piece = vec![0; 32 << 20];
    for _ in 0..MAX_PACKAGE / (32 << 20) {
        upload.write(&piece).await.unwrap();
    }
    assert!(matches!(upload.write(b"x").await, Err(PackageError::TooLarge)));
}
