//! Snapshots as one message, for tests.

use asp_proto::snapshot::GatewaySnapshot;
use asp_snapshot::Snapshot;

use super::Gateway;

impl Gateway {
    /// Applies a whole snapshot. On `Err`, the reason for the NACK, the previous snapshot stays in force.
    pub fn apply(&self, snapshot: GatewaySnapshot) -> Result<(), String> {
        let _one_at_a_time = self.applying.lock();
        self.is_no_older(snapshot.revision)?;
        let snapshot = Snapshot::build(snapshot)?;
        let covers = snapshot.revision;
        self.put_in_force(snapshot, covers);
        Ok(())
    }
}
