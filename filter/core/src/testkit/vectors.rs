//! The shared vectors: requests with reviewed expectations, replayed natively and through a running stack.
//! Their format is described in `tests/vectors/edge/README.md`.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use asp_proto::snapshot as proto;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{Keys, ReadRefusal, Recipe, mint};

/// Environment of a replay.
pub struct Setting<'a> {
    pub keys: &'a Keys,
    /// Unix seconds.
    pub now: u64,
    pub public_url: &'a str,
}

/// One request and its expected result.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Case {
    pub name: String,
    /// Name of a file in `snapshots`, without the ending.
    #[serde(default = "plain_snapshot")]
    pub snapshot: String,
    /// Whether only the library can be tested, because no HTTP server accepts such a request.
    #[serde(default)]
    pub native_only: bool,
    pub request: Request,
    #[serde(default)]
    pub token: Option<Recipe>,
    pub expect: Expect,
    /// Expected result in the filter, if the roles differ.
    #[serde(default)]
    pub expect_filter: Option<Expect>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Pairs of name and value; a value is a string or `{"hex": "…"}`.
    #[serde(default)]
    headers: Vec<(String, Value)>,
    #[serde(default)]
    body: Option<String>,
    #[serde(default)]
    body_hex: Option<String>,
    #[serde(default)]
    body_repeat: Option<Repeat>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Repeat {
    #[serde(default)]
    prefix: String,
    unit: String,
    times: usize,
    #[serde(default)]
    suffix: String,
}

/// Expected result: either `forward`, or `status` with `reason`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Expect {
    /// Whether the request is admitted.
    pub forward: bool,
    pub status: u16,
    pub reason: Option<String>,
    /// Reason that the client reads, where its protocol has another name for it.
    pub error_info: Option<String>,
    /// `code` of the JSON-RPC error; if this, `rest`, `rest_v03` and `grpc` are absent, the body is a problem document, or empty.
    pub jsonrpc: Option<i64>,
    /// `status` in the error of A2A's REST binding.
    pub rest: Option<String>,
    /// `code` in the error of A2A's REST binding of 0.3.
    pub rest_v03: Option<i64>,
    /// gRPC status.
    pub grpc: Option<i64>,
    /// Response headers, whole values; `${public_url}` is filled in.
    pub headers: Map<String, Value>,
    /// Headers set on the request to the gateway; `*` stands for any value.
    pub set: Map<String, Value>,
    /// Headers removed from the request.
    pub remove: Vec<String>,
    /// `method` and `name` of the scanned envelope.
    pub method: Option<String>,
    pub primitive: Option<String>,
    /// The caller's user.
    pub user: Option<String>,
}

fn plain_snapshot() -> String {
    "dev".to_owned()
}

/// Returns `tests/vectors/edge` of this repository.
pub fn vector_dir() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors/edge")
}

/// Loads every case of every file, with the file's name prefixed to the case's.
pub fn load_cases() -> Vec<Case> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(vector_dir()).expect("list vectors").map(|entry| entry.expect("entry").path()).collect();
    files.retain(|file| file.extension().is_some_and(|ending| ending == "json"));
    files.sort();
    let mut cases = Vec::new();
    for file in files {
        let text = fs::read_to_string(&file).expect("read vectors");
        let parsed: Vec<Case> =
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        cases.extend(parsed.into_iter().map(|case| Case { name: format!("{stem}: {}", case.name), ..case }));
    }
    cases
}

impl Expect {
    /// Returns the refusal that a client must read.
    pub fn refusal(&self) -> ReadRefusal {
        let Expect { reason, error_info, jsonrpc, rest, rest_v03, grpc, .. } = self.clone();
        ReadRefusal { reason: error_info.or(reason), jsonrpc, rest, rest_v03, grpc }
    }
}

impl Case {
    /// Returns the expected result for `role`.
    pub fn expected(&self, role: crate::EdgeRole) -> &Expect {
        match role {
            crate::EdgeRole::Filter => self.expect_filter.as_ref().unwrap_or(&self.expect),
            crate::EdgeRole::Gateway => &self.expect,
        }
    }
}

impl Request {
    /// Returns the headers without pseudo-headers, with token and public URL filled in.
    pub fn headers(&self, recipe: Option<&Recipe>, setting: &Setting<'_>) -> Vec<(String, Vec<u8>)> {
        let token = recipe.map(|recipe| mint(recipe, setting.keys, setting.now, setting.public_url));
        let value = |value: &Value| match value {
            Value::String(text) => text
                .replace("${token}", token.as_deref().unwrap_or("${token}"))
                .replace("${public_url}", setting.public_url)
                .into_bytes(),
            other => unhex(other["hex"].as_str().expect("a header value is text or {hex}")),
        };
        self.headers.iter().map(|(name, text)| (name.clone(), value(text))).collect()
    }

    pub fn body(&self) -> Vec<u8> {
        match (&self.body, &self.body_hex, &self.body_repeat) {
            (Some(text), None, None) => text.clone().into_bytes(),
            (None, Some(hex), None) => unhex(hex),
            (None, None, Some(repeat)) => {
                [repeat.prefix.clone(), repeat.unit.repeat(repeat.times), repeat.suffix.clone()]
                    .concat()
                    .into_bytes()
            }
            (None, None, None) => Vec::new(),
            _ => panic!("a request has one body"),
        }
    }
}

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().map(|digit| digit.to_digit(16).expect("a hex digit") as u8).collect();
    digits.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect()
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, default)]
#[derive(Default)]
struct SnapshotFile {
    revision: u64,
    workers: u32,
    dev: bool,
    default_agent: String,
    servers: Vec<ServerFile>,
    issuers: Vec<IssuerFile>,
    exposure_exceptions: Vec<(String, String, String, bool)>,
    routes: Vec<(String, String, String, String)>,
    /// Org, region, cluster, and whether it is here.
    regions: Vec<(String, String, String, bool)>,
    /// Entries `[kind, part, …]`, hashed as snapshot.proto defines.
    revoked: Vec<Vec<String>>,
    revoked_before: Vec<(String, String, String)>,
    /// Blocks: org, user ("" for the whole org) and reason, since the moment of the test.
    blocked: Vec<(String, String, String)>,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct ServerFile {
    name: String,
    protocols: Vec<String>,
    default_allow: bool,
    origins: Vec<String>,
    hosts: Vec<String>,
    schemes: Vec<String>,
    issuers: Vec<String>,
    audiences: Vec<String>,
    scopes: Vec<String>,
    max_body_bytes: u32,
}

#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields, default)]
struct IssuerFile {
    name: String,
    iss: String,
    /// Names of test keys; the kid is the name.
    keys: Vec<String>,
    typ: Vec<String>,
    audiences: Vec<String>,
    claims: Map<String, Value>,
    max_lifetime_seconds: u64,
    orgs: Vec<String>,
    #[serde(default)]
    keys_refreshed: bool,
}

/// Reads `snapshots/<name>.json` and fills in keys and public URL.
pub fn load_snapshot(name: &str, setting: &Setting<'_>) -> proto::EdgeSnapshot {
    let path = vector_dir().join("snapshots").join(format!("{name}.json"));
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let file: SnapshotFile = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut marks: Vec<[u8; 16]> = file.revoked.iter().map(|parts| mark(parts)).collect();
    marks.sort_unstable();
    let servers: Vec<proto::EdgeServer> = file.servers.into_iter().map(server).collect();
    let exceptions = file.exposure_exceptions.into_iter().map(|(org, server, name, enabled)| {
        proto::ExposureException { org, server, protocol: protocol(&name), enabled }
    });
    let exposure_exceptions: Vec<proto::ExposureException> = exceptions.collect();
    proto::EdgeSnapshot {
        revision: file.revision,
        workers: file.workers,
        exposure: short(&servers, &exposure_exceptions),
        servers,
        issuers: file.issuers.into_iter().map(|issuer| self::issuer(issuer, setting.keys)).collect(),
        exposure_exceptions,
        routes: file
            .routes
            .into_iter()
            .map(|(server, method, primitive, cluster)| proto::Route { server, method, primitive, cluster })
            .collect(),
        regions: file
            .regions
            .into_iter()
            .map(|(org, region, cluster, here)| proto::Region { org, region, cluster, here })
            .collect(),
        revoked: marks.concat(),
        revoked_before: file
            .revoked_before
            .into_iter()
            .map(|(org, user, when)| proto::RevokedBefore {
                org,
                user,
                not_after_iat: moment(&when, setting.now),
                ..Default::default()
            })
            .chain(file.blocked.into_iter().map(|(org, user, reason)| proto::RevokedBefore {
                org,
                user,
                not_after_iat: u64::MAX,
                since_ms: setting.now * 1_000,
                reason,
                block: true,
            }))
            .collect(),
        public_url: setting.public_url.to_owned(),
        dev: file.dev,
        default_agent: file.default_agent,
        ..proto::EdgeSnapshot::default()
    }
}

/// Returns the short form of exceptions, by org. Written out here instead of using the code under test.
fn short(servers: &[proto::EdgeServer], exceptions: &[proto::ExposureException]) -> Vec<proto::OrgExposure> {
    let mut orgs: BTreeMap<String, Vec<u32>> = BTreeMap::new();
    for proto::ExposureException { org, server, protocol, enabled } in exceptions {
        let position = servers.iter().position(|known| known.name == *server);
        let position = position.unwrap_or_else(|| panic!("no server {server}")) as u32;
        let code = position << 3 | (*protocol as u32) << 1 | u32::from(*enabled);
        orgs.entry(org.clone()).or_default().push(code);
    }
    let sorted = |(org, mut exceptions): (String, Vec<u32>)| {
        exceptions.sort_unstable();
        proto::OrgExposure { org, exceptions }
    };
    orgs.into_iter().map(sorted).collect()
}

/// Hashes an entry. Written out here instead of using the code under test: the definition is part of the contract.
fn mark(parts: &[String]) -> [u8; 16] {
    use sha2::Digest;
    let digest = sha2::Sha256::digest(parts.join("\0"));
    digest.iter().take(16).copied().collect::<Vec<u8>>().try_into().expect("sixteen bytes")
}

fn moment(text: &str, now: u64) -> u64 {
    let shift: i64 = text.strip_prefix("now").and_then(|shift| shift.parse().ok()).expect("now+N or now-N");
    now.checked_add_signed(shift).expect("a moment")
}

fn server(file: ServerFile) -> proto::EdgeServer {
    let scheme = |name: &String| match name.as_str() {
        "jwt" => proto::AuthScheme::Jwt,
        "opaque" => proto::AuthScheme::Opaque,
        "psk" => proto::AuthScheme::Psk,
        "mtls" => proto::AuthScheme::Mtls,
        "none" => proto::AuthScheme::None,
        other => panic!("no scheme is called {other}"),
    };
    proto::EdgeServer {
        name: file.name,
        protocols: file.protocols.iter().map(|name| protocol(name)).collect(),
        default_allow: file.default_allow,
        origins: file.origins,
        hosts: file.hosts,
        schemes: file.schemes.iter().map(|name| scheme(name) as i32).collect(),
        issuers: file.issuers,
        audiences: file.audiences,
        scopes: file.scopes,
        max_body_bytes: file.max_body_bytes,
        ..proto::EdgeServer::default()
    }
}

fn protocol(name: &str) -> i32 {
    (match name {
        "" => proto::Protocol::Unspecified,
        "mcp" => proto::Protocol::Mcp,
        "a2a" => proto::Protocol::A2a,
        "rest" => proto::Protocol::Rest,
        other => panic!("no protocol is called {other}"),
    }) as i32
}

fn issuer(file: IssuerFile, keys: &Keys) -> proto::Issuer {
    let key = |name: &String| proto::Key {
        kid: name.clone(),
        alg: keys.alg(name).to_owned(),
        jwk: keys.jwk(name).to_string(),
    };
    let claim = |name: &str| file.claims.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    proto::Issuer {
        name: file.name,
        iss: file.iss,
        keys: file.keys.iter().map(key).collect(),
        typ: file.typ,
        audiences: file.audiences,
        claims: Some(proto::ClaimNames {
            org: claim("org"),
            user: claim("user"),
            groups: claim("groups"),
            scopes: claim("scopes"),
            client: claim("client"),
            org_default: claim("orgDefault"),
            ..proto::ClaimNames::default()
        }),
        max_lifetime_seconds: file.max_lifetime_seconds,
        orgs: file.orgs,
        keys_refreshed: file.keys_refreshed,
    }
}
