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
    /// Agent card as JSON, for the server's author; empty if the server does not list a2a. The snapshot has no card
    /// while A2A is not served.
    pub agent_card: String,
    /// SHA-256 of all of the above, in lower-case hex.
    pub content_hash: String,
    /// Paths of the sources it was compiled from, sorted.
    pub files: Vec<String>,
}

impl CompiledServer {
    /// Returns the encoded size of the server and its primitives, including the agent card, in bytes.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let primitives: usize = self.primitives.iter().map(prost::Message::encoded_len).sum();
        self.edge.encoded_len() + self.server.encoded_len() + primitives + self.agent_card.len()
    }
}
