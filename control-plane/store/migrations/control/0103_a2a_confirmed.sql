-- compatible with: 0.1.0
-- Revision of the server's write after which A2A may be on. An earlier version, which does not serve A2A, leaves it behind the
-- server's own revision, and A2A is off.
ALTER TABLE servers ADD COLUMN a2a_at BIGINT NOT NULL DEFAULT 0;
