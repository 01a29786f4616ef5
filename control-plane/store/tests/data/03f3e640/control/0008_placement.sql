-- Which gateway pool a kind of request goes to.
CREATE TABLE routes (
    server    TEXT NOT NULL,
    method    TEXT NOT NULL,
    -- Primitive id: exact, `prefix*` or `*`.
    primitive TEXT NOT NULL,
    pool      TEXT NOT NULL,
    PRIMARY KEY (server, method, primitive)
);

-- Regions that this one knows.
CREATE TABLE regions (
    name    TEXT NOT NULL PRIMARY KEY,
    -- Envoy's cluster that leads there; empty: it is this one.
    cluster TEXT NOT NULL
);

-- Where orgs are at home.
CREATE TABLE homes (
    -- Exact, `prefix*` or `*`.
    org    TEXT NOT NULL PRIMARY KEY,
    -- It need not be a region that this one knows.
    region TEXT NOT NULL
);
