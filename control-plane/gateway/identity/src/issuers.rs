//! Requests to issuers, and to the control plane about issuers: keys newer than the snapshot, the owners of opaque
//! tokens, and tokens for services.
//!
//! Refuses: keys of its own, which come in snapshots (I-5). Keeps true: an issuer that cannot be reached authenticates
//! nobody.

pub mod credentials;
pub mod exchange;
pub mod fresh_keys;
pub mod introspection;
mod logins;
mod permits;
pub mod token_endpoint;

use std::sync::Arc;

use asp_call::seal::Sealer;
use asp_outbound::{Outbound, OutboundError};

use credentials::{Credentials, NamedCredentials};
use exchange::Exchanges;
use fresh_keys::{AskControl, FreshKeys};
use introspection::Introspections;
use logins::Logins;

use crate::linked::{LinkDeps, LinkedTokens};

/// Dependencies of a gateway's requests to issuers.
#[derive(Default)]
pub struct IssuerDeps {
    /// The control plane; without it, only the keys of the snapshot are known.
    pub control: Option<Arc<dyn AskControl>>,
    /// Credentials with which a gateway authenticates to services.
    pub credentials: NamedCredentials,
    /// Origins of issuers that may be plain http or private.
    pub origins: Vec<String>,
    /// Store and vault of linked accounts; `None` if there are none.
    pub links: Option<LinkDeps>,
}

/// The requests of one gateway to issuers.
pub struct Issuers {
    pub credentials: Arc<Credentials>,
    pub exchanges: Arc<Exchanges>,
    pub fresh_keys: FreshKeys,
    pub introspections: Introspections,
    pub logins: Logins,
    /// Linked accounts; `None` if this gateway has no store for them.
    pub links: Option<Arc<LinkedTokens>>,
    pub outbound: Arc<Outbound>,
    pub origins: Vec<String>,
}

impl Issuers {
    /// Creates the requests of a gateway that clients reach at `public_url`, without a trailing slash.
    pub fn new(deps: IssuerDeps, sealer: &Arc<Sealer>, public_url: &str) -> Result<Issuers, OutboundError> {
        let outbound = Arc::new(Outbound::with_silence(introspection::WITHIN)?);
        let credentials = Arc::new(Credentials::new(deps.credentials, outbound.clone()));
        let exchanges = Exchanges::new(outbound.clone(), deps.origins.clone(), credentials.clone());
        let links = deps.links.map(|links| {
            let requests = (outbound.clone(), deps.origins.clone());
            Arc::new(LinkedTokens::new(links, requests, (sealer.clone(), public_url.to_owned())))
        });
        Ok(Issuers {
            fresh_keys: FreshKeys::new(deps.control),
            introspections: Introspections::new(outbound.clone(), deps.origins.clone(), credentials.clone()),
            credentials,
            exchanges: Arc::new(exchanges),
            logins: Logins::default(),
            links,
            outbound,
            origins: deps.origins,
        })
    }
}
