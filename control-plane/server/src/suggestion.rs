//! Suggestion of the known name closest to a mistyped one.

pub use asp_registry::nearest;
