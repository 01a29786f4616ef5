//! Authentication between the platform's processes across machines: mutual TLS, with certificates that name their
//! holder's role.
//!
//! Owns: reading certificates and their renewal, revocation, the handshake on both sides, the rule for accepted roles;
//! on one machine, the accounts that need no certificate; also the server certificate for people, who have none
//! themselves, and the proof of possession of a certificate's key. Refuses: a certificate of the same authority that
//! names another trust domain, another role or none. Keeps true: a certificate stolen from one kind of process grants
//! nothing that only another kind may do.

mod accept;
mod accounts;
mod connect;
mod files;
mod identity;
mod open;
mod peer;
mod possession;
mod revoked;
mod server_certificate;

pub use accept::{incoming, incoming_from_anybody, paced, pause_after_failed_accept};
pub use accounts::Accounts;
pub use connect::{ConnectError, connector, endpoint_uri};
pub use files::PeerError;
pub use identity::{Identity, IdentityError, Role};
pub use open::RevocableStream;
pub use peer::{Peer, PeerFiles};
pub use possession::{PROOF_LEEWAY, SentCertificate, sign, statement};
pub use server_certificate::ServerCertificate;
pub use tokio_rustls::server::TlsStream;
