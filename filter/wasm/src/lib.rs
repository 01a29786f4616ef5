//! The edge filter that Envoy loads. Glue only; every decision is made in `asp-edge`.
//!
//! Owns the life of a VM (one per Envoy worker), the order of callbacks and the signature provider. Refuses to decide
//! anything about a request. A panic here would end every stream of the worker, so no path panics: host calls are
//! behind [`host::Host`] and made only in the phase that allows them.

#[cfg(target_arch = "wasm32")]
mod envoy;
pub mod host;
pub mod map;
pub mod refusal_log;
pub mod request;
pub mod shared;
pub mod signature;
pub mod vm;
