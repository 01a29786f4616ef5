-- compatible with: 0.1.0
-- Revocations of one moment, as a control plane reads them after each batch, and the newest first, as admins list them.
CREATE INDEX revocations_created ON revocations (created_at, id);
