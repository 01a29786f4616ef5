-- A key is completed and released by the execution that holds it and by no other: the id of its call, 16 bytes.
ALTER TABLE ledger ADD COLUMN holder BLOB;
