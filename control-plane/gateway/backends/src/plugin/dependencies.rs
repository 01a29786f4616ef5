//! Dependencies of plugin calls on the rest of the gateway.

use std::sync::Arc;

use asp_call::call::event::LogLevel;
use asp_call::durable::active::ActiveTable;
use asp_call::durable::storage::SealedStorage;
use asp_identity::minting::Minter;

use crate::artifacts::Artifacts;
use crate::delegate::Delegates;
use crate::outbound::auth::Authorizer;

/// Receives the plugin's id, the level of a line and its text, which is as bounded as for callers and as the plugin wrote
/// it: a listener that displays it escapes it. Called on the path of calls.
pub type LogListener = Arc<dyn Fn(&str, LogLevel, &str) + Send + Sync>;

/// Dependencies of plugin calls.
pub struct PluginDeps {
    pub saved: SavedCalls,
    /// Keys and values of plugins; `None` if there is no store for them.
    pub storage: Option<Arc<SealedStorage>>,
    pub artifacts: Artifacts,
    pub minter: Arc<Minter>,
    pub authorizer: Arc<Authorizer>,
    /// Delegates that the platform answers for.
    pub delegates: Arc<Delegates>,
    /// Additional listener for the log lines of plugins.
    pub listener: Option<LogListener>,
}

/// The saved state of a gateway's plugin calls.
#[derive(Clone)]
pub struct SavedCalls {
    pub active: Arc<ActiveTable>,
}
