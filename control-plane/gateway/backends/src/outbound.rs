//! Requests to external services: which destinations are allowed, what their failures mean, and when requests are not
//! sent.
pub mod auth;
pub mod breaker;
pub(crate) mod refused;
pub(crate) mod upstream;
