-- Who made a revocation: what the platform's admins revoked in an org is not the org's to take back.
ALTER TABLE revocations ADD COLUMN by_platform BIGINT NOT NULL DEFAULT 0;
-- As far as the audit still knows.
UPDATE revocations SET by_platform = 1 WHERE EXISTS (
    SELECT 1 FROM audit
    WHERE audit.resource = 'revocation/' || revocations.id
      AND audit.action = 'revocation.add' AND audit.actor LIKE '%@platform'
);
