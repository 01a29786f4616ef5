//! The caller's side of a server's conversation: receiver of its events, and of the requests that it makes itself.

use std::borrow::Cow;

use asp_json::Json;
use async_trait::async_trait;

use super::ServerEvent;
use crate::message::METHOD_NOT_FOUND;

/// A JSON-RPC error.
#[derive(Debug, PartialEq)]
pub struct RpcError {
    pub code: i64,
    pub message: Cow<'static, str>,
}

impl RpcError {
    /// Creates the error for a method that the client does not have.
    pub const fn unknown_method() -> RpcError {
        RpcError { code: METHOD_NOT_FOUND, message: Cow::Borrowed("the client does not support this") }
    }
}

/// Receiver of an upstream's events besides its results, which also answers its requests.
#[async_trait]
pub trait Downstream: Send + Sync {
    fn receive_event(&self, event: ServerEvent);
    /// Reports that a user has finished on the page with this id of the upstream.
    fn visited(&self, _visit: &str) {}
    /// Answers a request. Dropping the future withdraws it.
    async fn answer_request(&self, method: &str, params: &Json) -> Result<Json, RpcError>;
}

/// Downstream without a client: every request of a server is an unknown method.
pub struct NoDownstream;

#[async_trait]
impl Downstream for NoDownstream {
    fn receive_event(&self, _: ServerEvent) {}

    async fn answer_request(&self, _: &str, _: &Json) -> Result<Json, RpcError> {
        Err(RpcError::unknown_method())
    }
}
