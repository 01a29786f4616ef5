//! The end of a run: what was wrong, and what of each revision nobody has used.

use std::fmt::Write as _;

use super::super::a2a::{GRPC_03, GRPC_10, REST_03, REST_10, RPC_03, RPC_10};
use super::{Record, Sender};

/// What a record comes to.
pub struct Verdict {
    /// For people.
    pub report: String,
    pub holds: bool,
}

/// What a revision knows and the platform does not serve: of these revisions (of all, if none), by this sender. A method
/// that ends with `/` stands for all that begin so.
const NOT_SERVED: &[(&[&str], Sender, &str, &str)] = &[
    (
        &["2025-11-25"],
        Sender::Client,
        "tasks/",
        "the experimental tasks of the core became an extension (SEP-2663)",
    ),
    (&["2025-11-25"], Sender::Server, "tasks/", "likewise"),
    (&["2025-11-25"], Sender::Client, "notifications/tasks/", "likewise"),
    (&["2025-11-25"], Sender::Server, "notifications/tasks/", "likewise"),
    (
        &["2026-07-28"],
        Sender::Server,
        "notifications/cancelled",
        "only over standard input and output; over HTTP a stream of subscriptions ends with its result",
    ),
];

impl Record {
    /// `whole`: every test ran, so that everything that is served must have been seen.
    pub fn verdict(&self, whole: bool) -> Verdict {
        let state = self.state.lock();
        let mut report = format!(
            "the wire: {} messages of {} methods and directions held against their definitions; {} connections not read\n",
            state.messages,
            state.seen.len(),
            state.unread
        );
        for form in [RPC_10, REST_10, GRPC_10, RPC_03, REST_03, GRPC_03] {
            let of_form = |served: &super::Served| served.0 == form && served.1 == Sender::Server;
            let seen = state.seen.iter().filter(|(served, _)| of_form(served));
            let methods: Vec<String> =
                seen.map(|((_, _, method), times)| format!("{method} {times}")).collect();
            if !methods.is_empty() {
                let _ = writeln!(report, "  results of {form}: {}", methods.join(", "));
            }
        }
        for fault in state.faults.values() {
            let _ = writeln!(report, "  {} times: {}", fault.times, fault.text);
        }
        let missing: Vec<String> =
            self.served().filter(|served| !state.seen.contains_key(served)).map(named).collect();
        if whole && !missing.is_empty() {
            let _ = writeln!(report, "  served, and never seen in this run:");
            missing.iter().for_each(|line| {
                let _ = writeln!(report, "    {line}");
            });
        }
        let holds = state.faults.is_empty() && (!whole || (missing.is_empty() && state.messages > 0));
        Verdict { report, holds }
    }

    /// Every method of every revision of MCP, and of every version of A2A over each binding, less what is not served.
    fn served(&self) -> impl Iterator<Item = super::Served> {
        let all = self.schemas.all().iter().flat_map(|dictionary| {
            let methods = dictionary.requests.keys().chain(dictionary.notifications.keys());
            methods.map(|(sender, method)| (dictionary.revision, *sender, method.clone()))
        });
        let agents = self.agents.served().flat_map(|(form, method)| {
            [Sender::Client, Sender::Server].map(|sender| (form, sender, method.clone()))
        });
        all.chain(agents).filter(|served| !is_left_out(served))
    }
}

fn is_left_out((revision, sender, method): &super::Served) -> bool {
    NOT_SERVED.iter().any(|(revisions, who, name, _)| {
        let same = if name.ends_with('/') { method.starts_with(name) } else { method == name };
        same && who == sender && (revisions.is_empty() || revisions.contains(revision))
    })
}

fn named((revision, sender, method): super::Served) -> String {
    format!("{revision}: {method} of the {sender:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A record of a run in which everything that is served was seen, but for one.
    fn all_but(left_out: Option<&super::super::Served>) -> Record {
        let record = Record::new().unwrap();
        let seen: Vec<_> = record.served().filter(|served| Some(served) != left_out).collect();
        let mut state = record.state.lock();
        state.messages = 1;
        state.seen.extend(seen.into_iter().map(|served| (served, 1)));
        drop(state);
        record
    }

    #[test]
    fn a_served_method_that_nobody_has_used_fails_a_whole_run_and_no_part_of_one() {
        assert!(all_but(None).verdict(true).holds);
        let all: Vec<_> = all_but(None).served().collect();
        assert!(all.len() > 100, "{}", all.len());
        for served in [all.first().unwrap(), all.last().unwrap()] {
            let record = all_but(Some(served));
            let verdict = record.verdict(true);
            assert!(!verdict.holds && verdict.report.contains(&named(served.clone())), "{}", verdict.report);
            assert!(record.verdict(false).holds);
        }
    }

    #[test]
    fn a_run_in_which_nothing_was_said_proves_nothing() {
        let record = all_but(None);
        record.state.lock().messages = 0;
        assert!(!record.verdict(true).holds);
    }
}
