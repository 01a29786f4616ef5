//! The contracts between the parts of the platform, as generated Rust types.
//!
//! Owns nothing but the generated code: what a message means is written in the `.proto` file beside
//! this crate. Builds for `wasm32-wasip1`, because the edge filter reads the edge snapshot.

/// The compiled configuration that the control plane pushes (`snapshot.proto`).
pub mod snapshot {
    #![allow(clippy::all, unreachable_pub, missing_docs)]
    include!(concat!(env!("OUT_DIR"), "/asp.snapshot.v1.rs"));
}
