//! The memory that large request headers take until their responses begin.
//!
//! It is reserved before any caller is authenticated and therefore counted by the client's network. Keeps true: the
//! memory of all headers is bounded, apart from small ones, for which the limit of open requests suffices; no network
//! can take all of it.

use std::sync::Arc;

use asp_call::digest::PeerKey;
use asp_edge::{Era, Reply, Trace};
use asp_pipeline::pipeline::admission::{Admission, AdmissionPermit};
use http::request::Parts;

use super::{error_form, proof};

/// Largest size that is not counted, in bytes.
const LITTLE: usize = 8 * 1024;

/// Reserves memory for a request's headers of `size` bytes while the result is held. The refusal is in the protocol of
/// the path.
pub(super) fn hold(
    memory: &Arc<Admission>,
    (parts, size): (&Parts, usize),
    peer: &PeerKey,
    trace: Trace,
) -> Result<Option<AdmissionPermit>, Reply> {
    if size <= LITTLE {
        return Ok(None);
    }
    memory.take(&proof::network(peer), size).map(Some).map_err(|why| {
        let mut refusal = error_form(parts).refuse(why.reason(), Era::Legacy, Some(trace));
        let after = why.retry_after_seconds();
        refusal.headers.extend(after.map(|seconds| ("retry-after", seconds.to_string())));
        refusal
    })
}

#[cfg(test)]
mod tests {
    use asp_pipeline::pipeline::admission::AdmissionBounds;

    use super::*;
    use crate::http::header_bytes;

    fn parts(header: usize) -> Parts {
        let request = http::Request::get("/demo/mcp").header("x-much", "x".repeat(header));
        request.body(()).unwrap().into_parts().0
    }

    #[test]
    fn large_headers_take_memory_that_one_network_does_not_use_up() {
        let memory =
            Admission::of(AdmissionBounds { whole: 70_000, per_org: 50_000 }, ["headers", "headers"]);
        let hold = |network: u8, header| {
            let parts = parts(header);
            let size = header_bytes(&parts);
            hold(&memory, (&parts, size), &[network; 16], Trace::new([7; 24]))
        };
        let first = hold(1, 20_000).ok().flatten();
        let second = hold(1, 20_000).ok().flatten();
        assert!(first.is_some() && second.is_some());
        let refused = hold(1, 20_000).err().unwrap();
        assert_eq!(refused.status, 429);
        assert!(refused.headers.iter().any(|(name, value)| *name == "retry-after" && value == "1"));
        assert!(matches!(hold(1, 1_000), Ok(None)), "usual headers are not counted");
        assert!(matches!(hold(2, 20_000), Ok(Some(_))), "another network");
        drop(first);
        assert!(matches!(hold(1, 20_000), Ok(Some(_))), "until the response began");
    }
}
