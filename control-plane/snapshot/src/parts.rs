//! The named parts in which gateways receive a snapshot.
//!
//! Keeps true: a part's name identifies everything the part covers, so a newer part replaces the one with the same
//! name.

#[cfg(any(test, feature = "testkit"))]
mod whole;

use asp_proto::snapshot::SnapshotPart;

#[cfg(any(test, feature = "testkit"))]
pub use whole::split;

/// Name of the part that concerns every server and org.
pub const BASE: &str = "base";
/// Name of the part with the revocations that are older than the recent ones.
pub const REVOKED: &str = "revoked";
pub const RECENT: &str = "recent";
const SERVER: &str = "server/";
const ORG: &str = "org/";

/// Returns the name of a server's part.
pub fn of_server(name: &str) -> String {
    format!("{SERVER}{name}")
}

/// Returns the name of an org's part.
pub fn of_org(org: &str) -> String {
    format!("{ORG}{org}")
}

/// A part's name, parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name<'a> {
    Base,
    Revoked,
    Recent,
    Server(&'a str),
    Org(&'a str),
}

impl Name<'_> {
    /// Parses a part's name; `None` if only a newer version knows this kind of part.
    pub fn read(text: &str) -> Option<Name<'_>> {
        match text {
            BASE => Some(Name::Base),
            REVOKED => Some(Name::Revoked),
            RECENT => Some(Name::Recent),
            _ => {
                let server = text.strip_prefix(SERVER).map(Name::Server);
                server.or_else(|| text.strip_prefix(ORG).map(Name::Org))
            }
        }
    }
}

/// Names that parts may require ([`SnapshotPart::needs`]) and that this version knows.
const KNOWN_NEEDS: [&str; 0] = [];

/// Returns the first name that the part requires and this version does not know.
pub fn unknown_need(part: &SnapshotPart) -> Option<&str> {
    part.needs.iter().map(String::as_str).find(|need| !KNOWN_NEEDS.contains(need))
}
