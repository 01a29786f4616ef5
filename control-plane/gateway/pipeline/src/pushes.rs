//! Push notifications of calls, as protocols see them: receivers, and the states that are due.

pub use asp_call::durable::pushes::{DuePush, PushReceiver, Pushes, PutReceiver, ReceiverBound};
