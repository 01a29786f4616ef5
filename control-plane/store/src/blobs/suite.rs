//! Conformance suite of [`Blobs`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use super::{BlobError, BlobId, BlobMeta, Blobs, EACH, MAX_BLOB};

fn meta(expires_ms: i64) -> BlobMeta {
    BlobMeta {
        org: "acme".into(),
        owner: b"alice".to_vec(),
        server: "demo".into(),
        name: "report.csv".into(),
        content_type: "text/csv".into(),
        expires_ms,
    }
}

/// Runs the suite against an empty store.
pub async fn run(blobs: &dyn Blobs) {
    keeps_a_finished_blob_whole(blobs).await;
    shows_no_unfinished_blob(blobs).await;
    forgets_what_has_expired(blobs).await;
    bounds_one_blob(blobs).await;
}

async fn keeps_a_finished_blob_whole(blobs: &dyn Blobs) {
    let id = BlobId::random(1);
    let mut upload = blobs.create(id.clone(), "acme").await.unwrap();
    for piece in ["one,", "two,", ""] {
        upload.write(piece.as_bytes()).await.unwrap();
    }
    assert!(blobs.read("acme", &id).await.unwrap().is_none());
    upload.finish(meta(i64::MAX)).await.unwrap();
    let (found, bytes) = blobs.read("acme", &id).await.unwrap().unwrap();
    assert_eq!((found, bytes.as_ref()), (meta(i64::MAX), &b"one,two,"[..]));
    blobs.sweep().await.unwrap();
    assert!(blobs.read("acme", &id).await.unwrap().is_some());
    assert!(blobs.read("acme", &BlobId::random(2)).await.unwrap().is_none());
    assert!(blobs.read("globex", &id).await.unwrap().is_none());
}

async fn shows_no_unfinished_blob(blobs: &dyn Blobs) {
    let id = BlobId::random(3);
    let mut upload = blobs.create(id.clone(), "acme").await.unwrap();
    upload.write(b"half").await.unwrap();
    drop(upload);
    assert!(blobs.read("acme", &id).await.unwrap().is_none());
    // The id is free again.
    let upload = blobs.create(id.clone(), "acme").await.unwrap();
    upload.finish(meta(i64::MAX)).await.unwrap();
    assert_eq!(blobs.read("acme", &id).await.unwrap().unwrap().1.len(), 0);
}

async fn forgets_what_has_expired(blobs: &dyn Blobs) {
    let id = BlobId::random(4);
    let upload = blobs.create(id.clone(), "acme").await.unwrap();
    upload.finish(meta(1)).await.unwrap();
    assert!(blobs.read("acme", &id).await.unwrap().is_none());
    blobs.sweep().await.unwrap();
    assert!(blobs.read("acme", &id).await.unwrap().is_none());
}

async fn bounds_one_blob(blobs: &dyn Blobs) {
    let mut upload = blobs.create(BlobId::random(5), "acme").await.unwrap();
    let piece = vec![0; 16 << 20];
    for _ in 0..MAX_BLOB / (16 << 20) {
        upload.write(&piece).await.unwrap();
    }
    assert!(matches!(upload.write(b"x").await, Err(BlobError::TooLarge)));
}

/// Quota in bytes that [`counts_empty_blobs`] expects of each org.
pub const SMALL: u64 = 3 * EACH;

/// Runs against an empty store with the quota [`SMALL`].
pub async fn counts_empty_blobs(blobs: &dyn Blobs) {
    for n in 0..3 {
        let upload = blobs.create(BlobId::random(n), "acme").await.unwrap();
        upload.finish(meta(if n == 0 { 1 } else { i64::MAX })).await.unwrap();
    }
    let refused = match blobs.create(BlobId::random(3), "acme").await {
        Ok(upload) => upload.finish(meta(i64::MAX)).await,
        Err(error) => Err(error),
    };
    assert!(matches!(refused, Err(BlobError::Quota)), "{refused:?}");
    // Expired blobs free space for a new one.
    blobs.sweep().await.unwrap();
    let upload = blobs.create(BlobId::random(4), "acme").await.unwrap();
    upload.finish(meta(i64::MAX)).await.unwrap();
}
