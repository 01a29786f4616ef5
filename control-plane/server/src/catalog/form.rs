//! Encoding of the last published forms of servers and orgs in the store.
//!
//! Keeps true: a form counts only if this version knows everything that it needs. A form has no machine keys or
//! certificates, so that a deleted one cannot grant access again.

use asp_proto::snapshot::{ServerPart, SnapshotPart, StoredForm, snapshot_part::Part as Says};
use asp_registry::CompiledServer;
use asp_snapshot::parts as names;
use asp_store::control::PublishedForm;
use prost::Message as _;

use super::orgs::OrgPolicy;

/// Encodes a server; `revision` is the revision of its record.
pub(super) fn of_server(server: &CompiledServer, revision: u64) -> PublishedForm {
    let CompiledServer { edge, server, primitives, offered_to, agent_card, content_hash, files } =
        server.clone();
    let part = names::of_server(&server.name);
    let says = Says::Server(ServerPart { edge: Some(edge), server: Some(server), primitives });
    let form = StoredForm { part: Some(whole(says)), offered_to, agent_card, content_hash, files };
    PublishedForm { part, revision, form: form.encode_to_vec() }
}

/// Encodes an org's policy; `revision` is the store's revision when the policy was read.
pub(super) fn of_org(org: &str, policy: OrgPolicy, revision: u64) -> PublishedForm {
    let says = Says::Org(policy.into_part(org));
    let form = StoredForm { part: Some(whole(says)), ..StoredForm::default() };
    PublishedForm { part: names::of_org(org), revision, form: form.encode_to_vec() }
}

fn whole(says: Says) -> SnapshotPart {
    SnapshotPart { part: Some(says), ..SnapshotPart::default() }
}

/// Decodes a stored form; `None` if a newer version wrote it, because this one might apply it more widely than
/// intended.
fn read(form: &PublishedForm) -> Option<StoredForm> {
    let stored = StoredForm::decode(form.form.as_slice()).ok()?;
    let is_known = stored.part.as_ref().is_some_and(|part| names::unknown_need(part).is_none());
    is_known.then_some(stored)
}

/// Decodes a server.
pub(super) fn server(form: &PublishedForm) -> Option<CompiledServer> {
    let StoredForm { part, offered_to, agent_card, content_hash, files } = read(form)?;
    let Says::Server(ServerPart { edge, server, primitives }) = part?.part? else { return None };
    let (edge, server) = (edge?, server?);
    let is_named = names::of_server(&server.name) == form.part;
    is_named.then_some(CompiledServer {
        edge,
        server,
        primitives,
        offered_to,
        agent_card,
        content_hash,
        files,
    })
}

/// Decodes an org's policy.
pub(super) fn policy(form: &PublishedForm) -> Option<OrgPolicy> {
    match read(form)?.part?.part? {
        Says::Org(part) if names::of_org(&part.org) == form.part => Some(OrgPolicy::read_published(part)),
        _ => None,
    }
}
