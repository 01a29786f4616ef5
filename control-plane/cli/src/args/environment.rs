//! The environment of `asp serve` in its help.

/// Part of `asp serve --help` about environment variables.
pub const ENVIRONMENT_HELP: &str = "\
Environment (port 0 picks a free port, recorded in ports.json in the state directory):
  ASP_PORT              Envoy, for clients [8080]
  ASP_ADMIN_PORT        admin API [8081]
  ASP_GATEWAY_PORT      gateway [8082]
  ASP_GATEWAY_MTLS_PORT gateway, for Envoys over mutual TLS, which may forward client certificates; requires
                        ASP_PEER_CERT (docs/certificates.md) [none]
  ASP_XDS_PORT          xDS server [18000]
  ASP_ENVOY_ADMIN_PORT  Envoy's own admin port [9901]
  ASP_BIND              address of every listener [127.0.0.1]
  ASP_GATEWAY_BIND, ASP_XDS_BIND
                        address of that listener only; beyond loopback the gateway requires ASP_GATEWAY_MTLS_PORT, and
                        ASP_GATEWAY_PORT then serves health checks only, or ASP_PEER_PLAINTEXT=mesh [ASP_BIND]
  ASP_XDS_ACCOUNTS      user ids, besides its own and root, that may subscribe to xDS without a certificate on this
                        machine: those of an Envoy or gateway in another account (SECURITY.md) [none]
  ASP_ADMIN_BIND        address of the admin API only; beyond loopback it requires ASP_ADMIN_TLS_CERT or
                        ASP_PEER_PLAINTEXT=mesh [ASP_BIND]
  ASP_ADMIN_TLS_CERT, ASP_ADMIN_TLS_KEY
                        PEM files: certificate chain and key of the admin API (docs/certificates.md) [plain HTTP]
  ASP_STATE_DIR         directory for the state of this machine [.asp]
  ASP_PUBLIC_URL        origin that clients use, e.g. https://mcp.example.com (required without --dev)
  ASP_DATABASE_URL      sqlite:<path>, sqlite::memory:, or for several machines
                        postgres://<user>[:<password>]@<host>/<database>, which also stores calls and their
                        audit [asp.db in the state directory]
  ASP_DATABASE_CONNECTIONS
                        maximum connections to PostgreSQL for calls, per process [16]
  ASP_DATABASE_STATEMENT_TIMEOUT_MS, ASP_DATABASE_LOCK_TIMEOUT_MS, ASP_DATABASE_POOL_TIMEOUT_MS
                        timeouts of a call: for one statement, for a lock, and for a connection from the pool
                        [5000, 1500, 5000]
  ASP_AUDIT_SPOOL_BYTES space for audit events in the state directory while PostgreSQL is unreachable; once it is half
                        full, one org may use a tenth of it; calls that do not fit are refused [67108864]
  ASP_REDIS_URL         Redis that all gateways share, for limits: redis[s]://[<user>:<password>@]<host>[:<port>],
                        redis[s]+cluster://<host>[:<port>],... or unix:///<path>; without it, each gateway
                        enforces a limit by itself (docs/databases.md)
  ASP_REDIS_EVENT_BYTES bytes of call events that all orgs may write to Redis in three minutes; beyond it, calls can be
                        followed only at their own gateways, starting with the orgs that write most [1073741824]
  ASP_S3_URL            object store that all gateways and control planes share, for artifacts and packages:
                        http(s)://<host>[:<port>]/<bucket>[/<prefix>], path style; requires PostgreSQL
                        (docs/object-store.md) [files in the state directory]
  ASP_S3_ACCESS_KEY_ID, ASP_S3_SECRET_ACCESS_KEY
                        credentials for it (required with ASP_S3_URL)
  ASP_S3_SESSION_TOKEN  token of temporary credentials
  ASP_S3_REGION         region of the store [us-east-1]
  ASP_S3_SIGNED_URLS    lifetime of signed URLs in seconds, 10 to 3600: a client that reads a large object gets one and
                        fetches the object from the store [off]
  ASP_S3_PUBLIC_ORIGIN  https://<host>[:<port>] at which clients reach the store [that of ASP_S3_URL]
  ASP_FILTER_WASM       edge filter, as a path that Envoy can read [target/wasm32-wasip1/wasm/asp_filter.wasm]
  ASP_EDGE_WORKERS      Envoy's concurrency; coarse limits are divided by it [2]
  ASP_SEAL_KEY          key that seals session ids, at least 32 bytes, the same on every gateway
                        (required without --dev, and always with several gateways)
  ASP_SEAL_KEY_PREVIOUS previous seal key, during a rotation
  ASP_TOKEN_KEY         file with the P-256 key (PEM PKCS #8 or JWK) that signs the platform's tokens, the same on
                        every gateway [each gateway creates its own and rotates it daily]
  ASP_TOKEN_KEY_PREVIOUS
                        file with the previous key, or its public JWK: published until its tokens have expired
  ASP_ISSUERS           JSON file of the issuers whose tokens clients and admins may present (docs/identity.md)
  ASP_CREDENTIALS       JSON file of the credentials with which gateways authenticate to services (docs/identity.md)
  ASP_TELL_SERVICES     headers about calls that services receive: any of trace, org, user, or none [trace]
  ASP_BREAK_GLASS       off: the admin API rejects emergency tokens (asp token --break-glass) [on]
  ASP_ISSUER_ORIGINS    origins of issuers that may use plain http or a private address: http(s)://host[:port],...
  ASP_UPSTREAMS         name=http(s)://host[:port][/path];for=server/*,... private hosts, and the primitives whose
                        specs may name them (docs/operator-lists.md)
  ASP_TOKEN_AUDIENCES   http(s)://host[:port];for=server/*,... audiences of the platform's token, and the
                        primitives that get it
  ASP_REGISTRY          `public`: anyone may list the servers exposed to every org, at /v0.1/servers [off; public with --dev]
  ASP_XDS_URL           control planes, separated by commas, for a process with only the gateway role; each address a
                        name resolves to counts as one
  ASP_ADVERTISE         <ip>:<port> at which Envoy reaches this gateway [its mutual TLS listener, else its plain one]
  ASP_POOL              pool of this gateway, as routes name it (docs/operations.md) [gateway]
  ASP_AUDIT_MAX_BYTES   disk space for the audit log of calls; the oldest events are deleted first, and all events
                        after 30 days, in PostgreSQL up to a day later [1073741824]
  ASP_MAX_CALLS         maximum concurrent calls per gateway [8192]
  ASP_MAX_CALLS_PER_ORG maximum concurrent calls per gateway of one org [2048]
  ASP_ADMIN_WRITES_PER_SECOND
                        changes a second by the admins of one org or of one server; ten times as many for revocations;
                        0: unlimited [1]
  ASP_ADMIN_WRITE_BURST burst above that rate; ten times as many for revocations [30]
  ASP_REQUEST_MEMORY_BYTES
                        memory for request bodies at one gateway, of which one org may use half [536870912]
  ASP_RUNTIMES          language[+language]=url,... runtimes for plugins: python, node, java, mcp-stdio;
                        unix:<path>, or https://host:port with ASP_PEER_CERT, ASP_PEER_KEY, ASP_PEER_CA. Several
                        entries for a language, or a host name with several addresses (resolved every 5 s), are
                        several runtimes, at most 64 for each language
  ASP_DELEGATE_URL      base of an OpenAI-compatible endpoint, e.g. https://llm.internal/v1[;for=server/*]: it answers
                        plugins' delegations if the client has no model [without for: those of every delegate]
  ASP_DELEGATE_MODEL    name of the model there (required with ASP_DELEGATE_URL)
  ASP_DELEGATE_API_KEY  API key for it
  ASP_DELEGATE_JSON_SCHEMA
                        true: it accepts JSON Schemas as response_format [false]
  ASP_DELEGATE_KEYS     name=http(s)://host[:port]=file;for=server/*,... keys that delegates may name, and the origin
                        each may be sent to
  ASP_PEER_CERT, ASP_PEER_KEY, ASP_PEER_CA
                        PEM files: mutual TLS between control plane, gateways and Envoys
  ASP_PEER_CRL          PEM file: revocation list of that authority [no certificate is revoked]
  ASP_PEER_NAME         name in the control plane's certificate [the host of ASP_XDS_URL]
  ASP_PEER_PLAINTEXT    mesh: a service mesh encrypts and authenticates between them; commands may then use plain HTTP too
  ASP_TLS_CERT, ASP_TLS_KEY             certificate chain and key of the edge, for --stack
  ASP_ENVOY_BIN                         Envoy binary, for --stack
  ASP_RUNTIME_BIN                       language runtime binary, for --stack [asp-runtime next to asp]
  ASP_SECRETS                           JSON file of named secrets for stdio servers, for --stack; without it, set it
                                        for asp-runtime (docs/upstreams.md) [none]
  ASP_ALLOW_PRIVATE                     true: as --allow-private, for --stack [false]
  ASP_TRUST_BUILDS                      true: Maven builds Java plugins without asking, for --stack [false]
  SSL_CERT_FILE, SSL_CERT_DIR           authorities trusted by gateways and, with --stack, for plugins' credentials
                                        [those of the system]
  ASP_NODE_BIN, ASP_EVERYTHING_JS,
  ASP_EVERYTHING_PORT                   sample MCP server, for --stack
  ASP_LOG                               log levels, e.g. info,asp=debug [info]";
