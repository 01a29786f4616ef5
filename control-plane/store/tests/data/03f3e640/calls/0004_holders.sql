-- A key is completed and released by its holder and by no other: a call (its id, 16 bytes) on the gateway that runs it
-- (as in active_owners). Another gateway that goes on with the call takes its key over.
ALTER TABLE ledger ADD COLUMN call_id BLOB;
ALTER TABLE ledger ADD COLUMN owner BLOB;
