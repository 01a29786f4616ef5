-- Which servers may have a primitive under an id: the one that stored it first, and those to which the platform grants it.
CREATE TABLE primitive_servers (
    id     TEXT   NOT NULL,
    server TEXT   NOT NULL,
    -- 1: it stored the id first.
    first  BIGINT NOT NULL,
    PRIMARY KEY (id, server)
);
CREATE INDEX primitive_servers_server ON primitive_servers (server);
