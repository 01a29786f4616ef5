//! By what a call proves itself to the service behind it, and what else a service is told of its caller.
//!
//! Keeps true: the client's own token never goes along (I-8); a service gets what its spec names and nothing else: nothing,
//! the platform's token, one of the caller's issuer, or a credential of the operator's. It knows nothing of what was sent
//! before: what an unproved request means for its call is for whoever sends it.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::snapshot::service_auth::Kind;
use asp_proto::snapshot::{ExchangedToken, ServiceAuth};
use asp_registry::uri_template;
use asp_snapshot::Snapshot;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::SecretString;

use crate::call::Call;
use crate::call::outcome::Refusal;
use crate::executors::outbound::upstream::requested_by;
use crate::issuers::credentials::{CredentialError, CredentialLease, Credentials, User, bearer};
use crate::issuers::exchange::{Exchanges, NoExchange, Subject};
use crate::issuers::token_endpoint::NoToken;
use crate::minting::{Minter, NoToken as NotMinted};

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Percent-encoded UTF-8 (RFC 3986 section 2.1).
const CALLER_ORG: HeaderName = HeaderName::from_static("caller-org");
const CALLER_USER: HeaderName = HeaderName::from_static("caller-user");

/// What services are told of a call beside what proves it, as the operator chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// `traceparent` (W3C Trace Context).
    pub trace: bool,
    /// `caller-org`.
    pub org: bool,
    /// `caller-user`.
    pub user: bool,
}

impl Default for Told {
    fn default() -> Told {
        Told { trace: true, org: false, user: false }
    }
}

/// How long a token lives by which a service is told that a call was given up.
const FAREWELL: Duration = Duration::from_secs(60);

/// Why a request cannot prove itself.
#[derive(Debug)]
pub(crate) struct Unproved {
    pub refusal: Refusal,
    /// The next one may.
    pub passes: bool,
}

/// Proves the calls of one gateway.
pub struct Authorizer {
    minter: Arc<Minter>,
    credentials: Arc<Credentials>,
    exchanges: Arc<Exchanges>,
    told: Told,
}

impl Authorizer {
    pub(crate) fn new(
        minter: Arc<Minter>,
        credentials: Arc<Credentials>,
        exchanges: Arc<Exchanges>,
        told: Told,
    ) -> Authorizer {
        Authorizer { minter, credentials, exchanges, told }
    }

    /// The headers of a request to `url`: the proof, and what else is told.
    pub(crate) async fn headers(
        &self,
        call: &Call,
        snapshot: &Snapshot,
        url: &Url,
    ) -> Result<HeaderMap, Unproved> {
        let mut headers = self.told(call);
        let Some(kind) = kind(call) else { return Ok(headers) };
        let proof = tokio::select! {
            proof = self.proof((call, snapshot), kind, url, Duration::ZERO) => proof?,
            () = call.cancelled() => return Err(Unproved { refusal: Refusal::Cancelled, passes: false }),
        };
        headers.extend([proof]);
        Ok(headers)
    }

    /// The headers of a request that tells a service that the call was given up; `None` where nothing proves it.
    pub(crate) async fn farewell(&self, call: &Call, snapshot: &Snapshot, url: &Url) -> Option<HeaderMap> {
        let mut headers = self.told(call);
        if let Some(kind) = kind(call) {
            headers.extend([self.proof((call, snapshot), kind, url, FAREWELL).await.ok()?]);
        }
        Some(headers)
    }

    /// Whether a spec of this server may name what proves its calls without a caller: a credential, or nothing.
    pub(crate) fn stands(
        &self,
        (server, primitive): (&str, &str),
        auth: Option<&ServiceAuth>,
        url: &Url,
    ) -> bool {
        match auth.and_then(|auth| auth.kind.as_ref()) {
            None => true,
            Some(Kind::Credential(name)) => {
                self.credentials.check(name, User::Primitive(server, primitive), url).is_ok()
            }
            Some(Kind::Token(_) | Kind::Exchange(_)) => false,
        }
    }

    /// The header of a request that is of no call, by the operator's credential of this name, which
    /// [`Authorizer::stands`] has judged.
    pub(crate) async fn standing(&self, credential: &str, url: &Url) -> Option<(HeaderName, HeaderValue)> {
        match self.credentials.header(credential, User::Platform, url).await {
            Ok(header) => Some(header),
            Err(fault) => {
                tracing::warn!(%fault, "a service is asked what it lists without its credential");
                None
            }
        }
    }

    /// The service does not take what proved a request of the call: whether the next one has another proof.
    pub(crate) async fn refused(&self, call: &Call, snapshot: &Snapshot) -> bool {
        match kind(call) {
            Some(Kind::Credential(name)) => self.credentials.refused(name).await,
            Some(Kind::Exchange(wanted)) => self.exchanges.refused(snapshot, &call.caller, wanted).await,
            Some(Kind::Token(_)) | None => false,
        }
    }

    /// The service does not take what [`Authorizer::lent`] gave.
    pub(crate) async fn lent_refused(&self, call: &Call) {
        if let Some(Kind::Credential(name)) = kind(call) {
            self.credentials.refused(name).await;
        }
    }

    /// The same of a request that was of no call.
    pub(crate) async fn refused_standing(&self, credential: &str) {
        self.credentials.refused(credential).await;
    }

    /// The token of the caller's issuer that a plugin shows to services, where its spec wants that.
    pub(crate) async fn exchanged(
        &self,
        call: &Call,
        snapshot: &Snapshot,
    ) -> Result<Option<SecretString>, Unproved> {
        let Some(Kind::Exchange(wanted)) = kind(call) else { return Ok(None) };
        let domains = call.entry.primitive.allowed_domains.iter();
        let to: Vec<String> = domains.map(|domain| format!("https://{domain}")).collect();
        let exchanging = self.exchange((call, snapshot), wanted, &to);
        tokio::select! {
            token = exchanging => token.map(Some),
            () = call.cancelled() => Err(Unproved { refusal: Refusal::Cancelled, passes: false }),
        }
    }

    /// Refuses a call of a plugin whose spec names an audience that the operator does not open to it.
    pub(crate) fn check_plugin_token(&self, call: &Call) -> Result<(), Unproved> {
        let checked = self.minter.check_plugin(call);
        checked.map_err(|_| Unproved { refusal: not_served(), passes: false })
    }

    /// By what the proxy of the call's plugin proves requests, where its spec names a credential.
    pub(crate) async fn lent(&self, call: &Call) -> Result<Option<CredentialLease>, Unproved> {
        let Some(Kind::Credential(name)) = kind(call) else { return Ok(None) };
        let primitive = &call.entry.primitive;
        let user = User::Primitive(&call.server.message.name, &primitive.id);
        tokio::select! {
            lent = self.credentials.lent(name, user, &primitive.allowed_domains) => match lent {
                Ok(lent) => Ok(Some(lent)),
                Err(fault) => Err(unproved(call, &fault)),
            },
            () = call.cancelled() => Err(Unproved { refusal: Refusal::Cancelled, passes: false }),
        }
    }

    async fn exchange(
        &self,
        (call, snapshot): (&Call, &Snapshot),
        wanted: &ExchangedToken,
        to: &[String],
    ) -> Result<SecretString, Unproved> {
        let subject = call.subject();
        let subject = Subject { caller: &call.caller, token: subject.as_deref() };
        let token = self.exchanges.token(snapshot, subject, (wanted, to, requested_by(call))).await;
        token.map_err(|fault| not_exchanged(call, fault))
    }

    /// Whether services are told the trace of a call.
    pub(crate) fn tells_trace(&self) -> bool {
        self.told.trace
    }

    /// What a service is told beside the proof.
    pub(crate) fn told(&self, call: &Call) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut add = |name: HeaderName, text: &str| {
            // Err: never, since it is hexadecimal or percent-encoded.
            if let Ok(value) = HeaderValue::from_str(text) {
                headers.insert(name, value);
            }
        };
        if self.told.trace {
            add(TRACEPARENT, &call.trace.traceparent());
        }
        if self.told.org && !call.caller.org.is_empty() {
            add(CALLER_ORG, &uri_template::encoded(&call.caller.org));
        }
        if self.told.user && !call.caller.org.is_empty() {
            add(CALLER_USER, &uri_template::encoded(&call.caller.user));
        }
        headers
    }

    async fn proof(
        &self,
        (call, snapshot): (&Call, &Snapshot),
        kind: &Kind,
        url: &Url,
        least: Duration,
    ) -> Result<(HeaderName, HeaderValue), Unproved> {
        let lasting = |refusal| Unproved { refusal, passes: false };
        let token = match kind {
            Kind::Credential(name) => {
                let user = User::Primitive(&call.server.message.name, &call.entry.primitive.id);
                let header = self.credentials.header(name, user, url).await;
                return header.map_err(|fault| unproved(call, &fault));
            }
            Kind::Token(wanted) => {
                let token = self.minter.for_service(call, &wanted.audience, least);
                token.map_err(|fault| match fault {
                    NotMinted::Unproved => lasting(Refusal::Declined(
                        "the service wants to know who calls, and nobody has proved that here: the server takes calls \
                         without a token"
                            .into(),
                    )),
                    NotMinted::NotServed => lasting(not_served()),
                    NotMinted::Unsigned => Unproved {
                        refusal: Refusal::Upstream("the platform could not prove itself to the service".into()),
                        passes: true,
                    },
                })?
            }
            Kind::Exchange(wanted) => {
                self.exchange((call, snapshot), wanted, &[url.origin().ascii_serialization()]).await?
            }
        };
        let text = || lasting(Refusal::Internal("a token is no text of a header".into()));
        let mut value = bearer(&token).ok_or_else(text)?;
        value.set_sensitive(true);
        Ok((AUTHORIZATION, value))
    }
}

/// What the spec of the call's primitive names.
fn kind(call: &Call) -> Option<&Kind> {
    call.entry.primitive.service_auth.as_ref()?.kind.as_ref()
}

/// What tells sessions at a service apart that are proved by different things.
pub(crate) fn name_of(auth: Option<&ServiceAuth>) -> String {
    match auth.and_then(|auth| auth.kind.as_ref()) {
        None => String::new(),
        Some(Kind::Token(token)) => format!("token {}", token.audience),
        Some(Kind::Exchange(token)) => format!("exchange {} {}", token.audience, token.scopes.join(" ")),
        Some(Kind::Credential(name)) => format!("credential {name}"),
    }
}

fn not_served() -> Refusal {
    Refusal::Declined("the platform's operator lets this primitive have no token for the service".into())
}

fn unproved(call: &Call, fault: &CredentialError) -> Unproved {
    tracing::warn!(
        primitive = call.entry.primitive.id, call = %call.id, trace = %call.trace, %fault,
        "a call could not prove itself to its service"
    );
    let refusal = match fault {
        CredentialError::Domain { .. } => {
            "the plugin may not reach the service of its credential: its host is missing in the spec's `allowedDomains`"
        }
        _ => "the platform could not prove itself to the service",
    };
    Unproved {
        refusal: Refusal::Upstream(refusal.into()),
        passes: matches!(fault, CredentialError::Token(_, NoToken::Unavailable(_))),
    }
}

fn not_exchanged(call: &Call, fault: NoExchange) -> Unproved {
    tracing::warn!(
        primitive = call.entry.primitive.id, call = %call.id, trace = %call.trace, %fault,
        "a call got no token for its service"
    );
    let declined = |why: &str| Refusal::Declined(why.to_owned());
    let passes = matches!(fault, NoExchange::Issuer(_, NoToken::Unavailable(_)));
    let refusal = match fault {
        NoExchange::Scopes(required) => Refusal::MissingScopes { required },
        NoExchange::Issuer(_, NoToken::Refused(code)) => Refusal::Declined(format!(
            "your issuer gives no token for the service behind this ({code}): ask whoever runs it for access"
        )),
        NoExchange::NotHere(_) => declined("your issuer gives no tokens for services here"),
        NoExchange::Audience { .. } => {
            declined("the platform's operator lets no token of your issuer go to this service")
        }
        NoExchange::NotServed { .. } => declined(
            "the platform's operator lets this primitive have no token of your issuer for the service",
        ),
        NoExchange::NoSubject => {
            declined("the call went on at another gateway, where your token is not known: call again")
        }
        NoExchange::Issuer(_, NoToken::Unavailable(_)) => {
            Refusal::Upstream("your issuer could not be asked for a token for the service".into())
        }
    };
    Unproved { refusal, passes }
}
