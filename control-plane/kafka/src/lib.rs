//! Messages of a Kafka topic, in order and at least once.
//!
//! Owns the connection, the group and the offsets. Does not know what a message means: its [`Receiver`] does. Keeps true:
//! an offset is committed after the receiver has answered for its message; a receiver that cannot is asked again, and no later
//! message of the partition comes before; brokers that do not answer are retried for ever.

#[cfg(feature = "client")]
mod consumer;

mod topic;

#[cfg(feature = "client")]
pub use consumer::run;
pub use topic::{Receiver, TopicMessage, TopicSettings};
