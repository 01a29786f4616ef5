//! Health of a language runtime, as a gateway observes it and the control plane reports it to admins.

use std::net::IpAddr;

/// Last known state of a runtime.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RuntimeState {
    /// Configured, but unused so far.
    #[default]
    Unused,
    Ready,
    /// Reachable, but it drains, or one of its plugins is quarantined or has an open breaker.
    Degraded,
    Unreachable,
    /// No runtime is configured for the needs of a plugin.
    Absent,
}

/// Plugin that is hidden from callers, because no runtime can currently run it.
#[derive(Clone, Debug, Default)]
pub struct OffPlugin {
    /// `<id>@<version>`.
    pub name: String,
    pub language: String,
    pub why: String,
    /// Command that shows or fixes the problem; empty if none is known.
    pub way_out: String,
}

/// Health of one runtime, for operators.
#[derive(Clone, Debug)]
pub struct RuntimeHealth {
    /// Languages that it is configured for.
    pub languages: Vec<String>,
    /// URL from the configuration.
    pub url: String,
    /// Address of this runtime, if the URL's name has several; `None` for the URL's own.
    pub address: Option<IpAddr>,
    pub state: RuntimeState,
    /// Statistics that it reports (runtime/supervisor/README.md, "Watching"); null if it does not answer.
    pub stats: serde_json::Value,
    /// Hidden plugins of its languages, as far as the caller knows them.
    pub off: Vec<OffPlugin>,
}
