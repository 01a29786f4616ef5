-- A row of each table of `calls-leases.db` at commit 03f3e640.
INSERT INTO owners VALUES (x'0707', 4611686018427387903), (x'0808', 0);
INSERT INTO token_keys VALUES (x'0707', 'k', '{"kty":"OKP"}', 4611686018427387903);
