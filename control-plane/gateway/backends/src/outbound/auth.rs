//! Authentication of a call to the service behind it, and further headers about its caller.
//!
//! Keeps true: the client's own token is never passed on (I-8); a service gets exactly what its spec names: nothing,
//! the platform's token, a token of the caller's issuer, a credential of the operator, or the token of an account that the
//! caller has linked. The meaning of a failed
//! authentication for a call is decided by the sender, because it is unknown here what was sent before.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::Call;
use asp_call::call::outcome::Refusal;
use asp_identity::issuers::credentials::{CredentialError, CredentialLease, Credentials, User, bearer};
use asp_identity::issuers::exchange::{Exchanges, NoExchange, Subject};
use asp_identity::issuers::token_endpoint::NoToken;
use asp_identity::linked::LinkedTokens;
use asp_identity::minting::{Minter, NoToken as NotMinted};
use asp_platform::secret::Secret;
use asp_proto::snapshot::service_auth::Kind;
use asp_proto::snapshot::{ExchangedToken, ServiceAuth};
use asp_registry::uri_template;
use asp_snapshot::Snapshot;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use reqwest::{StatusCode, Url};

pub(crate) use crate::outbound::auth_fault::AuthFault;
use crate::outbound::linked;
use crate::outbound::upstream::requested_by;

const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");
/// Headers with percent-encoded UTF-8 (RFC 3986 section 2.1).
const CALLER_ORG: HeaderName = HeaderName::from_static("caller-org");
const CALLER_USER: HeaderName = HeaderName::from_static("caller-user");

/// Headers about a call that services get in addition to authentication, as the operator chooses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallHeaders {
    /// `traceparent` (W3C Trace Context).
    pub trace: bool,
    /// `caller-org`.
    pub org: bool,
    /// `caller-user`.
    pub user: bool,
}

impl Default for CallHeaders {
    fn default() -> CallHeaders {
        CallHeaders { trace: true, org: false, user: false }
    }
}

/// Minimum lifetime of the token for telling a service that a call was given up.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(60);

/// Authenticates the calls of one gateway.
pub struct Authorizer {
    minter: Arc<Minter>,
    credentials: Arc<Credentials>,
    exchanges: Arc<Exchanges>,
    links: Option<Arc<LinkedTokens>>,
    told: CallHeaders,
}

impl Authorizer {
    pub fn new(
        minter: Arc<Minter>,
        credentials: Arc<Credentials>,
        exchanges: Arc<Exchanges>,
        told: CallHeaders,
    ) -> Authorizer {
        Authorizer { minter, credentials, exchanges, links: None, told }
    }

    /// Adds the linked accounts of callers.
    #[must_use]
    pub fn with_links(self, links: Option<Arc<LinkedTokens>>) -> Authorizer {
        Authorizer { links, ..self }
    }

    /// Returns the headers of a request to `url`: authentication, and the further headers. Waits for the caller to link an
    /// account if the request needs one.
    pub(crate) async fn headers(
        &self,
        call: &Call,
        snapshot: &Snapshot,
        url: &Url,
    ) -> Result<HeaderMap, AuthFault> {
        let mut headers = self.extra_headers(call);
        let Some(kind) = kind(call) else { return Ok(headers) };
        if let Kind::Linked(wanted) = kind {
            // Boxed, so that the state of every request does not include this wait.
            let linking = Box::pin(linked::token_or_ask(self.links.as_ref(), call, (wanted, url)));
            headers.extend([authorization(&unless_cancelled(call, linking).await?)?]);
            return Ok(headers);
        }
        let proving = self.proof((call, snapshot), kind, url, Duration::ZERO);
        headers.extend([unless_cancelled(call, proving).await?]);
        Ok(headers)
    }

    /// Returns the headers of a request that tells a service that the call was given up; `None` if it cannot
    /// authenticate.
    pub(crate) async fn cancel_auth(&self, call: &Call, snapshot: &Snapshot, url: &Url) -> Option<HeaderMap> {
        let mut headers = self.extra_headers(call);
        if let Some(kind) = kind(call) {
            headers.extend([self.proof((call, snapshot), kind, url, CANCEL_TIMEOUT).await.ok()?]);
        }
        Some(headers)
    }

    /// Whether requests without a caller may authenticate as a spec of this server says: by a credential, or not at
    /// all.
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
            Some(Kind::Token(_) | Kind::Exchange(_) | Kind::Linked(_)) => false,
        }
    }

    /// Returns the header of a request without a call, with the operator's credential of this name, which
    /// [`Authorizer::stands`] has checked.
    pub(crate) async fn standing(&self, credential: &str, url: &Url) -> Option<(HeaderName, HeaderValue)> {
        match self.credentials.header(credential, User::Platform, url).await {
            Ok(header) => Some(header),
            Err(fault) => {
                tracing::warn!(%fault, "a service is listed without its credential");
                None
            }
        }
    }

    /// Reports that the service rejected the credentials of a call's request; returns whether the next request has
    /// others.
    pub(crate) async fn refused(&self, call: &Call, snapshot: &Snapshot) -> bool {
        match kind(call) {
            Some(Kind::Credential(name)) => self.credentials.refused(name).await,
            Some(Kind::Exchange(wanted)) => self.exchanges.refused(snapshot, &call.caller, wanted).await,
            // The caller is asked again, once: who repeats the request does that once.
            Some(Kind::Linked(_)) => match &self.links {
                Some(links) => links.rejected(call.id.into_bytes()).await,
                None => false,
            },
            Some(Kind::Token(_)) | None => false,
        }
    }

    /// Whether a service's answer with this status rejects the credentials of a call's request. For a linked account that
    /// includes missing rights, which the caller may grant.
    pub(crate) fn is_rejection(&self, call: &Call, status: StatusCode) -> bool {
        status == StatusCode::UNAUTHORIZED || (status == StatusCode::FORBIDDEN && self.is_linked(call))
    }

    /// Whether a call authenticates with an account of its caller.
    pub(crate) fn is_linked(&self, call: &Call) -> bool {
        matches!(kind(call), Some(Kind::Linked(_)))
    }

    /// Reports that the service rejected the credential from [`Authorizer::lease_credential`].
    pub(crate) async fn report_lease_rejected(&self, call: &Call) {
        if let Some(Kind::Credential(name)) = kind(call) {
            self.credentials.refused(name).await;
        }
    }

    /// Reports that the service rejected the credential of a request without a call.
    pub(crate) async fn refused_standing(&self, credential: &str) {
        self.credentials.refused(credential).await;
    }

    /// Returns the token of the caller's issuer that a plugin presents to services, if its spec asks for an exchange.
    pub(crate) async fn exchanged(
        &self,
        call: &Call,
        snapshot: &Snapshot,
    ) -> Result<Option<Secret>, AuthFault> {
        let Some(Kind::Exchange(wanted)) = kind(call) else { return Ok(None) };
        let domains = call.entry.primitive.allowed_domains.iter();
        let to: Vec<String> = domains.map(|domain| format!("https://{domain}")).collect();
        unless_cancelled(call, self.exchange((call, snapshot), wanted, &to)).await.map(Some)
    }

    /// Refuses a call of a plugin whose spec names an audience that the operator does not permit to it.
    pub(crate) fn check_plugin_token(&self, call: &Call) -> Result<(), AuthFault> {
        let checked = self.minter.check_plugin(call);
        checked.map_err(|_| AuthFault { refusal: not_served(), passes: false })
    }

    /// Returns the credential with which the proxy of the call's plugin authenticates requests, if its spec names
    /// one.
    pub(crate) async fn lease_credential(&self, call: &Call) -> Result<Option<CredentialLease>, AuthFault> {
        let Some(Kind::Credential(name)) = kind(call) else { return Ok(None) };
        let primitive = &call.entry.primitive;
        let user = User::Primitive(&call.server.message.name, &primitive.id);
        let leasing = self.credentials.lease(name, user, &primitive.allowed_domains);
        let leasing = async { leasing.await.map(Some).map_err(|fault| unproved(call, &fault)) };
        unless_cancelled(call, leasing).await
    }

    async fn exchange(
        &self,
        (call, snapshot): (&Call, &Snapshot),
        wanted: &ExchangedToken,
        to: &[String],
    ) -> Result<Secret, AuthFault> {
        let subject = call.subject();
        let subject = Subject { caller: &call.caller, token: subject.as_deref() };
        let token = self.exchanges.token(snapshot, subject, (wanted, to, requested_by(call))).await;
        token.map_err(|fault| not_exchanged(call, fault))
    }

    /// Whether services get the trace of a call.
    pub(crate) fn tells_trace(&self) -> bool {
        self.told.trace
    }

    /// Returns the headers in addition to authentication.
    pub(crate) fn extra_headers(&self, call: &Call) -> HeaderMap {
        let mut headers = HeaderMap::new();
        let mut add = |name: HeaderName, text: &str| {
            // Never an error, because the text is hexadecimal or percent-encoded.
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
    ) -> Result<(HeaderName, HeaderValue), AuthFault> {
        let lasting = |refusal| AuthFault { refusal, passes: false };
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
                        "the service requires an authenticated caller, and this server accepts calls without \
                         a token"
                            .into(),
                    )),
                    NotMinted::NotServed => lasting(not_served()),
                    NotMinted::Unsigned => AuthFault {
                        refusal: Refusal::Upstream("the platform could not authenticate to the service".into()),
                        passes: true,
                    },
                })?
            }
            Kind::Exchange(wanted) => {
                self.exchange((call, snapshot), wanted, &[url.origin().ascii_serialization()]).await?
            }
            Kind::Linked(wanted) => linked::token(self.links.as_ref(), call, (wanted, url)).await?,
        };
        authorization(&token)
    }
}

/// Returns the header with a token.
fn authorization(token: &Secret) -> Result<(HeaderName, HeaderValue), AuthFault> {
    let refusal = || Refusal::Internal("a token cannot be sent as a header".into());
    let mut value = bearer(token).ok_or_else(|| AuthFault { refusal: refusal(), passes: false })?;
    value.set_sensitive(true);
    Ok((AUTHORIZATION, value))
}

/// Waits for a proof until the call is cancelled.
async fn unless_cancelled<T>(
    call: &Call,
    proving: impl Future<Output = Result<T, AuthFault>>,
) -> Result<T, AuthFault> {
    tokio::select! {
        proved = proving => proved,
        () = call.cancelled() => Err(AuthFault { refusal: Refusal::Cancelled, passes: false }),
    }
}

/// Returns the authentication that the spec of the call's primitive names.
fn kind(call: &Call) -> Option<&Kind> {
    call.entry.primitive.service_auth.as_ref()?.kind.as_ref()
}

/// Returns a name that distinguishes sessions at a service by their authentication.
pub(crate) fn name_of(auth: Option<&ServiceAuth>) -> String {
    match auth.and_then(|auth| auth.kind.as_ref()) {
        None => String::new(),
        Some(Kind::Token(token)) => format!("token {}", token.audience),
        Some(Kind::Exchange(token)) => format!("exchange {} {}", token.audience, token.scopes.join(" ")),
        Some(Kind::Credential(name)) => format!("credential {name}"),
        Some(Kind::Linked(linked)) => format!("linked {}", linked.provider),
    }
}

fn not_served() -> Refusal {
    Refusal::Declined("the platform's operator does not allow this primitive a token for the service".into())
}

fn unproved(call: &Call, fault: &CredentialError) -> AuthFault {
    call.note_failure_cause(fault);
    let refusal = match fault {
        CredentialError::Domain { .. } => {
            "the plugin may not reach the service of its credential: its host is missing in the spec's `allowedDomains`"
        }
        _ => "the platform could not authenticate to the service",
    };
    AuthFault {
        refusal: Refusal::Upstream(refusal.into()),
        passes: matches!(fault, CredentialError::Token(_, NoToken::Unavailable(_))),
    }
}

fn not_exchanged(call: &Call, fault: NoExchange) -> AuthFault {
    call.note_failure_cause(&fault);
    let declined = |why: &str| Refusal::Declined(why.to_owned());
    let passes = matches!(fault, NoExchange::Issuer(_, NoToken::Unavailable(_)));
    let refusal = match fault {
        NoExchange::Scopes(required) => Refusal::MissingScopes { required },
        NoExchange::Issuer(_, NoToken::Refused(code)) => Refusal::Declined(format!(
            "your issuer refused a token for the service behind this ({code}): ask the issuer's operator for access"
        )),
        NoExchange::NotHere(_) => declined("your issuer issues no tokens for services here"),
        NoExchange::Audience { .. } => {
            declined("the platform's operator does not allow tokens of your issuer at this service")
        }
        NoExchange::NotServed { .. } => declined(
            "the platform's operator does not allow this primitive a token of your issuer for the service",
        ),
        NoExchange::NoSubject => {
            declined("the call continued at another gateway, which does not have your token: call again")
        }
        NoExchange::Issuer(_, NoToken::Unavailable(_)) => {
            Refusal::Upstream("the request to your issuer for a token for the service failed".into())
        }
    };
    AuthFault { refusal, passes }
}
