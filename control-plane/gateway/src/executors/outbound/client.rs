//! The clients of [`asp_outbound`], by the name that executors know.

pub use asp_outbound::{Destination, Outbound, OutboundError, RequestedBy, body};
