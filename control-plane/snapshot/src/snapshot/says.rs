//! The content of one changed part.
//!
//! Refuses: a part of an unknown kind, a part of another kind than its name, and a part about something else than its
//! name.

use asp_proto::snapshot::snapshot_part::Part;
use asp_proto::snapshot::{BasePart, OrgPart, RecentRevocations, RevokedPart, ServerPart, SnapshotPart};

use crate::parts::Name;

/// A change that this version understands.
pub(super) enum Says<'a> {
    Base(BasePart),
    Server(Box<ServerPart>),
    ServerGone(&'a str),
    /// A removed org is an empty one.
    Org(OrgPart),
    Revoked(RevokedPart),
    Recent(RecentRevocations),
}

/// Reads a change. Returns `Ok(None)` for the removal of a part that this version does not have.
pub(super) fn read(name: &str, part: Option<SnapshotPart>) -> Result<Option<Says<'_>>, String> {
    let known = Name::read(name);
    let Some(part) = part else { return Ok(gone(known)) };
    let Some(part) = part.part else {
        return Err("the part cannot be read or is of a newer kind".to_owned());
    };
    let says = match (known, part) {
        (Some(Name::Base), Part::Base(base)) => Says::Base(base),
        (Some(Name::Server(name)), Part::Server(server)) => {
            if server.server.as_ref().is_none_or(|server| server.name != name) {
                return Err("the part is about another server".to_owned());
            }
            Says::Server(Box::new(server))
        }
        (Some(Name::Org(name)), Part::Org(org)) => {
            if org.org != name {
                return Err("the part is about another org".to_owned());
            }
            Says::Org(org)
        }
        (Some(Name::Revoked), Part::Revoked(revoked)) => Says::Revoked(revoked),
        (Some(Name::Recent), Part::Recent(recent)) => Says::Recent(recent),
        _ => return Err("the part is of another kind than its name says".to_owned()),
    };
    Ok(Some(says))
}

fn gone(known: Option<Name<'_>>) -> Option<Says<'_>> {
    match known? {
        Name::Server(name) => Some(Says::ServerGone(name)),
        Name::Org(org) => Some(Says::Org(OrgPart { org: org.to_owned(), ..OrgPart::default() })),
        Name::Base | Name::Revoked | Name::Recent => None,
    }
}
