//! Elicitations and delegates that a primitive's spec lets its code use.

use asp_proto::snapshot::{Kind, Primitive};
use asp_snapshot::Dependency;

use asp_call::execution::Execution;

/// Returns the declared ids of a kind.
pub(crate) fn declared(primitive: &Primitive, kind: Kind) -> &[String] {
    match kind {
        Kind::Elicitation => &primitive.elicitations,
        Kind::Delegate => &primitive.delegations,
        _ => &[],
    }
}

/// Returns the elicitation or delegate with this id; `None` if the call's primitive does not declare it.
pub(crate) fn dependency<'a>(execution: &'a Execution, kind: Kind, id: &str) -> Option<&'a Dependency> {
    let is_declared = declared(&execution.call.entry.primitive, kind).iter().any(|declared| declared == id);
    let found = execution.snapshot.dependencies.get(id)?;
    (is_declared && found.kind == kind).then_some(&**found)
}
