//! Push notifications of calls, as protocols see them: receivers, and the states that are due.

use asp_call::call::outcome::Refusal;
use futures::future::BoxFuture;
use uuid::Uuid;

pub use asp_call::durable::pushes::{DuePush, PushReceiver, Pushes, PutReceiver, ReceiverBound};

/// Receiver that is stored before its call starts. Its refusal is that of the call.
pub trait FirstReceiver: Send + Sync {
    /// Checks its address. The limits on the call have been charged.
    fn check(&self) -> BoxFuture<'_, Result<(), Refusal>>;

    /// Stores it for a call that has a record.
    fn store(&self, call: Uuid) -> BoxFuture<'_, Result<(), Refusal>>;
}
