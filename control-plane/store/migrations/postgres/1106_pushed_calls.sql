-- compatible with: 0.2.0
-- Running calls with receivers of each owner: owners are few, and are looked through one by one for those that are gone. Few rows
-- are in the index, but creating it reads the table once.
CREATE INDEX call_records_pushed ON call_records (owner) WHERE owner IS NOT NULL AND pushes = 1;
