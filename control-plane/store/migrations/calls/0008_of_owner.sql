-- What each owner runs that another gateway can go on with: owners are few, and are looked through one by one.
CREATE INDEX active_calls_of_owner ON active_calls (owner, expires_ms, call_id, resumable) WHERE owner IS NOT NULL AND resumable = 1;
DROP INDEX active_calls_going;
