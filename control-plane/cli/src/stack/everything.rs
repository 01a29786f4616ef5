//! The reference MCP server `everything` behind the MCP backend: a sample of a hosted service.

use super::child::Program;
use crate::settings::stack::StackSection;

/// Host that its specs name; the snapshot maps it to an address.
pub const HOST: &str = "everything.internal";

/// Returns the program on `port`, if this machine has it.
pub fn program(stack: &StackSection, port: u16) -> Option<Program> {
    let node = stack.node.as_ref()?;
    let script = stack.everything.as_ref()?;
    Some(Program {
        name: "everything",
        path: node.clone(),
        arguments: vec![script.to_string_lossy().into_owned(), "streamableHttp".into()],
        environment: vec![("PORT".into(), port.to_string())],
        listener: None,
    })
}
