//! Bounds of a call's runtime, and of the time for which a call is kept for a client that may return.

use std::time::Duration;

use asp_proto::snapshot::Primitive;
use asp_store::records::MAX_KEEP;

use crate::call::question::input_timeout;

/// Minimum time for which the record of a call that has ended is kept.
pub const KEEP: Duration = Duration::from_secs(3600);

/// Runtime bound of a call whose spec names none.
const DEFAULT_RUNTIME: Duration = Duration::from_secs(60);

/// Returns the maximum runtime of a call. If the spec names none, a primitive that asks questions also gets the time
/// for an answer.
pub fn runtime_bound(primitive: &Primitive) -> Duration {
    let asks = !primitive.elicitations.is_empty() || !primitive.delegations.is_empty();
    match primitive.max_runtime_seconds {
        0 if asks => DEFAULT_RUNTIME + input_timeout(primitive),
        0 => DEFAULT_RUNTIME,
        seconds => Duration::from_secs(u64::from(seconds)),
    }
}

/// Returns the maximum time from a call's start to its end: the runtime bound, and the time to wait for an approval.
pub fn lifetime_bound(primitive: &Primitive, needs_approval: bool) -> Duration {
    let approval = if needs_approval { input_timeout(primitive) } else { Duration::ZERO };
    runtime_bound(primitive) + approval
}

/// Returns the minimum time after its start for which a call of the primitive can be found, if a client knows of it.
pub fn retention(primitive: &Primitive) -> Duration {
    lifetime_bound(primitive, true).clamp(KEEP, MAX_KEEP)
}
