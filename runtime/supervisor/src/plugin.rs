//! An installed plugin: where it lies, what its manifest allows, and how a worker of its language is started.

pub mod installed;
pub mod language;
pub mod manifest;
