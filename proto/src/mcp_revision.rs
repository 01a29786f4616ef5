//! Revisions of the Model Context Protocol (MCP), and the features of each.
//!
//! Owns every date of a revision: no other product code has one as a value (`scripts/check-revisions`). Whether the
//! platform acts on a feature is its user's decision.

use std::ops::RangeInclusive;

/// A known MCP revision. A later revision is greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

/// A part of MCP that some known revisions lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Feature {
    /// JSON-RPC batches.
    Batches,
    /// `annotations` of a tool.
    ToolAnnotations,
    /// `elicitation/create`.
    Elicitation,
    /// `title` of primitives, prompt arguments, resources and servers (`BaseMetadata`).
    Titles,
    /// `outputSchema` and `structuredContent`, at least as JSON objects.
    StructuredOutput,
    /// `_meta` of definitions and contents.
    Meta,
    /// Content blocks of type `resource_link`.
    ResourceLinks,
    /// `icons` of definitions.
    Icons,
    /// Elicitation by form or by URL, declared separately.
    ElicitationModes,
    /// Choices of a form with a title each (`oneOf`); before, the titles are in `enumNames`.
    TitledChoices,
    /// The error -32042: the user must visit pages before the request is repeated.
    UrlElicitationError,
    /// The capabilities `sampling.tools` and `sampling.context`.
    SamplingCapabilities,
    /// Invalid arguments reported as a tool error, which the model sees (SEP-1303).
    ArgumentErrors,
    /// Streams that start with an event without a message and may be closed before their result.
    StreamPolling,
    /// `outputSchema` and `structuredContent` of any JSON type.
    AnyOutput,
}

impl Revision {
    /// All known revisions, oldest first.
    pub const KNOWN: [Revision; 5] = [
        Revision::V2024_11_05,
        Revision::V2025_03_26,
        Revision::V2025_06_18,
        Revision::V2025_11_25,
        Revision::V2026_07_28,
    ];
    /// Revisions that the gateway serves, oldest first. Only grows at its end: session ids contain positions in it.
    pub const SERVED: [Revision; 4] =
        [Revision::V2025_03_26, Revision::V2025_06_18, Revision::V2025_11_25, Revision::V2026_07_28];
    /// Revision of a request without the header `MCP-Protocol-Version` (2025-06-18, transports).
    pub const WITHOUT_HEADER: Revision = Revision::V2025_03_26;
    /// Latest revision with a handshake.
    pub const LATEST_LEGACY: Revision = Revision::V2025_11_25;
    /// First revision without a handshake.
    pub const FIRST_MODERN: Revision = Revision::V2026_07_28;
    /// Latest known revision.
    pub const LATEST: Revision = Revision::V2026_07_28;

    /// Returns the date of the revision, its name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Revision::V2024_11_05 => "2024-11-05",
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    /// Returns the known revision with this date.
    pub fn parse(text: &str) -> Option<Revision> {
        Revision::KNOWN.into_iter().find(|revision| revision.as_str() == text)
    }

    /// Whether the gateway serves the revision.
    pub fn is_served(self) -> bool {
        Revision::SERVED.contains(&self)
    }

    /// Whether the revision is stateless: no handshake and no session.
    pub fn is_modern(self) -> bool {
        self >= Revision::FIRST_MODERN
    }

    /// Whether the revision has a feature.
    pub fn has(self, feature: Feature) -> bool {
        feature.revisions().contains(&self)
    }
}

impl Feature {
    /// Returns the first to the last revision that has the feature.
    fn revisions(self) -> RangeInclusive<Revision> {
        match self {
            Feature::Batches => Revision::V2025_03_26..=Revision::V2025_03_26,
            Feature::ToolAnnotations => Revision::V2025_03_26..=Revision::LATEST,
            Feature::Elicitation
            | Feature::Titles
            | Feature::StructuredOutput
            | Feature::Meta
            | Feature::ResourceLinks => Revision::V2025_06_18..=Revision::LATEST,
            Feature::UrlElicitationError => Revision::V2025_11_25..=Revision::V2025_11_25,
            Feature::Icons
            | Feature::ElicitationModes
            | Feature::TitledChoices
            | Feature::SamplingCapabilities
            | Feature::ArgumentErrors
            | Feature::StreamPolling => Revision::V2025_11_25..=Revision::LATEST,
            Feature::AnyOutput => Revision::V2026_07_28..=Revision::LATEST,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_revisions_ascend_and_have_their_own_dates() {
        assert!(Revision::KNOWN.is_sorted());
        assert_eq!(Revision::KNOWN.last(), Some(&Revision::LATEST));
        let dates = Revision::KNOWN.map(Revision::as_str);
        assert!(dates.is_sorted(), "snapshots compare revisions by their dates");
        assert_eq!(dates.map(Revision::parse), Revision::KNOWN.map(Some));
        for unknown in ["", "1999-01-01", "2025-11-26", "2025-11-25 ", "x"] {
            assert_eq!(Revision::parse(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn the_oldest_revision_is_known_and_not_served() {
        let served = Revision::KNOWN.into_iter().filter(|revision| revision.is_served());
        assert!(served.eq(Revision::SERVED));
        assert!(!Revision::V2024_11_05.is_served());
    }

    #[test]
    fn served_revisions_keep_the_positions_that_session_ids_contain() {
        let dates = Revision::SERVED.map(Revision::as_str);
        assert_eq!(dates, ["2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]);
    }

    #[test]
    fn only_the_revisions_of_one_era_have_a_handshake() {
        let mut known = Revision::KNOWN.into_iter();
        assert_eq!(known.find(|revision| revision.is_modern()), Some(Revision::FIRST_MODERN));
        let mut known = Revision::KNOWN.into_iter();
        assert_eq!(known.rfind(|revision| !revision.is_modern()), Some(Revision::LATEST_LEGACY));
    }

    #[test]
    fn each_revision_has_its_features() {
        let have = |feature: Feature| Revision::KNOWN.map(|revision| revision.has(feature));
        assert_eq!(have(Feature::Batches), [false, true, false, false, false]);
        assert_eq!(have(Feature::ToolAnnotations), [false, true, true, true, true]);
        assert_eq!(have(Feature::Titles), [false, false, true, true, true]);
        assert_eq!(have(Feature::UrlElicitationError), [false, false, false, true, false]);
        assert_eq!(have(Feature::Icons), [false, false, false, true, true]);
        assert_eq!(have(Feature::AnyOutput), [false, false, false, false, true]);
    }
}
