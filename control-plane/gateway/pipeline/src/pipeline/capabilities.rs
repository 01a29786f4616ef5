//! Checks that the caller's client has the abilities that a primitive requires.
//!
//! Keeps true: missing abilities are reported before anything runs, all of them at once (MCP 2026-07-28,
//! MissingRequiredClientCapability).

use asp_proto::snapshot::Primitive;
use asp_snapshot::Snapshot;

use asp_call::call::ClientAbilities;
use asp_call::call::outcome::Refusal;

/// The two ways to ask a user, each a capability within MCP's `elicitation`.
pub const FORMS: &str = "elicitation.form";
pub const PAGES: &str = "elicitation.url";
/// A model that may use tools, a capability within MCP's `sampling`.
pub const TOOLS: &str = "sampling.tools";

/// Refuses a call that is certain to need an ability that its client lacks.
pub fn check(snapshot: &Snapshot, primitive: &Primitive, abilities: ClientAbilities) -> Result<(), Refusal> {
    let delegates = primitive.delegations.iter().filter_map(|id| snapshot.dependencies.get(id));
    let mut required: Vec<String> = delegates
        .map(|delegate| &delegate.entry.primitive)
        .filter(|delegate| delegate.client_only)
        .map(|delegate| match (delegate.asks_roots, delegate.sampling_tools) {
            (true, _) => ("roots", abilities.roots),
            (false, true) => (TOOLS, abilities.sampling && abilities.sampling_tools),
            (false, false) => ("sampling", abilities.sampling),
        })
        .filter(|(_, can)| !can)
        .map(|(name, _)| name.to_owned())
        .collect();
    if primitive.elicitation_required {
        let asked = primitive.elicitations.iter().filter_map(|id| snapshot.dependencies.get(id));
        let needed = asked.map(|asked| match asked.question.contains_key("url") {
            true => (PAGES, abilities.pages),
            false => (FORMS, abilities.elicitation),
        });
        required.extend(needed.filter(|(_, can)| !can).map(|(name, _)| name.to_owned()));
    }
    if primitive.task_required && !abilities.tasks {
        required.push("tasks".into());
    }
    required.sort_unstable();
    required.dedup();
    if required.is_empty() { Ok(()) } else { Err(Refusal::MissingCapabilities { required }) }
}
