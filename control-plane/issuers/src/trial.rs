//! A trial of an issuer before it is stored: its documents are fetched, and a token of it is evaluated as edges and gateways
//! would, by their own code.
//!
//! Keeps true: nothing is stored or sent; the cause of a refusal is for the operator who tries, never for a client.

use asp_edge::{Caller, Cause, Reason, Snapshot};
use asp_proto::snapshot::{EdgeServer, EdgeSnapshot, Issuer};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::compile;
use crate::document::Document;
use crate::fetch::Fetcher;
use crate::keys::{self, ALGS};
use crate::metadata::IssuerMetadata;

/// Name of the server that stands for any server of the platform.
const SERVER: &str = "trial";

/// An issuer with its documents.
pub struct Trial {
    issuer: Issuer,
    metadata: IssuerMetadata,
    /// Published keys that are not usable, and why.
    pub faults: Vec<String>,
}

/// Header and claims of a signed token, read without trusting them.
pub struct TokenParts {
    pub header: Value,
    pub claims: Value,
}

impl TokenParts {
    /// Reads a token; `None` if it is opaque.
    pub fn read(token: &str) -> Option<TokenParts> {
        let mut segments = token.split('.');
        let (Some(header), Some(claims), Some(_), None) =
            (segments.next(), segments.next(), segments.next(), segments.next())
        else {
            return None;
        };
        Some(TokenParts { header: object(header)?, claims: object(claims)? })
    }

    /// Returns a claim's text, or the first text of a list; empty if it has none.
    pub(crate) fn text(&self, claim: &str) -> &str {
        let claim = self.claims.get(claim);
        let first = claim.and_then(Value::as_array).and_then(|list| list.first());
        first.or(claim).and_then(Value::as_str).unwrap_or_default()
    }
}

fn object(segment: &str) -> Option<Value> {
    let value: Value = serde_json::from_slice(&URL_SAFE_NO_PAD.decode(segment).ok()?).ok()?;
    value.is_object().then_some(value)
}

impl Trial {
    /// Fetches the documents of an issuer.
    pub async fn start(document: &Document, fetcher: &Fetcher) -> Result<Trial, String> {
        let metadata = fetcher.fetch(&document.source()).await?;
        Trial::of(document, metadata)
    }

    pub(crate) fn of(document: &Document, metadata: IssuerMetadata) -> Result<Trial, String> {
        let (keys, faults) = match &document.jwks {
            Some(jwks) => (keys::read_keys(document, &jwks.keys)?, Vec::new()),
            None => keys::usable_keys(document, &metadata.jwks.keys),
        };
        Ok(Trial { issuer: compile::client(document, &keys)?, metadata, faults })
    }

    /// Number of its usable keys.
    pub fn keys(&self) -> usize {
        self.issuer.keys.len()
    }

    /// Returns the endpoints for a login without a browser (RFC 8628): for the device, and for tokens.
    pub fn device_endpoints(&self) -> Option<(&str, &str)> {
        let metadata = &self.metadata;
        Some((metadata.device_authorization_endpoint.as_deref()?, metadata.token_endpoint.as_deref()?))
    }

    /// Returns the caller that a token proves to a server of the platform at `public_url`, at `now` (Unix seconds), or
    /// why it is refused.
    pub fn evaluate(&self, public_url: &str, token: &str, now: u64) -> Result<Caller, String> {
        let server = EdgeServer {
            name: SERVER.to_owned(),
            issuers: vec![self.issuer.name.clone()],
            ..EdgeServer::default()
        };
        let snapshot = EdgeSnapshot {
            public_url: public_url.to_owned(),
            issuers: vec![self.issuer.clone()],
            servers: vec![server],
            ..EdgeSnapshot::default()
        };
        let snapshot = Snapshot::from_message(snapshot).map_err(|fault| fault.to_string())?;
        snapshot.verified(SERVER, token, now).map_err(|refusal| self.explain(public_url, token, refusal))
    }

    /// Describes a refusal, which has a cause only if the signature is valid.
    fn explain(&self, public_url: &str, token: &str, (reason, cause): (Reason, Option<Cause>)) -> String {
        let Some(parts) = TokenParts::read(token) else {
            return "the token is opaque: it is not a signed token that the platform can verify".to_owned();
        };
        match cause {
            Some(Cause { claim: "aud", fault }) => {
                let audience = parts.claims.get("aud").unwrap_or(&Value::Null);
                let accepted: Vec<&str> =
                    self.issuer.audiences.iter().map(String::as_str).chain([public_url]).collect();
                format!("aud {fault}: it is {audience}, accepted are {}", accepted.join(", "))
            }
            Some(cause) => cause.to_string(),
            None if reason == Reason::TokenInvalid => self.explain_form(&parts),
            None => reason.as_str().to_owned(),
        }
    }

    /// Describes why a token is refused before its claims are read, in the order of the edge's checks.
    fn explain_form(&self, parts: &TokenParts) -> String {
        let header = |name: &str| parts.header.get(name).and_then(Value::as_str);
        if parts.text("iss") != self.issuer.iss {
            return format!("iss is {:?}, not {:?}", parts.text("iss"), self.issuer.iss);
        }
        let typ = header("typ").unwrap_or("none").to_ascii_lowercase();
        let accepted =
            if self.issuer.typ.is_empty() { "at+jwt".to_owned() } else { self.issuer.typ.join(", ") };
        if !accepted.split(", ").any(|accepted| typ.strip_prefix("application/").unwrap_or(&typ) == accepted)
        {
            return format!("the header typ is {typ}, accepted are {accepted}");
        }
        let alg = header("alg").unwrap_or_default();
        if ALGS.iter().all(|(known, _)| *known != alg) {
            return format!("the signature's algorithm {alg:?} is not supported");
        }
        match header("kid") {
            Some(kid) if self.issuer.keys.iter().any(|key| key.kid == kid) => {
                "the signature does not fit the issuer's key".to_owned()
            }
            kid => format!("the issuer publishes no usable key {:?}", kid.unwrap_or_default()),
        }
    }
}
