-- What lies in an object store: bytes there, and here what is known of them and what everybody's take, so that a quota is one
-- for all gateways and control planes. Times are the database's, Unix milliseconds.

-- kind 1: artifacts of calls, of orgs; 2: packages of plugins, of orgs or of the platform, whose holder is empty.
-- state 0: being written; 1: there, under its name; 2: going, and its bytes may be there still. What is past `until_ms` is
-- deleted, or was being deleted by somebody who is gone.
CREATE TABLE objects (
    object      BYTEA  NOT NULL PRIMARY KEY,
    kind        BIGINT NOT NULL,
    holder      TEXT   NOT NULL,
    state       BIGINT NOT NULL,
    counted     BIGINT NOT NULL,
    until_ms    BIGINT NOT NULL,
    name        TEXT   NOT NULL DEFAULT '',
    size        BIGINT NOT NULL DEFAULT 0,
    sha256      BYTEA,
    description TEXT   NOT NULL DEFAULT ''
);
-- Of two that are written under one name, one is the first.
CREATE UNIQUE INDEX objects_there ON objects (kind, name, holder) WHERE state = 1;
CREATE INDEX objects_past ON objects (kind, until_ms);

-- What each holder's take, those that are written and that go included.
CREATE TABLE object_usage (
    kind    BIGINT NOT NULL,
    holder  TEXT   NOT NULL,
    objects BIGINT NOT NULL,
    bytes   BIGINT NOT NULL,
    PRIMARY KEY (kind, holder)
);
