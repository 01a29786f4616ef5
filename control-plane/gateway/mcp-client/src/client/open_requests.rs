//! Open requests of an upstream to the caller.
//!
//! Owns: the pending answers, and the end of a request that its upstream withdraws. Keeps true: at most 16 are open
//! at a time; an answer is delivered while further messages are read, so that neither waits for the other.

use std::sync::Arc;

use asp_json::Json;
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use tokio_util::sync::CancellationToken;

use super::downstream::{Downstream, RpcError};

/// Maximum number of open requests (plugin.proto).
const MAX_OPEN: usize = 16;

/// A request of an upstream, and the client that answers it.
pub struct UpstreamRequest {
    pub downstream: Arc<dyn Downstream>,
    pub method: String,
    pub params: Json,
}

/// Open requests of one upstream, by their ids. `T` is the outcome of a delivery.
pub struct OpenRequests<Id, T> {
    waiting: FuturesUnordered<BoxFuture<'static, (Id, T)>>,
    by_id: Vec<(Id, CancellationToken)>,
}

impl<Id, T> Default for OpenRequests<Id, T> {
    fn default() -> OpenRequests<Id, T> {
        OpenRequests { waiting: FuturesUnordered::new(), by_id: Vec::new() }
    }
}

impl<Id: Clone + PartialEq + Send + 'static, T: Send + 'static> OpenRequests<Id, T> {
    /// Returns the number of pending deliveries.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether no further request may be put to the caller.
    pub fn is_full(&self) -> bool {
        self.by_id.len() >= MAX_OPEN
    }

    /// Whether a request with this id is open.
    pub fn contains(&self, id: &Id) -> bool {
        self.by_id.iter().any(|(open, _)| open == id)
    }

    /// Puts a request to the caller. `deliver` gets the answer, or `None` if the request was withdrawn before.
    pub fn begin<F: Future<Output = T> + Send + 'static>(
        &mut self,
        id: Id,
        request: UpstreamRequest,
        deliver: impl FnOnce(Option<Result<Json, RpcError>>) -> F + Send + 'static,
    ) {
        let UpstreamRequest { downstream, method, params } = request;
        let taken_back = CancellationToken::new();
        self.by_id.push((id.clone(), taken_back.clone()));
        self.wait_for(id, async move {
            let answer = tokio::select! {
                answer = downstream.answer_request(&method, &params) => Some(answer),
                () = taken_back.cancelled() => None,
            };
            deliver(answer).await
        });
    }

    /// Waits for the delivery of an answer that is already known.
    pub fn wait_for(&mut self, id: Id, delivery: impl Future<Output = T> + Send + 'static) {
        self.waiting.push(Box::pin(async move { (id, delivery.await) }));
    }

    /// Ends an open request, because its upstream has withdrawn it.
    pub fn take_back(&self, id: &Id) {
        if let Some((_, taken_back)) = self.by_id.iter().find(|(open, _)| open == id) {
            taken_back.cancel();
        }
    }

    /// Waits for the next delivery; `None` if none is pending.
    pub async fn next(&mut self) -> Option<T> {
        let (id, delivered) = self.waiting.next().await?;
        self.by_id.retain(|(open, _)| *open != id);
        Some(delivered)
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use serde_json::json;

    use super::super::ServerEvent;
    use super::*;

    /// Answers only `ping`.
    struct Silent;

    #[async_trait]
    impl Downstream for Silent {
        fn receive_event(&self, _: ServerEvent) {}

        async fn answer_request(&self, method: &str, _: &Json) -> Result<Json, RpcError> {
            if method != "ping" {
                std::future::pending::<()>().await;
            }
            Ok(json!({}).into())
        }
    }

    #[tokio::test]
    async fn a_request_that_is_answered_or_taken_back_leaves_its_place() {
        let mut open = OpenRequests::default();
        let begin = |open: &mut OpenRequests<usize, bool>, id: usize, method: &str| {
            let request = UpstreamRequest {
                downstream: Arc::new(Silent),
                method: method.into(),
                params: json!({}).into(),
            };
            open.begin(id, request, |answer| std::future::ready(answer.is_some()));
        };
        for id in 0..MAX_OPEN {
            begin(&mut open, id, "roots/list");
        }
        assert!(open.is_full() && open.contains(&3));
        open.take_back(&MAX_OPEN);
        open.take_back(&3);
        assert_eq!(open.next().await, Some(false));
        assert!(!open.is_full() && !open.contains(&3));
        begin(&mut open, MAX_OPEN, "ping");
        assert!(open.is_full());
        assert_eq!(open.next().await, Some(true));
        open.wait_for(MAX_OPEN + 1, std::future::ready(true));
        assert_eq!((open.next().await, open.len()), (Some(true), MAX_OPEN - 1));
    }
}
