//! The conversation of a backend with the caller of its call, and with upstreams whose client the gateway is.
//!
//! Owns: questions to the caller, from a spec or an upstream, and results as upstreams write them.
//! Refuses: imports of the backends that share it.

pub(crate) mod asking;
pub(crate) mod dependencies;
pub mod downstream;
pub(crate) mod results;
pub(crate) mod sampling;
pub(crate) mod upstream_call;
