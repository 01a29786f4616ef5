-- A row of each table of `audit.db` at commit 03f3e640.
INSERT INTO events VALUES (-5, 1, 'acme', '{"event":"before"}'), (1, 2, 'acme', '{"event":"call.start"}');
INSERT INTO moved VALUES (x'0a0b');
