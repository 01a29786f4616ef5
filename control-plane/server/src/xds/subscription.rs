//! One subscriber's view of one kind of resource: the state-of-the-world protocol as a pure state machine.
//!
//! Source: xDS REST and gRPC protocol, "ACK/NACK and resource type instance version". Keeps true: at most
//! one response is unanswered; a version that was sent, acknowledged or rejected, is not sent again unless
//! the subscriber asks for other names.

use envoy_types::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};

use super::resources::Batch;
use super::{Kind, World, resources};

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
    pushes: u64,
}

impl Subscription {
    pub fn new(kind: Kind) -> Subscription {
        Subscription { kind, names: Vec::new(), sent: None, wanted: false, resumed: false, pushes: 0 }
    }

    /// Takes a request of this kind.
    pub fn on_request(&mut self, request: DiscoveryRequest) -> Event {
        if request.resource_names.len() > MAX_NAMES {
            return Event::TooMany;
        }
        let Some(sent) = &mut self.sent else {
            // Nothing was sent on this stream: whatever nonce it names is from another one.
            self.resumed = !request.version_info.is_empty();
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
            None => Event::Acknowledged { revision: sent.revision },
            Some(detail) => {
                Event::Rejected { revision: sent.revision, reason: shortened(detail.message, MAX_REASON) }
            }
        }
    }

    /// Whether the subscriber has resources of an earlier stream, perhaps of an earlier control plane.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }

    /// The next response, if one is due: the last was answered and there is something new.
    pub fn next_push(&mut self, world: &World) -> Option<DiscoveryResponse> {
        if self.sent.as_ref().is_some_and(|sent| !sent.answered) {
            return None;
        }
        let Batch { version, revision, resources } = resources::batch(world, self.kind, &self.names)?;
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
            resources,
            type_url: self.kind.type_url().into(),
            nonce,
            ..DiscoveryResponse::default()
        })
    }

    /// The snapshot revision of the last push.
    pub fn pushed_revision(&self) -> Option<u64> {
        self.sent.as_ref().map(|sent| sent.revision)
    }
}

/// Cuts at a character boundary.
fn shortened(mut text: String, bound: usize) -> String {
    if text.len() > bound {
        let end = (0..=bound).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

#[cfg(test)]
mod tests;
