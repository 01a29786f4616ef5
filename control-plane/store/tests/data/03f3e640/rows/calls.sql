-- A row of each table of `calls.db` at commit 03f3e640: running and ended calls, and rows of the versions before it.
INSERT INTO ledger (claim_key, hash, state, answer, expires_ms, call_id, owner, org) VALUES
    (x'01', x'02', 1, x'3432', 4611686018427387903, zeroblob(16), zeroblob(16), x'aa'),
    (x'03', x'04', 0, NULL, 4611686018427387903, zeroblob(16), zeroblob(16), x'aa'),
    (x'05', x'06', 1, x'3433', 4611686018427387903, NULL, NULL, NULL);
INSERT INTO active_calls (call_id, org, plugin, seq, expires_ms, owner, record) VALUES
    (x'10', 'acme', 'p@1', 0, 4611686018427387903, x'0505', x'00');
INSERT INTO active_calls (call_id, org, plugin, seq, capsule, answers, expires_ms, owner, record, principal, user_digest,
    server, context, state, created_ms, updated_ms, bytes, resumable, outcome) VALUES
    (x'11', 'acme', 'p@1', 3, x'0c', x'0a', 4611686018427387903, x'0505', x'00', x'0101', x'0202', 'demo', '{}', 'working', 1, 2, 0, 1, NULL),
    (x'12', 'acme', 'p@1', 9, NULL, NULL, 4611686018427387903, NULL, x'00', x'0101', x'0202', 'demo', '{}', 'done', 1, 3, 77, 1, x'0e');
INSERT INTO call_events VALUES (1, 2, 'acme', '{"event":"call.start"}');
INSERT INTO active_owners VALUES (x'0505', 4611686018427387903);
