//! Clients of [`asp_outbound`], under the name that backends use.

pub use asp_outbound::{Destination, Outbound, OutboundError, Requester, body};
