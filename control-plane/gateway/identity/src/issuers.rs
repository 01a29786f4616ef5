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

use asp_outbound::{Outbound, OutboundError};

use credentials::{Credentials, NamedCredentials};
use exchange::Exchanges;
use fresh_keys::{AskControl, FreshKeys};
use introspection::Introspections;
use logins::Logins;

/// Dependencies of a gateway's requests to issuers.
#[derive(Default)]
pub struct IssuerDeps {
    /// The control plane; without it, only the keys of the snapshot are known.
    pub control: Option<Arc<dyn AskControl>>,
    /// Credentials with which a gateway authenticates to services.
    pub credentials: NamedCredentials,
    /// Origins of issuers that may be plain http or private.
    pub origins: Vec<String>,
}

/// The requests of one gateway to issuers.
pub struct Issuers {
    pub credentials: Arc<Credentials>,
    pub exchanges: Arc<Exchanges>,
    pub fresh_keys: FreshKeys,
    pub introspections: Introspections,
    pub logins: Logins,
    pub outbound: Arc<Outbound>,
    pub origins: Vec<String>,
}

impl Issuers {
    pub fn new(deps: IssuerDeps) -> Result<Issuers, OutboundError> {
        let outbound = Arc::new(Outbound::with_silence(introspection::WITHIN)?);
        let credentials = Arc::new(Credentials::new(deps.credentials, outbound.clone()));
        let exchanges = Exchanges::new(outbound.clone(), deps.origins.clone(), credentials.clone());
        Ok(Issuers {
            fresh_keys: FreshKeys::new(deps.control),
            introspections: Introspections::new(outbound.clone(), deps.origins.clone(), credentials.clone()),
            credentials,
            exchanges: Arc::new(exchanges),
            logins: Logins::default(),
            outbound,
            origins: deps.origins,
        })
    }
}
