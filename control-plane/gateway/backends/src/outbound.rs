//! Requests to external services: which destinations are allowed, what their failures mean, and when requests are not
//! sent.
pub mod auth;
mod auth_fault;
pub mod breaker;
mod linked;
pub(crate) mod refused;
pub(crate) mod upstream;
