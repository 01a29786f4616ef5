//! Data of calls outside this process: their rows in the store, and the calls taken over from lost gateways.
pub mod active;
pub mod ended_call;
mod event_budget;
pub mod inbox;
pub mod pushes;
pub mod record;
pub mod shared_briefs;
pub mod shared_calls;
pub mod shared_events;
pub mod shared_followers;
pub mod skipped;
pub mod storage;
pub mod stored_outcome;
pub mod taken_over;
