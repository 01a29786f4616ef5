//! Budgets and permits of logins, whose endpoints anybody may ask.
//!
//! Keeps true: a peer that asks without end is refused by itself, whichever registered client it names, and a client of
//! a peer without the peer's others; an issuer that is slow holds up its own logins only.

use std::sync::Arc;

use asp_edge::Budget;
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use super::permits::Permits;
use crate::clock::unix_ms;
use crate::digest::{self, PeerKey};

/// Exchanges of codes and refresh tokens at one issuer at a time.
const AT_ONCE: usize = 32;

pub(crate) struct Logins {
    /// All requests of a peer.
    peers: Budget,
    /// Requests for tokens, which reach the issuer: of a peer.
    tokens: Budget,
    /// The same of one registered client at one peer: the id of a public client is no secret, and whoever names it
    /// elsewhere takes nothing from it here.
    clients: Budget,
    turns: Mutex<Permits>,
}

impl Default for Logins {
    fn default() -> Logins {
        Logins {
            peers: Budget::new(50, 500),
            tokens: Budget::new(10, 100),
            clients: Budget::new(5, 50),
            turns: Mutex::new(Permits::new(AT_ONCE)),
        }
    }
}

impl Logins {
    /// Takes one request of a peer; the error is the number of seconds to wait.
    pub(crate) fn charge(&self, peer: &PeerKey) -> Result<(), u64> {
        self.peers.take(peer, unix_ms())
    }

    /// Takes one request for a token.
    pub(crate) fn charge_token(&self, peer: &PeerKey, client_id: &str) -> Result<(), u64> {
        self.tokens.take(peer, unix_ms())?;
        let client = digest::shortened(&[client_id.as_bytes(), peer]);
        self.clients.take(&client, unix_ms())
    }

    /// Permits to ask the issuer of this name.
    pub(crate) fn turns(&self, issuer: &str) -> Arc<Semaphore> {
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
    fn a_peer_and_a_client_of_it_have_budgets_of_their_own() {
        let logins = Logins::default();
        let refused = |peer: u8, client: &str| logins.charge_token(&[peer; 16], client).is_err();
        assert!((0..80).any(|_| refused(1, "a")), "a client without end");
        assert!(!refused(1, "b"), "the peer's other client");
        assert!(!refused(2, "a"), "the same client at another peer");
        assert!((0..200).any(|turn| refused(3, &format!("c{turn}"))), "a peer with many clients");
    }
}
