-- Which gateways live: one row a run of a gateway, renewed every few seconds. A file of its own, in which nothing else
-- is written, so that no load on the other files delays a renewal.
CREATE TABLE owners (
    owner    BLOB   NOT NULL PRIMARY KEY,
    lease_ms BIGINT NOT NULL
);
