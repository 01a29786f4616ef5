//! The body of a request while it is received.
//!
//! Keeps true: no body is longer than its server lets it be or takes longer than [`TIMEOUT`]; what was received of all that have
//! not ended takes from the memory of requests, and of one org's they leave some to others. The frames of a body are put
//! together as they come: a client that sends single bytes makes nobody hold a frame for each.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt;

use crate::call::outcome::Refusal;
use crate::pipeline::admission::{Admission, AdmissionPermit};

/// Longest time a client may take to send its body.
const TIMEOUT: Duration = Duration::from_secs(30);
/// A body of which this much came is not counted: the headers of a request take as much.
const LITTLE: usize = 4 << 10;

/// A whole body.
#[derive(Default)]
pub(super) struct Received {
    pub(super) bytes: Bytes,
    /// What it takes of the memory of requests, until its face takes for the whole request.
    pub(super) held: Option<AdmissionPermit>,
}

/// Why there is none.
pub(super) enum Fault {
    TooLarge,
    Broken,
    Slow,
    /// Others take the memory.
    Taken(Refusal),
}

/// The body of a request of `org`, or of a network where nobody is known, of at most so many bytes.
pub(super) async fn receive(
    memory: &Arc<Admission>,
    org: &str,
    most: usize,
    body: Body,
) -> Result<Received, Fault> {
    let whole = whole(memory, org, most, body);
    tokio::time::timeout(TIMEOUT, whole).await.unwrap_or(Err(Fault::Slow))
}

async fn whole(memory: &Arc<Admission>, org: &str, most: usize, mut body: Body) -> Result<Received, Fault> {
    let mut only = Bytes::new();
    let mut received = Vec::new();
    let mut room = 0;
    let mut held = None;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| Fault::Broken)?.into_data() else { continue };
        let before = only.len() + received.len();
        let length = before + data.len();
        if length > most {
            return Err(Fault::TooLarge);
        }
        if before == 0 && length <= LITTLE {
            only = data;
            continue;
        }
        if length > room {
            room = length.next_power_of_two().max(LITTLE);
            if room > LITTLE {
                // What was taken before is given back after this: while it is copied, there are both.
                held = Some(memory.take(org, room).map_err(Fault::Taken)?);
            }
            received.reserve_exact(room - received.len());
        }
        received.extend_from_slice(&std::mem::take(&mut only));
        received.extend_from_slice(&data);
    }
    // What it had room for is not held until its call ends.
    received.shrink_to_fit();
    let bytes = if received.is_empty() { only } else { received.into() };
    Ok(Received { bytes, held })
}
