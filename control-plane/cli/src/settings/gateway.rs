//! The gateway role: its keys, its addresses, and the control planes, runtimes and models that it uses.

use std::path::PathBuf;

use asp_control::placement;
use asp_control::xds::{ALL_POOLS, DEFAULT_POOL};
use asp_gateway::executors::outbound::auth::CallHeaders;
use asp_gateway::gateway::EVENT_BYTES;
use asp_gateway::issuers::credentials::NamedCredentials;
use asp_gateway::minting::{TokenAudience, TokenAudiences};
use asp_platform::secret::Secret;

use super::credentials;
use super::delegates::{self, DelegateSection};
use super::runtimes::{self, RuntimeAddress};
use super::source::{Reader, is_origin};

pub const ENV_SEAL_KEY: &str = "ASP_SEAL_KEY";
pub const ENV_SEAL_KEY_PREVIOUS: &str = "ASP_SEAL_KEY_PREVIOUS";
pub const ENV_TOKEN_AUDIENCES: &str = "ASP_TOKEN_AUDIENCES";
pub const ENV_TOKEN_KEY: &str = "ASP_TOKEN_KEY";
pub const ENV_TOKEN_KEY_PREVIOUS: &str = "ASP_TOKEN_KEY_PREVIOUS";
pub const ENV_ADVERTISE: &str = "ASP_ADVERTISE";
pub const ENV_POOL: &str = "ASP_POOL";
pub const ENV_REDIS_URL: &str = "ASP_REDIS_URL";
pub const ENV_REDIS_EVENT_BYTES: &str = "ASP_REDIS_EVENT_BYTES";
pub const ENV_REGISTRY: &str = "ASP_REGISTRY";
pub const ENV_TELL_SERVICES: &str = "ASP_TELL_SERVICES";
pub const ENV_XDS_URL: &str = "ASP_XDS_URL";

/// Minimum length of a seal key in bytes; it is hashed to an AES-256 key.
const MIN_SEAL_KEY: usize = 32;
/// Bounds of the events of all orgs in bytes: from what one org alone may write to more than a Redis can hold.
const LEAST_EVENT_BYTES: u64 = 128 << 20;
const MOST_EVENT_BYTES: u64 = 1 << 40;

/// Keys that seal session ids and other state that clients carry.
#[derive(Clone, Debug)]
pub struct SealKeys {
    pub current: Secret,
    pub previous: Option<Secret>,
}

/// Files of the operator's keys that sign the platform's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenKeyFiles {
    pub current: PathBuf,
    pub previous: Option<PathBuf>,
}

/// Settings of the gateway role.
#[derive(Clone, Debug)]
pub struct GatewaySection {
    /// `host:port` that Envoy connects to [default: the listener's own address].
    pub advertise: Option<String>,
    /// Pool that this replica belongs to.
    pub pool: String,
    /// xDS servers of the control planes [default: this process's own].
    pub xds_urls: Option<Vec<String>>,
    /// Whether anyone may list the servers that are exposed to every org.
    pub registry: bool,
    /// `None`: a key that this machine creates in its state directory; only with `--dev`.
    pub seal: Option<SealKeys>,
    /// File of the key that signs the platform's tokens; `None`: each gateway creates its own.
    pub token_key: Option<TokenKeyFiles>,
    /// Audiences of these tokens.
    pub token_audiences: TokenAudiences,
    pub runtimes: Vec<RuntimeAddress>,
    /// Models of the platform, for delegations.
    pub delegates: DelegateSection,
    /// Credentials with which the gateway authenticates to services.
    pub credentials: NamedCredentials,
    /// Information about calls that services receive.
    pub told: CallHeaders,
    /// Redis that gateways share; without it each gateway enforces limits by itself.
    pub redis: Option<SharedRedis>,
}

/// The Redis that gateways share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedRedis {
    /// May contain a password.
    pub url: Secret,
    /// Maximum bytes of events that the calls of all orgs together write within the retention of events.
    pub event_bytes: u64,
}

pub(super) fn read(reader: &mut Reader<'_>) -> GatewaySection {
    let seal_key = |reader: &mut Reader<'_>, name: &'static str| {
        let key = reader.optional(name)?;
        if key.len() < MIN_SEAL_KEY {
            reader.fault(name, format!("must be at least {MIN_SEAL_KEY} bytes long"));
        }
        Some(Secret::new(key))
    };
    let current = seal_key(reader, ENV_SEAL_KEY);
    let previous = seal_key(reader, ENV_SEAL_KEY_PREVIOUS);
    GatewaySection {
        advertise: reader.socket_address(ENV_ADVERTISE),
        pool: pool(reader),
        xds_urls: reader
            .optional(ENV_XDS_URL)
            .map(|urls| urls.split(',').map(str::trim).map(str::to_owned).collect()),
        registry: registry(reader),
        seal: current.map(|current| SealKeys { current, previous }),
        token_key: token_key(reader),
        token_audiences: token_audiences(reader),
        runtimes: runtimes::read(reader),
        delegates: delegates::read(reader),
        credentials: credentials::read(reader),
        told: told(reader),
        redis: redis(reader),
    }
}

/// Parses `http(s)://host[:port];for=…` entries, separated by commas.
fn token_audiences(reader: &mut Reader<'_>) -> TokenAudiences {
    if reader.is_development() && reader.optional(ENV_TOKEN_AUDIENCES).is_none() {
        return TokenAudiences::Every;
    }
    let mut listed = Vec::new();
    for (origin, primitives) in reader.operator_list(ENV_TOKEN_AUDIENCES, is_origin) {
        if !is_origin(&origin) {
            let message = format!("must be http(s)://host[:port];for=…, not `{origin}`");
            reader.fault(ENV_TOKEN_AUDIENCES, message);
        }
        listed.push(TokenAudience { origin, primitives });
    }
    TokenAudiences::Listed(listed)
}

fn pool(reader: &mut Reader<'_>) -> String {
    let pool = reader.optional(ENV_POOL).unwrap_or_else(|| DEFAULT_POOL.to_owned());
    if !placement::is_pool(&pool) {
        reader.fault(ENV_POOL, "must be 1 to 63 of a-z 0-9 -: no route can lead to a pool of another name");
    }
    if pool == ALL_POOLS {
        reader.fault(
            ENV_POOL,
            format!("must not be `{ALL_POOLS}`: Envoy's cluster of all pools has that name"),
        );
    }
    pool
}

fn redis(reader: &mut Reader<'_>) -> Option<SharedRedis> {
    let event_bytes = reader.number(ENV_REDIS_EVENT_BYTES, EVENT_BYTES, LEAST_EVENT_BYTES..=MOST_EVENT_BYTES);
    let url = reader.shared(ENV_REDIS_URL)?;
    #[cfg(feature = "cluster")]
    let fault = asp_store::redis::check(&url).err().map(|error| error.to_string());
    #[cfg(not(feature = "cluster"))]
    let fault =
        Some("is for programs that were built with the feature `cluster`, unlike this one".to_owned());
    if let Some(fault) = fault {
        reader.fault(ENV_REDIS_URL, fault);
    }
    Some(SharedRedis { url: Secret::new(url), event_bytes })
}

fn registry(reader: &mut Reader<'_>) -> bool {
    match reader.optional(ENV_REGISTRY).as_deref() {
        None | Some("off") => false,
        Some("public") => true,
        Some(text) => {
            reader.fault(ENV_REGISTRY, format!("must be `public` or `off`, not `{text}`"));
            false
        }
    }
}

fn told(reader: &mut Reader<'_>) -> CallHeaders {
    let Some(text) = reader.optional(ENV_TELL_SERVICES) else { return CallHeaders::default() };
    let mut told = CallHeaders { trace: false, org: false, user: false };
    for word in text.split(',').map(str::trim) {
        match word {
            "trace" => told.trace = true,
            "org" => told.org = true,
            "user" => told.user = true,
            "none" if text.trim() == "none" => {}
            other => {
                let message = format!("must be `none`, or some of `trace`, `org` and `user`, not `{other}`");
                reader.fault(ENV_TELL_SERVICES, message);
            }
        }
    }
    told
}

fn token_key(reader: &mut Reader<'_>) -> Option<TokenKeyFiles> {
    let [current, previous] =
        [ENV_TOKEN_KEY, ENV_TOKEN_KEY_PREVIOUS].map(|name| reader.optional(name).map(PathBuf::from));
    if current.is_none() && previous.is_some() {
        reader.fault(ENV_TOKEN_KEY, format!("is required with {ENV_TOKEN_KEY_PREVIOUS}"));
    }
    Some(TokenKeyFiles { current: current?, previous })
}
