-- The public halves of the keys by which gateways sign the platform's tokens. A row outlives its gateway's lease: tokens do.
CREATE TABLE token_keys (
    owner    BLOB   NOT NULL,
    kid      TEXT   NOT NULL,
    jwk      TEXT   NOT NULL,
    until_ms BIGINT NOT NULL,
    PRIMARY KEY (owner, kid)
);
