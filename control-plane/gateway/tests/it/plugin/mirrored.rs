//! Calls that are followed at a gateway that does not run them: what of their records it reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use asp_gateway::executors::plugin::runtimes::Runtimes;
use asp_store::records::{CallRecords, MemoryRecords};

use super::inbox::{Gateways, asked};
use super::takeover::{answering, send};
use super::{asks_name, until};
use crate::runtime::{Runtime, Script, Worker};
use crate::support::records::{Faults, FaultyRecords};

/// Records that count how often they are read.
struct Counted {
    records: Arc<MemoryRecords>,
    whole: AtomicUsize,
    stands: AtomicUsize,
}

impl Faults for Counted {
    fn store(&self) -> &dyn CallRecords {
        &*self.records
    }

    fn reads(&self, whole: bool) {
        let count = if whole { &self.whole } else { &self.stands };
        count.fetch_add(1, Ordering::SeqCst);
    }
}

/// A call may have saved some MiB, and thousands are looked at several times a second.
#[tokio::test]
async fn a_call_that_is_followed_elsewhere_is_looked_at_without_what_it_has_saved() {
    let runtime = Runtime::start(Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[("checkpoint", "true")]).await;
        worker.say(asks_name(&invoke.request_id)).await;
        while worker.next().await.is_some() {}
    }));
    let gateways = Gateways::with(&runtime);
    let asked = asked(&gateways, &runtime).await;
    gateways.first.gateway.pipeline.active.renew().await.unwrap();
    let records = gateways.first.active.clone();
    let counted =
        Arc::new(FaultyRecords(Counted { records, whole: AtomicUsize::new(0), stands: AtomicUsize::new(0) }));
    let second = gateways.another_over(counted.clone(), Runtimes::none());
    let answered = send(answering(&asked), &second);
    until("the answer is stored", || gateways.inbox.has_stored()).await;
    let stands = || counted.0.stands.load(Ordering::SeqCst);
    until("it is followed", || stands() >= 1).await;
    let (before, whole) = (stands(), counted.0.whole.load(Ordering::SeqCst));
    until("it is looked at again and again", || stands() >= before + 4).await;
    assert_eq!(counted.0.whole.load(Ordering::SeqCst), whole);
    answered.abort();
}
