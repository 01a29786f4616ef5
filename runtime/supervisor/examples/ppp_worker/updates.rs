//! Updates of resources that a worker watches.

use std::time::Duration;

use asp_proto::plugin::ResourceUpdated;
use futures::StreamExt;
use futures::stream;
use tonic::Status;

use crate::Chunks;

/// Returns the updates for the URI: one and then no more, three and then the end, late, without a pause, or a text that
/// is too long for a URI.
pub(crate) fn of(uri: &str) -> Result<Chunks<ResourceUpdated>, Status> {
    let updated = |uri: &str| Ok(ResourceUpdated { uri: uri.to_owned() });
    Ok(match uri {
        "test://unwatched" => return Err(Status::unimplemented("it watches nothing")),
        "test://ends" => Box::pin(stream::iter((0..3).map(move |_| updated("")))),
        "test://late" => Box::pin(stream::once(async move {
            tokio::time::sleep(Duration::from_millis(2500)).await;
            updated("")
        })),
        "test://talks" => Box::pin(stream::repeat_with(move || updated(""))),
        "test://long" => Box::pin(stream::iter([updated(&"x".repeat(100_000))])),
        _ => Box::pin(stream::iter([updated("")]).chain(stream::pending())),
    })
}
