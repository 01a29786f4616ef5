-- compatible with: 0.2.0
-- Number of gateways that have taken the call over; the generations that its clients see begin with it.
ALTER TABLE active_calls ADD COLUMN takeovers BIGINT NOT NULL DEFAULT 0;
