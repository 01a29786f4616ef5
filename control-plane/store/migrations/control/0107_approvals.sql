-- compatible with: 0.2.0
-- Group that approves the calls of a binding, and its issuer. With a group, `allowed` and `approval` are 0: an earlier version denies
-- these calls.
ALTER TABLE bindings ADD COLUMN approvers TEXT NOT NULL DEFAULT '';
ALTER TABLE bindings ADD COLUMN approvers_issuer TEXT NOT NULL DEFAULT '';
