//! One compiled server: what the check makes, and everything after it takes.

use asp_proto::snapshot;
use prost::Message as _;

/// One server with all it needs; can be stored and assembled by itself.
#[derive(Clone, Debug, PartialEq)]
pub struct CompiledServer {
    pub edge: snapshot::EdgeServer,
    pub server: snapshot::Server,
    /// What it lists and the elicitations and delegates those depend on, sorted by id.
    pub primitives: Vec<snapshot::Primitive>,
    /// Orgs that it is offered to by its own file, sorted; `edge.default_allow` is all of them.
    pub offered_to: Vec<String>,
    /// What A2A clients would get, as JSON; empty when the server does not list a2a. It is for the server's
    /// author: while no face serves A2A, the snapshot has no card.
    pub agent_card: String,
    /// Lower-case hex SHA-256 of all of the above.
    pub content_hash: String,
    /// Paths of the sources it was compiled from, sorted.
    pub files: Vec<String>,
}

impl CompiledServer {
    /// Bytes of the server and its primitives as they are encoded, its card among them.
    pub(crate) fn encoded_bytes(&self) -> usize {
        let primitives: usize = self.primitives.iter().map(prost::Message::encoded_len).sum();
        self.edge.encoded_len() + self.server.encoded_len() + primitives + self.agent_card.len()
    }
}
