//! What a gateway asks issuers, and the control plane about them: keys that are newer than its snapshot, and who an
//! opaque token belongs to.
//!
//! Refuses: keys of its own, which come in snapshots (I-5). Keeps true: nobody is believed because nobody could be asked.

pub mod credentials;
pub mod fresh_keys;
pub mod introspection;

use std::sync::Arc;

use asp_outbound::{Outbound, OutboundError};

use tokio::sync::Semaphore;

use credentials::Credentials;
use fresh_keys::{AskControl, FreshKeys};
use introspection::Introspections;

/// Exchanges of codes and refresh tokens at a time.
const EXCHANGES: usize = 32;

/// What a gateway is started with.
#[derive(Default)]
pub struct IssuerDeps {
    /// `None`: nobody has newer keys than the snapshot.
    pub control: Option<Arc<dyn AskControl>>,
    /// By which a gateway proves itself to services.
    pub credentials: Credentials,
    /// Origins of issuers that may be plain http or private.
    pub origins: Vec<String>,
}

/// Both, for one gateway.
pub struct Issuers {
    pub(crate) fresh_keys: FreshKeys,
    pub(crate) introspections: Introspections,
    /// Who asks an issuer for tokens of clients.
    pub(crate) exchanges: Semaphore,
    pub(crate) outbound: Arc<Outbound>,
    pub(crate) origins: Vec<String>,
}

impl Issuers {
    pub fn new(deps: IssuerDeps) -> Result<Issuers, OutboundError> {
        let outbound = Arc::new(Outbound::with_silence(introspection::WITHIN)?);
        Ok(Issuers {
            fresh_keys: FreshKeys::new(deps.control),
            introspections: Introspections::new(outbound.clone(), deps.origins.clone(), deps.credentials),
            exchanges: Semaphore::new(EXCHANGES),
            outbound,
            origins: deps.origins,
        })
    }
}
