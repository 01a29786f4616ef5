//! Subscriptions to resources of plugins, and the streams through which the plugins report changes.
//!
//! Owns: one stream for all subscribers of an org to the same resource, with the org's name and without a user's
//! token. Keeps true: a stream is open while there are subscribers and its plugin is in force; one that ends is
//! reopened after a pause, and all subscribers are then notified, because changes may have been missed; the last
//! subscriber that leaves ends it. A change of another resource counts only where its URI leads back to the same
//! primitive. Bound: streams in total and by org, subscriptions by user, changes of one stream at a time; the runtime
//! limits the streams of a plugin (runtime/README.md).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use asp_call::execution::{ResourceListener, ResourceSubscription};
use asp_platform::quota::Counts;
use asp_proto::snapshot::Primitive;
use asp_proto::supervisor::PluginRef;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::availability::PluginLocation;
use super::reference::run_by;

mod task;

use task::Task;

/// Maximum number of streams, of streams of one org, and of subscriptions of one user.
const MAX_STREAMS: usize = 2048;
const MAX_OF_ORG: usize = 1024;
const MAX_OF_USER: usize = 256;
/// Maximum length of a URI in bytes.
const MAX_URI: usize = 4096;

/// Plugins of the snapshot in force that watch.
type InForce = HashSet<PluginRef>;

/// All subscriptions to resources of plugins.
#[derive(Clone, Default)]
pub(super) struct Followings(Arc<SharedTable>);

#[derive(Default)]
struct SharedTable {
    table: Mutex<Table>,
    in_force: watch::Sender<Arc<InForce>>,
}

#[derive(Default)]
struct Table {
    streams: HashMap<Arc<Key>, (Arc<FollowedResource>, AbortOnDropHandle<()>)>,
    /// Number of streams of each org, and of subscriptions of each user.
    by_org: Counts<String>,
    by_user: Counts<[u8; 16]>,
}

/// Identity of a stream.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    plugin: PluginRef,
    org: String,
    uri: String,
}

/// One stream and its subscribers.
struct FollowedResource {
    key: Arc<Key>,
    /// The primitive's id, and the server of the first subscriber, for which the stream is opened.
    primitive: String,
    server: String,
    /// Servers whose clients are subscribed, and the number of subscriptions of each.
    servers: Mutex<Counts<String>>,
    listener: Weak<dyn ResourceListener>,
}

/// One subscription; ends when dropped.
pub(super) struct PluginSubscription {
    all: Weak<SharedTable>,
    key: Arc<Key>,
    server: String,
    user: [u8; 16],
}

impl Followings {
    /// Sets the primitives of a new snapshot. A plugin that did not watch is asked again.
    pub(super) fn replace(&self, primitives: &[&Primitive]) {
        let watched = primitives.iter().copied().filter(|primitive| primitive.watched_by_runtime);
        let plugins: InForce = watched.filter_map(run_by).map(|(plugin, _)| plugin).collect();
        self.0.in_force.send_replace(Arc::new(plugins));
    }

    /// Follows a resource for a client; `None` if a bound is reached.
    pub(super) fn follow(
        &self,
        plugin: PluginRef,
        place: PluginLocation,
        subscribed: &ResourceSubscription<'_>,
    ) -> Option<PluginSubscription> {
        let ResourceSubscription { user, org, uri, server, primitive, .. } = *subscribed;
        if uri.len() > MAX_URI {
            return None;
        }
        let key = Arc::new(Key { plugin, org: org.to_owned(), uri: uri.to_owned() });
        let mut table = self.0.table.lock();
        if table.by_user.get(&user) >= MAX_OF_USER {
            return None;
        }
        let followed = match table.streams.get(&key) {
            Some((followed, _)) => followed.clone(),
            None => {
                let is_full = table.streams.len() >= MAX_STREAMS;
                if is_full || !table.by_org.add_within(MAX_OF_ORG, org.to_owned(), 1) {
                    return None;
                }
                let followed = Arc::new(FollowedResource {
                    key: key.clone(),
                    primitive: primitive.id.clone(),
                    server: server.to_owned(),
                    servers: Mutex::default(),
                    listener: subscribed.listener.clone(),
                });
                let task = Task::of(followed.clone(), place, self.0.in_force.subscribe());
                let task = AbortOnDropHandle::new(tokio::spawn(task.run()));
                table.streams.insert(key.clone(), (followed.clone(), task));
                followed
            }
        };
        followed.servers.lock().add(server.to_owned(), 1);
        table.by_user.add(user, 1);
        Some(PluginSubscription { all: Arc::downgrade(&self.0), key, server: server.to_owned(), user })
    }

    /// Ends all streams.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.table.lock());
        drop(all);
    }
}

impl Table {
    /// Removes a subscription; returns the stream if nobody needs it any more.
    fn leave(&mut self, key: &Key, server: &str, user: &[u8; 16]) -> Option<AbortOnDropHandle<()>> {
        self.by_user.remove(user, 1);
        let (followed, _) = self.streams.get(key)?;
        let mut servers = followed.servers.lock();
        servers.remove(server, 1);
        let is_over = servers.is_empty();
        drop(servers);
        if !is_over {
            return None;
        }
        self.by_org.remove(&key.org, 1);
        self.streams.remove(key).map(|(_, task)| task)
    }
}

impl Drop for PluginSubscription {
    fn drop(&mut self) {
        let Some(all) = self.all.upgrade() else { return };
        let over = all.table.lock().leave(&self.key, &self.server, &self.user);
        drop(over);
    }
}

impl FollowedResource {
    /// Reports that these resources have changed; returns how many of them do not belong to the primitive at any of
    /// the servers.
    fn tell(&self, uris: impl IntoIterator<Item = String>) -> usize {
        let Some(listener) = self.listener.upgrade() else { return 0 };
        let servers: Vec<String> = self.servers.lock().keys().cloned().collect();
        let is_own =
            |server: &str, uri: &str| uri == self.key.uri || listener.leads_to(server, uri, &self.primitive);
        let mut foreign = 0;
        for uri in uris {
            let told = servers.iter().filter(|server| is_own(server, &uri));
            let told = told.inspect(|server| listener.changed(server, &self.key.org, &uri)).count();
            foreign += usize::from(told == 0 && !servers.is_empty());
        }
        foreign
    }
}

#[cfg(test)]
mod tests;
