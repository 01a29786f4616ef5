//! Stage 2: the primitive. Turns a server's exposed name into a compiled primitive.

use std::sync::Arc;

use asp_call::call::outcome::Refusal;
use asp_snapshot::{ListedPrimitive, VirtualServer};
use serde_json::{Map, Value};

/// The name of a primitive in a protocol.
#[derive(Clone, Copy, Debug)]
pub enum CallTarget<'a> {
    Tool(&'a str),
    Prompt(&'a str),
    /// A URI: exact, or matched by a template.
    Resource(&'a str),
}

/// Returns the primitive behind `target` and the variables of a matched URI template.
pub fn resolve(
    server: &VirtualServer,
    target: CallTarget<'_>,
) -> Result<(Arc<ListedPrimitive>, Map<String, Value>), Refusal> {
    let plain = |entry: Option<&Arc<ListedPrimitive>>| entry.map(|entry| (entry.clone(), Map::new()));
    match target {
        CallTarget::Tool(name) => plain(server.tool(name)),
        CallTarget::Prompt(name) => plain(server.prompt(name)),
        CallTarget::Resource(uri) => server.resource(uri),
    }
    .ok_or(Refusal::Unknown)
}
