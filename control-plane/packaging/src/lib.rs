//! Plugins from the code next to their specs to a language runtime: built, packed, stored, installed.
//!
//! Owns the package files and their content. Keeps true: the SHA-256 of a package file identifies the plugin's code from the
//! build to the worker. On its author's machine nothing pins it, and the digest of the sources takes its place.

pub mod answers;
pub mod build;
pub mod dependencies;
mod development;
pub mod examples;
pub mod fingerprint;
pub mod folder;
mod install;
pub mod languages;
pub mod local;
pub mod maven;
mod maven_sandbox;
pub mod output;
pub mod pack;
pub mod registries;
mod registry_proxy;
pub mod runtime;
pub mod scaffold;
pub mod schemas;
pub mod stdio;
mod storage;
pub mod tool;
pub mod trust;
mod unit;
pub mod unpack;

pub use install::{
    ConflictPolicy, InstallOutcome, InstallReport, InstalledUnit, StagedUnit, install, install_package,
    installed, stage, stage_files, work,
};
pub use unit::{MCP_STDIO, Unit, units};

#[cfg(test)]
mod tests;
