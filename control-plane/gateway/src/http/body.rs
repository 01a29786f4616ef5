//! Receipt of a request's body.
//!
//! Keeps true: no body is longer than its server's limit or takes longer than [`TIMEOUT`]; the bodies of all open
//! requests count against the memory of requests, and no org can take all of it. Frames are concatenated as they
//! arrive, so that a client sending single bytes does not make the gateway hold a frame for each.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::outcome::Refusal;
use asp_pipeline::pipeline::admission::{Admission, AdmissionPermit};
use axum::body::{Body, Bytes};
use http_body_util::BodyExt;

/// Time limit for a client to send its body.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Largest size that is not counted, in bytes; the headers of a request take as much.
const LITTLE: usize = 4 << 10;

/// A whole body.
#[derive(Default)]
pub(super) struct ReceivedBody {
    pub(super) bytes: Bytes,
    /// Memory reserved for the body, until the protocol reserves the memory of the whole request.
    pub(super) held: Option<AdmissionPermit>,
}

/// The reason why the body was not received.
pub(super) enum BodyFault {
    TooLarge,
    Broken,
    Slow,
    /// Other requests hold the memory.
    Taken(Refusal),
}

/// Receives a body of at most `most` bytes for `org`, or for a network if the caller is unknown.
pub(super) async fn receive(
    memory: &Arc<Admission>,
    org: &str,
    most: usize,
    body: Body,
) -> Result<ReceivedBody, BodyFault> {
    let whole = whole(memory, org, most, body);
    tokio::time::timeout(TIMEOUT, whole).await.unwrap_or(Err(BodyFault::Slow))
}

async fn whole(
    memory: &Arc<Admission>,
    org: &str,
    most: usize,
    mut body: Body,
) -> Result<ReceivedBody, BodyFault> {
    let mut only = Bytes::new();
    let mut received = Vec::new();
    let mut room = 0;
    let mut held = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| BodyFault::Broken)?.into_data() else { continue };
        let before = only.len() + received.len();
        let length = before + data.len();
        if length > most {
            return Err(BodyFault::TooLarge);
        }
        if before == 0 && length <= LITTLE {
            only = data;
            continue;
        }
        if length > room {
            room = length.next_power_of_two().max(LITTLE);
            if room > LITTLE {
                // The previous reservation is released only after this one: during the copy, both buffers exist.
                held = Some(memory.take(org, room).map_err(BodyFault::Taken)?);
            }
            received.reserve_exact(room - received.len());
        }
        received.extend_from_slice(&std::mem::take(&mut only));
        received.extend_from_slice(&data);
    }
    // Spare capacity must not be held until the call ends.
    received.shrink_to_fit();
    let bytes = if received.is_empty() { only } else { received.into() };
    Ok(ReceivedBody { bytes, held })
}
