//! What the admin API asks of the language runtimes: their health, in words of the control role's own.

use async_trait::async_trait;

/// The runtimes of this process's configuration; whoever wires the roles together connects them.
#[async_trait]
pub trait Runtimes: Send + Sync {
    /// Asks each runtime once; one that does not answer in time is unreachable.
    async fn health(&self) -> Vec<RuntimeHealth>;
}

/// How a runtime does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimeState {
    Ready,
    /// It answers; it drains, or a plugin of it is quarantined or has an open breaker.
    Degraded,
    Unreachable,
}

/// One runtime.
#[derive(Clone, Debug)]
pub struct RuntimeHealth {
    /// What it is used for, by the configuration.
    pub languages: Vec<String>,
    pub url: String,
    pub state: RuntimeState,
    /// What it says of itself (runtime/supervisor/README.md, "Watching"); null when it does not answer.
    pub figures: serde_json::Value,
}
