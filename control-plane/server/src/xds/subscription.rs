//! One subscriber's view of one kind of resource: the "state of the world" protocol as a pure state machine.
//!
//! Source: xDS REST and gRPC protocol, "ACK/NACK and resource type instance version". Keeps true: at most
//! one response is unanswered; a version that was sent, acknowledged or rejected, is not sent again unless
//! the subscriber asks for other names; a snapshot older than the one the subscriber has is not sent.

use asp_proto::xds::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

use super::resources::Version;
use super::{Kind, XdsState, resources};

/// Longest reason that is kept of a rejection, in bytes.
const MAX_REASON: usize = 2_048;
/// More names than any Envoy of ours asks for.
const MAX_NAMES: usize = 1_024;

/// What a request meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The first request of this kind, or one with other names.
    Subscribed,
    /// The subscriber now uses that snapshot revision (0 for endpoints).
    Acknowledged { revision: u64 },
    /// The subscriber refused that revision and keeps the one before.
    Rejected { revision: u64, reason: String },
    /// An answer to an older push, or a repetition: nothing to do.
    Ignored,
    /// More names than a subscriber may have.
    TooMany,
}

struct Sent {
    nonce: String,
    version: String,
    revision: u64,
    answered: bool,
}

/// The state of one (stream, kind).
pub struct Subscription {
    kind: Kind,
    names: Vec<String>,
    sent: Option<Sent>,
    /// Names changed since the last push.
    wanted: bool,
    /// The subscriber came with a version that it has from another stream.
    resumed: bool,
    /// The snapshot revision the subscriber has, from this stream or an earlier one; 0: none.
    in_force: u64,
    /// What is not pushed, until it is asked for.
    refusal: Option<Refusal>,
    /// The version it was about.
    refused: String,
    pushes: u64,
}

/// A snapshot that is older than the one the subscriber has: neither filter nor gateway would put it in force.
/// The filter cannot say so (a worker's refusal is a broken VM to Envoy), so it is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not sent: revision {offered} is older than revision {in_force}, which the subscriber has in force")]
pub struct Refusal {
    pub offered: u64,
    pub in_force: u64,
}

impl Subscription {
    pub fn new(kind: Kind) -> Subscription {
        Subscription {
            kind,
            names: Vec::new(),
            sent: None,
            wanted: false,
            resumed: false,
            in_force: 0,
            refusal: None,
            refused: String::new(),
            pushes: 0,
        }
    }

    /// Takes a request of this kind.
    pub fn on_request(&mut self, request: DiscoveryRequest) -> Event {
        if request.resource_names.len() > MAX_NAMES {
            return Event::TooMany;
        }
        let Some(sent) = &mut self.sent else {
            // Nothing was sent on this stream: whatever nonce it names is from another one.
            self.resumed = !request.version_info.is_empty();
            self.in_force = self.revision_of(&request.version_info);
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
                self.in_force = sent.revision;
                Event::Acknowledged { revision: sent.revision }
            }
            Some(detail) => Event::Rejected { revision: sent.revision, reason: reason(detail.message) },
        }
    }

    /// Whether the subscriber has resources of an earlier stream, perhaps of an earlier control plane.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// The next response, if one is due: the last was answered and there is something new.
    pub fn next_push(&mut self, xds_state: &XdsState) -> Option<DiscoveryResponse> {
        if self.sent.as_ref().is_some_and(|sent| !sent.answered) {
            return None;
        }
        let Version { text: version, revision } = resources::version(xds_state, self.kind, &self.names)?;
        if revision < self.in_force {
            if xds_state.covers >= self.in_force {
                // Of another control plane on the same store: it comes again at a later revision (`Raised`).
                return None;
            }
            if self.refused != version {
                self.refusal = Some(Refusal { offered: revision, in_force: self.in_force });
                self.refused = version;
            }
            return None;
        }
        let known = self.sent.as_ref().is_some_and(|sent| sent.version == version);
        if known && !self.wanted {
            return None;
        }
        self.pushes += 1;
        self.wanted = false;
        let nonce = format!("{}-{}", self.kind.as_str(), self.pushes);
        self.sent = Some(Sent { nonce: nonce.clone(), version: version.clone(), revision, answered: false });
        Some(DiscoveryResponse {
            version_info: version,
            resources: resources::resources(xds_state, self.kind, &self.names),
            type_url: self.kind.type_url().into(),
            nonce,
        })
    }

    /// The snapshot revision the subscriber has; 0 for endpoints, and before its first.
    pub fn in_force(&self) -> u64 {
        self.in_force
    }

    /// The version that was sent last.
    pub fn version(&self) -> &str {
        self.sent.as_ref().map(|sent| sent.version.as_str()).unwrap_or_default()
    }

    /// Why there is no push, told once for each version.
    pub fn take_refusal(&mut self) -> Option<Refusal> {
        self.refusal.take()
    }

    /// Those of endpoints have none.
    fn revision_of(&self, version: &str) -> u64 {
        if self.kind == Kind::Endpoints { 0 } else { revision_in(version) }
    }

    /// The snapshot revision of the last push.
    pub fn pushed_revision(&self) -> Option<u64> {
        self.sent.as_ref().map(|sent| sent.revision)
    }
}

/// Versions of snapshots begin with the revision; 0 where there is none.
pub(super) fn revision_in(version: &str) -> u64 {
    version.split_once('-').and_then(|(revision, _)| revision.parse().ok()).unwrap_or(0)
}

/// A rejection's reason, as long as it is kept.
pub(super) fn reason(text: String) -> String {
    shortened(text, MAX_REASON)
}

/// Cuts at a character boundary.
pub(super) fn shortened(mut text: String, bound: usize) -> String {
    if text.len() > bound {
        let end = (0..=bound).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests;
