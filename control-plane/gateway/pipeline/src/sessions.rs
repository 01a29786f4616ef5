//! Legacy MCP sessions: sealed ids that any replica can open, and the state that the owner keeps for them.
//!
//! `Mcp-Session-Id = v1.<K, 16 hex>.<sealed {sid, iat, revision, abilities, gateway}>`, sealed with K, the server and
//! the principal as associated data (ADR 2).
//!
//! Keeps true: a session is used only by the principal and on the server it was created for, and never authenticates
//! the caller; a deleted session stays deleted for the rest of its life; the table is bounded, and an evicted session
//! is rebuilt from its id (I-3); a user's sessions evict only that user's, and an org's only that org's; a client that
//! cannot end a session because its table is full gets an error. If gateways share a directory, a gateway asks it
//! whether an unknown session has ended; without an answer it accepts the session as its id describes it.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::ClientAbilities;
use asp_call::call::event::LogLevel;
use asp_call::call::principal::{owner, principal};
use asp_call::clock::unix_seconds;
use asp_call::quota_table::{Owner, Quota, QuotaTable, Quotas};
use asp_call::seal::{Purpose, SealError, Sealer};
use asp_edge::{Caller, Reason};
use asp_proto::mcp_revision::Revision;
use asp_store::records::OwnerId;
use asp_store::sessions::{OpenSession, SessionEntry};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use uuid::Uuid;

mod message_limit;
pub mod replicas;
pub mod session;

pub use asp_store::bus::BusEvent;
use message_limit::MessageLimit;
pub use message_limit::TooManyMessages;
pub use replicas::{DeliveryError, ReplicaMessage, Replicas};
pub use session::{LegacySession, Profile, SessionOrigin, SessionSubject};

/// Limits of the sessions one replica keeps and of the deleted ids it remembers: in all, of one org, and of one user
/// over all clients.
const BOUNDS: Quotas =
    Quotas { whole: Quota::of(100_000), of_org: Quota::of(25_000), of_user: Quota::of(10_000) };
/// Idle time after which a session is forgotten.
const IDLE: Duration = Duration::from_secs(3600);
/// Maximum lifetime of a session.
const MAX_LIFE: Duration = Duration::from_secs(24 * 3600);

/// A new session, as its client receives it.
pub struct MintedSession {
    /// The `Mcp-Session-Id`.
    pub token: String,
    /// K, the key that Envoy hashes, 16 hex digits.
    pub affinity: String,
}

/// The sessions of one replica.
pub struct Sessions {
    sealer: Arc<Sealer>,
    table: Mutex<SessionTable>,
    messages: MessageLimit,
    /// The other gateways, unless this one is alone.
    replicas: Option<Arc<Replicas>>,
}

struct SessionTable {
    kept: QuotaTable<Arc<LegacySession>>,
    /// Ids of deleted sessions, remembered for the longest lifetime of a session.
    deleted: QuotaTable<()>,
    /// Ids of sessions that an admin of this org ended while they were not kept here, for as long; the newest ones.
    stopped: QuotaTable<String>,
}

/// The plaintext of a session id.
struct SealedSession {
    sid: [u8; 16],
    made: SessionOrigin,
    profile: Profile,
}

impl Sessions {
    pub fn new(sealer: Arc<Sealer>, replicas: Option<Arc<Replicas>>) -> Sessions {
        let table = SessionTable {
            kept: QuotaTable::new(BOUNDS),
            deleted: QuotaTable::new(BOUNDS),
            stopped: QuotaTable::new(BOUNDS),
        };
        Sessions { sealer, table: Mutex::new(table), messages: MessageLimit::default(), replicas }
    }

    pub fn replicas(&self) -> Option<&Replicas> {
        self.replicas.as_deref()
    }

    /// Creates a session. `hint` is the affinity key that the edge chose; without a well-formed one, a random key is
    /// used.
    pub fn create(
        &self,
        hint: Option<&str>,
        server: &str,
        caller: &Caller,
        profile: Profile,
    ) -> Result<MintedSession, SealError> {
        let affinity = match hint.filter(|hint| is_affinity_key(hint)) {
            Some(hint) => hint.to_owned(),
            None => format!("{:016x}", rand::random::<u64>()),
        };
        let sid: [u8; 16] = rand::random();
        let made =
            SessionOrigin { at: unix_seconds(), by: self.replicas.as_ref().map(|replicas| replicas.this) };
        let sealed = SealedSession { sid, made, profile };
        let context = context(&affinity, server, caller);
        let token =
            format!("v1.{affinity}.{}", self.sealer.seal(Purpose::Session, &context, &sealed.encode())?);
        let session = sealed.session().belongs_to(SessionSubject::of(caller, server));
        self.table.lock().kept.replace(sid, owner(caller), Arc::new(session));
        Ok(MintedSession { token, affinity })
    }

    /// Returns the session of a request; unknown, deleted, expired and foreign ones get the same error.
    pub async fn find(
        &self,
        token: &str,
        server: &str,
        caller: &Caller,
    ) -> Result<Arc<LegacySession>, Reason> {
        let sealed = self.open(token, server, caller).ok_or(Reason::SessionUnknown)?;
        if let Some(session) = self.find_local(&sealed.sid)? {
            return Ok(session);
        }
        if self.table.lock().stopped.get(&sealed.sid).is_some_and(|org| *org == caller.org) {
            return Err(Reason::SessionUnknown);
        }
        // The session was created by another replica or evicted from the table.
        let entry = match &self.replicas {
            Some(replicas) => replicas.enter(sealed.sid, remaining_lifetime(sealed.made)).await,
            None => None,
        };
        // A concurrent request of the session may have added it.
        let mut table = self.table.lock();
        let known = match entry {
            Some(SessionEntry::Ended) => {
                table.deleted.add(sealed.sid, owner(caller), ());
                return Err(Reason::SessionUnknown);
            }
            Some(SessionEntry::Open(known)) => known,
            None => OpenSession::default(),
        };
        if table.deleted.contains(&sealed.sid) {
            return Err(Reason::SessionUnknown);
        }
        if let Some(session) = table.kept.touch(&sealed.sid) {
            return Ok(session.clone());
        }
        let session = Arc::new(sealed.session().belongs_to(SessionSubject::of(caller, server)));
        if let Some(level) = known.log_level.and_then(|level| LogLevel::ALL.get(usize::from(level))) {
            session.set_log_level(*level);
        }
        table.kept.replace(sealed.sid, owner(caller), session.clone());
        Ok(session)
    }

    /// Returns a session kept here, without a check of its owner; an error if it has ended.
    fn find_local(&self, sid: &[u8; 16]) -> Result<Option<Arc<LegacySession>>, Reason> {
        let mut table = self.table.lock();
        if table.deleted.contains(sid) {
            return Err(Reason::SessionUnknown);
        }
        Ok(table.kept.touch(sid).cloned())
    }

    /// Returns a session that another gateway refers to, after that gateway has checked its owner.
    pub fn find_unchecked(&self, sid: &[u8; 16]) -> Option<Arc<LegacySession>> {
        self.find_local(sid).ok().flatten()
    }

    /// Sets a session's level of log messages at every gateway.
    pub async fn set_log_level(&self, session: &LegacySession, level: LogLevel) {
        session.set_log_level(level);
        if let (Some(replicas), true) = (&self.replicas, session.is_persistent()) {
            replicas.set_log_level(session.sid(), level, remaining_lifetime(session.origin())).await;
        }
    }

    /// Ends a session and cancels its calls. Refused as rate-limited if the user or org has ended so many that this one
    /// could not be remembered and would become valid again.
    pub async fn delete(&self, token: &str, server: &str, caller: &Caller) -> Result<(), Reason> {
        let session = self.find(token, server, caller).await?;
        let sid = session.sid();
        {
            let mut table = self.table.lock();
            if !table.deleted.add(sid, owner(caller), ()) {
                return Err(Reason::RateLimited);
            }
            table.kept.remove(&sid);
        }
        session.cancel_all();
        if let Some(replicas) = &self.replicas {
            replicas.end(&session, remaining_lifetime(session.origin())).await;
        }
        Ok(())
    }

    /// Charges a user for messages that are not requests; all of them or none.
    pub fn admit_messages(&self, caller: &Caller, messages: usize) -> Result<(), TooManyMessages> {
        self.messages.take(owner(caller), messages)
    }

    /// Returns the id of a request to the session's client, by which any gateway recognizes the answer as requested.
    pub fn request_id(&self, session: &LegacySession, question: &str) -> String {
        format!("{question}.{}", self.sealer.tag(&session.sid(), question))
    }

    /// Whether a gateway created this id for a request to the session's client.
    pub fn is_own_request(&self, session: &LegacySession, request_id: &str) -> bool {
        let Some((question, tag)) = request_id.rsplit_once('.') else { return false };
        self.sealer.has_tag(&session.sid(), question, tag)
    }

    /// Forwards a client's message that concerns nothing here to the other gateways that have its session.
    pub async fn pass_on(
        &self,
        session: &LegacySession,
        message: Box<RawValue>,
    ) -> Result<(), DeliveryError> {
        match &self.replicas {
            Some(replicas) if session.is_persistent() => {
                replicas.pass_on(session, remaining_lifetime(session.origin()), message).await
            }
            _ => Ok(()),
        }
    }

    /// Ends a session here that its client ended at another gateway, and cancels its calls. `None` if it is not here.
    pub fn apply_remote_end(&self, sid: &[u8; 16]) -> Option<Arc<LegacySession>> {
        let session = self.table.lock().kept.remove(sid)?;
        session.cancel_all();
        Some(session)
    }

    /// Returns the sessions that this replica keeps.
    pub fn list_sessions(&self) -> Vec<Arc<LegacySession>> {
        self.table.lock().kept.values().cloned().collect()
    }

    /// Ends a session for an admin of its org, by the id that [`LegacySession::key`] returns, here and at every gateway, and
    /// cancels its calls. `None` if it is not here; then it is refused if its client comes with it.
    pub async fn end_for_admin(&self, id: &str, org: &str) -> Option<Arc<LegacySession>> {
        let sid = Uuid::parse_str(id).ok()?.into_bytes();
        let session = {
            let mut table = self.table.lock();
            let subject = table.kept.get(&sid).and_then(|session| session.subject().cloned());
            let Some(subject) = subject.filter(|subject| subject.org == org) else {
                table.stopped.replace(sid, Owner { user: sid, org: [0; 16] }, org.to_owned());
                return None;
            };
            table.deleted.add(sid, subject.owner, ());
            table.kept.remove(&sid)?
        };
        session.cancel_all();
        if let Some(replicas) = &self.replicas {
            replicas.end(&session, remaining_lifetime(session.origin())).await;
        }
        Some(session)
    }

    /// Returns the number of sessions this replica keeps.
    pub fn len(&self) -> usize {
        self.table.lock().kept.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Forgets idle sessions and old deletions; run periodically.
    pub fn sweep(&self) {
        let mut table = self.table.lock();
        table.kept.forget_idle(IDLE);
        table.deleted.forget_idle(MAX_LIFE);
        table.stopped.forget_idle(MAX_LIFE);
        drop(table);
        self.messages.sweep();
    }

    fn open(&self, token: &str, server: &str, caller: &Caller) -> Option<SealedSession> {
        let (affinity, sealed) = token.strip_prefix("v1.")?.split_once('.')?;
        if !is_affinity_key(affinity) {
            return None;
        }
        let plain = self.sealer.open(Purpose::Session, &context(affinity, server, caller), sealed)?;
        let sealed = SealedSession::decode(&plain)?;
        (unix_seconds() < sealed.made.at.saturating_add(MAX_LIFE.as_secs())).then_some(sealed)
    }
}

impl SealedSession {
    fn session(&self) -> LegacySession {
        LegacySession::persistent(self.sid, self.profile, self.made)
    }

    fn encode(&self) -> Vec<u8> {
        let revision = Revision::SERVED.iter().position(|revision| *revision == self.profile.revision);
        let abilities = self.profile.abilities;
        let mut plain = self.sid.to_vec();
        plain.extend(self.made.at.to_be_bytes());
        plain.push(revision.unwrap_or_default() as u8);
        plain.push(abilities.flags().iter().rev().fold(0, |byte, bit| byte << 1 | u8::from(*bit)));
        plain.extend(self.made.by.iter().flat_map(|gateway| gateway.0));
        plain
    }

    fn decode(plain: &[u8]) -> Option<SealedSession> {
        let (sid, rest) = plain.split_at_checked(16)?;
        let (issued_at, rest) = rest.split_at_checked(8)?;
        let [revision, abilities, gateway @ ..] = rest else { return None };
        // A gateway that is alone writes no gateway into its ids.
        let by = match gateway {
            [] => None,
            gateway => Some(OwnerId(gateway.try_into().ok()?)),
        };
        Some(SealedSession {
            sid: sid.try_into().ok()?,
            made: SessionOrigin { at: u64::from_be_bytes(issued_at.try_into().ok()?), by },
            profile: Profile {
                revision: *Revision::SERVED.get(usize::from(*revision))?,
                abilities: ClientAbilities::of_flags(std::array::from_fn(|bit| abilities >> bit & 1 != 0)),
            },
        })
    }
}

/// Returns the remaining lifetime of a session's id.
fn remaining_lifetime(made: SessionOrigin) -> Duration {
    MAX_LIFE.saturating_sub(Duration::from_secs(unix_seconds().saturating_sub(made.at)))
}

fn context(affinity: &str, server: &str, caller: &Caller) -> Vec<u8> {
    [affinity.as_bytes(), &principal(caller), server.as_bytes()].concat()
}

fn is_affinity_key(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
}

#[cfg(test)]
mod tests;
