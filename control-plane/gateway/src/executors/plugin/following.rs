//! Which resources of plugins somebody here is subscribed to, and the streams by which the plugins say what has changed.
//!
//! Owns: one stream for all of an org who are subscribed to the same resource, with the org's name and nobody's token. Keeps
//! true: it is open while somebody is subscribed and its plugin is in force; one that ends is opened anew after a pause, and
//! all are told then, because nobody knows what was missed; the last who leaves ends it. What a plugin says of another
//! resource than the one subscribed to counts where that leads back to the same primitive. Bound: streams in all and by org,
//! subscriptions by user, what one stream says at a time; how many a plugin may have its runtime says (runtime/README.md).

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};

use asp_proto::snapshot::Primitive;
use asp_proto::supervisor::PluginRef;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use super::reference::run_by;
use crate::execution::{ResourceListener, ResourceSubscription};
use crate::executors::counts::less;

mod task;

pub(super) use task::Place;
use task::Task;

/// Most streams at a time, most of one org, and most subscriptions of one user.
const MAX_STREAMS: usize = 2048;
const MAX_OF_ORG: usize = 1024;
const MAX_OF_USER: usize = 256;
/// Longest URI in bytes.
const MAX_URI: usize = 4096;

/// The plugins of the snapshot in force that watch.
type InForce = HashSet<PluginRef>;

/// What is followed at all plugins.
#[derive(Clone, Default)]
pub(super) struct Followings(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    in_force: watch::Sender<Arc<InForce>>,
}

#[derive(Default)]
struct Table {
    streams: HashMap<Arc<Key>, (Arc<Followed>, AbortOnDropHandle<()>)>,
    /// How many streams there are for each org, and how many subscriptions each user has.
    by_org: HashMap<String, usize>,
    by_user: HashMap<[u8; 16], usize>,
}

/// What one stream is for.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Key {
    plugin: PluginRef,
    org: String,
    uri: String,
}

/// What one stream tells, and whom.
struct Followed {
    key: Arc<Key>,
    /// The primitive's id, and the server of its first subscriber, as which the stream is opened.
    primitive: String,
    server: String,
    /// The servers here whose clients are subscribed, and how many of each.
    servers: Mutex<HashMap<String, usize>>,
    listener: Weak<dyn ResourceListener>,
}

/// One subscription, until this is dropped.
pub(super) struct Following {
    all: Weak<Shared>,
    key: Arc<Key>,
    server: String,
    user: [u8; 16],
}

impl Followings {
    /// A snapshot has these primitives. A plugin that did not watch is asked again.
    pub(super) fn replace(&self, primitives: &[&Primitive]) {
        let watched = primitives.iter().copied().filter(|primitive| primitive.watched_by_runtime);
        let plugins: InForce = watched.filter_map(run_by).map(|(plugin, _)| plugin).collect();
        self.0.in_force.send_replace(Arc::new(plugins));
    }

    /// Follows a resource for a client; `None` where more are followed than may be.
    pub(super) fn follow(
        &self,
        plugin: PluginRef,
        place: Place,
        subscribed: &ResourceSubscription<'_>,
    ) -> Option<Following> {
        let ResourceSubscription { user, org, uri, server, primitive, .. } = *subscribed;
        if uri.len() > MAX_URI {
            return None;
        }
        let key = Arc::new(Key { plugin, org: org.to_owned(), uri: uri.to_owned() });
        let mut table = self.0.table.lock();
        if table.by_user.get(&user).is_some_and(|theirs| *theirs >= MAX_OF_USER) {
            return None;
        }
        let followed = match table.streams.get(&key) {
            Some((followed, _)) => followed.clone(),
            None => {
                let of_org = table.by_org.get(org).copied().unwrap_or_default();
                if table.streams.len() >= MAX_STREAMS || of_org >= MAX_OF_ORG {
                    return None;
                }
                let followed = Arc::new(Followed {
                    key: key.clone(),
                    primitive: primitive.id.clone(),
                    server: server.to_owned(),
                    servers: Mutex::default(),
                    listener: subscribed.listener.clone(),
                });
                let task = Task::of(followed.clone(), place, self.0.in_force.subscribe());
                let task = AbortOnDropHandle::new(tokio::spawn(task.run()));
                table.streams.insert(key.clone(), (followed.clone(), task));
                *table.by_org.entry(org.to_owned()).or_default() += 1;
                followed
            }
        };
        *followed.servers.lock().entry(server.to_owned()).or_default() += 1;
        *table.by_user.entry(user).or_default() += 1;
        Some(Following { all: Arc::downgrade(&self.0), key, server: server.to_owned(), user })
    }

    /// Nobody follows anything any more.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.0.table.lock());
        drop(all);
    }
}

impl Table {
    /// The stream, where nobody needs it any more.
    fn leave(&mut self, key: &Key, server: &str, user: &[u8; 16]) -> Option<AbortOnDropHandle<()>> {
        less(&mut self.by_user, user);
        let (followed, _) = self.streams.get(key)?;
        let mut servers = followed.servers.lock();
        less(&mut servers, server);
        let is_over = servers.is_empty();
        drop(servers);
        if !is_over {
            return None;
        }
        less(&mut self.by_org, &key.org);
        self.streams.remove(key).map(|(_, task)| task)
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let Some(all) = self.all.upgrade() else { return };
        let over = all.table.lock().leave(&self.key, &self.server, &self.user);
        drop(over);
    }
}

impl Followed {
    /// These resources have changed; how many of them are nobody's to speak of here.
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
