//! Requests to other people's services: whom they may reach, what their failures mean, and when they are not sent.
pub mod auth;
pub(crate) mod breaker;
pub mod client;
pub(crate) mod refused;
pub(crate) mod said;
pub(crate) mod upstream;
