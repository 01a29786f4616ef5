//! Upload of one artifact's bytes to the store.
//!
//! Keeps true: nothing blocks here. Pieces that arrive during a write are collected for the next write; a store that
//! takes longer than `WRITE_WITHIN` or `KEEP_WITHIN` loses this artifact and nothing else.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_proto::plugin::{ArtifactData, ArtifactEmitted};
use asp_store::blobs::BlobError;
use futures::FutureExt;
use futures::future::BoxFuture;
use sha2::{Digest, Sha256};
use tokio::time::timeout;

use super::{ArtifactFault, name_of};
use crate::artifacts::{ArtifactLabel, Artifacts, IncomingArtifact};

/// Timeout of one write of at most `MAX_WAITING` bytes and a piece. The runtime ends a call whose output is not read
/// for 15 s.
const WRITE_WITHIN: Duration = Duration::from_secs(5);
/// Timeout for completing an artifact, which may have to reach a disk.
const KEEP_WITHIN: Duration = Duration::from_secs(10);

/// Store operation in progress for a call.
pub(super) type StoreOperation = BoxFuture<'static, StoreResult>;

/// Result of a store operation.
pub(in super::super) enum StoreResult {
    /// Some bytes of the artifact with this plugin URI were written.
    Written { own_uri: String, incoming: Result<IncomingArtifact, BlobError> },
    /// The whole artifact that is being emitted was stored; its public URI.
    Kept(Result<String, BlobError>),
}

#[derive(Default)]
pub(super) struct Upload {
    sink: Sink,
    /// Pieces that were not passed to the store yet.
    waiting: Vec<u8>,
    next: u64,
    hash: Sha256,
}

#[derive(Default)]
enum Sink {
    /// The store does not know the artifact yet.
    #[default]
    New,
    Ready(IncomingArtifact),
    Writing,
    /// The artifact can no longer be stored; its pieces are still read.
    Lost(BlobError),
}

impl Upload {
    /// Accepts the next piece.
    pub(super) fn take(&mut self, piece: &ArtifactData) -> Result<(), ArtifactFault> {
        if piece.offset != self.next {
            return Err(ArtifactFault("an artifact with gaps"));
        }
        self.next += piece.data.len() as u64;
        self.hash.update(&piece.data);
        if !matches!(self.sink, Sink::Lost(_)) {
            self.waiting.extend_from_slice(&piece.data);
        }
        Ok(())
    }

    /// Number of bytes that were not passed to the store yet.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Checks the received bytes against the size and digest that the plugin states.
    pub(super) fn check(&self, artifact: &ArtifactEmitted) -> Result<(), ArtifactFault> {
        if artifact.size != self.next {
            return Err(ArtifactFault("an artifact's size differs from its content"));
        }
        let hash = self.hash.clone().finalize();
        let digest: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
        if !artifact.sha256.is_empty() && artifact.sha256 != digest {
            return Err(ArtifactFault("an artifact's digest does not match its bytes"));
        }
        Ok(())
    }

    /// Starts to write the waiting bytes; `None` if there are none or the store cannot take them now.
    pub(super) fn write(
        &mut self,
        own_uri: &str,
        artifacts: &Artifacts,
        call: &Arc<Call>,
    ) -> Option<StoreOperation> {
        if self.waiting.is_empty() {
            return None;
        }
        let begun = match std::mem::replace(&mut self.sink, Sink::Writing) {
            Sink::New => None,
            Sink::Ready(incoming) => Some(incoming),
            other => {
                self.sink = other;
                return None;
            }
        };
        let bytes = std::mem::take(&mut self.waiting);
        let own_uri = own_uri.to_owned();
        let artifacts = artifacts.clone();
        let call = call.clone();
        let write = async move {
            let mut incoming = begin(begun, &artifacts, &call).await?;
            incoming.write(&bytes).await?;
            Ok(incoming)
        };
        Some(
            async move { StoreResult::Written { own_uri, incoming: within(WRITE_WITHIN, write).await } }
                .boxed(),
        )
    }

    /// Records the result of a write.
    pub(super) fn record_write(&mut self, incoming: Result<IncomingArtifact, BlobError>) {
        match incoming {
            Ok(incoming) => self.sink = Sink::Ready(incoming),
            Err(error) => {
                self.sink = Sink::Lost(error);
                self.waiting = Vec::new();
            }
        }
    }

    /// Starts to make the whole artifact readable; `None` if not all of it is written yet.
    pub(super) fn keep(
        &mut self,
        artifact: &ArtifactEmitted,
        artifacts: &Artifacts,
        call: &Arc<Call>,
    ) -> Option<StoreOperation> {
        if !self.waiting.is_empty() || matches!(self.sink, Sink::Writing) {
            return None;
        }
        let begun = match std::mem::replace(&mut self.sink, Sink::Writing) {
            Sink::Lost(error) => return Some(async { StoreResult::Kept(Err(error)) }.boxed()),
            Sink::Ready(incoming) => Some(incoming),
            Sink::New | Sink::Writing => None,
        };
        let name = name_of(&artifact.uri).to_owned();
        let content_type = artifact.content_type.clone();
        let artifacts = artifacts.clone();
        let call = call.clone();
        let keep = async move {
            let incoming = begin(begun, &artifacts, &call).await?;
            incoming.finish(&call, ArtifactLabel { name: &name, content_type: &content_type }).await
        };
        Some(async move { StoreResult::Kept(within(KEEP_WITHIN, keep).await) }.boxed())
    }
}

async fn begin(
    begun: Option<IncomingArtifact>,
    artifacts: &Artifacts,
    call: &Call,
) -> Result<IncomingArtifact, BlobError> {
    match begun {
        Some(incoming) => Ok(incoming),
        None => artifacts.begin(call).await,
    }
}

async fn within<T>(
    limit: Duration,
    work: impl Future<Output = Result<T, BlobError>>,
) -> Result<T, BlobError> {
    let slow = |_| BlobError::Unavailable(format!("the store did not answer within {} s", limit.as_secs()));
    timeout(limit, work).await.map_err(slow)?
}
