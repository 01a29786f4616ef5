//! The file of local keys, while it is rotated under load.

use std::path::Path;
use std::sync::Arc;

use asp_vault::local::{self, LocalKeys};
use asp_vault::{Vault, key_id_of};
use tokio::task::JoinSet;

use crate::support::{PLACE, open};

const ROTATIONS: usize = 50;
const RECORDS: usize = 200;

fn process(file: &Path) -> Vault {
    Vault::new(Arc::new(LocalKeys::of_this_machine(file)))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_record_is_refused_while_keys_are_rotated() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("vault-key");
    let first = local::rotate(&file, 0).unwrap();
    // One process runs on; others start, seal with the newest key, and hand it what they sealed.
    let running = process(&file);
    let rotating = {
        let file = file.clone();
        let rotate = move || (0..ROTATIONS).fold(first, |_, _| local::rotate(&file, 0).unwrap());
        tokio::task::spawn_blocking(rotate)
    };
    let mut tasks = JoinSet::new();
    for _ in 0..4 {
        let running = running.clone();
        let file = file.clone();
        tasks.spawn(async move {
            let mut sealed = Vec::new();
            for _ in 0..RECORDS {
                let record = process(&file).seal(&PLACE, b"token").await.unwrap();
                assert_eq!(open(&running, &record).await.unwrap().0, b"token");
                sealed.push(record);
            }
            sealed
        });
    }
    let sealed = tasks.join_all().await.concat();
    let last_key = rotating.await.unwrap();
    // Each key becomes current a millisecond after the former one, however fast they are added.
    while asp_platform::clock::now_ms() < last_key.from_ms {
        tokio::task::yield_now().await;
    }
    let newest = process(&file);
    let last = newest.seal(&PLACE, b"token").await.unwrap();
    for record in &sealed {
        let (plain, is_outdated) = open(&newest, record).await.unwrap();
        assert_eq!((plain.as_slice(), is_outdated), (&b"token"[..], key_id_of(record) != key_id_of(&last)));
    }
}
