//! The conversation of a backend with the caller of its call, and with upstreams whose client the gateway is.
//!
//! Owns: questions to the caller, from a spec or an upstream; delegations; and results as upstreams write them.
//! Refuses: imports of the backends that share it.

pub(in crate::executors) mod asking;
pub(in crate::executors) mod delegating;
pub(in crate::executors) mod dependencies;
pub(in crate::executors) mod downstream;
pub(in crate::executors) mod results;
pub(in crate::executors) mod sampling;
