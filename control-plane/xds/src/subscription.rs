//! One subscriber's view of one kind of resource: the state-of-the-world protocol as a pure state machine.
//!
//! Source: xDS REST and gRPC protocol, "ACK/NACK and resource type instance version". Keeps true: at most one response
//! is unanswered; a version that was sent is not sent again, acknowledged or not, unless the subscriber asks for other
//! names; a snapshot older than the subscriber's is not sent.

use asp_proto::xds::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

use super::contract::Kind;
use super::published::{self, Version, XdsState, revision_in};

/// Maximum length of a rejection's reason, in bytes.
const MAX_REASON: usize = 2_048;
/// Maximum number of names in a request; more than Envoy asks for with the configuration of this project.
const MAX_NAMES: usize = 1_024;

/// Effect of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// First request of this kind, or one with other names.
    Subscribed,
    /// Snapshot revision now in use by the subscriber (0 for endpoints).
    Acknowledged { revision: u64 },
    /// Revision that the subscriber refused; it keeps the previous one.
    Rejected { revision: u64, reason: String },
    /// Answer to an older push, or a repetition: nothing to do.
    Ignored,
    /// More names than a subscriber may have.
    TooMany,
}

struct SentResponse {
    nonce: String,
    version: String,
    revision: u64,
    answered: bool,
}

/// State of one kind of resource on one stream.
pub struct Subscription {
    kind: Kind,
    names: Vec<String>,
    sent: Option<SentResponse>,
    /// Whether the names changed since the last push.
    wanted: bool,
    /// Whether the subscriber has resources of an earlier stream, perhaps of an earlier control plane.
    pub(super) resumed: bool,
    in_force: SubscriberSnapshot,
    pushes: u64,
}

/// A snapshot that is older than the subscriber's: neither filter nor gateway would apply it. The filter cannot report
/// that (to Envoy a worker's refusal is a broken VM), so it is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: revision {offered} is older than revision {in_force}, which the subscriber has in force")]
pub struct StaleSnapshot {
    pub offered: u64,
    pub in_force: u64,
}

/// The snapshot that a subscriber has.
#[derive(Default)]
pub(super) struct SubscriberSnapshot {
    /// Its revision, from this stream or an earlier one; 0 if none.
    pub(super) revision: u64,
    /// Reason why nothing is pushed, until it is taken.
    pub(super) refusal: Option<StaleSnapshot>,
    /// Version that the refusal was about.
    refused: String,
}

impl SubscriberSnapshot {
    /// Whether a snapshot of this revision may replace it. If not, records the refusal, once for each version.
    pub(super) fn accepts(&mut self, revision: u64, version: &str, xds_state: &XdsState) -> bool {
        if revision >= self.revision {
            return true;
        }
        // If the store covers it, the subscriber's snapshot is from another control plane on the same store. It will be
        // published again at a later revision (`SeenRevisions`).
        if xds_state.covers < self.revision && self.refused != version {
            self.refusal = Some(StaleSnapshot { offered: revision, in_force: self.revision });
            version.clone_into(&mut self.refused);
        }
        false
    }
}

impl Subscription {
    pub fn new(kind: Kind) -> Subscription {
        Subscription {
            kind,
            names: Vec::new(),
            sent: None,
            wanted: false,
            resumed: false,
            in_force: SubscriberSnapshot::default(),
            pushes: 0,
        }
    }

    /// Handles a request of this kind.
    pub fn on_request(&mut self, request: DiscoveryRequest) -> Event {
        if request.resource_names.len() > MAX_NAMES {
            return Event::TooMany;
        }
        let Some(sent) = &mut self.sent else {
            // Nothing was sent on this stream yet, so a nonce is from another one.
            self.resumed = !request.version_info.is_empty();
            self.in_force.revision = self.revision_of(&request.version_info);
            self.names = request.resource_names;
            self.wanted = true;
            return Event::Subscribed;
        };
        if request.response_nonce != sent.nonce {
            return Event::Ignored;
        }
        if request.resource_names != self.names {
            self.names = request.resource_names;
            self.wanted = true;
        }
        if sent.answered {
            return if self.wanted { Event::Subscribed } else { Event::Ignored };
        }
        sent.answered = true;
        match request.error_detail {
            None => {
                self.in_force.revision = sent.revision;
                Event::Acknowledged { revision: sent.revision }
            }
            Some(detail) => Event::Rejected { revision: sent.revision, reason: reason(detail.message) },
        }
    }

    /// Returns the next response if the last one was answered and there is something new.
    pub fn next_push(&mut self, xds_state: &XdsState) -> Option<DiscoveryResponse> {
        if self.sent.as_ref().is_some_and(|sent| !sent.answered) {
            return None;
        }
        let Version { text: version, revision } = published::version(xds_state, self.kind, &self.names)?;
        if !self.in_force.accepts(revision, &version, xds_state) {
            return None;
        }
        let known = self.sent.as_ref().is_some_and(|sent| sent.version == version);
        if known && !self.wanted {
            return None;
        }
        self.pushes += 1;
        self.wanted = false;
        let nonce = format!("{}-{}", self.kind.as_str(), self.pushes);
        self.sent =
            Some(SentResponse { nonce: nonce.clone(), version: version.clone(), revision, answered: false });
        Some(DiscoveryResponse {
            version_info: version,
            resources: published::resources(xds_state, self.kind, &self.names),
            type_url: self.kind.type_url().into(),
            nonce,
        })
    }

    /// Returns the snapshot revision that the subscriber has; 0 for endpoints and before its first.
    pub fn in_force(&self) -> u64 {
        self.in_force.revision
    }

    /// Returns the version that was sent last.
    pub fn version(&self) -> &str {
        self.sent.as_ref().map(|sent| sent.version.as_str()).unwrap_or_default()
    }

    /// Returns why there is no push, once for each version.
    pub fn take_refusal(&mut self) -> Option<StaleSnapshot> {
        self.in_force.refusal.take()
    }

    /// Returns the revision of a version; 0 for endpoints, which have none.
    fn revision_of(&self, version: &str) -> u64 {
        if self.kind == Kind::Endpoints { 0 } else { revision_in(version) }
    }

    /// Returns the snapshot revision of the last push.
    pub fn pushed_revision(&self) -> Option<u64> {
        self.sent.as_ref().map(|sent| sent.revision)
    }
}

/// Shortens a rejection's reason to [`MAX_REASON`].
pub(super) fn reason(text: String) -> String {
    shortened(text, MAX_REASON)
}

/// Shortens a text to `bound` bytes, at a character boundary.
pub(super) fn shortened(mut text: String, bound: usize) -> String {
    text.truncate(text.floor_char_boundary(bound));
    text
}

#[cfg(test)]
mod tests;
