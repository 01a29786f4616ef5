//! Two servers that were checked apart may still not fit together.
//!
//! Owns the rule that an id means one primitive everywhere: policy, limits and audit name primitives by id,
//! so whoever could declare another team's id would inherit its permissions. Whose an id is the store knows; what specs say of
//! their owner is shown, and decides nothing.

use std::collections::HashSet;

use asp_proto::snapshot::Primitive;

use crate::compiled::CompiledServer;
use crate::fault::{Fault, FaultCode};

/// The faults of adding `new` to `existing` (its own former version aside): the same id and version with
/// other content. Lines are unknown, since only the sources have them.
pub fn conflicts<'a>(
    existing: impl IntoIterator<Item = &'a CompiledServer>,
    new: &CompiledServer,
) -> Vec<Fault> {
    let ids: HashSet<&str> = new.primitives.iter().map(|primitive| primitive.id.as_str()).collect();
    let mut faults = Vec::new();
    for other in existing.into_iter().filter(|other| other.server.name != new.server.name) {
        // A new server is held against thousands, and few have one of its ids.
        if !other.primitives.iter().any(|known| ids.contains(known.id.as_str())) {
            continue;
        }
        for primitive in &new.primitives {
            let Some(problem) = other.primitives.iter().find_map(|known| conflict(known, primitive)) else {
                continue;
            };
            faults.push(Fault {
                code: FaultCode::DuplicateId,
                file: new.files.first().cloned().unwrap_or_default(),
                line: 0,
                path: "/primitives".into(),
                message: format!("the server `{}` has `{}` {problem}", other.server.name, primitive.id),
                hint: "use another id, raise the version, or list the same primitive".into(),
            });
        }
    }
    faults
}

fn conflict(known: &Primitive, new: &Primitive) -> Option<String> {
    if known.id != new.id {
        return None;
    }
    (known.version == new.version && known != new)
        .then(|| format!("at version {} with other content", known.version))
}
