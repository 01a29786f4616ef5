-- The calls of a principal at a server are listed in the order of time. Ids say it no more: a client may choose what its
-- call's id is made from.
CREATE INDEX active_calls_listed ON active_calls (principal, server, created_ms, call_id);
DROP INDEX active_calls_principal;
