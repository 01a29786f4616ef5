//! What the runtime's MetricsStream tells, with the time it arrived here.

use std::sync::Arc;

use anyhow::{Context, Result};
use asp_proto::supervisor::{MetricsEvent, MetricsStreamRequest};
use parking_lot::Mutex;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::bed::Bed;

/// More than any row makes.
const KEPT: usize = 100_000;

/// Events of workers, from the moment this was made.
pub(crate) struct Events {
    seen: Arc<Mutex<Vec<(Instant, MetricsEvent)>>>,
    task: AbortHandle,
}

impl Events {
    pub(crate) async fn follow(bed: &Bed) -> Result<Events> {
        let mut client = bed.another_client()?.any_client();
        let request = MetricsStreamRequest::default();
        let mut stream = client.metrics_stream(request).await.context("follow the metrics")?.into_inner();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            while let Ok(Some(event)) = stream.message().await {
                let mut kept = kept.lock();
                // Every call makes one; only workers matter here.
                if event.name != "call" && kept.len() < KEPT {
                    kept.push((Instant::now(), event));
                }
            }
        });
        Ok(Events { seen, task: task.abort_handle() })
    }

    /// When each event of this name about a plugin arrived.
    pub(crate) fn times(&self, name: &str, plugin: &str) -> Vec<Instant> {
        let about = |event: &MetricsEvent| event.labels.get("plugin").is_some_and(|label| label == plugin);
        let seen = self.seen.lock();
        seen.iter().filter(|(_, event)| event.name == name && about(event)).map(|(at, _)| *at).collect()
    }

    pub(crate) fn count(&self, name: &str) -> usize {
        self.seen.lock().iter().filter(|(_, event)| event.name == name).count()
    }
}

impl Drop for Events {
    fn drop(&mut self) {
        self.task.abort();
    }
}
