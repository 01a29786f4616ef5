//! An installed plugin: its location, its manifest, and the command that starts its worker.

pub mod installed;
pub mod language;
pub mod manifest;
