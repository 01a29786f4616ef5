//! The shape of every write: its turn, the revision, the precondition, the change, the audit.
//!
//! Keeps true of the queue: turns are given in order of arrival, so that no write of a queue waits much longer than the
//! others; revocations go before other writes; a write that waits too long, or finds too many ahead of it, fails as busy.
//! A write cancelled while waiting takes no turn.
//!
//! Keeps true: a write of a resource sees the result of the previous one; revisions become visible in order; a dropped
//! write has changed nothing, and a committed one is audited in the same transaction (I-5, I-6).
//! Most writes take the revision in their first statement, and with it the lock of all writes. A write of an org's
//! policy, which may be long and is frequent, takes it at the end if several machines write
//! ([`ControlStore::write_of_org`]); until then it holds only the lock of its resource. No write of this version that
//! takes the revision first touches such a resource or its rows, so the two locks are never taken in the opposite
//! order. A control plane of the previous version does, without the lock of the resource: therefore the resource is read
//! again once the revision is taken, and a write aborted by a deadlock is retried ([`ControlStore::policy_write`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use asp_platform::redact::redact_text;
use parking_lot::Mutex;
use sqlx::Any;
use sqlx::any::AnyArguments;
use sqlx::query::Query;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::{ControlStore, Tx, resource_revision, rows};
use crate::control::{Change, Commit, ListChange, Precondition, Result, StoreError};

/// Locks the resource until the transaction ends.
const LOCK_RESOURCE: &str =
    "SELECT CAST(1 AS BIGINT) AS taken FROM pg_advisory_xact_lock(hashtextextended($1, 0))";
const TAKE_NUMBER: &str =
    "UPDATE control_revision SET revision = revision + 1, stamp = $1 WHERE id = 1 RETURNING revision";
const AUDIT: &str = "INSERT INTO audit (revision, at, actor, action, resource, org, detail, stamp, undo) \
     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)";
/// [`Write::stamp`] for existence $10 and the audit, if the resource still has revision $11 (0: absent). One statement,
/// because others wait for it and for the commit.
const FINISH: &str = "WITH unmoved AS ( \
         SELECT 1 AS yes WHERE COALESCE((SELECT revision FROM resources WHERE name = $5), 0) = $11 \
     ), gone AS ( \
         DELETE FROM resources WHERE name = $5 AND $10 = 0 AND EXISTS (SELECT 1 FROM unmoved) \
     ), stamped AS ( \
         INSERT INTO resources (name, revision) SELECT $5, $1 FROM unmoved WHERE $10 = 1 \
         ON CONFLICT (name) DO UPDATE SET revision = excluded.revision \
     ) \
     INSERT INTO audit (revision, at, actor, action, resource, org, detail, stamp, undo) \
     SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9 FROM unmoved RETURNING revision";

impl ControlStore {
    /// Starts a write on `resource`: takes the revision, then checks the precondition.
    pub(super) async fn write<'c>(&self, change: &'c Change, resource: String) -> Result<Write<'c>> {
        self.write_as(Rank::Other, change, resource).await
    }

    /// Starts a write of the given rank.
    pub(super) async fn write_as<'c>(
        &self,
        rank: Rank,
        change: &'c Change,
        resource: String,
    ) -> Result<Write<'c>> {
        let mut write = self.begin(rank, change, resource).await?;
        write.take_revision().await?;
        write.checked().await
    }

    /// Starts a write on a part of one org's policy. It depends on that resource only, so that writes of other
    /// resources need not wait for it. Except on a file, [`Write::revision`] is 0 until the end.
    pub(super) async fn write_of_org<'c>(
        &self,
        change: &'c Change,
        part: &str,
        org: &str,
    ) -> Result<Write<'c>> {
        let resource = format!("{part}/{org}");
        if self.timeouts.is_none() {
            // Only one write runs on a file at a time.
            return Ok(Write { org: org.to_owned(), ..self.write(change, resource).await? });
        }
        let mut write = self.begin(Rank::Other, change, resource).await?;
        write.org = org.to_owned();
        write.exists = Some(true);
        // A separate statement, so that the next one sees what was committed while this one waited.
        query!(LOCK_RESOURCE, &write.resource).fetch_one(&mut *write.tx).await?;
        write.checked().await
    }

    async fn begin<'c>(&self, rank: Rank, change: &'c Change, resource: String) -> Result<Write<'c>> {
        let (queue, pool) = match rank {
            Rank::Revocation => (&self.revokers, &self.revoking),
            Rank::Other => (&self.writers, &self.pool),
        };
        // A waiting write has no connection.
        let turn = queue.turn(rank).await?;
        let tx = pool.begin_with(self.writing).await?;
        let stamp = format!("{:032x}", rand::random::<u128>());
        Ok(Write {
            tx,
            revision: 0,
            stamp,
            exists: None,
            current: None,
            resource,
            change,
            org: String::new(),
            undo: String::new(),
            _turn: turn,
        })
    }
}

/// A write in progress. Dropping it without [`Write::commit`] changes nothing.
pub(super) struct Write<'c> {
    pub(super) tx: Tx,
    /// Revision made by this write.
    pub(super) revision: u64,
    /// See [`crate::control::Position::stamp`].
    stamp: String,
    /// Whether the resource exists after a write that takes its revision last; `None` for other writes.
    exists: Option<bool>,
    /// Revision of the resource before the write.
    pub(super) current: Option<u64>,
    pub(super) resource: String,
    pub(super) change: &'c Change,
    /// Org of the audit row.
    pub(super) org: String,
    /// See [`ListChange::to_store`].
    undo: String,
    /// Dropped after the transaction.
    _turn: WriteTurn,
}

impl<'c> Write<'c> {
    /// Reads the resource's revision and checks the precondition.
    async fn checked(mut self) -> Result<Write<'c>> {
        self.current = resource_revision(&mut self.tx, &self.resource).await?;
        let holds = match self.change.precondition {
            Precondition::None => true,
            Precondition::At(expected) => self.current == Some(expected),
            Precondition::Exists => self.current.is_some(),
            Precondition::Absent => self.current.is_none(),
        };
        if holds { Ok(self) } else { Err(StoreError::Conflict { current: self.current }) }
    }

    async fn take_revision(&mut self) -> Result<()> {
        let row = query!(TAKE_NUMBER, &self.stamp).fetch_one(&mut *self.tx).await?;
        self.revision = rows::get(&row, "revision")?;
        Ok(())
    }

    /// Keeps what the write removes and stores, for its undo.
    pub(super) fn keep(&mut self, change: &ListChange) {
        self.undo = change.to_store();
    }

    /// Ends a write that has nothing to change.
    pub(super) async fn unchanged(self) -> Result<Commit> {
        self.tx.rollback().await?;
        Ok(Commit { revision: self.current.unwrap_or(0), changed: false })
    }

    /// Fails if a record that the write was evaluated against has changed. `written_since` finds writes after a
    /// revision; deleted records only free capacity, so they do not conflict.
    pub(super) async fn unmoved(&mut self, written_since: &'static str) -> Result<()> {
        let Some(based_on) = self.change.based_on else { return Ok(()) };
        let moved = query!(written_since, rows::signed(based_on)?).fetch_optional(&mut *self.tx).await?;
        if moved.is_some() { Err(StoreError::Stale) } else { Ok(()) }
    }

    /// Records the resource's new revision, or its absence.
    pub(super) async fn stamp(&mut self, exists: bool) -> Result<()> {
        if let Some(last) = &mut self.exists {
            *last = exists;
            return Ok(());
        }
        let recorded = if exists {
            let put = "INSERT INTO resources (name, revision) VALUES ($1, $2) \
                 ON CONFLICT (name) DO UPDATE SET revision = excluded.revision";
            query!(put, &self.resource, rows::signed(self.revision)?)
        } else {
            query!("DELETE FROM resources WHERE name = $1", &self.resource)
        };
        recorded.execute(&mut *self.tx).await?;
        Ok(())
    }

    /// Audits and commits.
    pub(super) async fn commit(mut self, action: &str, detail: &str) -> Result<Commit> {
        if let Some(exists) = self.exists {
            return self.finish(exists, action, detail).await;
        }
        self.audit(AUDIT, action, detail)?.execute(&mut *self.tx).await?;
        self.tx.commit().await?;
        Ok(Commit { revision: self.revision, changed: true })
    }

    /// Returns a statement with the values of the audit row as its first nine parameters. Its text has no secrets.
    fn audit(
        &self,
        statement: &'static str,
        action: &str,
        detail: &str,
    ) -> Result<Query<'static, Any, AnyArguments>> {
        let revision = rows::signed(self.revision)?;
        let at = rows::signed(self.change.at)?;
        let actor = &self.change.actor;
        let undone = self.change.undoes.map(|undone| format!("undoes {undone}: ")).unwrap_or_default();
        let detail = format!("{undone}{}", redact_text(detail));
        let Write { resource, org, stamp, undo, .. } = self;
        Ok(query!(statement, revision, at, actor, action, resource, org, detail, stamp, undo))
    }

    /// Takes the revision, checks that the resource is unchanged since it was read, records its revision, audits and
    /// commits.
    async fn finish(mut self, exists: bool, action: &str, detail: &str) -> Result<Commit> {
        self.take_revision().await?;
        // A separate statement, so that it sees what was committed while this one waited for the revision.
        let finish = self.audit(FINISH, action, detail)?.bind(i64::from(exists));
        let finish = finish.bind(rows::signed(self.current.unwrap_or(0))?);
        if finish.fetch_optional(&mut *self.tx).await?.is_none() {
            return Err(self.conflict_error().await?);
        }
        self.tx.commit().await?;
        Ok(Commit { revision: self.revision, changed: true })
    }

    /// Returns the error of a write whose resource was written without its lock since it was read.
    async fn conflict_error(&mut self) -> Result<StoreError> {
        if matches!(self.change.precondition, Precondition::None) {
            let error = format!("{} was written at the same time; try again", self.resource);
            return Ok(StoreError::Busy(error));
        }
        Ok(StoreError::Conflict { current: resource_revision(&mut self.tx, &self.resource).await? })
    }
}

/// Timeout for a turn. Thirty writes of as much as an org may store complete within it.
const LONGEST: Duration = Duration::from_secs(20);
/// Maximum number of waiting writes of a rank: each holds its content in memory.
const MAX_WAITING: usize = 256;
/// Maximum number of consecutive turns of revocations while other writes wait; then one of those has its turn.
const IN_A_ROW: u32 = 8;

/// Priority of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rank {
    Revocation,
    Other,
}

pub(super) struct WriteQueue {
    state: Mutex<State>,
}

struct State {
    /// Free turns; while there are any, no write waits.
    free: usize,
    revocations: VecDeque<oneshot::Sender<WriteTurn>>,
    others: VecDeque<oneshot::Sender<WriteTurn>>,
    /// Turns given to revocations since the last one of another write.
    in_a_row: u32,
}

/// A turn that lasts until it is dropped.
pub(super) struct WriteTurn {
    /// `None`: the receiver was gone.
    queue: Option<Arc<WriteQueue>>,
}

impl WriteQueue {
    /// Creates a queue with the given number of concurrent turns.
    pub(super) fn new(turns: usize) -> Arc<WriteQueue> {
        let state = State { free: turns, revocations: VecDeque::new(), others: VecDeque::new(), in_a_row: 0 };
        Arc::new(WriteQueue { state: Mutex::new(state) })
    }

    /// Waits for a turn; fails with [`StoreError::Busy`] after the timeout.
    pub(super) async fn turn(self: &Arc<Self>, rank: Rank) -> Result<WriteTurn> {
        let comes = {
            let mut state = self.state.lock();
            if state.free > 0 {
                state.free -= 1;
                return Ok(WriteTurn { queue: Some(Arc::clone(self)) });
            }
            let waiting = state.of(rank);
            // Cancelled writes do not count.
            waiting.retain(|sender| !sender.is_closed());
            if waiting.len() >= MAX_WAITING {
                return Err(StoreError::Busy(format!("{MAX_WAITING} writes wait for their turn")));
            }
            let (sender, comes) = oneshot::channel();
            waiting.push_back(sender);
            comes
        };
        match timeout(LONGEST, comes).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(StoreError::Busy(format!("no turn to write within {} s", LONGEST.as_secs()))),
        }
    }

    /// Passes a finished turn to the next write that still waits.
    fn pass_on(self: &Arc<Self>) {
        loop {
            let mut state = self.state.lock();
            let Some(next) = state.next() else {
                state.free += 1;
                return;
            };
            drop(state);
            let Err(mut turn) = next.send(WriteTurn { queue: Some(Arc::clone(self)) }) else { return };
            // The write was cancelled.
            turn.queue = None;
        }
    }
}

impl State {
    fn of(&mut self, rank: Rank) -> &mut VecDeque<oneshot::Sender<WriteTurn>> {
        match rank {
            Rank::Revocation => &mut self.revocations,
            Rank::Other => &mut self.others,
        }
    }

    fn next(&mut self) -> Option<oneshot::Sender<WriteTurn>> {
        let has_had_enough = self.in_a_row >= IN_A_ROW && !self.others.is_empty();
        if self.revocations.is_empty() || has_had_enough {
            self.in_a_row = 0;
            return self.others.pop_front();
        }
        self.in_a_row += 1;
        self.revocations.pop_front()
    }
}

impl Drop for WriteTurn {
    fn drop(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.pass_on();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl WriteQueue {
        /// Returns the number of waiting writes.
        pub(in crate::control::sql) fn waiting(&self) -> usize {
            let state = self.state.lock();
            state.revocations.iter().chain(&state.others).filter(|sender| !sender.is_closed()).count()
        }
    }

    /// Waiting writes in order of arrival; each records its name when it has its turn.
    struct Asking {
        queue: Arc<WriteQueue>,
        order: Arc<Mutex<Vec<String>>>,
        tasks: Vec<tokio::task::JoinHandle<()>>,
    }

    impl Asking {
        fn of(queue: &Arc<WriteQueue>) -> Asking {
            Asking { queue: Arc::clone(queue), order: Arc::default(), tasks: Vec::new() }
        }

        /// Requests a turn, and returns once the request is queued.
        async fn ask(&mut self, rank: Rank, name: &str) {
            let before = self.queue.waiting();
            let (queue, order, name) = (Arc::clone(&self.queue), Arc::clone(&self.order), name.to_owned());
            self.tasks.push(tokio::spawn(async move {
                let _turn = queue.turn(rank).await.unwrap();
                order.lock().push(name);
            }));
            while self.queue.waiting() == before {
                tokio::task::yield_now().await;
            }
        }

        async fn done(self) -> Vec<String> {
            for task in self.tasks {
                task.await.unwrap();
            }
            std::mem::take(&mut self.order.lock())
        }
    }

    #[tokio::test]
    async fn revocations_come_first_and_each_kind_in_its_order() {
        let queue = WriteQueue::new(1);
        let held = queue.turn(Rank::Other).await.unwrap();
        let mut asking = Asking::of(&queue);
        for (rank, name) in [
            (Rank::Other, "a"),
            (Rank::Other, "b"),
            (Rank::Revocation, "first"),
            (Rank::Other, "c"),
            (Rank::Revocation, "second"),
        ] {
            asking.ask(rank, name).await;
        }
        drop(held);
        assert_eq!(asking.done().await, ["first", "second", "a", "b", "c"]);
        drop(queue.turn(Rank::Other).await.unwrap());
    }

    #[tokio::test]
    async fn many_revocations_let_another_write_in() {
        let queue = WriteQueue::new(1);
        let held = queue.turn(Rank::Other).await.unwrap();
        let mut asking = Asking::of(&queue);
        asking.ask(Rank::Other, "other").await;
        for _ in 0..IN_A_ROW * 2 {
            asking.ask(Rank::Revocation, "revocation").await;
        }
        drop(held);
        let order = asking.done().await;
        assert_eq!(order.iter().position(|name| name == "other"), Some(IN_A_ROW as usize));
    }

    #[tokio::test]
    async fn a_write_that_was_given_up_takes_no_turn() {
        let queue = WriteQueue::new(1);
        let held = queue.turn(Rank::Other).await.unwrap();
        let mut asking = Asking::of(&queue);
        asking.ask(Rank::Other, "gone").await;
        asking.ask(Rank::Other, "stays").await;
        let gone = asking.tasks.remove(0);
        gone.abort();
        assert!(gone.await.unwrap_err().is_cancelled());
        drop(held);
        assert_eq!(asking.done().await, ["stays"]);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_or_behind_too_many_is_told_that_the_store_is_busy() {
        let queue = WriteQueue::new(1);
        let held = queue.turn(Rank::Other).await.unwrap();
        assert!(matches!(queue.turn(Rank::Other).await, Err(StoreError::Busy(_))), "nobody ends it");
        let mut asking = Asking::of(&queue);
        // Each has its full timeout, so none waits for the clock here.
        for _ in 0..MAX_WAITING {
            asking.ask(Rank::Other, "other").await;
        }
        assert!(matches!(queue.turn(Rank::Other).await, Err(StoreError::Busy(_))));
        asking.ask(Rank::Revocation, "revocation").await;
        drop(held);
        let order = asking.done().await;
        assert_eq!((order.len(), order[0].as_str()), (MAX_WAITING + 1, "revocation"));
    }

    #[tokio::test]
    async fn as_many_write_at_a_time_as_there_are_turns() {
        let queue = WriteQueue::new(2);
        let first = queue.turn(Rank::Other).await.unwrap();
        let second = queue.turn(Rank::Revocation).await.unwrap();
        let mut asking = Asking::of(&queue);
        asking.ask(Rank::Other, "third").await;
        assert_eq!(queue.waiting(), 1);
        drop((first, second));
        assert_eq!(asking.done().await, ["third"]);
    }
}
