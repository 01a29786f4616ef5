//! Support for tests: throw-away keys, token recipes and the shared vectors of `tests/vectors/edge`.
//!
//! Enabled by the feature `testkit`, which no product binary turns on. A fault in a fixture stops the test at once, so
//! this module may panic. No key is stored: each run makes its own.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod keys;
mod read_refusal;
mod recipe;
mod signing_key;
mod vectors;

pub use keys::Keys;
pub use read_refusal::ReadRefusal;
pub use recipe::{Recipe, mint};
pub use signing_key::SigningKey;
pub use vectors::{Case, Expect, Setting, load_cases, load_snapshot, vector_dir};
