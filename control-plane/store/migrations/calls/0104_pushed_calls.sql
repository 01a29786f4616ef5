-- compatible with: 0.2.0
-- Running calls with receivers of each owner: owners are few, and are looked through one by one for those that are gone. `pushes`
-- stands there so that no row is read.
CREATE INDEX active_calls_pushed ON active_calls (owner, pushes) WHERE owner IS NOT NULL AND pushes = 1;
