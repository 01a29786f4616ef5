//! Subscriptions to resources of upstreams, and the notification of subscribers when one has changed.
//!
//! Keeps true: an upstream is subscribed to while there are subscribers here, in one session for all of them, because
//! it knows none of our callers; a session that it has lost is reopened and subscribed again, and all subscribers are
//! then notified, because changes may have been missed; the last subscriber that leaves ends it. Bound: upstreams,
//! and URIs of each, by user, by org and in total.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_call::execution::{ResourceListener, ResourceSubscription};
use asp_mcp_client::client::session::Session;
use asp_mcp_client::client::updates::ResourceChanges;
use asp_mcp_client::client::{Client, ClientFault};
use asp_platform::pauses::doubling;
use asp_platform::quota::Counts;
use parking_lot::Mutex;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

/// Maximum number of upstreams, of resources of one, and of those that one user was the first to subscribe to.
const MAX_UPSTREAMS: usize = 128;
const MAX_URIS: usize = 4096;
const MAX_OF_USER: usize = 1024;
/// The same for the users of one org: half, so that it leaves some to others.
const MAX_UPSTREAMS_OF_ORG: usize = MAX_UPSTREAMS / 2;
const MAX_OF_ORG: usize = MAX_URIS / 2;
/// Pause after a failed subscription to an upstream; it doubles after each try.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Interval of pings, which also keep the session alive.
const PING_EVERY: Duration = Duration::from_secs(60);
/// Time for which an unneeded session is kept, and for which one that cannot report changes is not reopened.
const LINGERS: Duration = Duration::from_secs(10);
const MUTE_FOR: Duration = Duration::from_secs(600);
/// Timeout of a handshake.
const LONGEST: Duration = Duration::from_secs(60);

/// URL that specs name, and the address that it stands for.
type Key = (String, String);
type Table = Mutex<HashMap<Key, (Arc<FollowedUpstream>, AbortOnDropHandle<()>)>>;

/// Subscriptions at all upstreams.
#[derive(Default)]
pub(super) struct Followings {
    table: Arc<Table>,
}

/// Subscriptions at one upstream.
struct FollowedUpstream {
    wanted: Mutex<WantedUris>,
    changed: Notify,
    listener: Weak<dyn ResourceListener>,
}

#[derive(Default)]
struct WantedUris {
    /// Servers here whose clients are subscribed, and the number of subscriptions of each, by URI.
    uris: HashMap<String, Counts<String>>,
    /// Numbers of URIs by the user that was the first to subscribe to them, and by the user's org.
    by_user: Counts<[u8; 16]>,
    by_org: Counts<String>,
}

/// A user of an org.
#[derive(Clone, Debug, PartialEq, Eq)]
struct FollowingUser {
    user: [u8; 16],
    org: String,
}

/// One subscription; ends when dropped.
pub(super) struct UpstreamSubscription {
    of: Arc<FollowedUpstream>,
    uri: String,
    server: String,
    /// User that the URI is counted for, if this subscription was its first.
    came_with: Option<FollowingUser>,
}

impl Followings {
    /// Follows a resource for a client of `server`; `None` if a bound is reached.
    pub(super) fn follow(
        &self,
        url: &str,
        client: Client,
        subscribed: &ResourceSubscription<'_>,
    ) -> Option<UpstreamSubscription> {
        let key = (url.to_owned(), client.url.to_string());
        let ResourceSubscription { user, org, uri, server, .. } = *subscribed;
        let mut table = self.table.lock();
        let is_full = table.len() >= MAX_UPSTREAMS || upstreams_of(&table, org) >= MAX_UPSTREAMS_OF_ORG;
        let of = match table.get(&key) {
            Some((known, _)) => known.clone(),
            None if is_full => return None,
            None => {
                let listener = subscribed.listener.clone();
                let made =
                    Arc::new(FollowedUpstream { wanted: Mutex::default(), changed: Notify::new(), listener });
                let table_of = Arc::downgrade(&self.table);
                let task = Task { of: made.clone(), client, key: key.clone(), table: table_of };
                table.insert(key, (made.clone(), AbortOnDropHandle::new(tokio::spawn(task.run()))));
                made
            }
        };
        // Under the lock of the table: a task that ends has either checked before, or sees this subscription.
        let follower = FollowingUser { user, org: org.to_owned() };
        let came_with = of.wanted.lock().add(follower, server, uri)?;
        of.changed.notify_one();
        Some(UpstreamSubscription { of, uri: uri.to_owned(), server: server.to_owned(), came_with })
    }

    /// Ends all subscriptions.
    pub(super) fn clear(&self) {
        let all = std::mem::take(&mut *self.table.lock());
        drop(all);
    }
}

/// Returns the number of upstreams that the users of an org follow.
fn upstreams_of(table: &HashMap<Key, (Arc<FollowedUpstream>, AbortOnDropHandle<()>)>, org: &str) -> usize {
    table.values().filter(|(followed, _)| followed.wanted.lock().by_org.get(org) > 0).count()
}

impl WantedUris {
    /// Adds a subscription. Returns the user that the URI is counted for, if it is new; `None` if a bound is reached.
    fn add(&mut self, follower: FollowingUser, server: &str, uri: &str) -> Option<Option<FollowingUser>> {
        let is_new = !self.uris.contains_key(uri);
        if is_new {
            let FollowingUser { user, org } = &follower;
            let is_full = self.uris.len() >= MAX_URIS || self.by_user.get(user) >= MAX_OF_USER;
            if is_full || !self.by_org.add_within(MAX_OF_ORG, org.clone(), 1) {
                return None;
            }
            self.by_user.add(*user, 1);
        }
        self.uris.entry(uri.to_owned()).or_default().add(server.to_owned(), 1);
        Some(is_new.then_some(follower))
    }
}

impl Drop for UpstreamSubscription {
    fn drop(&mut self) {
        let mut wanted = self.of.wanted.lock();
        if let Some(servers) = wanted.uris.get_mut(&self.uri) {
            servers.remove(&self.server, 1);
            if servers.is_empty() {
                wanted.uris.remove(&self.uri);
            }
        }
        if let Some(FollowingUser { user, org }) = &self.came_with {
            wanted.by_user.remove(user, 1);
            wanted.by_org.remove(org, 1);
        }
        drop(wanted);
        self.of.changed.notify_one();
    }
}

impl FollowedUpstream {
    fn uris(&self) -> HashSet<String> {
        self.wanted.lock().uris.keys().cloned().collect()
    }

    fn tell(&self, updated: ResourceChanges) {
        let Some(listener) = self.listener.upgrade() else { return };
        // The changed resource may be a part of the subscribed one (MCP, `ResourceUpdatedNotification`).
        let is_told = |wanted: &str| match &updated {
            ResourceChanges::These(uris) => uris.iter().any(|uri| {
                uri.strip_prefix(wanted).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }),
            ResourceChanges::Any => true,
        };
        let told: Vec<(String, Vec<String>)> = {
            let wanted = self.wanted.lock();
            let told = wanted.uris.iter().filter(|(uri, _)| is_told(uri));
            told.map(|(uri, servers)| (uri.clone(), servers.keys().cloned().collect())).collect()
        };
        for (uri, servers) in told {
            servers.iter().for_each(|server| listener.changed_for_all(server, &uri));
        }
    }
}

/// Subscription task of one upstream.
struct Task {
    of: Arc<FollowedUpstream>,
    client: Client,
    key: Key,
    table: Weak<Table>,
}

impl Task {
    async fn run(self) {
        let mut pauses = doubling(PAUSE, LONGEST_PAUSE);
        let mut was_open = false;
        loop {
            let before = was_open;
            match self.follow_on(&mut was_open).await {
                Ok(()) if self.ends() => return,
                Ok(()) => continue,
                Err(fault) => {
                    if matches!(fault, ClientFault::Refused { status: StatusCode::UNAUTHORIZED, .. }) {
                        self.client.proof.refused().await;
                    }
                    tracing::debug!(url = self.key.0, %fault, "subscribing to resources of an upstream failed and is tried again");
                    if self.of.wanted.lock().uris.is_empty() && self.ends() {
                        return;
                    }
                }
            }
            pauses = if was_open && !before { doubling(PAUSE, LONGEST_PAUSE) } else { pauses };
            tokio::time::sleep(pauses.next().unwrap_or(LONGEST_PAUSE)).await;
        }
    }

    /// Removes the upstream from the table, unless it is needed again.
    fn ends(&self) -> bool {
        let Some(table) = self.table.upgrade() else { return true };
        let mut table = table.lock();
        let is_over = self.of.wanted.lock().uris.is_empty();
        if is_over {
            table.remove(&self.key);
        }
        is_over
    }

    /// Follows in one session until it is not needed any more.
    async fn follow_on(&self, was_open: &mut bool) -> Result<(), ClientFault> {
        self.client.proof.renew(&self.client.url).await;
        let greeting = tokio::time::timeout(LONGEST, self.client.initialize(json!({})));
        let too_slow = |_| ClientFault::Lost("the service did not answer in time".into());
        let mut session = greeting.await.map_err(too_slow)??;
        if !session.is_modern() && !session.offers.subscriptions {
            drop(session);
            return self.wait_mute().await;
        }
        session.listen_to_changes(false).await;
        if !session.listens() {
            drop(session);
            return self.wait_mute().await;
        }
        let running = session.running.clone();
        let mut subscribed = HashSet::new();
        let mut was_lost = std::mem::replace(was_open, true);
        loop {
            self.client.proof.renew(&self.client.url).await;
            session.proves_as(&self.client);
            self.subscribe(&session, &mut subscribed).await?;
            if std::mem::take(&mut was_lost) {
                self.of.tell(ResourceChanges::Any);
            }
            let is_unwanted = subscribed.is_empty();
            tokio::select! {
                () = self.of.changed.notified() => {}
                updated = running.updates.next() => self.of.tell(updated),
                () = running.over.cancelled() => return Err(ClientFault::SessionEnded),
                () = tokio::time::sleep(LINGERS), if is_unwanted => return Ok(()),
                () = tokio::time::sleep(PING_EVERY), if !session.is_modern() => match self.ask(&session, "ping", json!({})).await {
                    Ok(()) | Err(ClientFault::Error { .. }) => {}
                    Err(fault) => return Err(fault),
                },
            }
        }
    }

    /// Waits a while, because the upstream reports no changes or no listener is free.
    async fn wait_mute(&self) -> Result<(), ClientFault> {
        let until_unwanted = async {
            while !self.of.wanted.lock().uris.is_empty() {
                self.of.changed.notified().await;
            }
        };
        let over = tokio::time::timeout(MUTE_FOR, until_unwanted).await;
        over.map_err(|_| ClientFault::Lost("the service reports no changes of this resource".into()))
    }

    /// Subscribes to new URIs, and unsubscribes from those that are not wanted any more.
    async fn subscribe(
        &self,
        session: &Session,
        subscribed: &mut HashSet<String>,
    ) -> Result<(), ClientFault> {
        let wanted = self.of.uris();
        if session.is_modern() {
            let uris: BTreeSet<String> = wanted.iter().cloned().collect();
            session.running.wanted.send_if_modified(|before| std::mem::replace(before, uris) != *before);
            *subscribed = wanted;
            return Ok(());
        }
        let gone: Vec<String> = subscribed.difference(&wanted).cloned().collect();
        let new: Vec<String> = wanted.difference(subscribed).cloned().collect();
        for (method, uris) in [("resources/unsubscribe", gone), ("resources/subscribe", new)] {
            for uri in uris {
                match self.ask(session, method, json!({"uri": uri})).await {
                    Ok(()) => {}
                    // The subscription stays refused for as long as this session lasts.
                    Err(ClientFault::Error { message, .. }) => {
                        tracing::debug!(url = self.key.0, uri, message, "an upstream refused a subscription");
                    }
                    Err(fault) => return Err(fault),
                }
                if method == "resources/subscribe" {
                    subscribed.insert(uri);
                } else {
                    subscribed.remove(&uri);
                }
            }
        }
        Ok(())
    }

    async fn ask(&self, session: &Session, method: &str, params: Value) -> Result<(), ClientFault> {
        let exchange = self.client.alone(method, params);
        self.client.request(session, exchange).await.map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_user_does_not_take_the_places_of_others() {
        let mut wanted = WantedUris::default();
        let follower = |user: u8| FollowingUser { user: [user; 16], org: "acme".into() };
        let mut add = |user: u8, uri: &str| wanted.add(follower(user), "s", uri);
        for number in 0..MAX_OF_USER {
            assert_eq!(add(1, &number.to_string()), Some(Some(follower(1))));
        }
        assert_eq!(add(1, "more"), None);
        assert_eq!(add(1, "0"), Some(None), "what somebody follows already takes no place");
        assert_eq!(add(2, "more"), Some(Some(follower(2))));
        wanted.by_user.remove(&[2; 16], 1);
        assert_eq!(wanted.by_user.len(), 1, "who came with nothing is not remembered");
    }

    #[test]
    fn one_orgs_users_do_not_take_the_places_of_other_orgs() {
        let mut wanted = WantedUris::default();
        let mut add = |org: &str, number: usize| {
            let user = [(number / MAX_OF_USER) as u8; 16];
            wanted.add(FollowingUser { user, org: org.to_owned() }, "s", &number.to_string()).is_some()
        };
        assert!((0..MAX_OF_ORG).all(|number| add("acme", number)));
        assert!(!add("acme", MAX_OF_ORG));
        assert!(add("other", MAX_OF_ORG));
    }
}
