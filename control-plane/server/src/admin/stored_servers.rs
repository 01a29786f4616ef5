//! Cache of the stored servers, so that a write reads only those that changed since the last one.
//!
//! Keeps true: the returned servers are those stored at the returned revision.

use std::sync::Arc;

use asp_store::control::sql::ControlStore;
use asp_store::control::{AtRevision, ServerRecord, StateDelta, StateUpdate, StoreError};
use tokio::sync::Mutex;

use crate::server_records;

/// Number of changes of any kind after which all servers are read again: the changes may concern thousands of orgs.
const MOST_BEHIND: u64 = 100;

/// Servers sorted by name.
type Records = Arc<Vec<ServerRecord>>;

/// Servers that one control plane has read.
#[derive(Default)]
pub struct StoredServers(Mutex<Option<AtRevision<Records>>>);

impl StoredServers {
    /// Returns all servers, and the revision at which they were read.
    pub(super) async fn read(&self, store: &ControlStore) -> Result<AtRevision<Records>, StoreError> {
        let mut held = self.0.lock().await;
        let now = store.revision().await?;
        let known =
            held.take().filter(|known| (known.revision..=known.revision + MOST_BEHIND).contains(&now));
        let read = match known {
            Some(known) => match store.since(known.revision).await? {
                StateUpdate::Changed(changed) => with(known.value, changed),
                // Another database was restored.
                StateUpdate::All(_) => whole(store).await?,
            },
            None => whole(store).await?,
        };
        *held = Some(read.clone());
        Ok(read)
    }
}

async fn whole(store: &ControlStore) -> Result<AtRevision<Records>, StoreError> {
    let AtRevision { revision, value: mut records } = store.servers().await?;
    records.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(AtRevision { revision, value: Arc::new(records) })
}

fn with(mut records: Records, changed: StateDelta) -> AtRevision<Records> {
    let StateDelta { revision, servers, .. } = changed;
    if !servers.is_empty() {
        server_records::change(Arc::make_mut(&mut records), servers);
    }
    AtRevision { revision, value: records }
}

#[cfg(test)]
mod tests {
    use asp_store::control::{Change, SourceFile};

    use super::*;

    async fn put(store: &ControlStore, name: &str, text: &str) {
        let change = Change::unconditional("a", 1);
        let files = [SourceFile { path: "server.yaml".into(), text: text.into() }];
        store.put_server(&change, name, &files, text).await.unwrap();
    }

    /// Checks that the cached list is the one in the store.
    async fn same(servers: &StoredServers, store: &ControlStore) -> Vec<String> {
        let read = servers.read(store).await.unwrap();
        let mut stored = store.servers().await.unwrap();
        stored.value.sort_by(|a, b| a.name.cmp(&b.name));
        assert_eq!((read.revision, &*read.value), (stored.revision, &stored.value));
        read.value.iter().map(|record| format!("{} {}", record.name, record.files[0].text)).collect()
    }

    #[tokio::test]
    async fn what_was_read_before_is_what_is_stored_whatever_changed_meanwhile() {
        let store = ControlStore::in_memory().await.unwrap();
        let servers = StoredServers::default();
        assert!(same(&servers, &store).await.is_empty());
        put(&store, "b", "one").await;
        put(&store, "d", "one").await;
        assert_eq!(same(&servers, &store).await, ["b one", "d one"]);
        put(&store, "a", "one").await;
        put(&store, "b", "two").await;
        let change = Change::unconditional("a", 1);
        store.delete_server(&change, "d").await.unwrap();
        assert_eq!(same(&servers, &store).await, ["a one", "b two"]);
        assert_eq!(same(&servers, &store).await, ["a one", "b two"], "nothing changed");
        for number in 0..=MOST_BEHIND {
            put(&store, "c", &number.to_string()).await;
        }
        assert_eq!(same(&servers, &store).await, ["a one", "b two", "c 100"]);
    }
}
