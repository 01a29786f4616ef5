//! A compiled server, the result of a check and the input of everything after it.

use asp_proto::snapshot;
use prost::Message as _;

/// A server with all it needs. It can be stored and assembled by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct CompiledServer {
    pub edge: snapshot::EdgeServer,
    pub server: snapshot::Server,
    /// Listed primitives and the elicitations and delegates they depend on, sorted by id.
    pub primitives: Vec<snapshot::Primitive>,
    /// Orgs that the server's own file offers it to, sorted; `edge.default_allow` means all orgs.
    pub offered_to: Vec<String>,
    /// Agent card with all skills, as JSON; empty if the server does not list a2a. The card of a snapshot is without
    /// skills, and also empty if A2A is off.
    pub agent_card: String,
    /// SHA-256 of all of the above, in lower-case hex.
    pub content_hash: String,
    /// Paths of the sources it was compiled from, sorted.
    pub files: Vec<String>,
}

impl CompiledServer {
    /// Whether `server.yaml` lists a2a.
    pub fn lists_a2a(&self) -> bool {
        !self.agent_card.is_empty()
    }

    /// Whether A2A is off although `server.yaml` lists it.
    pub fn is_a2a_off(&self) -> bool {
        self.lists_a2a() && self.server.a2a_card.is_empty()
    }

    /// Removes everything of A2A that is published; [`CompiledServer::agent_card`] stays.
    pub fn switch_a2a_off(&mut self) {
        self.edge.protocols.retain(|protocol| *protocol != i32::from(snapshot::Protocol::A2a));
        self.server.a2a_card.clear();
        self.server.listings.iter_mut().for_each(|listing| listing.a2a_skill.clear());
    }

    /// Removes these primitives; elicitations and delegates, which are not listed, stay.
    pub fn unlist(&mut self, ids: &[String]) {
        let listings = &self.server.listings;
        let is_listed = |id: &str| listings.iter().any(|listing| listing.id == id);
        self.primitives.retain(|primitive| !(ids.contains(&primitive.id) && is_listed(&primitive.id)));
        self.server.listings.retain(|listing| !ids.contains(&listing.id));
    }

    /// Returns the encoded size of the server and its primitives, in bytes.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let primitives: usize = self.primitives.iter().map(prost::Message::encoded_len).sum();
        self.edge.encoded_len() + self.server.encoded_len() + primitives
    }
}
