//! Conflicts between servers that were checked separately.
//!
//! Owns the rule that an id means one primitive everywhere: policy, limits and audit name primitives by id, so anyone
//! who could declare another team's id would inherit its permissions. The store knows the owner of an id; the owner
//! in a spec is only displayed.

use std::collections::{HashMap, HashSet};

use asp_proto::snapshot::Primitive;

use crate::compiled::CompiledServer;
use crate::fault::{Fault, FaultCode};

/// Returns the faults of adding `new` to `existing` (except its own previous version): the same id and version with
/// other content. Lines are unknown, since only the sources have them. Only servers for which `may_see` is true are
/// named.
pub fn conflicts<'a>(
    existing: impl IntoIterator<Item = &'a CompiledServer>,
    new: &CompiledServer,
    may_see: impl Fn(&str) -> bool,
) -> Vec<Fault> {
    let ids: HashSet<&str> = new.primitives.iter().map(|primitive| primitive.id.as_str()).collect();
    let mut faults = Vec::new();
    for other in existing.into_iter().filter(|other| other.server.name != new.server.name) {
        // A new server is compared with thousands, and few share an id with it.
        let shared = other.primitives.iter().filter(|known| ids.contains(known.id.as_str()));
        let shared: HashMap<_, &Primitive> = shared.map(|known| (version(known), known)).collect();
        if shared.is_empty() {
            continue;
        }
        let name = &other.server.name;
        let whose = if may_see(name) { format!("the server `{name}`") } else { "another server".to_owned() };
        for primitive in &new.primitives {
            if shared.get(&version(primitive)).is_none_or(|known| *known == primitive) {
                continue;
            }
            faults.push(Fault {
                code: FaultCode::DuplicateId,
                file: new.files.first().cloned().unwrap_or_default(),
                line: 0,
                path: "/primitives".into(),
                message: format!(
                    "{whose} has `{}` at version {} with other content",
                    primitive.id, primitive.version
                ),
                hint: "use another id, raise the version, or list the same primitive".into(),
            });
        }
    }
    faults
}

fn version(primitive: &Primitive) -> (&str, &str) {
    (&primitive.id, &primitive.version)
}
