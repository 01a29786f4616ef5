//! What the admin API asks of the language runtimes.

use asp_platform::runtime_health::RuntimeHealth;
use async_trait::async_trait;

/// The runtimes of this process's configuration; whoever wires the roles together connects them.
#[async_trait]
pub trait Runtimes: Send + Sync {
    /// Asks each runtime once; one that does not answer in time is unreachable.
    async fn health(&self) -> Vec<RuntimeHealth>;
}
