//! The content of one changed part.
//!
//! Refuses: a part of an unknown kind, a part of another kind than its name, and a part about something else than its
//! name.

use asp_proto::snapshot::snapshot_part::Part;
use asp_proto::snapshot::{BasePart, OrgPart, RecentRevocations, RevokedPart, ServerPart, SnapshotPart};

use crate::parts::Name;

/// A change that this version understands.
pub(super) enum PartChange<'a> {
    Base(BasePart),
    Server(Box<ServerPart>),
    ServerGone(&'a str),
    /// A removed org is an empty one.
    Org(OrgPart),
    Revoked(RevokedPart),
    Recent(RecentRevocations),
}

/// Reads a change. Returns `Ok(None)` for the removal of a part that this version does not have.
pub(super) fn read(name: &str, part: Option<SnapshotPart>) -> Result<Option<PartChange<'_>>, String> {
    let known = Name::read(name);
    let Some(part) = part else { return Ok(removal(known)) };
    let Some(part) = part.part else {
        return Err("the part cannot be read or is of a newer kind".to_owned());
    };
    let change = match (known, part) {
        (Some(Name::Base), Part::Base(base)) => PartChange::Base(base),
        (Some(Name::Server(name)), Part::Server(server)) => {
            if server.server.as_ref().is_none_or(|server| server.name != name) {
                return Err("the part is about another server".to_owned());
            }
            PartChange::Server(Box::new(server))
        }
        (Some(Name::Org(name)), Part::Org(org)) => {
            if org.org != name {
                return Err("the part is about another org".to_owned());
            }
            PartChange::Org(org)
        }
        (Some(Name::Revoked), Part::Revoked(revoked)) => PartChange::Revoked(revoked),
        (Some(Name::Recent), Part::Recent(recent)) => PartChange::Recent(recent),
        _ => return Err("the part is of another kind than its name".to_owned()),
    };
    Ok(Some(change))
}

fn removal(known: Option<Name<'_>>) -> Option<PartChange<'_>> {
    match known? {
        Name::Server(name) => Some(PartChange::ServerGone(name)),
        Name::Org(org) => Some(PartChange::Org(OrgPart { org: org.to_owned(), ..OrgPart::default() })),
        Name::Base | Name::Revoked | Name::Recent => None,
    }
}
