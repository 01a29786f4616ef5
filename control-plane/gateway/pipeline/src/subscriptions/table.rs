//! The subscribers and the open streams of one replica, within their limits.
//!
//! Keeps true: streams have a limit of their own, far below the number of requests that the proxy in front admits;
//! watched resources are bounded in bytes; at a limit, an owner first loses their own sessions without a stream, the
//! least recently used before others; a subscriber with a stream is never evicted.

use std::sync::Arc;

use asp_call::call::principal::owner;
use asp_call::quota_table::{Owner, Quota, QuotaTable, Quotas};

use super::subscriber::{Subscriber, TooManyResources};

/// The quotas of subscriptions on one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriptionBounds {
    /// Subscribers, and the bytes of the resources that they watch.
    pub subscribers: Quotas,
    pub streams: Quotas,
}

impl Default for SubscriptionBounds {
    fn default() -> SubscriptionBounds {
        SubscriptionBounds {
            subscribers: Quotas {
                whole: Quota { entries: 50_000, bytes: 128 << 20 },
                of_org: Quota { entries: 20_000, bytes: 32 << 20 },
                of_user: Quota { entries: 8_000, bytes: 8 << 20 },
            },
            // Envoy admits 50,000 requests to all replicas at a time, and calls need their part of these.
            streams: Quotas { whole: Quota::of(10_000), of_org: Quota::of(5_000), of_user: Quota::of(2_000) },
        }
    }
}

/// Error: the user, the org or the replica is at its limit, or the replica is leaving.
#[derive(Debug)]
pub struct CapacityError;

pub(super) struct SubscriberTable {
    pub(super) subscribers: QuotaTable<Arc<Subscriber>>,
    streams: QuotaTable<()>,
}

impl SubscriberTable {
    pub(super) fn new(bounds: SubscriptionBounds) -> SubscriberTable {
        SubscriberTable {
            subscribers: QuotaTable::new(bounds.subscribers),
            streams: QuotaTable::new(bounds.streams),
        }
    }

    pub(super) fn add(&mut self, subscriber: &Arc<Subscriber>, owner: Owner) -> Result<(), CapacityError> {
        self.make_room(owner, 1, 0)?;
        self.subscribers.replace(subscriber.id, owner, subscriber.clone());
        Ok(())
    }

    /// Adds a stream.
    pub(super) fn open(&mut self, stream: [u8; 16], owner: Owner) -> Result<(), CapacityError> {
        if self.streams.add(stream, owner, ()) { Ok(()) } else { Err(CapacityError) }
    }

    /// Removes a stream, which may never have been added.
    pub(super) fn close(&mut self, stream: &[u8; 16]) {
        self.streams.remove(stream);
    }

    /// Removes this subscriber, but not another one that has its id by now.
    pub(super) fn remove(&mut self, subscriber: &Subscriber) {
        if self.has(subscriber) {
            self.subscribers.remove(&subscriber.id);
        }
    }

    /// Adds a resource to a subscriber.
    pub(super) fn watch(
        &mut self,
        subscriber: &Subscriber,
        uri: &str,
        digest: u64,
    ) -> Result<(), TooManyResources> {
        let before = subscriber.bytes();
        let bytes = subscriber.watch(uri, digest)?;
        if bytes == before || !self.has(subscriber) {
            return Ok(());
        }
        self.subscribers.touch(&subscriber.id);
        let owner = owner(&subscriber.caller());
        let room = self.make_room(owner, 0, bytes - before);
        // The subscriber may have been evicted itself: it has no stream and was the least recently used of its owner.
        if room.is_err() || !self.has(subscriber) {
            subscriber.unwatch(uri);
            return Err(TooManyResources);
        }
        self.subscribers.resize(&subscriber.id, bytes);
        Ok(())
    }

    pub(super) fn unwatch(&mut self, subscriber: &Subscriber, uri: &str) {
        let bytes = subscriber.unwatch(uri);
        if self.has(subscriber) {
            self.subscribers.resize(&subscriber.id, bytes);
        }
    }

    fn has(&self, subscriber: &Subscriber) -> bool {
        self.subscribers.get(&subscriber.id).is_some_and(|known| std::ptr::eq(&**known, subscriber))
    }

    /// Ends sessions without a stream until `owner` has capacity for the addition. One with a stream counts as used
    /// now, so that others are examined first; when it comes up again, every candidate has a stream.
    fn make_room(&mut self, owner: Owner, entries: usize, bytes: usize) -> Result<(), CapacityError> {
        let mut first = None;
        while let Some(oldest) = self.subscribers.in_the_way(owner, entries, bytes) {
            if first == Some(oldest) {
                return Err(CapacityError);
            }
            let goes = self.subscribers.get(&oldest).is_none_or(|subscriber| subscriber.end_unheard());
            if goes {
                self.subscribers.remove(&oldest);
            } else {
                self.subscribers.touch(&oldest);
                first.get_or_insert(oldest);
            }
        }
        Ok(())
    }
}
