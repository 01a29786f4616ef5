-- Running calls outlive the gateway that runs them: each row has an owner, one run of one gateway, and another takes
-- it over when the owner's lease has ended. `record` is what the call was asked for, sealed by the gateway.
ALTER TABLE active_calls ADD COLUMN owner BLOB;
ALTER TABLE active_calls ADD COLUMN record BLOB;
CREATE TABLE active_owners (
    owner    BLOB   NOT NULL PRIMARY KEY,
    lease_ms BIGINT NOT NULL
);
