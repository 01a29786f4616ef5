//! Tools of a server that read its A2A messages: the router and the filler.
//!
//! Keeps true: the server lists them, they are tools or tasks, and they only read, because they run before the task of a
//! message exists.

use crate::compile::ServerMember;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::server_file::{Protocol, ServerFile, is_reference_to};
use crate::spec::Mutation;

/// Checks the message readers of a server. Faults go to the server's file.
pub(crate) fn check_readers(server: &ServerFile, members: &[ServerMember<'_>], findings: &mut Findings<'_>) {
    for (key, reference) in server.a2a.references() {
        let path = format!("/a2a/{key}");
        if !server.protocols.contains(&Protocol::A2a) {
            let message = format!("`{key}` reads messages of A2A, which the server does not speak");
            findings.add(FaultCode::MisplacedKey, &path, message, "add a2a to `protocols`, or remove it");
            continue;
        }
        let mut found = members.iter().filter(|member| is_reference_to(reference, member.spec)).peekable();
        if found.peek().is_none() {
            let message = format!("the server does not list `{reference}`");
            let hint = "list it in `primitives`; it need not be exposed";
            findings.add(FaultCode::UnresolvedRef, &path, message, hint);
        }
        for ServerMember { spec, .. } in found {
            if !spec.kind.is_tool() {
                let message = format!("`{}` is of type {}", spec.id, spec.kind.word());
                findings.add(FaultCode::UnresolvedRef, &path, message, "name a tool or task");
            } else if spec.changes() != Mutation::ReadOnly {
                let message = format!(
                    "`{}` may change something, and reads messages before their tasks exist",
                    spec.id
                );
                let hint = "name a tool with `mutation: read_only`";
                findings.add(FaultCode::BadValue, &path, message, hint);
            }
        }
    }
}
