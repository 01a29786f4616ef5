-- compatible with: 0.2.0
-- Push notifications of A2A: the receivers of a call's states, and the outbox of those that they have not received.

-- 1: the call has receivers, or had some.
ALTER TABLE active_calls ADD COLUMN pushes BIGINT NOT NULL DEFAULT 0;

-- `sealed` is the receiver with its URL and its secrets, sealed by the gateway; `origin` is its scheme, host and port; `user_digest` is
-- the user of its call.
CREATE TABLE push_configs (
    call_id     BLOB   NOT NULL,
    config      TEXT   NOT NULL,
    org         TEXT   NOT NULL,
    user_digest BLOB,
    origin      TEXT   NOT NULL,
    created_ms  BIGINT NOT NULL,
    sealed      BLOB   NOT NULL,
    PRIMARY KEY (call_id, config)
);
CREATE INDEX push_configs_of_org ON push_configs (org);
CREATE INDEX push_configs_of_user ON push_configs (user_digest);

-- One row for each state and receiver. A row is sent at `due_ms`, which is moved on while it is being sent under a `claim`, and
-- after a failure. dead 1: it is not sent any more. `since_ms` is the time of its state, or of its replay.
CREATE TABLE push_deliveries (
    seq      INTEGER PRIMARY KEY AUTOINCREMENT,
    call_id  BLOB   NOT NULL,
    config   TEXT   NOT NULL,
    org      TEXT   NOT NULL,
    state    TEXT   NOT NULL,
    at_ms    BIGINT NOT NULL,
    since_ms BIGINT NOT NULL,
    due_ms   BIGINT NOT NULL,
    attempts BIGINT NOT NULL DEFAULT 0,
    claim    BLOB,
    dead     BIGINT NOT NULL DEFAULT 0,
    fault    TEXT   NOT NULL DEFAULT ''
);
CREATE INDEX push_deliveries_due ON push_deliveries (due_ms) WHERE dead = 0;
CREATE INDEX push_deliveries_of_config ON push_deliveries (call_id, config, seq);
CREATE INDEX push_deliveries_claimed ON push_deliveries (claim) WHERE claim IS NOT NULL;
CREATE INDEX push_deliveries_dead ON push_deliveries (org, seq) WHERE dead = 1;

-- A state and its deliveries are stored together. Each question is a state, even after another one. A running call whose receiver is
-- away has at most 1000 deliveries; a new one is due with the first, so that no claim reads it in vain until that is tried again.
CREATE TRIGGER push_changed AFTER UPDATE OF state ON active_calls
WHEN NEW.pushes = 1 AND (NEW.state <> OLD.state OR NEW.state IN ('input_required', 'auth_required'))
BEGIN
    INSERT INTO push_deliveries (call_id, config, org, state, at_ms, since_ms, due_ms)
    SELECT c.call_id, c.config, c.org, NEW.state, NEW.updated_ms, NEW.updated_ms, MAX(NEW.updated_ms, COALESCE(
        (SELECT CASE WHEN h.claim IS NULL THEN h.due_ms END FROM push_deliveries h
         WHERE h.call_id = c.call_id AND h.config = c.config AND h.dead = 0 ORDER BY h.seq LIMIT 1), 0))
    FROM push_configs c WHERE c.call_id = NEW.call_id AND (NEW.owner IS NULL OR
        (SELECT COUNT(*) FROM push_deliveries d WHERE d.call_id = c.call_id AND d.config = c.config) < 1000);
END;

-- Receivers and deliveries end with the record of their call.
CREATE TRIGGER push_forgotten AFTER DELETE ON active_calls WHEN OLD.pushes = 1
BEGIN
    DELETE FROM push_configs WHERE call_id = OLD.call_id;
    DELETE FROM push_deliveries WHERE call_id = OLD.call_id;
END;
