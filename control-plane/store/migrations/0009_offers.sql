-- To which orgs a server is offered, beside what its own server.yaml says. Orgs switch on or off what they are offered.
CREATE TABLE offers (
    server TEXT NOT NULL,
    org    TEXT NOT NULL,
    PRIMARY KEY (server, org)
);
CREATE INDEX offers_org ON offers (org);
