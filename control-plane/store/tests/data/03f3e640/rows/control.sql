-- A row of each table of the control store at commit 03f3e640, on SQLite and PostgreSQL.
UPDATE control_revision SET revision = 42;
INSERT INTO resources VALUES ('server/demo', 41), ('exposure/acme', 7);
INSERT INTO servers VALUES ('demo', '[]', 'h1', 1000);
INSERT INTO server_versions VALUES ('demo', 41, '[]', 'h1', 1000, 'ops@platform', 0);
INSERT INTO exposure VALUES ('acme', 'demo', 'mcp', 1);
INSERT INTO bindings VALUES
    ('acme', 'user', 'press-7', 'cc.*', '*', '', 1, 0, 0, ''),
    ('acme', 'user', 'pre*', 'cc.*', '*', 'named', 1, 1, 0, ''),
    ('acme', 'user', 'press-77', 'cc.*', '*', '', 1, 0, 0, ''),
    ('acme', 'user', 'alice', 'cc.*', '*', '', 0, 0, 0, ''),
    ('acme', 'user', 'al*', 'cc.*', '*', '', 1, 0, 0, ''),
    ('acme', 'user', 'bo*', 'cc.*', '*', '', 1, 0, 1, '[{"path":"amount"}]'),
    ('acme', 'user', 'arm', 'cc.*', '*', '', 1, 0, 0, ''),
    ('acme', 'group', 'press-7', 'cc.*', '*', '', 1, 0, 0, ''),
    ('globex', 'user', '*', 'cc.*', '*', '', 1, 0, 0, ''),
    ('globex', 'user', 'press-7', 'cc.*', '*', '', 0, 0, 0, ''),
    ('hooli', 'user', '*', 'cc.*', '*', '', 1, 0, 0, ''),
    ('initech', 'user', '*', 'cc.*', '*', '', 0, 0, 0, '');
INSERT INTO limits VALUES
    ('acme', 0, '*', '*', 'press-7', '*', 5, '1/s'),
    ('acme', 1, '*', '*', 'alice', '*', 5, '1/s'),
    ('acme', 2, '*', '*', '*', '*', 5, '1/s'),
    ('acme', 3, '*', '*', 'each', '*', 5, '1/s'),
    ('globex', 0, 'demo', 'cc.pay', 'press-7', 'w', 9, '9/m');
INSERT INTO revocations VALUES
    ('r1', 'token', 'acme', 't1', '', 'lost', 1, 9000000000000, 0),
    ('r2', 'user', 'acme', 'mallory', 'login', '', 2, 9000000000000, 1);
INSERT INTO issuers VALUES ('clients', 'login', '{"issuer":"https://login.example"}', 3);
INSERT INTO issuer_keys VALUES ('clients', 'login', 'https://login.example/keys', '{"keys":[]}', 4);
INSERT INTO machine_keys VALUES
    ('k1', 'acme', 'press-7', 'h1', '["robots"]', '["a","b"]', 1, 2),
    ('k2', 'acme', 'press-7', 'h2', '["robots"]', '["a","b"]', 1, 2),
    ('k3', 'globex', 'drill', 'h3', '[]', '[]', 1, 2);
INSERT INTO machine_certificates VALUES
    ('c1', 'acme', 'arm', 'uri', 'urn:a', '["arms"]', '["c"]', 1, 2),
    ('c2', 'globex', 'drill', 'fingerprint', '00ff', '[]', '[]', 1, 2);
INSERT INTO routes VALUES ('demo', 'tools/call', 'cc.*', 'heavy');
INSERT INTO regions VALUES ('eu', ''), ('us', 'region-us');
INSERT INTO homes VALUES ('acme', 'eu');
INSERT INTO audit VALUES (42, 5, 'ops@platform', 'server.put', 'server/demo', '', 'ü');
