//! Who calls, where the edge's code has passed a request on unjudged: a signed token whose key is newer than the
//! snapshot, an opaque one, or a machine's key.

use std::sync::Arc;
use std::time::Duration;

use asp_edge::{Admitted, Caller, Face, KEY_PREFIX, Reason, Reply, Step, Verdict};
use asp_proto::snapshot::AuthScheme;
use asp_snapshot::Snapshot;

use crate::gateway::Gateway;
use crate::issuers::introspection::NoCaller;

/// How long a request waits for the snapshot that has its key, once the control plane has said which one it is.
const APPLIED: Duration = Duration::from_secs(5);

/// What is known of a request so far, where it goes on.
pub(super) fn admitted(step: &Step) -> Option<&Admitted> {
    match step {
        Step::Decided(Verdict::Forward(forward)) => Some(&forward.admitted),
        Step::Decided(Verdict::Reply(_)) => None,
        Step::NeedBody(pending) => Some(&pending.admitted),
    }
}

/// The issuer whose key a request's token names and this snapshot has not.
pub(super) fn unknown_key_of(step: &Step) -> Option<String> {
    admitted(step)?.unknown_key_of.clone()
}

/// The snapshot with the newest keys of an issuer.
pub(super) async fn with_newest_keys(
    gateway: &Gateway,
    snapshot: Arc<Snapshot>,
    issuer: String,
) -> Arc<Snapshot> {
    if let Some(revision) = gateway.issuers.fresh_keys.of(&issuer).await {
        gateway.until(revision, APPLIED).await;
    }
    gateway.snapshot().unwrap_or(snapshot)
}

/// The caller of a request with an opaque token or a machine's key; `None`: it has none, or needs none.
pub(super) async fn caller(
    gateway: &Gateway,
    snapshot: &Snapshot,
    headers: &[(&str, &[u8])],
    step: &Step,
) -> Result<Option<Arc<Caller>>, Reply> {
    let Some(admitted) = admitted(step).filter(|admitted| admitted.unjudged) else { return Ok(None) };
    if admitted.unknown_key_of.is_some() {
        return Ok(None);
    }
    let (Some(server), Some(token)) = (snapshot.server(&admitted.server), bearer(headers)) else {
        return Ok(None);
    };
    if token.starts_with(KEY_PREFIX) {
        let is_taken = server.accepts(AuthScheme::Psk);
        return Ok(is_taken.then(|| snapshot.machines.caller(token)).flatten().map(Arc::new));
    }
    if !server.accepts(AuthScheme::Opaque) {
        return Ok(None);
    }
    match gateway.issuers.introspections.caller(snapshot, server, token).await {
        Ok(caller) => Ok(Some(caller)),
        Err(NoCaller::Invalid) => Ok(None),
        Err(NoCaller::Unavailable) => Err(unavailable(admitted)),
    }
}

fn unavailable(admitted: &Admitted) -> Reply {
    let (reason, era, trace) = (Reason::UpstreamUnavailable, admitted.era, Some(admitted.trace));
    match admitted.face {
        Face::Mcp | Face::A2a => asp_edge::refuse(reason, era, None, trace),
        Face::Rest | Face::Public | Face::Health => asp_edge::refuse_problem(reason, era, trace),
    }
}

fn bearer<'a>(headers: &[(&str, &'a [u8])]) -> Option<&'a str> {
    let value = headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("authorization"))?.1;
    let (scheme, token) = std::str::from_utf8(value).ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim_start_matches(' '))
}
