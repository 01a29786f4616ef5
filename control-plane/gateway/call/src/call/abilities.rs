//! Abilities of a client that matter when a call asks for something.

use asp_proto::mcp_revision::{Feature, Revision};
use serde::{Deserialize, Serialize};

use super::question::Ask;
use super::sampling::needs_tools;

/// Independent abilities of a client. Gateways of other versions read this: each ignores the abilities that it does not
/// know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ClientAbilities {
    /// Answers form elicitations.
    pub elicitation: bool,
    /// Sends its user to a page (elicitation mode `url`).
    pub pages: bool,
    /// Answers sampling requests.
    pub sampling: bool,
    /// Lets its model use tools.
    pub sampling_tools: bool,
    /// Lets its model see the context of its servers.
    pub sampling_context: bool,
    /// Lists its roots.
    pub roots: bool,
    /// Returns for the result of a call.
    pub tasks: bool,
    /// Reports changes of its roots.
    pub roots_change: bool,
    /// Sends arguments that are missing when it is asked for them. No client declares this in a session.
    pub late_arguments: bool,
}

/// Number of abilities that a client declares.
pub(crate) const ABILITIES: usize = 8;

impl ClientAbilities {
    /// Returns each declared ability at the position of its bit in a sealed session; the order never changes.
    pub const fn flags(self) -> [bool; ABILITIES] {
        let ClientAbilities { elicitation, sampling, roots, pages, .. } = self;
        let ClientAbilities { sampling_tools, sampling_context, tasks, roots_change, .. } = self;
        [elicitation, sampling, roots, pages, sampling_tools, sampling_context, tasks, roots_change]
    }

    pub const fn of_flags(flags: [bool; ABILITIES]) -> ClientAbilities {
        let [elicitation, sampling, roots, pages, sampling_tools, sampling_context, tasks, roots_change] =
            flags;
        ClientAbilities {
            elicitation,
            sampling,
            roots,
            pages,
            sampling_tools,
            sampling_context,
            tasks,
            roots_change,
            late_arguments: false,
        }
    }

    /// Whether a client with these abilities can answer.
    pub fn answers(self, ask: &Ask) -> bool {
        match ask {
            Ask::Form { .. } => self.elicitation,
            Ask::Page { .. } => self.pages,
            Ask::Sampling(params) => {
                self.sampling && (self.sampling_tools || !params.as_object().is_none_or(needs_tools))
            }
            Ask::Roots => self.roots,
        }
    }

    /// Limits the abilities to those that a revision has. Before clients declared `sampling.context`, sampling included
    /// the context of servers. A modern client reports no change of its own.
    #[must_use]
    pub fn within(self, revision: Revision) -> ClientAbilities {
        let declares_sampling = revision.has(Feature::SamplingCapabilities);
        ClientAbilities {
            elicitation: self.elicitation && revision.has(Feature::Elicitation),
            pages: self.pages && revision.has(Feature::ElicitationModes),
            sampling_tools: self.sampling_tools && declares_sampling,
            roots_change: self.roots_change && !revision.is_modern(),
            sampling_context: if declares_sampling { self.sampling_context } else { self.sampling },
            ..self
        }
    }

    /// Abilities that at least one of two clients has.
    #[must_use]
    pub fn or(self, other: ClientAbilities) -> ClientAbilities {
        let other = other.flags();
        let mut flags = self.flags();
        flags.iter_mut().zip(other).for_each(|(flag, other)| *flag |= other);
        ClientAbilities::of_flags(flags)
    }

    /// Kinds of requests that this client can answer and the other cannot.
    #[must_use]
    pub fn without(self, other: ClientAbilities) -> ClientAbilities {
        let other = other.flags();
        let mut flags = self.flags();
        flags.iter_mut().zip(other).for_each(|(flag, other)| *flag &= !other);
        // Returning for a result and reporting changes do not answer a request.
        ClientAbilities { tasks: false, roots_change: false, ..ClientAbilities::of_flags(flags) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> ClientAbilities {
        ClientAbilities::of_flags([true; ABILITIES])
    }

    #[test]
    fn what_another_version_says_of_a_client_is_read() {
        let told = serde_json::to_string(&all()).unwrap();
        assert_eq!(serde_json::from_str::<ClientAbilities>(&told).unwrap(), all());
        let newer = r#"{"samplingTools":true,"video":true}"#;
        let known = ClientAbilities { sampling_tools: true, ..ClientAbilities::default() };
        assert_eq!(serde_json::from_str::<ClientAbilities>(newer).unwrap(), known);
    }

    #[test]
    fn a_client_is_never_asked_what_only_a_later_revision_has() {
        let can = |revision| all().within(revision).flags()[..6].to_vec();
        assert_eq!(can(Revision::V2025_03_26), [false, true, true, false, false, true]);
        assert_eq!(can(Revision::V2025_06_18), [true, true, true, false, false, true]);
        for revision in [Revision::V2025_11_25, Revision::V2026_07_28] {
            assert_eq!(can(revision), [true; 6]);
        }
        let undeclared = ClientAbilities { sampling: true, ..ClientAbilities::default() };
        assert!(undeclared.within(Revision::V2025_06_18).sampling_context);
        assert!(!undeclared.within(Revision::V2025_11_25).sampling_context);
    }

    #[test]
    fn a_model_without_tools_is_not_asked_to_use_any() {
        let params = |text: &str| serde_json::from_str(text).map(Ask::Sampling).unwrap();
        let plain = ClientAbilities { sampling: true, ..ClientAbilities::default() };
        assert!(plain.answers(&params("{}")) && !plain.answers(&params(r#"{"tools": []}"#)));
        assert!(all().answers(&params(r#"{"tools": []}"#)));
        let history = r#"{"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}]}"#;
        assert!(!plain.answers(&params(history)) && all().answers(&params(history)));
    }
}
