//! Tokens minted by the platform: those with which plugins authenticate to the services they may call (ADR 9, I-7,
//! I-8), and those with which the platform itself authenticates to the service behind a primitive.
//!
//! Owns: the signing keys, the claims, the published key set, to which every gateway adds its own keys; and the keys that
//! sign agent cards ([`CardKeys`]). Refuses: plugins that may call no service, and callers that are not authenticated.
//! Keeps true: a token grants no more than its caller has and its primitive declares, it has one audience, which the
//! operator's list opens to the primitive, and it lives no longer than 15 minutes or the call; no issuer of client tokens
//! has this key, so the platform itself does not accept these tokens (RFC 9068, RFC 8693).

mod audiences;
mod card_keys;
mod key_set;
mod keys;
mod token_keys;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::clock::{unix_ms, unix_seconds};
use asp_outbound::Requester;
use asp_platform::secret::Secret;
use asp_proto::snapshot::Primitive;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use audiences::NoAudience;
pub use audiences::{TokenAudience, TokenAudiences};
pub use card_keys::{CardAlgorithm, CardKeys, CardSigningKey};
pub use key_set::FRESH;
pub use keys::{KeyError, PublicKey, SigningKey};
pub use token_keys::{KEEP_AGAIN, KEEP_EVERY, StartError, TokenKeys};

/// Maximum lifetime of a token (ADR 9).
pub const MAX_LIFE: Duration = Duration::from_secs(15 * 60);
/// Maximum number of plugins remembered as logged.
const MAX_LOGGED: usize = 4_096;
/// The `typ` of an access token (RFC 9068 section 2.1).
const ACCESS: &str = "at+jwt";
/// The `typ` of a proof that an execution replaces an earlier one.
const RESUME: &str = "asp-resume+jwt";

/// A source of the current time in Unix milliseconds.
pub type Clock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// The machine's own clock.
pub fn wall_clock() -> Clock {
    Arc::new(unix_ms)
}

/// The reason why a service gets no token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoToken {
    /// The caller is not authenticated.
    Unproved,
    /// The token could not be signed.
    Unsigned,
    /// The operator's list does not open the audience to the primitive.
    NotServed,
}

/// Mints the tokens of one gateway's calls.
pub struct Minter {
    pub keys: Arc<TokenKeys>,
    /// The `iss` claim: the public URL, below which the key set is served.
    issuer: String,
    audiences: TokenAudiences,
    /// Plugins whose missing token was logged.
    logged: Mutex<BTreeSet<String>>,
}

/// The subject of a plugin's token: one execution of a call on a plugin.
#[derive(Clone, Copy)]
pub struct PluginExecution<'a> {
    pub call: &'a Call,
    /// `id@version` of the plugin.
    pub plugin: &'a str,
}

#[derive(Serialize)]
struct JwsHeader<'a> {
    alg: &'static str,
    typ: &'static str,
    kid: &'a str,
}

#[derive(Serialize)]
struct MintedClaims<'a> {
    iss: &'a str,
    sub: &'a str,
    aud: Vec<String>,
    org: &'a str,
    /// The actor on behalf of the user (RFC 8693 section 4.1).
    act: Value,
    client_id: String,
    jti: String,
    iat: u64,
    exp: u64,
    #[serde(skip_serializing_if = "String::is_empty")]
    scope: String,
    /// Id of the call, the same in each of its executions.
    call: String,
    /// Issuer that authenticated the user, as two issuers may have users of the same name.
    caller_issuer: &'a str,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    succession: Option<Succession>,
}

/// Numbers of an execution and of the one it replaces; both count from 1.
#[derive(Serialize)]
struct Succession {
    attempt: u32,
    replaces: u32,
}

impl Minter {
    pub fn new(keys: Arc<TokenKeys>, issuer: String, audiences: TokenAudiences) -> Minter {
        Minter { keys, issuer, audiences, logged: Mutex::default() }
    }

    /// Refuses a call of a plugin whose spec names an audience that is not open to it.
    pub fn check_plugin(&self, call: &Call) -> Result<(), NoToken> {
        match audiences::named(call) {
            Some(named) if self.audiences.of_plugin(call).is_err() => Err(not_served(call, named)),
            Some(_) | None => Ok(()),
        }
    }

    /// Returns the plugin's token for its service; `None` if the operator opens no audience or several to it, or the
    /// caller is not authenticated.
    pub fn access(&self, execution: PluginExecution<'_>) -> Option<Secret> {
        let mut claims = self.claims(execution)?;
        claims.scope = scopes(execution.call);
        self.sign(ACCESS, &claims)
    }

    /// Returns the platform's token for the service behind the call's primitive. It lives as long as the call, at least
    /// `least`, and at most [`MAX_LIFE`].
    pub fn for_service(&self, call: &Call, audience: &str, least: Duration) -> Result<Secret, NoToken> {
        let Primitive { id, version, .. } = &call.entry.primitive;
        if !self.audiences.allows(audience, audiences::requested_by(call)) {
            return Err(not_served(call, audience));
        }
        // Two servers that list the same id are different actors.
        let server = &call.server.message.name;
        let audiences = vec![audience.to_owned()];
        let claims = self.claims_of(call, format!("primitive:{server}/{id}@{version}"), audiences);
        let mut claims = claims.ok_or(NoToken::Unproved)?;
        claims.exp = claims.exp.max(claims.iat + least.min(MAX_LIFE).as_secs());
        claims.scope = scopes(call);
        self.sign(ACCESS, &claims).ok_or(NoToken::Unsigned)
    }

    /// Returns the proof for the same service that execution number `attempt` has replaced number `replaces`.
    pub fn succession(&self, execution: PluginExecution<'_>, attempt: u32, replaces: u32) -> Option<Secret> {
        let mut claims = self.claims(execution)?;
        claims.succession = Some(Succession { attempt, replaces });
        self.sign(RESUME, &claims)
    }

    fn claims<'a>(&'a self, execution: PluginExecution<'a>) -> Option<MintedClaims<'a>> {
        let PluginExecution { call, plugin } = execution;
        match self.audiences.of_plugin(call) {
            Ok(audience) => self.claims_of(call, format!("plugin:{plugin}"), vec![audience]),
            Err(why) => {
                self.log_lack(call, why);
                None
            }
        }
    }

    /// Logs once why a plugin gets no token, because neither the plugin nor its service can find out.
    fn log_lack(&self, call: &Call, why: NoAudience) {
        let Primitive { version, allowed_domains, service_auth, .. } = &call.entry.primitive;
        if service_auth.is_some() {
            // The plugin authenticates in another way, or its call is refused.
            return;
        }
        let entries = match why {
            NoAudience::Settled => return,
            NoAudience::NoEntry => "no entry",
            NoAudience::Several => "several entries",
        };
        let by = audiences::requested_by(call);
        let primitive = format!("{}/{}@{version}", by.server, by.primitive);
        let mut logged = self.logged.lock();
        if logged.len() >= MAX_LOGGED {
            logged.clear();
        }
        // The list is fixed for the life of the process, but the plugin's domains may change.
        let is_news = logged.insert(format!("{primitive} {allowed_domains:?}"));
        drop(logged);
        if is_news {
            tracing::warn!(
                primitive,
                list = audiences::LIST,
                entries,
                line = self.audiences.completed(why, allowed_domains, by),
                "plugin gets no token because not exactly one entry of the list serves it; if its service needs one, \
                 set `line`, or name the audience in `runtime.auth.token` of its spec"
            );
        }
    }

    fn claims_of<'a>(&'a self, call: &'a Call, actor: String, aud: Vec<String>) -> Option<MintedClaims<'a>> {
        if call.caller.org.is_empty() {
            return None;
        }
        let iat = unix_seconds();
        let left = call.deadline().saturating_duration_since(Instant::now()).min(MAX_LIFE);
        Some(MintedClaims {
            iss: &self.issuer,
            sub: &call.caller.user,
            aud,
            org: &call.caller.org,
            act: json!({"sub": actor}),
            client_id: actor,
            jti: uuid::Uuid::now_v7().to_string(),
            iat,
            exp: iat + left.as_secs(),
            scope: String::new(),
            call: call.id.to_string(),
            caller_issuer: &call.caller.issuer,
            succession: None,
        })
    }

    /// Returns a compact JWS (RFC 7515 section 7.1).
    fn sign(&self, typ: &'static str, claims: &MintedClaims<'_>) -> Option<Secret> {
        let Some(key) = self.keys.signer() else {
            tracing::error!(
                "call continues without its token because no signing key is published: check the store"
            );
            return None;
        };
        let header = JwsHeader { alg: "ES256", typ, kid: key.public().kid() };
        let token = serde_json::to_vec(&header)
            .and_then(|header| Ok((header, serde_json::to_vec(claims)?)))
            .map_err(|error| error.to_string())
            .and_then(|(header, claims)| key.sign(&header, &claims).map_err(|error| error.to_string()));
        match token {
            Ok(token) => Some(token.into()),
            Err(error) => {
                tracing::error!(%error, "call continues without its token because signing failed, and services will refuse it: check the signing key of the platform's tokens");
                None
            }
        }
    }
}

fn not_served(call: &Call, audience: &str) -> NoToken {
    let Requester { server, primitive } = audiences::requested_by(call);
    tracing::warn!(
        list = audiences::LIST,
        entry = audience,
        primitive = format!("{server}/{primitive}"),
        call = %call.id,
        trace = %call.trace,
        "request refused by an operator list: no entry for this audience names the primitive"
    );
    NoToken::NotServed
}

/// Returns the scopes that the caller has and the primitive declares.
fn scopes(call: &Call) -> String {
    let declared = call.entry.primitive.scopes.iter().filter(|scope| call.caller.scopes.contains(scope));
    declared.map(String::as_str).collect::<Vec<_>>().join(" ")
}
