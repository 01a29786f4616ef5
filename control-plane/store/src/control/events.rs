//! Events of a topic that revoke, and messages of it that became no revocation.

/// Maximum number of events that are remembered: each for as long as a repetition of it could revoke something.
pub const MAX_REVOCATION_EVENTS: usize = 300_000;
/// Maximum number of parked messages; a newer one takes the place of the oldest.
pub const MAX_PARKED: usize = 500;
/// Maximum size in bytes of the kept text of a parked message.
pub const MAX_PARKED_BYTES: usize = 4_096;
/// Retention of parked messages in milliseconds: 30 days.
pub const KEEP_PARKED: u64 = 30 * 24 * 60 * 60 * 1000;

/// An event that becomes a revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RevocationEvent {
    /// The same for every repetition of the event.
    pub id: String,
    /// Unix milliseconds after which a repetition is too old to revoke anything.
    pub until: u64,
}

/// A message that became no revocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParkedEvent {
    /// `topic:partition:offset`
    pub id: String,
    /// Unix milliseconds.
    pub parked_at: u64,
    pub fault: String,
    /// Text of the message without secrets, at most [`MAX_PARKED_BYTES`].
    pub payload: String,
}
