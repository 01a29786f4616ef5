//! How long a call may take, and how long it is kept for a client that may come back for it.

use std::time::Duration;

use asp_proto::snapshot::Primitive;
use asp_store::records::MAX_KEEP;

use crate::call::question::input_timeout;

/// Minimum time for which the record of a call that has ended is kept.
pub const KEEP: Duration = Duration::from_secs(3600);

/// Bound of a call whose spec names none.
const DEFAULT_RUNTIME: Duration = Duration::from_secs(60);

/// The longest time a call may run. Where the spec names none, one that asks somebody has the time for an answer too.
pub fn runtime_bound(primitive: &Primitive) -> Duration {
    let asks = !primitive.elicitations.is_empty() || !primitive.delegations.is_empty();
    match primitive.max_runtime_seconds {
        0 if asks => DEFAULT_RUNTIME + input_timeout(primitive),
        0 => DEFAULT_RUNTIME,
        seconds => Duration::from_secs(u64::from(seconds)),
    }
}

/// The longest time from a call's start to its end: the time for an approval is not its own.
pub fn lifetime_bound(primitive: &Primitive, needs_approval: bool) -> Duration {
    let approval = if needs_approval { input_timeout(primitive) } else { Duration::ZERO };
    runtime_bound(primitive) + approval
}

/// Minimum time after its start in which a call of the primitive can be found, if a client was told of it.
pub fn kept_for(primitive: &Primitive) -> Duration {
    lifetime_bound(primitive, true).clamp(KEEP, MAX_KEEP)
}
