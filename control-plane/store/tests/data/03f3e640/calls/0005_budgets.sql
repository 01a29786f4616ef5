-- What each org keeps in the ledger: its keys and the bytes of its answers, counted by the rows themselves, whoever
-- writes or deletes them. `org` is a digest of the org's id; rows from before have none and are not counted.
ALTER TABLE ledger ADD COLUMN org BLOB;
CREATE TABLE ledger_usage (
    org        BLOB   NOT NULL PRIMARY KEY,
    claim_keys BIGINT NOT NULL,
    bytes      BIGINT NOT NULL
);
CREATE TRIGGER ledger_claimed AFTER INSERT ON ledger WHEN NEW.org IS NOT NULL
BEGIN
    INSERT INTO ledger_usage (org, claim_keys, bytes) VALUES (NEW.org, 1, COALESCE(LENGTH(NEW.answer), 0))
    ON CONFLICT (org) DO UPDATE SET claim_keys = claim_keys + 1, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER ledger_answered AFTER UPDATE OF answer ON ledger WHEN NEW.org IS NOT NULL
BEGIN
    UPDATE ledger_usage
    SET bytes = bytes + COALESCE(LENGTH(NEW.answer), 0) - COALESCE(LENGTH(OLD.answer), 0)
    WHERE org = NEW.org;
END;
CREATE TRIGGER ledger_forgotten AFTER DELETE ON ledger WHEN OLD.org IS NOT NULL
BEGIN
    UPDATE ledger_usage
    SET claim_keys = claim_keys - 1, bytes = bytes - COALESCE(LENGTH(OLD.answer), 0)
    WHERE org = OLD.org;
    DELETE FROM ledger_usage WHERE org = OLD.org AND claim_keys <= 0;
END;
