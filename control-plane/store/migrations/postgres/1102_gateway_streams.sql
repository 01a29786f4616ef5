-- compatible with: 0.1.0
-- Which control plane a gateway follows: the one that hears it over the stream that it opened last.
ALTER TABLE heard_gateways
    -- When it opened that stream; 0: not known.
    ADD COLUMN opened_ms BIGINT NOT NULL DEFAULT 0,
    -- The control plane's name; '': not known.
    ADD COLUMN heard_by  TEXT   NOT NULL DEFAULT '';
