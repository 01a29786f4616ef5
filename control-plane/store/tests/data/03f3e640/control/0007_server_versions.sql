-- What a server was, each time it was stored: the one in force, and those before it that can be taken again.
CREATE TABLE server_versions (
    name         TEXT   NOT NULL,
    -- That of the write.
    revision     BIGINT NOT NULL,
    sources      TEXT   NOT NULL,
    content_hash TEXT   NOT NULL,
    stored_at    BIGINT NOT NULL,
    -- Who stored it; empty where that was before this table.
    actor        TEXT   NOT NULL,
    -- When the server was deleted; 0 while it is there.
    gone_at      BIGINT NOT NULL,
    PRIMARY KEY (name, revision)
);
INSERT INTO server_versions (name, revision, sources, content_hash, stored_at, actor, gone_at)
SELECT servers.name, resources.revision, servers.sources, servers.content_hash, servers.updated_at, '', 0
FROM servers JOIN resources ON resources.name = 'server/' || servers.name;
