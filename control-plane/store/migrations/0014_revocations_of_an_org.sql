-- How many an org has is counted before each of them.
CREATE INDEX revocations_org ON revocations (org);
