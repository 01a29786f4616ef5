//! Legacy MCP sessions: sealed ids that any replica can open, and what the owner keeps about them.
//!
//! `Mcp-Session-Id = v1.<K, 16 hex>.<sealed {sid, iat, revision, abilities}>`, sealed with K, the server and
//! the principal as associated data (ADR 2). Keeps true: a session is used only by the principal and on
//! the server it was made for, and never proves who the caller is; a deleted one stays deleted for its whole
//! life; the table is bounded, and a session that fell out of it is rebuilt from its id (I-3); one user can push out
//! none but their own, one org none but its own; who has no room left to end a session is told so.

use std::sync::Arc;
use std::time::Duration;

use asp_edge::{Caller, Reason};
use asp_snapshot::mcp_revision::Revision;
use parking_lot::Mutex;

use crate::call::ClientAbilities;
use crate::call::principal::principal;
use crate::clock::unix_seconds;
use crate::digest;
use crate::seal::{Purpose, SealError, Sealer};
use crate::shares::{Bounds, Owner, Share, Shares};

pub mod session;

pub use session::{Profile, Session};

/// Most sessions one replica keeps, and most deleted ids it remembers: of all, of one org, and of one user, whatever
/// their clients are called.
const BOUNDS: Bounds =
    Bounds { whole: Share::of(100_000), of_org: Share::of(25_000), of_user: Share::of(10_000) };
/// A session nobody used for this long is forgotten.
const IDLE: Duration = Duration::from_secs(3600);
/// No session lives longer.
const MAX_LIFE: Duration = Duration::from_secs(24 * 3600);

/// A new session as the client gets it.
pub struct Minted {
    /// The `Mcp-Session-Id`.
    pub token: String,
    /// K: what Envoy hashes, 16 hex digits.
    pub affinity: String,
}

/// The sessions of one replica.
pub struct Sessions {
    sealer: Arc<Sealer>,
    table: Mutex<Table>,
}

struct Table {
    kept: Shares<Arc<Session>>,
    /// Remembered for as long as a session can live.
    deleted: Shares<()>,
}

/// The plaintext of a session id.
struct Sealed {
    sid: [u8; 16],
    issued_at: u64,
    profile: Profile,
}

impl Sessions {
    pub fn new(sealer: Arc<Sealer>) -> Sessions {
        let table = Table { kept: Shares::new(BOUNDS), deleted: Shares::new(BOUNDS) };
        Sessions { sealer, table: Mutex::new(table) }
    }

    /// Makes a session. `hint` is the affinity key the edge chose; without a well-formed one a key is drawn.
    pub fn create(
        &self,
        hint: Option<&str>,
        server: &str,
        caller: &Caller,
        profile: Profile,
    ) -> Result<Minted, SealError> {
        let affinity = match hint.filter(|hint| is_affinity_key(hint)) {
            Some(hint) => hint.to_owned(),
            None => format!("{:016x}", rand::random::<u64>()),
        };
        let sid: [u8; 16] = rand::random();
        let sealed = Sealed { sid, issued_at: unix_seconds(), profile };
        let context = context(&affinity, server, caller);
        let token =
            format!("v1.{affinity}.{}", self.sealer.seal(Purpose::Session, &context, &sealed.encode())?);
        self.table.lock().kept.replace(sid, owner(caller), Arc::new(Session::kept(sid, profile)));
        Ok(Minted { token, affinity })
    }

    /// The session a request names; unknown, deleted, expired and foreign ones are indistinguishable.
    pub fn find(&self, token: &str, server: &str, caller: &Caller) -> Result<Arc<Session>, Reason> {
        let sealed = self.open(token, server, caller).ok_or(Reason::SessionUnknown)?;
        let mut table = self.table.lock();
        if table.deleted.contains(&sealed.sid) {
            return Err(Reason::SessionUnknown);
        }
        if let Some(session) = table.kept.touch(&sealed.sid) {
            return Ok(session.clone());
        }
        // Made by another replica, or fallen out of the table.
        let session = Arc::new(Session::kept(sealed.sid, sealed.profile));
        table.kept.replace(sealed.sid, owner(caller), session.clone());
        Ok(session)
    }

    /// Ends a session and cancels what runs in it. Refused as limited where its user or org has ended so many that this
    /// one could not be remembered, and would come back to life.
    pub fn delete(&self, token: &str, server: &str, caller: &Caller) -> Result<(), Reason> {
        let session = self.find(token, server, caller)?;
        let mut table = self.table.lock();
        let sid = session.sid();
        if !table.deleted.add(sid, owner(caller), ()) {
            return Err(Reason::RateLimited);
        }
        table.kept.remove(&sid);
        session.cancel_all();
        Ok(())
    }

    /// How many sessions this replica keeps.
    pub fn len(&self) -> usize {
        self.table.lock().kept.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets idle sessions and old deletions; run from time to time.
    pub fn sweep(&self) {
        let mut table = self.table.lock();
        table.kept.forget_idle(IDLE);
        table.deleted.forget_idle(MAX_LIFE);
    }

    fn open(&self, token: &str, server: &str, caller: &Caller) -> Option<Sealed> {
        let (affinity, sealed) = token.strip_prefix("v1.")?.split_once('.')?;
        if !is_affinity_key(affinity) {
            return None;
        }
        let plain = self.sealer.open(Purpose::Session, &context(affinity, server, caller), sealed)?;
        let sealed = Sealed::decode(&plain)?;
        (unix_seconds() < sealed.issued_at.saturating_add(MAX_LIFE.as_secs())).then_some(sealed)
    }
}

impl Sealed {
    fn encode(&self) -> Vec<u8> {
        let revision = Revision::ALL.iter().position(|revision| *revision == self.profile.revision);
        let abilities = self.profile.abilities;
        let mut plain = self.sid.to_vec();
        plain.extend(self.issued_at.to_be_bytes());
        plain.push(revision.unwrap_or_default() as u8);
        plain.push(abilities.flags().iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit)));
        plain
    }

    fn decode(plain: &[u8]) -> Option<Sealed> {
        let (sid, rest) = plain.split_at_checked(16)?;
        let (issued_at, rest) = rest.split_at_checked(8)?;
        let [revision, abilities] = rest else { return None };
        Some(Sealed {
            sid: sid.try_into().ok()?,
            issued_at: u64::from_be_bytes(issued_at.try_into().ok()?),
            profile: Profile {
                revision: *Revision::ALL.get(usize::from(*revision))?,
                abilities: ClientAbilities::of_flags(std::array::from_fn(|bit| abilities >> bit & 1 != 0)),
            },
        })
    }
}

/// Whose share of the tables a session takes: the client is left out, because a user can register any number of them.
fn owner(caller: &Caller) -> Owner {
    Owner {
        user: digest::shortened(&[&caller.issuer, &caller.org, &caller.user]),
        org: digest::shortened(&[&caller.org]),
    }
}

fn context(affinity: &str, server: &str, caller: &Caller) -> Vec<u8> {
    [affinity.as_bytes(), &principal(caller), server.as_bytes()].concat()
}

fn is_affinity_key(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests;
