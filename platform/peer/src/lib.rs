//! How the platform's processes prove themselves to each other beyond one machine: mutual TLS, and a certificate
//! that names what its holder is.
//!
//! Owns: reading certificates and their renewal, the handshake on both sides, the rule which roles are taken.
//! Refuses: a certificate of the same authority that names another trust domain, another role or none. Keeps
//! true: a certificate that was stolen from one kind of process is good for nothing that another kind may do.

mod accept;
mod connect;
mod identity;
mod peer;

pub use accept::incoming;
pub use connect::{ConnectError, connector, endpoint_uri};
pub use identity::{Identity, IdentityError, Role};
pub use peer::{Peer, PeerError, PeerFiles};
pub use tokio_rustls::server::TlsStream;
