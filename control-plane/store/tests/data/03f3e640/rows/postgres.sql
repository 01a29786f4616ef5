-- A row of each table of the gateways at commit 03f3e640, on PostgreSQL.
INSERT INTO gateways VALUES ('\x0707', 4611686018427387903), ('\x0808', 0);
INSERT INTO turns VALUES ('audit', 5);
INSERT INTO ledger (claim_key, hash, call_id, owner, org, state, expires_ms, answer) VALUES
    ('\x01', '\x02', '\x10', '\x0707', '\xaa', 1, 4611686018427387903, '\x3432'),
    ('\x03', '\x04', '\x11', '\x0707', '\xaa', 0, 4611686018427387903, NULL);
INSERT INTO call_records (call_id, org, principal, user_digest, server, plugin, context, state, created_ms, updated_ms,
    expires_ms, resumable, seq, bytes, owner, record, capsule, memory, outcome) VALUES
    ('\x10', 'acme', '\x0101', '\x0202', 'demo', 'p@1', '{}', 'working', 1, 2, 4611686018427387903, TRUE, 3, 0, '\x0707', '\x00', '\x0c', '\x0a', NULL),
    ('\x12', 'acme', '\x0101', '\x0202', 'demo', 'p@1', '{}', 'done', 1, 3, 4611686018427387903, TRUE, 9, 77, NULL, '\x00', NULL, NULL, '\x0e');
INSERT INTO call_events VALUES (1, 2, 'acme', '{"event":"call.start"}');
UPDATE call_log SET last = 1, bytes = 145;
INSERT INTO token_keys VALUES ('\x0707', 'k', '{"kty":"OKP"}', 4611686018427387903);
INSERT INTO heard_gateways VALUES ('gateway', '10.0.0.1:1', 5, 0);
INSERT INTO objects (object, kind, holder, state, counted, until_ms, name, size) VALUES ('\x0f', 1, 'acme', 1, 10, 4611686018427387903, 'a', 10);
INSERT INTO object_usage VALUES (1, 'acme', 1, 10);
