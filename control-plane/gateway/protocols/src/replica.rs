//! The parts of one replica that all protocols share.
//!
//! Owns: the snapshot in force. Refuses: to change it, which the gateway does; and the backends, which only the pipeline knows.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use asp_call::seal::Sealer;
use asp_call::telemetry::metrics::Metrics;
use asp_identity::issuers::Issuers;
use asp_identity::minting::{CardKeys, Minter};
use asp_pipeline::pipeline::Pipeline;
use asp_pipeline::pipeline::admission::{Admission, RequestMemory};
use asp_pipeline::sessions::Sessions;
use asp_pipeline::subscriptions::Subscriptions;
use asp_snapshot::Snapshot;

use crate::approval_webhook::ApprovalWebhook;
use crate::message_turns::MessageTurns;
use crate::push::PushService;

/// The public part of the configuration.
pub struct Settings {
    /// Origin that clients use, without a trailing slash.
    pub public_url: String,
    pub dev: bool,
    /// Whether anyone may list the servers that are exposed to everybody.
    pub registry: bool,
    /// Whether a mesh encrypts and authenticates connections, and so decides which peers may connect.
    pub in_mesh: bool,
}

/// One replica, as protocols see it.
pub struct Replica {
    pub config: Settings,
    pub sealer: Arc<Sealer>,
    pub sessions: Sessions,
    /// Subscribers to changes.
    pub subscriptions: Arc<Subscriptions>,
    pub minter: Arc<Minter>,
    /// Keys that sign agent cards.
    pub card_keys: CardKeys,
    pub pipeline: Arc<Pipeline>,
    pub issuers: Issuers,
    /// Open responses that wait for a change.
    pub waiting: Arc<Admission>,
    /// Messages that tools read.
    pub message_turns: MessageTurns,
    /// Push notifications; `None` if this replica sends none.
    pub push: Option<PushService>,
    /// Receiver of notifications about requests for approval; `None` for none.
    pub approval_webhook: Option<ApprovalWebhook>,
    /// Memory that requests hold until their calls have ended.
    pub memory: RequestMemory,
    /// The snapshot in force; `None` before the first.
    pub in_force: ArcSwapOption<Snapshot>,
}

impl Replica {
    /// Returns the snapshot in force; `None` before the first.
    pub fn snapshot(&self) -> Option<Arc<Snapshot>> {
        self.in_force.load_full()
    }

    pub fn metrics(&self) -> &Metrics {
        self.pipeline.metrics()
    }
}
