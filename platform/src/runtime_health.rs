//! How a language runtime does, as a gateway finds it and the control plane tells its admins.

use std::net::IpAddr;

/// What is known of a runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeState {
    /// Nobody has used it yet.
    Unused,
    Ready,
    /// It answers; it drains, or a plugin of it is quarantined or has an open breaker.
    Degraded,
    Unreachable,
    /// No runtime is configured for what plugins need.
    Absent,
}

/// A plugin that is hidden from callers, because no runtime can run it as things stand.
#[derive(Clone, Debug, Default)]
pub struct OffPlugin {
    /// `<id>@<version>`.
    pub name: String,
    pub language: String,
    pub why: String,
    /// A command that shows or mends it; empty where none is known.
    pub way_out: String,
}

/// One runtime's health, for operators.
#[derive(Clone, Debug)]
pub struct RuntimeHealth {
    /// What it is used for, by the configuration.
    pub languages: Vec<String>,
    /// As it is configured.
    pub url: String,
    /// Which of the addresses that the URL's name has; `None`: the URL's own.
    pub address: Option<IpAddr>,
    pub state: RuntimeState,
    /// What it says of itself (runtime/supervisor/README.md, "Watching"); null when it does not answer.
    pub stats: serde_json::Value,
    /// Of its languages, as far as who asks knows.
    pub off: Vec<OffPlugin>,
}
