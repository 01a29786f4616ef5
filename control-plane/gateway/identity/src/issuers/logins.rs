//! Budgets of peers for public documents and logins, and permits of logins, for endpoints that are open to anyone.
//!
//! Keeps true: a peer that exceeds its budget is refused alone, whichever registered client it names, and one client of
//! a peer does not exhaust the budget of the peer's others; a slow issuer delays only its own logins, and a peer
//! waiting for it leaves permits to others.

use std::sync::Arc;

use asp_call::clock::unix_ms;
use asp_call::digest::{self, PeerKey};
use asp_edge::Budget;
use asp_platform::quota::{Counts, QuotaPermit};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::permits::Permits;

/// Maximum number of concurrent exchanges of codes and refresh tokens at one issuer.
const AT_ONCE: usize = 32;
/// Maximum number of these for one peer, running or waiting for a permit: half, so that others get one.
const OF_PEER: usize = AT_ONCE / 2;

/// Key of a peer at an issuer.
type PeerAtIssuer = [u8; 16];

pub struct Logins {
    /// Budget of all requests of a peer to the login endpoints.
    peers: Budget,
    /// Budget of a peer's public documents: a client reads up to four before it logs in, and a whole company may be one
    /// peer.
    documents: Budget,
    /// Budget of a peer's token requests, which reach the issuer.
    tokens: Budget,
    /// Budget of token requests for one registered client at one peer. The id of a public client is not secret, and
    /// requests with it from elsewhere are charged there.
    clients: Budget,
    turns: Mutex<Permits>,
    /// Numbers of running exchanges.
    begun: Arc<Mutex<Counts<PeerAtIssuer>>>,
}

/// One exchange of a peer at an issuer, until this is dropped.
pub(crate) type LoginExchange = QuotaPermit<PeerAtIssuer>;

impl Default for Logins {
    fn default() -> Logins {
        Logins {
            peers: Budget::new(50, 500),
            documents: Budget::new(100, 1_000),
            tokens: Budget::new(10, 100),
            clients: Budget::new(5, 50),
            turns: Mutex::new(Permits::new(AT_ONCE)),
            begun: Arc::default(),
        }
    }
}

impl Logins {
    /// Charges a peer for one request; the error is the number of seconds to wait.
    pub fn charge(&self, peer: &PeerKey) -> Result<(), u64> {
        self.peers.take(peer, unix_ms())
    }

    /// Charges a peer for one public document; the error is the number of seconds to wait.
    pub fn charge_document(&self, peer: &PeerKey) -> Result<(), u64> {
        self.documents.take(peer, unix_ms())
    }

    /// Charges a peer and a client for one token request; the error is the number of seconds to wait.
    pub fn charge_token(&self, peer: &PeerKey, client_id: &str) -> Result<(), u64> {
        self.tokens.take(peer, unix_ms())?;
        let client = digest::shortened(&[client_id.as_bytes(), peer]);
        self.clients.take(client, unix_ms())
    }

    /// Begins an exchange of a peer at the issuer of this name; `None` if the peer is at its limit.
    pub fn begin(&self, peer: &PeerKey, issuer: &str) -> Option<LoginExchange> {
        let peer_at_issuer = digest::shortened(&[issuer.as_bytes(), peer]);
        QuotaPermit::take(&self.begun, peer_at_issuer, OF_PEER)
    }

    /// Returns the permits of the issuer of this name.
    pub fn turns(&self, issuer: &str) -> Arc<Semaphore> {
        self.turns.lock().of(issuer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_issuer_holds_up_its_own_logins_only() {
        let logins = Logins::default();
        let slow = logins.turns("slow");
        let _held: Vec<_> = (0..AT_ONCE).map(|_| slow.try_acquire().unwrap()).collect();
        assert!(logins.turns("slow").try_acquire().is_err());
        assert!(logins.turns("other").try_acquire().is_ok());
    }

    #[test]
    fn a_peer_leaves_half_of_an_issuers_permits_to_others() {
        let logins = Logins::default();
        let held: Vec<_> = (0..OF_PEER).map(|_| logins.begin(&[1; 16], "slow").unwrap()).collect();
        assert!(logins.begin(&[1; 16], "slow").is_none());
        assert!(logins.begin(&[1; 16], "other").is_some(), "another issuer");
        assert!(logins.begin(&[2; 16], "slow").is_some(), "another peer");
        drop(held);
        assert!(logins.begun.lock().is_empty());
    }

    #[test]
    fn a_peer_and_a_client_of_it_have_budgets_of_their_own() {
        let logins = Logins::default();
        let refused = |peer: u8, client: &str| logins.charge_token(&[peer; 16], client).is_err();
        assert!((0..80).any(|_| refused(1, "a")), "a client without end");
        assert!(!refused(1, "b"), "the peer's other client");
        assert!(!refused(2, "a"), "the same client at another peer");
        assert!((0..200).any(|turn| refused(3, &format!("c{turn}"))), "a peer with many clients");
    }
}
