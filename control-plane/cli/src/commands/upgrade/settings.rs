//! Operator lists of the control plane and the gateways, with the `for` that keeps today's calls working.

use asp_command::environment::Environment;

use super::installation::Installation;
use super::report::{ReportLine, Section, comment};
use crate::settings::ENV_UPSTREAMS;
use crate::settings::suggestions::{ServedPrimitive, Suggestion, suggestions, unlisted};

/// Returns the lists that have entries without `for` or lack an audience that a stored primitive uses, and the primitives
/// that a `for` leaves out, such as those of a server that was applied again; each in the section of the process that reads
/// the list.
pub(super) fn lines(
    environment: &dyn Environment,
    installation: &Installation,
) -> Vec<(Section, ReportLine)> {
    let served: Vec<ServedPrimitive<'_>> = served_primitives(installation).collect();
    let found = suggestions(environment, &served).into_iter();
    let found = found.map(|Suggestion { list, line, marks }| (section(list), ReportLine { line, marks }));
    let left_out = unlisted(environment, &served).into_iter();
    let left_out = left_out.map(|(list, text)| (section(list), ReportLine::plain(comment("", &text))));
    found.chain(left_out).collect()
}

fn section(list: &str) -> Section {
    if list == ENV_UPSTREAMS { Section::ControlSettings } else { Section::GatewaySettings }
}

/// Returns every primitive of every server that this version accepts.
pub(super) fn served_primitives(installation: &Installation) -> impl Iterator<Item = ServedPrimitive<'_>> {
    installation.compiled().flat_map(|server| {
        let name = server.server.name.as_str();
        server.primitives.iter().map(move |primitive| ServedPrimitive { server: name, primitive })
    })
}
