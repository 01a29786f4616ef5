//! Requests of a worker for the storage of its plugin.
//!
//! Refuses: primitives whose spec does not grant it, more than 16 requests at a time and 1,000 of one call. Keeps true: a
//! worker gets one answer to each request; one that outlives its worker is dropped, and may have been stored.

use std::sync::Arc;

use asp_proto::plugin::{DeliverStorageAnswer, StorageRequested};
use asp_proto::snapshot::runtime::Mode;
use asp_proto::storage::{MAX_OPEN, MAX_REQUESTS, StorageFault};
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::job::Job;
use crate::backend::mode;

/// Open requests of one worker.
#[derive(Default)]
pub(super) struct StorageRequests {
    open: FuturesUnordered<BoxFuture<'static, DeliverStorageAnswer>>,
}

/// The worker has too many requests open.
#[derive(Debug)]
pub(super) struct TooManyOpen;

impl StorageRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Begins a request. `requests`: number of requests of the call so far.
    pub(super) fn begin(
        &mut self,
        job: &Job<'_>,
        requests: &mut u32,
        asked: StorageRequested,
    ) -> Result<(), TooManyOpen> {
        if self.open.len() >= MAX_OPEN {
            return Err(TooManyOpen);
        }
        *requests = requests.saturating_add(1);
        let storage = match &job.deps.storage {
            _ if !is_granted(job) => Err(StorageFault::NotGranted),
            _ if *requests > MAX_REQUESTS => Err(StorageFault::TooMany),
            None => Err(StorageFault::Unavailable),
            Some(storage) => Ok(Arc::clone(storage)),
        };
        let call = Arc::clone(job.call());
        let answering = async move {
            match storage {
                Ok(storage) => storage.answer(&call, asked).await,
                Err(fault) => asked.refused(fault),
            }
        };
        self.open.push(answering.boxed());
        Ok(())
    }

    /// Waits for the next answer to the worker.
    pub(super) async fn next(&mut self) -> Option<DeliverStorageAnswer> {
        self.open.next().await
    }
}

/// Whether the spec of the called primitive says `storage: true`.
fn is_granted(job: &Job<'_>) -> bool {
    matches!(mode(&job.call().entry.primitive), Some(Mode::Plugin(plugin)) if plugin.storage)
}
