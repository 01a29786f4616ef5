//! Offers that keep what orgs have switched on.

use asp_platform::shell;

use super::installation::{Installation, is_of_platform};
use super::report::ReportLine;

/// A server that an org has switched on and is not offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MissingOffer {
    pub(super) server: String,
    pub(super) org: String,
    /// Reason why the offer may exceed what the platform intended.
    pub(super) mark: Option<String>,
}

impl MissingOffer {
    pub(super) fn item(&self, has_offers: bool) -> ReportLine {
        let MissingOffer { server, org, mark } = self;
        let line = format!("asp servers offer {} --to {}", shell::word(server), shell::word(org));
        let marks = mark.iter().cloned();
        match has_offers {
            true => ReportLine { line, marks: marks.collect() },
            // The command works with the new version only.
            false => ReportLine { line: format!("{line}    # after the upgrade"), marks: marks.collect() },
        }
    }
}

/// Returns the servers that are switched on for an org but offered neither by the server's file nor by a stored offer.
pub(super) fn missing_offers(installation: &Installation) -> Vec<MissingOffer> {
    let mut missing = Vec::new();
    for org in &installation.orgs {
        for (server, by) in &org.switched_on {
            let Some(stored) = installation.servers.iter().find(|known| known.name == *server) else {
                continue;
            };
            let by_file = stored
                .form
                .as_ref()
                .is_ok_and(|form| form.edge.default_allow || form.offered_to.contains(&org.name));
            if by_file || stored.offered.contains(&org.name) {
                continue;
            }
            let mark = match by {
                Some(by) if is_of_platform(by, &org.name) => None,
                Some(by) => Some(format!(
                    "{server} was switched on for {} by {by}, an admin of the organisation itself",
                    org.name
                )),
                None => Some(format!("it is unknown who switched {server} on for {}", org.name)),
            };
            missing.push(MissingOffer { server: server.clone(), org: org.name.clone(), mark });
        }
    }
    missing
}
