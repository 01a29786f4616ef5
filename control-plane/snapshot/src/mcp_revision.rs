//! The MCP revisions that this platform serves, by date.

/// Oldest known revision. It is not served: a client that names it in `initialize` is offered the latest legacy one.
pub const OLDEST_KNOWN: &str = "2024-11-05";

/// A served MCP revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Revision {
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl Revision {
    /// All served revisions, oldest first.
    pub const ALL: [Revision; 4] =
        [Revision::V2025_03_26, Revision::V2025_06_18, Revision::V2025_11_25, Revision::V2026_07_28];
    /// Latest revision with a handshake, offered to a client that asks for an unknown one.
    pub const LATEST_LEGACY: Revision = Revision::V2025_11_25;

    pub const fn as_str(self) -> &'static str {
        match self {
            Revision::V2025_03_26 => "2025-03-26",
            Revision::V2025_06_18 => "2025-06-18",
            Revision::V2025_11_25 => "2025-11-25",
            Revision::V2026_07_28 => "2026-07-28",
        }
    }

    pub fn parse(text: &str) -> Option<Revision> {
        Revision::ALL.into_iter().find(|revision| revision.as_str() == text)
    }

    /// Whether the revision is stateless: no handshake and no session.
    pub const fn is_modern(self) -> bool {
        matches!(self, Revision::V2026_07_28)
    }
}
