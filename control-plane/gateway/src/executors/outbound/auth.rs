//! By what a call proves itself to the service behind it, and what else a service is told of its caller.
//!
//! Keeps true: the client's own token never goes along (I-8); a service gets what its spec names and nothing else: nothing,
//! the platform's token, one of the caller's issuer, or a credential of the operator's; what cannot be had ends the call
//! before anything of it was sent.

use std::sync::Arc;

use asp_proto::snapshot::ServiceAuth;
use asp_proto::snapshot::service_auth::Kind;
use asp_registry::uri_template;
use asp_snapshot::Snapshot;
use reqwest::Url;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};

use crate::call::Call;
use crate::call::outcome::Refusal;
use crate::issuers::credentials::{Credentials, User, bearer};
use crate::issuers::exchange::{Exchanges, NoExchange, Subject};
use crate::issuers::token_endpoint::NoToken;
use crate::minting::Minter;

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
    ) -> Result<HeaderMap, Refusal> {
        let mut headers = self.told(call);
        let proof = tokio::select! {
            proof = self.proof(call, snapshot, url) => proof?,
            () = call.cancelled() => return Err(Refusal::Cancelled),
        };
        headers.extend(proof);
        Ok(headers)
    }

    /// The header of a request that is of no call, for what only a credential of the operator's can prove.
    pub(crate) async fn standing(
        &self,
        primitive: &str,
        auth: &ServiceAuth,
        url: &Url,
    ) -> Option<(HeaderName, HeaderValue)> {
        let Some(Kind::Credential(name)) = &auth.kind else { return None };
        match self.credentials.header(name, User::Primitive(primitive), url).await {
            Ok(header) => Some(header),
            Err(fault) => {
                tracing::warn!(primitive, %fault, "a service is asked without its credential");
                None
            }
        }
    }

    /// The service does not take what proved the call.
    pub(crate) async fn refused(&self, call: &Call) {
        if let Some(Kind::Credential(name)) = kind(call) {
            self.credentials.refused(name).await;
        }
    }

    /// The token of the caller's issuer that a plugin shows to services, where its spec wants that.
    pub(crate) async fn exchanged(
        &self,
        call: &Call,
        snapshot: &Snapshot,
    ) -> Result<Option<secrecy::SecretString>, Refusal> {
        let Some(Kind::Exchange(wanted)) = kind(call) else { return Ok(None) };
        let subject = call.subject();
        let subject = Subject { caller: &call.caller, token: subject.as_deref() };
        let token = tokio::select! {
            token = self.exchanges.token(snapshot, subject, wanted) => token,
            () = call.cancelled() => return Err(Refusal::Cancelled),
        };
        token.map(Some).map_err(|fault| not_exchanged(call, &fault))
    }

    /// Whether services are told the trace of a call.
    pub(crate) fn tells_trace(&self) -> bool {
        self.told.trace
    }

    fn told(&self, call: &Call) -> HeaderMap {
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
        call: &Call,
        snapshot: &Snapshot,
        url: &Url,
    ) -> Result<Option<(HeaderName, HeaderValue)>, Refusal> {
        let Some(kind) = kind(call) else { return Ok(None) };
        let id = &call.entry.primitive.id;
        let token = match kind {
            Kind::Credential(name) => {
                let header = self.credentials.header(name, User::Primitive(id), url).await;
                return header.map(Some).map_err(|fault| {
                    tracing::warn!(
                        primitive = id, call = %call.id, trace = %call.trace, %fault,
                        "a call could not prove itself to its service"
                    );
                    call.take_back();
                    Refusal::Upstream("the platform could not prove itself to the service".into())
                });
            }
            Kind::Token(wanted) => self.minter.for_service(call, &wanted.audience).ok_or_else(|| {
                call.take_back();
                Refusal::Declined(
                    "the service wants to know who calls, and nobody has proved that here: the server takes calls without \
                     a token"
                        .into(),
                )
            })?,
            Kind::Exchange(_) => match self.exchanged(call, snapshot).await? {
                Some(token) => token,
                None => return Ok(None),
            },
        };
        let mut value =
            bearer(&token).ok_or_else(|| Refusal::Internal("a token is no text of a header".into()))?;
        value.set_sensitive(true);
        Ok(Some((AUTHORIZATION, value)))
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

fn not_exchanged(call: &Call, fault: &NoExchange) -> Refusal {
    call.take_back();
    tracing::warn!(
        primitive = call.entry.primitive.id, call = %call.id, trace = %call.trace, %fault,
        "a call got no token for its service"
    );
    match fault {
        NoExchange::Issuer(_, NoToken::Refused(code)) => Refusal::Declined(format!(
            "your issuer gives no token for the service behind this ({code}): ask whoever runs it for access"
        )),
        NoExchange::NotHere(_) => Refusal::Declined("your issuer gives no tokens for services here".into()),
        NoExchange::NoSubject => Refusal::Declined(
            "the call went on at another gateway, where your token is not known: call again".into(),
        ),
        NoExchange::Issuer(_, NoToken::Unavailable(_)) => {
            Refusal::Upstream("your issuer could not be asked for a token for the service".into())
        }
    }
}
