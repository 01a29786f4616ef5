//! The conversation of a backend with the caller of its call, and with upstreams whose client the gateway is.
//!
//! Owns: questions of upstreams to the caller, and results as upstreams write them. Refuses: imports of the backends that share
//! it.

pub mod downstream;
pub(in crate::executors) mod results;
