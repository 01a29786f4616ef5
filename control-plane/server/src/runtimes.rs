//! Health of the language runtimes, for the admin API.

use asp_platform::runtime_health::RuntimeHealth;
use async_trait::async_trait;

/// The runtimes in this process's configuration; the binary connects them.
#[async_trait]
pub trait Runtimes: Send + Sync {
    /// Checks each runtime once; one that does not answer in time counts as unreachable.
    async fn health(&self) -> Vec<RuntimeHealth>;
}
