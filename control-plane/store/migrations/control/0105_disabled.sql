-- compatible with: 0.1.0
-- What of a server is disabled: ids of primitives, and * for the server as a whole, separated by spaces. An earlier version
-- publishes all of it.
ALTER TABLE servers ADD COLUMN disabled TEXT NOT NULL DEFAULT '';
