//! The gateway role: its keys, its addresses, and the control planes, runtimes and models that it uses.

use std::path::PathBuf;

use asp_backends::delegate::endpoint::Endpoints;
use asp_backends::outbound::auth::CallHeaders;
use asp_call::telemetry::usage::TokenPrice;
use asp_control::placement;
use asp_gateway::gateway::EVENT_BYTES;
use asp_identity::issuers::credentials::NamedCredentials;
use asp_identity::minting::{TokenAudience, TokenAudiences};
use asp_platform::operator_list::ListEntry;
use asp_platform::secret::Secret;
use asp_protocols::approval_webhook::is_webhook;
use asp_protocols::push::{PushOrigin, PushOrigins};
use asp_xds::contract::{ALL_POOLS, DEFAULT_POOL};
use clap::{ArgAction, Args};

use super::credentials::{self, ENV_CREDENTIALS};
use super::delegates::DelegateArgs;
use super::model_price;
use super::runtimes::{RuntimeAddress, runtimes};
use super::source::Checks;
use super::values::{List, choice, is_origin, list, list_entries, number, socket_address};

pub const ENV_TOKEN_AUDIENCES: &str = "ASP_TOKEN_AUDIENCES";
pub const ENV_PUSH_ORIGINS: &str = "ASP_PUSH_ORIGINS";

/// Minimum length of a seal key in bytes; it is hashed to an AES-256 key.
const MIN_SEAL_KEY: usize = 32;
/// Bounds of the events of all orgs in bytes: from what one org alone may write to more than a Redis can hold.
const LEAST_EVENT_BYTES: u64 = 128 << 20;
const MOST_EVENT_BYTES: u64 = 1 << 40;

/// Settings of the gateway role
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Gateways")]
pub struct GatewaySection {
    /// Key that seals session ids, at least 32 bytes, the same on every gateway (required without `--dev`)
    #[arg(long, env = "ASP_SEAL_KEY", hide_env_values = true, value_parser = seal_key)]
    pub seal_key: Option<Secret>,
    /// Previous seal key, during a rotation
    #[arg(long, env = "ASP_SEAL_KEY_PREVIOUS", hide_env_values = true, value_parser = seal_key)]
    pub seal_key_previous: Option<Secret>,
    /// File with the P-256 key (PEM PKCS #8 or JWK) that signs the platform's tokens, the same on every gateway
    /// [default: each gateway creates its own and rotates it daily]
    #[arg(long, env = "ASP_TOKEN_KEY")]
    pub token_key: Option<PathBuf>,
    /// File with the previous key, or its public JWK: published until its tokens have expired
    #[arg(long, env = "ASP_TOKEN_KEY_PREVIOUS")]
    pub token_key_previous: Option<PathBuf>,
    /// Audiences of the platform's token, and the primitives that get it: `http(s)://host[:port];for=server/*,…`
    /// (docs/operator-lists.md) [default: none; every origin with `--dev`]
    #[arg(long, env = ENV_TOKEN_AUDIENCES, value_parser = list_entries)]
    audience_entries: Option<List<ListEntry>>,
    /// Origins of receivers of push notifications that may be private or speak plain HTTP, and the primitives whose tasks may
    /// be sent there: `http(s)://host[:port];for=server/*,…` (docs/operator-lists.md) [default: none; every origin with
    /// `--dev`]
    #[arg(long, env = ENV_PUSH_ORIGINS, value_parser = list_entries)]
    push_entries: Option<List<ListEntry>>,
    /// URL of a chat or mail gateway that is notified of requests for approval (docs/approvals.md) [default: none]
    #[arg(long, env = "ASP_APPROVAL_WEBHOOK", hide_env_values = true, value_parser = webhook)]
    pub approval_webhook: Option<Secret>,
    /// JSON file of the credentials with which gateways authenticate to services (docs/identity.md) [default: none]
    #[arg(long, env = ENV_CREDENTIALS)]
    credentials_file: Option<PathBuf>,
    /// Headers about calls that services receive: any of `trace`, `org`, `user`, or `none`
    #[arg(long, env = "ASP_TELL_SERVICES", default_value = "trace", value_parser = call_headers)]
    pub told: CallHeaders,
    /// `public` if anyone may list the servers that are exposed to every org, at `/v0.1/servers`; always so with `--dev`
    #[arg(long, env = "ASP_REGISTRY", action = ArgAction::Set, default_value = "off",
        value_parser = choice(&[("public", true), ("off", false)]))]
    pub registry: bool,
    /// Redis that all gateways share, for limits: `redis[s]://[<user>:<password>@]<host>[:<port>]`,
    /// `redis[s]+cluster://<host>[:<port>],…` or `unix:///<path>` (docs/databases.md)
    /// [default: each gateway enforces a limit by itself]
    #[arg(long, env = "ASP_REDIS_URL", hide_env_values = true, value_parser = redis_url)]
    pub redis_url: Option<Secret>,
    /// Bytes of call events that all orgs may write to Redis in three minutes (docs/databases.md)
    #[arg(long, env = "ASP_REDIS_EVENT_BYTES", default_value_t = EVENT_BYTES,
        value_parser = number(LEAST_EVENT_BYTES..=MOST_EVENT_BYTES))]
    pub redis_event_bytes: u64,
    /// Control planes of a process with only the gateway role, separated by commas [default: this process]
    #[arg(long, env = "ASP_XDS_URL", value_parser = urls)]
    pub xds_urls: Option<List<String>>,
    /// Address `<ip>:<port>` at which Envoy reaches this gateway [default: its mutual TLS listener, else its plain one]
    #[arg(long, env = "ASP_ADVERTISE", value_parser = socket_address)]
    pub advertise: Option<String>,
    /// Pool of this gateway, as routes name it (docs/pools.md)
    #[arg(long, env = "ASP_POOL", default_value = DEFAULT_POOL, value_parser = pool)]
    pub pool: String,
    /// Runtimes for plugins: `language[+language]=url,…` with `python`, `node`, `java`, `mcp-stdio`; `unix:<path>`, or
    /// `https://host:port` with `ASP_PEER_CERT`. Several entries for a language, or a host name with several addresses
    /// (resolved every 5 s), are several runtimes, at most 64 for each language [default: none]
    #[arg(long, env = "ASP_RUNTIMES", default_value = "", value_parser = runtimes)]
    pub runtimes: List<RuntimeAddress>,
    /// Price of a million tokens of the models that answer plugins, in and out, for the cost in `asp usage`: e.g. `2.5/10`
    /// in the operator's currency
    #[arg(long, env = "ASP_MODEL_PRICE", default_value = "0/0", value_parser = model_price::parse)]
    pub model_price: TokenPrice,
    #[command(flatten)]
    delegate_args: DelegateArgs,
    /// Audiences of the platform's tokens
    #[arg(skip = TokenAudiences::Every)]
    pub token_audiences: TokenAudiences,
    /// Origins of receivers of push notifications
    #[arg(skip = PushOrigins::Every)]
    pub push_origins: PushOrigins,
    /// Models of the platform, for delegations
    #[arg(skip)]
    pub delegates: Endpoints,
    /// Credentials with which the gateway authenticates to services
    #[arg(skip)]
    pub credentials: NamedCredentials,
}

impl GatewaySection {
    /// Reads the files that the settings name, and completes their lists.
    pub(super) fn resolve(&mut self, checks: &mut Checks<'_>) {
        if self.token_key.is_none() && self.token_key_previous.is_some() {
            checks.fault("ASP_TOKEN_KEY", "is required with ASP_TOKEN_KEY_PREVIOUS");
        }
        self.token_audiences = self.audiences(checks);
        self.push_origins = self.receivers(checks);
        self.delegates = self.delegate_args.section(checks);
        self.credentials = credentials::read(checks, self.credentials_file.as_deref());
    }

    fn audiences(&self, checks: &mut Checks<'_>) -> TokenAudiences {
        let listed = origin_list(checks, ENV_TOKEN_AUDIENCES, self.audience_entries.as_deref());
        let audience = |(origin, primitives)| TokenAudience { origin, primitives };
        listed.map_or(TokenAudiences::Every, |listed| {
            TokenAudiences::Listed(listed.into_iter().map(audience).collect())
        })
    }

    fn receivers(&self, checks: &mut Checks<'_>) -> PushOrigins {
        let listed = origin_list(checks, ENV_PUSH_ORIGINS, self.push_entries.as_deref());
        let origin = |(origin, primitives)| PushOrigin { origin, primitives };
        listed.map_or(PushOrigins::Every, |listed| {
            PushOrigins::Listed(listed.into_iter().map(origin).collect())
        })
    }
}

/// Returns the origins of an operator list with their primitives; `None` for every origin, in development without the list.
fn origin_list(
    checks: &mut Checks<'_>,
    name: &'static str,
    entries: Option<&[ListEntry]>,
) -> Option<Vec<(String, Vec<String>)>> {
    if entries.is_none() && checks.dev {
        return None;
    }
    let listed = checks.operator_list(name, entries.unwrap_or_default(), is_origin);
    for (origin, _) in &listed {
        if !is_origin(origin) {
            checks.fault(name, format!("must be http(s)://host[:port];for=…, not `{origin}`"));
        }
    }
    Some(listed)
}

fn seal_key(text: &str) -> Result<Secret, String> {
    match text.len() < MIN_SEAL_KEY {
        true => Err(format!("must be at least {MIN_SEAL_KEY} bytes long")),
        false => Ok(Secret::new(text.to_owned())),
    }
}

fn webhook(text: &str) -> Result<Secret, String> {
    match is_webhook(text) {
        true => Ok(Secret::new(text.to_owned())),
        false => Err("must be an http or https URL without credentials and fragment".to_owned()),
    }
}

fn urls(text: &str) -> Result<List<String>, String> {
    let urls = list(text, |url| Ok(url.to_owned()))?;
    if urls.is_empty() { Err("must name a control plane".to_owned()) } else { Ok(urls) }
}

fn pool(text: &str) -> Result<String, String> {
    if !placement::is_pool(text) {
        return Err("must be 1 to 63 of a-z 0-9 -: no route can lead to a pool of another name".to_owned());
    }
    if text == ALL_POOLS {
        return Err(format!("must not be `{ALL_POOLS}`: Envoy's cluster of all pools has that name"));
    }
    Ok(text.to_owned())
}

#[cfg(feature = "cluster")]
fn redis_url(text: &str) -> Result<Secret, String> {
    asp_store::redis::check(text).map_err(|error| error.to_string())?;
    Ok(Secret::new(text.to_owned()))
}

#[cfg(not(feature = "cluster"))]
fn redis_url(_: &str) -> Result<Secret, &'static str> {
    Err("is for programs that were built with the feature `cluster`, unlike this one")
}

fn call_headers(text: &str) -> Result<CallHeaders, String> {
    let mut told = CallHeaders { trace: false, org: false, user: false };
    for word in text.split(',').map(str::trim) {
        match word {
            "trace" => told.trace = true,
            "org" => told.org = true,
            "user" => told.user = true,
            "none" if text.trim() == "none" => {}
            other => {
                return Err(format!("must be `none`, or some of `trace`, `org` and `user`, not `{other}`"));
            }
        }
    }
    Ok(told)
}
