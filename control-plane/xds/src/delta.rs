//! One gateway's view of the parts of a snapshot: the incremental protocol as a pure state machine.
//!
//! Source: xDS REST and gRPC protocol, "Incremental xDS". Keeps true: at most one push is unanswered. It has everything
//! that differs from what the gateway has acknowledged, all at one revision, in as many messages as its size needs;
//! only the last message has a version and is answered. A rejected version is not sent again, and a snapshot older than
//! the gateway's is not sent.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use asp_proto::xds::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse, Resource,
};
use prost_types::Any;

use super::contract::Kind;
use super::published::{GatewayParts, XdsState, revision_in};
use super::subscription::{Event, StaleSnapshot, SubscriberSnapshot, reason};

/// Size limit of the encoded parts in one message, in bytes; the part that reaches it is the last one.
const MESSAGE: usize = 4 * 1024 * 1024;
/// Maximum number of parts that a gateway may report.
const MAX_PARTS: usize = 200_000;

/// The parts that the gateway has.
enum GatewayState {
    /// Reported when it connected: versions by name.
    Reported(BTreeMap<String, String>),
    Acknowledged(Arc<GatewayParts>),
}

struct SentPush {
    nonce: String,
    parts: Arc<GatewayParts>,
    answered: bool,
}

impl Default for GatewayState {
    fn default() -> GatewayState {
        GatewayState::Reported(BTreeMap::new())
    }
}

/// The state of one gateway's stream.
#[derive(Default)]
pub struct DeltaSubscription {
    has: GatewayState,
    sent: Option<SentPush>,
    is_subscribed: bool,
    in_force: SubscriberSnapshot,
    pushes: u64,
}

/// A push to send.
pub struct Push {
    parts: Arc<GatewayParts>,
    nonce: String,
    put: Vec<Arc<str>>,
    removed: Vec<String>,
}

impl DeltaSubscription {
    /// Handles a request; `version` is the version that the gateway reports to have in force.
    pub fn on_request(&mut self, request: DeltaDiscoveryRequest, version: &str) -> Event {
        if request.initial_resource_versions.len() > MAX_PARTS {
            return Event::TooMany;
        }
        let Some(sent) = &mut self.sent else {
            let is_first = !std::mem::replace(&mut self.is_subscribed, true);
            if !is_first {
                return Event::Ignored;
            }
            self.in_force.revision = revision_in(version);
            self.has = GatewayState::Reported(request.initial_resource_versions.into_iter().collect());
            return Event::Subscribed;
        };
        if sent.answered || request.response_nonce != sent.nonce {
            return Event::Ignored;
        }
        sent.answered = true;
        let revision = sent.parts.revision;
        match request.error_detail {
            None => {
                self.in_force.revision = revision;
                self.has = GatewayState::Acknowledged(Arc::clone(&sent.parts));
                Event::Acknowledged { revision }
            }
            Some(detail) => Event::Rejected { revision, reason: reason(detail.message) },
        }
    }

    /// Returns the next push if the last one was answered and there is something new.
    pub fn next_push(&mut self, xds_state: &XdsState) -> Option<Push> {
        if !self.is_subscribed || self.sent.as_ref().is_some_and(|sent| !sent.answered) {
            return None;
        }
        let published = xds_state.snapshot.as_ref()?;
        let parts = Arc::clone(&published.gateway);
        if !self.in_force.accepts(parts.revision, &parts.version, xds_state) {
            return None;
        }
        if self.sent.as_ref().is_some_and(|sent| sent.parts.version == parts.version) {
            return None;
        }
        let (put, removed) = self.difference(&parts);
        self.pushes += 1;
        let nonce = format!("{}-{}", Kind::Gateway.as_str(), self.pushes);
        self.sent = Some(SentPush { nonce: nonce.clone(), parts: Arc::clone(&parts), answered: false });
        Some(Push { parts, nonce, put, removed })
    }

    /// Returns the parts to put and the names of those to remove.
    fn difference(&self, new: &GatewayParts) -> (Vec<Arc<str>>, Vec<String>) {
        let of = |name: &Arc<str>, old: Option<u64>| {
            new.parts.get(name).filter(|part| Some(part.version) != old).map(|_| Arc::clone(name))
        };
        match &self.has {
            GatewayState::Acknowledged(old) if old.number + 1 == new.number => {
                let version = |name: &Arc<str>| old.parts.get(name).map(|part| part.version);
                let put = new.changed.iter().filter_map(|name| of(name, version(name))).collect();
                let gone = new.changed.iter().filter(|name| new.parts.get(name).is_none());
                (put, gone.map(|name| name.to_string()).collect())
            }
            GatewayState::Acknowledged(old) => {
                let version = |name: &Arc<str>| old.parts.get(name).map(|part| part.version);
                let put = new.parts.iter().filter_map(|(name, _)| of(name, version(name))).collect();
                let gone = old.parts.iter().filter(|(name, _)| new.parts.get(name).is_none());
                (put, gone.map(|(name, _)| name.to_string()).collect())
            }
            GatewayState::Reported(versions) => {
                let version = |name: &Arc<str>| {
                    versions.get(&**name).and_then(|text| u64::from_str_radix(text, 16).ok())
                };
                let put = new.parts.iter().filter_map(|(name, _)| of(name, version(name))).collect();
                let gone = versions.keys().filter(|name| new.parts.get(name).is_none());
                (put, gone.cloned().collect::<BTreeSet<_>>().into_iter().collect())
            }
        }
    }

    /// Returns the snapshot revision that the gateway has; 0 before its first.
    pub fn in_force(&self) -> u64 {
        self.in_force.revision
    }

    /// Returns the version that was sent last.
    pub fn version(&self) -> &str {
        self.sent.as_ref().map(|sent| sent.parts.version.as_str()).unwrap_or_default()
    }

    /// Returns why there is no push, once for each version.
    pub fn take_refusal(&mut self) -> Option<StaleSnapshot> {
        self.in_force.refusal.take()
    }
}

impl Push {
    pub fn revision(&self) -> u64 {
        self.parts.revision
    }

    /// Returns the messages, each built on demand: a new gateway gets everything.
    pub fn messages(self) -> impl Iterator<Item = DeltaDiscoveryResponse> + Send {
        let mut put = self.put.into_iter().peekable();
        let mut removed = Some(self.removed);
        let (parts, nonce) = (self.parts, self.nonce);
        std::iter::from_fn(move || {
            put.peek().is_some().then_some(()).or_else(|| removed.as_ref().map(drop))?;
            let mut resources = Vec::new();
            let mut bytes = 0;
            while bytes < MESSAGE
                && let Some(name) = put.next()
            {
                let Some(part) = parts.parts.get(&name) else { continue };
                bytes += part.bytes.len();
                let value = part.bytes.to_vec();
                resources.push(Resource {
                    version: part.version_text(),
                    resource: Some(Any { type_url: Kind::Gateway.type_url().into(), value }),
                    name: name.to_string(),
                });
            }
            let is_last = put.peek().is_none();
            let removed_resources = if is_last { removed.take().unwrap_or_default() } else { Vec::new() };
            Some(DeltaDiscoveryResponse {
                system_version_info: if is_last { parts.version.clone() } else { String::new() },
                resources,
                type_url: Kind::Gateway.type_url().into(),
                nonce: nonce.clone(),
                removed_resources,
            })
        })
    }
}

pub mod stream;
#[cfg(test)]
mod tests;
