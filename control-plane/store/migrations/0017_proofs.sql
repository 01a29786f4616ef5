-- Whether who registered a fingerprint has proved to hold the certificate's key: nobody had to before. Which org a URI
-- belongs to the platform says.
ALTER TABLE machine_certificates ADD COLUMN proved BIGINT NOT NULL DEFAULT 0;
UPDATE machine_certificates SET proved = 1 WHERE kind = 'uri';
