//! Faults of the parts that are not published as stored.

use asp_issuers::trust::NotInForce;
use asp_proto::snapshot::EdgeSnapshot;
use asp_store::control::UnreadableIssuer;
use prost::Message as _;

use crate::catalog::budget::{EDGE, PlatformBudget};
use crate::catalog::fault::{Fault, NO_TOKENS, Part};

pub(super) fn too_large(edge: &EdgeSnapshot) -> Option<Fault> {
    let bytes = edge.encoded_len();
    (bytes > EDGE).then(|| Fault {
        part: Part::Edge,
        name: String::new(),
        fault: format!("the edge snapshot has {bytes} bytes, it should have at most {EDGE}"),
        in_force: "it is published: every Envoy worker copies it, and requests wait for that",
        remedy: "let revocations expire or replace them by fewer ones (`user`, `org`)",
    })
}

pub(super) fn not_in_force(issuer: NotInForce) -> Fault {
    Fault {
        part: Part::Issuer,
        name: format!("{}/{}", issuer.side.as_str(), issuer.name),
        fault: issuer.fault,
        in_force: NO_TOKENS,
        remedy: "correct or delete the issuer (`PUT` or `DELETE /api/issuers/{side}/{name}`), or make it answer",
    }
}

pub(super) fn unreadable_issuer(issuer: &UnreadableIssuer) -> Fault {
    Fault {
        part: Part::Issuer,
        name: format!("{}/{}", issuer.side, issuer.name),
        fault: format!("`{}` is not a kind of issuers that this version knows", issuer.side),
        in_force: NO_TOKENS,
        remedy: "run the version that wrote it",
    }
}

pub(super) fn misplaced(name: &str, bytes: usize, bound: &PlatformBudget, in_force: &'static str) -> Fault {
    Fault {
        part: Part::Placement,
        name: name.to_owned(),
        fault: format!("they take {bytes} bytes of a snapshot, {} is the limit", bound.bytes),
        in_force,
        remedy: bound.remedy,
    }
}

pub(super) fn unknown_revocation(id: &str) -> Fault {
    Fault {
        part: Part::Revocation,
        name: id.to_owned(),
        fault: "its type is not known to this version".to_owned(),
        in_force: "every token of its org issued up to its moment is revoked",
        remedy: "run the version that wrote it, or delete it and revoke again",
    }
}
