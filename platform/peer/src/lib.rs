//! How the platform's processes prove themselves to each other beyond one machine: mutual TLS, and a certificate
//! that names what its holder is.
//!
//! Owns: reading certificates and their renewal, what is revoked, the handshake on both sides, the rule which roles
//! are taken; on one machine, which accounts need no certificate; also the certificate that is shown to people, who have none, and the proof that somebody holds a certificate's
//! key.
//! Refuses: a certificate of the same authority that names another trust domain, another role or none. Keeps
//! true: a certificate that was stolen from one kind of process is good for nothing that another kind may do.

mod accept;
mod accounts;
mod connect;
mod files;
mod identity;
mod open;
mod peer;
mod possession;
mod revoked;
mod shown;

pub use accept::{incoming, incoming_from_anybody};
pub use accounts::Accounts;
pub use connect::{ConnectError, connector, endpoint_uri};
pub use files::PeerError;
pub use identity::{Identity, IdentityError, Role};
pub use open::Watched;
pub use peer::{Peer, PeerFiles};
pub use possession::{PROOF_LEEWAY, SentCertificate, sign, statement};
pub use shown::Shown;
pub use tokio_rustls::server::TlsStream;
