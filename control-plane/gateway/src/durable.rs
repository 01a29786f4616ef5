//! What a call has beyond this process: its row in the store, and the calls taken over from gateways that are gone.
pub mod active;
mod event_share;
pub mod inbox;
pub mod record;
pub mod shared_calls;
pub mod shared_events;
pub mod shared_followers;
pub mod skipped;
pub mod taken_over;
