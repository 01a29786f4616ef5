//! Operator lists of the control plane and the gateways with the `for` that keeps today's calls working.

use super::installation::Installation;
use super::report::Item;
use crate::settings::source::Environment;
use crate::settings::suggestions::{ServedPrimitive, Suggestion, suggestions};

/// The lists that have entries without `for`, or lack an audience that a stored primitive uses.
pub(super) fn lines(environment: &dyn Environment, installation: &Installation) -> Vec<Item> {
    let served: Vec<ServedPrimitive<'_>> = served(installation).collect();
    let found = suggestions(environment, &served).into_iter();
    found.map(|Suggestion { line, marks, .. }| Item { line, marks }).collect()
}

/// Every primitive of every server that this version takes.
pub(super) fn served(installation: &Installation) -> impl Iterator<Item = ServedPrimitive<'_>> {
    installation.compiled().flat_map(|server| {
        let name = server.server.name.as_str();
        server.primitives.iter().map(move |primitive| ServedPrimitive { server: name, primitive })
    })
}
