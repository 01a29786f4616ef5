//! The environment of `asp serve`, as its help shows it.

/// What `asp serve --help` says of the environment.
pub const ENVIRONMENT_HELP: &str = "\
Environment (port 0 takes a free one; ports.json in the state directory says which):
  ASP_PORT              Envoy, for clients [8080]
  ASP_ADMIN_PORT        admin API [8081]
  ASP_GATEWAY_PORT      gateway [8082]
  ASP_GATEWAY_MTLS_PORT gateway, for Envoys that show a certificate, by which clients may show theirs; with
                        ASP_PEER_CERT (docs/certificates.md) [none]
  ASP_XDS_PORT          xDS server [18000]
  ASP_ENVOY_ADMIN_PORT  Envoy's own admin port [9901]
  ASP_BIND              address of every listener [127.0.0.1]
  ASP_GATEWAY_BIND, ASP_XDS_BIND
                        address of that listener alone; beyond loopback the gateway needs ASP_GATEWAY_MTLS_PORT, and
                        ASP_GATEWAY_PORT answers health checks alone, or ASP_PEER_PLAINTEXT=mesh [ASP_BIND]
  ASP_XDS_ACCOUNTS      user ids that may subscribe to xDS without a certificate, on this machine, besides the own one and
                        root: of an Envoy or gateway of another account (SECURITY.md) [none]
  ASP_ADMIN_BIND        address of the admin API alone; beyond loopback it needs ASP_ADMIN_TLS_CERT, or
                        ASP_PEER_PLAINTEXT=mesh [ASP_BIND]
  ASP_ADMIN_TLS_CERT, ASP_ADMIN_TLS_KEY
                        PEM files: certificate chain and key of the admin API (docs/certificates.md) [plain HTTP]
  ASP_STATE_DIR         state of this machine [.asp]
  ASP_PUBLIC_URL        the origin clients use, e.g. https://mcp.example.com (required without --dev)
  ASP_DATABASE_URL      sqlite:<path>, sqlite::memory:, or for several machines
                        postgres://<user>[:<password>]@<host>/<database>, which keeps calls and their audit
                        too [asp.db in the state directory]
  ASP_DATABASE_CONNECTIONS
                        most connections to PostgreSQL for calls, of each process [16]
  ASP_DATABASE_STATEMENT_TIMEOUT_MS, ASP_DATABASE_LOCK_TIMEOUT_MS, ASP_DATABASE_POOL_TIMEOUT_MS
                        the longest that a statement of a call runs, that it waits for another's lock, and that a call
                        waits for a connection [5000, 1500, 5000]
  ASP_AUDIT_SPOOL_BYTES what audit events may take in the state directory while PostgreSQL is away, those of one org a
                        tenth once it is half full; beyond it calls are refused [67108864]
  ASP_REDIS_URL         the Redis that all gateways share, for limits: redis[s]://[<user>:<password>@]<host>[:<port>],
                        redis[s]+cluster://<host>[:<port>],... or unix:///<path>; without one a limit holds at each
                        gateway (docs/databases.md)
  ASP_REDIS_EVENT_BYTES what the calls of all orgs together write of events to Redis in three minutes; beyond it calls are
                        told by their own gateways alone, those of orgs that write most first [1073741824]
  ASP_S3_URL            the object store that all gateways and control planes share, for artifacts and packages:
                        http(s)://<host>[:<port>]/<bucket>[/<prefix>], path style; with PostgreSQL. Without one they are
                        files in the state directory (docs/object-store.md)
  ASP_S3_ACCESS_KEY_ID, ASP_S3_SECRET_ACCESS_KEY
                        what signs requests to it (required with ASP_S3_URL)
  ASP_S3_SESSION_TOKEN  the token of temporary credentials
  ASP_S3_REGION         its region [us-east-1]
  ASP_S3_SIGNED_URLS    how long a signed URL can be used, in seconds from 10 to 3600: whoever asks for large bytes is
                        given one, and fetches them from the store [off]
  ASP_S3_PUBLIC_ORIGIN  https://<host>[:<port>] under which clients reach the store [that of ASP_S3_URL]
  ASP_FILTER_WASM       the edge filter, as Envoy finds it [target/wasm32-wasip1/wasm/asp_filter.wasm]
  ASP_EDGE_WORKERS      Envoy's concurrency; coarse limits are shared by it [2]
  ASP_SEAL_KEY          seals session ids, at least 32 bytes, the same on every gateway
                        (required without --dev; several gateways need it always)
  ASP_SEAL_KEY_PREVIOUS the key before, while it is being replaced
  ASP_TOKEN_KEY         file with the P-256 key (PEM PKCS #8 or JWK) that signs the platform's tokens, the same on
                        every gateway [each gateway makes its own, and changes it every day]
  ASP_TOKEN_KEY_PREVIOUS
                        file with the key before, or its public JWK: published until its tokens have died
  ASP_ISSUERS           JSON file of the issuers whose tokens clients and admins bring (docs/identity.md)
  ASP_CREDENTIALS       JSON file of the credentials by which gateways prove themselves to services (docs/identity.md)
  ASP_TELL_SERVICES     what services are told of calls: some of trace, org, user, or none (trace)
  ASP_BREAK_GLASS       off: no emergency token (asp token --break-glass) opens the admin API
  ASP_ISSUER_ORIGINS    origins of issuers that may be plain http or private: http(s)://host[:port],...
  ASP_UPSTREAMS         name=http(s)://host[:port][/path];for=server/*,... private hosts that specs of these
                        primitives may name (docs/operator-lists.md)
  ASP_TOKEN_AUDIENCES   http(s)://host[:port];for=server/*,... audiences of the platform's token, and the
                        primitives that get it
  ASP_REGISTRY          `public`: anybody may list the servers that are exposed to all, at /v0.1/servers [off; public with --dev]
  ASP_XDS_URL           the control planes, separated by commas, for a process with the gateway role alone; each address of a
                        name is one
  ASP_ADVERTISE         <ip>:<port> on which Envoy reaches this gateway [its listener, of mutual TLS where it has one]
  ASP_POOL              the pool this gateway belongs to, by which routes name it (docs/operations.md) [gateway]
  ASP_AUDIT_MAX_BYTES   what the audit log of calls may take on the disk; the oldest events go first, and all
                        after 30 days, in PostgreSQL up to a day later [1073741824]
  ASP_MAX_CALLS         calls that one gateway runs at a time [8192]
  ASP_MAX_CALLS_PER_ORG of them of one org [2048]
  ASP_ADMIN_WRITES_PER_SECOND
                        changes a second by the admins of one org or of one server, revocations ten times as many; 0: no
                        bound [1]
  ASP_ADMIN_WRITE_BURST changes at once before that counts, revocations ten times as many [30]
  ASP_REQUEST_MEMORY_BYTES  what the bodies of requests take of one gateway's memory, one org's half of it [536870912]
  ASP_RUNTIMES          language[+language]=url,... where plugins run: python, node, java, mcp-stdio;
                        unix:<path>, or https://host:port with ASP_PEER_CERT, ASP_PEER_KEY, ASP_PEER_CA. Several
                        entries of a language, or a host name with several addresses, which is looked up every 5 s:
                        as many runtimes, at most 64 a language
  ASP_DELEGATE_URL      base of an OpenAI-compatible endpoint, e.g. https://llm.internal/v1[;for=server/*]: it answers
                        the delegations of plugins where the client has no model [those of every delegate]
  ASP_DELEGATE_MODEL    the model's name there (required with ASP_DELEGATE_URL)
  ASP_DELEGATE_API_KEY  its key
  ASP_DELEGATE_JSON_SCHEMA
                        true: it takes JSON Schemas as response_format [false]
  ASP_DELEGATE_KEYS     name=http(s)://host[:port]=file;for=server/*,... keys that delegates may name, and where each
                        may go
  ASP_PEER_CERT, ASP_PEER_KEY, ASP_PEER_CA
                        PEM files: mutual TLS between control plane, gateways and Envoys
  ASP_PEER_CRL          PEM file: that authority's list of revoked certificates [none is revoked]
  ASP_PEER_NAME         the name in the control plane's certificate [the host of ASP_XDS_URL]
  ASP_PEER_PLAINTEXT    mesh: something else encrypts and authenticates between them; commands may use plain HTTP then, too
  ASP_TLS_CERT, ASP_TLS_KEY             certificate chain and key of the edge, for --stack
  ASP_ENVOY_BIN                         the envoy binary, for --stack
  ASP_RUNTIME_BIN                       the language runtime, for --stack [asp-runtime beside asp]
  ASP_SECRETS                           JSON file of the named secrets that stdio servers may be given, for --stack;
                                        else of asp-runtime (docs/upstreams.md) [none]
  ASP_ALLOW_PRIVATE                     true: as --allow-private, for --stack [false]
  ASP_TRUST_BUILDS                      true: Maven builds Java plugins without a question, for --stack [false]
  SSL_CERT_FILE, SSL_CERT_DIR           authorities that gateways and, with --stack, plugins' credentials trust [those
                                        of the system]
  ASP_NODE_BIN, ASP_EVERYTHING_JS,
  ASP_EVERYTHING_PORT                   the sample MCP server, for --stack
  ASP_LOG                               levels, e.g. info,asp=debug [info]";
