//! The bindings of one org, indexed by primitive and target.
//!
//! Keeps true: a caller is matched to the targets once, at the cost of one look-up for each of its names and each
//! prefix length. Each pattern of primitives is then decided at most once a request, over either its own bindings or
//! the caller's targets, whichever are fewer. A list thus costs its entries plus at most the org's bindings.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use asp_edge::{Caller, covers_issuer};
use asp_proto::snapshot::{Binding, Protocol, TargetKind};

use super::patterns::Patterns;
use super::rules::rank;

/// Index of a distinct target of the org's bindings.
type TargetId = usize;
type CellId = usize;

#[derive(Default)]
pub(super) struct Matrix {
    /// Targets by the issuer that they name, empty for none.
    by_issuer: HashMap<String, Targets>,
    targets: usize,
    /// Cells by pattern of primitives.
    primitives: Patterns<Cell>,
    cells: usize,
}

/// Targets that name the same issuer, or none.
#[derive(Default)]
struct Targets {
    wcits: Patterns<TargetId>,
    users: Patterns<TargetId>,
    groups: Patterns<TargetId>,
}

/// Bindings of one pattern of primitives.
struct Cell {
    id: CellId,
    by_target: HashMap<TargetId, Vec<Arc<Binding>>>,
}

/// One caller over one protocol.
pub(super) struct PolicySubject<'a> {
    matrix: &'a Matrix,
    protocol: Protocol,
    targets: HashSet<TargetId>,
    /// Decisions already made in this request.
    decided: HashMap<CellId, Option<&'a Arc<Binding>>>,
    /// Number of look-ups and of bindings examined.
    #[cfg(test)]
    work: usize,
}

impl Matrix {
    pub(super) fn add(&mut self, binding: Binding) {
        let kind = binding.target_kind();
        if kind == TargetKind::Unspecified {
            // It names nobody.
            return;
        }
        let of_issuer = self.by_issuer.entry(binding.issuer.clone()).or_default();
        let patterns = match kind {
            TargetKind::Wcit => &mut of_issuer.wcits,
            TargetKind::User => &mut of_issuer.users,
            TargetKind::Group | TargetKind::Unspecified => &mut of_issuer.groups,
        };
        let target = *patterns.entry(&binding.target, || {
            self.targets += 1;
            self.targets
        });
        let cell = self.primitives.entry(&binding.primitive, || {
            self.cells += 1;
            Cell { id: self.cells, by_target: HashMap::new() }
        });
        let same = cell.by_target.entry(target).or_default();
        // If only the answer differs, the denial counts: at most one binding remains for each protocol.
        match same.iter_mut().find(|known| known.protocol == binding.protocol) {
            Some(known) if known.allowed => *known = Arc::new(binding),
            Some(_) => {}
            None => same.push(Arc::new(binding)),
        }
    }

    pub(super) fn subject(&self, caller: &Caller, protocol: Protocol) -> PolicySubject<'_> {
        let mut targets = HashSet::new();
        for issuer in ["", &caller.issuer] {
            let Some(of_issuer) = self.by_issuer.get(issuer) else { continue };
            if covers_issuer(issuer, true, &caller.issuer) {
                targets.extend(of_issuer.users.naming(&caller.user));
            }
            targets.extend(of_issuer.wcits.naming(&caller.wcit));
            targets.extend(caller.groups.iter().flat_map(|group| of_issuer.groups.naming(group)));
        }
        PolicySubject {
            matrix: self,
            protocol,
            targets,
            decided: HashMap::new(),
            #[cfg(test)]
            work: 0,
        }
    }
}

impl<'a> PolicySubject<'a> {
    pub(super) fn targets(&self) -> Vec<TargetId> {
        self.targets.iter().copied().collect()
    }

    /// Returns the binding that decides about a primitive: that of the most specific pattern with one for this
    /// caller.
    pub(super) fn deciding(&mut self, primitive: &str) -> Option<&'a Arc<Binding>> {
        let matrix = self.matrix;
        let mut cells = matrix.primitives.naming(primitive);
        cells.find_map(|cell| self.decide(cell))
    }

    fn decide(&mut self, cell: &'a Cell) -> Option<&'a Arc<Binding>> {
        #[cfg(test)]
        {
            self.work += 1;
        }
        if let Some(decided) = self.decided.get(&cell.id) {
            return *decided;
        }
        #[cfg(test)]
        {
            self.work += self.targets.len().min(cell.by_target.len());
        }
        let found: Vec<&'a Vec<Arc<Binding>>> = match self.targets.len() < cell.by_target.len() {
            true => self.targets.iter().filter_map(|target| cell.by_target.get(target)).collect(),
            false => {
                let mine = cell.by_target.iter().filter(|(target, _)| self.targets.contains(target));
                mine.map(|(_, bindings)| bindings).collect()
            }
        };
        let ranked =
            found.into_iter().flatten().filter_map(|binding| Some((rank(binding, self.protocol)?, binding)));
        let decided = ranked.max_by_key(|(rank, _)| *rank).map(|(_, binding)| binding);
        self.decided.insert(cell.id, decided);
        decided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller(groups: usize) -> Caller {
        Caller {
            org: "acme".into(),
            user: "alice".into(),
            groups: (0..groups).map(|number| format!("g{number}")).collect(),
            scopes: Vec::new(),
            client: String::new(),
            wcit: "t".into(),
            digest: [0; 32],
            issuer: String::new(),
            issued_at: 0,
            expires_at: u64::MAX,
        }
    }

    fn binding(target: String, primitive: String) -> Binding {
        Binding {
            org: "acme".into(),
            target_kind: TargetKind::Group.into(),
            target,
            primitive,
            allowed: true,
            ..Binding::default()
        }
    }

    /// Returns the cost of a list of `entries` for a caller with 256 groups in an org with `bindings` bindings.
    fn work(entries: usize, bindings: Vec<Binding>) -> usize {
        let mut matrix = Matrix::default();
        bindings.into_iter().for_each(|binding| matrix.add(binding));
        let mut subject = matrix.subject(&caller(256), Protocol::Mcp);
        for entry in 0..entries {
            subject.deciding(&format!("p{entry}"));
        }
        subject.work
    }

    #[test]
    fn a_list_costs_its_entries_and_not_their_product_with_bindings_and_groups() {
        // One pattern binds everything, for every group.
        let wide: Vec<_> = (0..10_000).map(|number| binding(format!("g{number}"), "*".into())).collect();
        assert!(work(1000, wide.clone()) <= 1000 + 256, "{}", work(1000, wide));
        // Each primitive is bound by name, for a hundred groups.
        let named: Vec<_> = (0..10_000)
            .map(|number| binding(format!("g{}", number % 100), format!("p{}", number / 100)))
            .collect();
        assert!(work(1000, named.clone()) <= 1000 + 10_000, "{}", work(1000, named));
        // One call examines neither bindings of other primitives nor those of this one for other targets.
        let others: Vec<_> = (0..10_000).map(|number| binding(format!("x{number}"), "p0".into())).collect();
        assert!(work(1, others) <= 2);
    }
}
