//! Whether the caller's client can do what a primitive cannot do without.
//!
//! Keeps true: what is missing is told before anything runs, all of it at once (MCP 2026-07-28,
//! MissingRequiredClientCapability).

use asp_proto::snapshot::Primitive;
use asp_snapshot::Snapshot;

use crate::call::ClientAbilities;
use crate::call::outcome::Refusal;

/// Refuses a call that is sure to need what its client cannot do.
pub fn check(snapshot: &Snapshot, primitive: &Primitive, abilities: ClientAbilities) -> Result<(), Refusal> {
    let delegates = primitive.delegations.iter().filter_map(|id| snapshot.dependencies.get(id));
    let mut required: Vec<String> = delegates
        .map(|delegate| &delegate.entry.primitive)
        .filter(|delegate| delegate.client_only)
        .map(|delegate| match delegate.asks_roots {
            true => ("roots", abilities.roots),
            false => ("sampling", abilities.sampling),
        })
        .filter(|(_, can)| !can)
        .map(|(name, _)| name.to_owned())
        .collect();
    if primitive.task_required && !abilities.tasks {
        required.push("tasks".into());
    }
    required.sort_unstable();
    required.dedup();
    if required.is_empty() { Ok(()) } else { Err(Refusal::MissingCapabilities { required }) }
}
