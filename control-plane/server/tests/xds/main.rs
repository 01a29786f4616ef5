//! The xDS server over a real socket with real clients: subscribe, ACK, NACK, reconnect, endpoints.

// A helper of a test fails like the test itself.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod certificates;
mod envoys;
mod gateways;
mod support;
