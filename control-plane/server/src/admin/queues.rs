//! Queues for the requests of each org: those of an org's admins run one at a time.
//!
//! Keeps true: an org that sends continuously has one request at the store or the compiler, and a bounded number in its
//! queue; further ones are refused at once, with the time to retry. Policy, revocations and reads queue separately, so
//! that none waits for another. The rate of an org's writes is limited, too, because each write reaches every gateway
//! and every Envoy. The team of a server has the same limits. Admins of the platform write without a queue: their
//! writes are few and have priority.

use std::collections::HashMap;
use std::sync::Arc;

use asp_edge::Budget;
use asp_issuers::admin_role::Scope;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::auth::Admin;
use super::off_thread;
use super::problem::{Code, Problem, Result};

/// Maximum number of requests in a queue of one org, including the running one.
pub const MAX_OF_ORG: usize = 16;
/// Maximum number of reads of all orgs, teams and installers together: each holds a body of up to [`super::MAX_BODY`].
/// The platform has [`MAX_OF_ORG`] of its own.
pub const MAX_READS: usize = 64;
/// Number of reads of all orgs from which on an org may have only [`FEW_READS`], so that a few orgs do not use up
/// the capacity of all.
const MANY_READS: usize = MAX_READS / 2;
const FEW_READS: usize = 2;

/// Rate limit for policy writes of one org's admins, and for writes of one server's team. Revocations have ten times
/// the rate.
#[derive(Clone, Copy, Debug)]
pub struct WriteRate {
    /// Maximum burst of writes.
    pub burst: u32,
    /// Writes per second after that; 0 for no limit.
    pub per_second: u32,
}

impl Default for WriteRate {
    fn default() -> WriteRate {
        WriteRate { burst: 30, per_second: 1 }
    }
}

/// Kind of a request; each has its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Topic {
    Policy,
    Revocations,
    /// Reads that compile: validate, compile, explain, an org's primitives.
    Reads,
}

type Key = (Topic, Scope);

/// The queues of all orgs.
pub struct OrgQueues {
    /// Queues with running or waiting requests; one is removed with its last request.
    queues: Mutex<HashMap<Key, Queue>>,
    /// Budgets of each org, and of each server's team, for writes of the two topics.
    policy: (WriteRate, Budget),
    revocations: (WriteRate, Budget),
    /// Start of the time that the budgets count.
    started: Instant,
    /// Threads that run reads.
    answering: Arc<Semaphore>,
}

struct Queue {
    one: Arc<Semaphore>,
    present: usize,
}

/// The right to run a queued request; the next one runs when this is dropped.
pub struct QueuePermit {
    entry: QueueEntry,
    _one: OwnedSemaphorePermit,
    _answering: Option<OwnedSemaphorePermit>,
}

impl QueuePermit {
    /// Adds a thread for the read, once one is free.
    pub async fn with_thread(mut self) -> Result<QueuePermit> {
        self._answering = Some(permit(&self.entry.queues.answering).await?);
        Ok(self)
    }

    /// Runs work that takes milliseconds (compiling, decoding) off the threads that serve requests. The permit is held
    /// until the work is done: a caller that disconnects cannot start a second one in the meantime.
    pub async fn work<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
        off_thread(move || {
            let done = work();
            drop(self);
            done
        })
        .await
    }
}

/// Completes a write even if its caller disconnects, and holds its permit as long. A write is therefore never
/// interrupted between its evaluation and the store.
pub async fn write<T: Send + 'static>(
    permit: Option<QueuePermit>,
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T> {
    let ended = tokio::spawn(async move {
        let _permit = permit;
        work.await
    });
    ended.await.map_err(|error| {
        tracing::error!(
            %error,
            "a write was aborted and its request got an internal error; a panic is logged above, report it"
        );
        Problem::new(Code::Internal, "")
    })
}

struct QueueEntry {
    queues: Arc<OrgQueues>,
    key: Key,
}

impl OrgQueues {
    pub fn new() -> Arc<OrgQueues> {
        OrgQueues::with_write_rate(WriteRate::default())
    }

    /// Creates queues with another rate of writes.
    pub fn with_write_rate(rate: WriteRate) -> Arc<OrgQueues> {
        // The other half is left for publishing and serving.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let answering = Arc::new(Semaphore::new((cores / 2).max(1)));
        let of_revocations = WriteRate { burst: rate.burst * 10, per_second: rate.per_second * 10 };
        let [policy, revocations] =
            [rate, of_revocations].map(|rate| (rate, Budget::new(rate.per_second, rate.burst)));
        Arc::new(OrgQueues {
            queues: Mutex::default(),
            policy,
            revocations,
            started: Instant::now(),
            answering,
        })
    }

    /// Waits in the write queue of an admin's org or of a server's team; `None` for admins of the platform, who do not
    /// queue.
    pub async fn to_write(self: &Arc<Self>, topic: Topic, admin: &Admin) -> Result<Option<QueuePermit>> {
        let who = match (admin.role.server(), admin.role.org()) {
            (Some(_), _) => "server's team",
            (None, Some(_)) => "org",
            (None, None) => return Ok(None),
        };
        self.spend(topic, who, admin.role.scope())?;
        self.take(topic, admin.role.scope()).await.map(Some)
    }

    /// Draws a write from the rate limit of an org or of a server's team.
    fn spend(&self, topic: Topic, who: &str, scope: &Scope) -> Result<()> {
        let of_topic = if topic == Topic::Revocations { &self.revocations } else { &self.policy };
        let (WriteRate { burst, per_second }, budget) = of_topic;
        if *per_second == 0 {
            return Ok(());
        }
        let now_ms = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        budget.take(scope, now_ms).map_err(|wait| {
            Problem::too_many(
                format!(
                    "the {who} writes too often: at most {burst} writes at once, then {per_second} a second"
                ),
                wait,
            )
        })
    }

    /// Waits in the read queue of an admin's org, team or installers, or of the platform, and for a thread.
    pub async fn enter_read_queue(self: &Arc<Self>, admin: &Admin) -> Result<QueuePermit> {
        self.to_read(admin).await?.with_thread().await
    }

    /// Waits in the read queue without taking a thread, for requests that read the store first; [`QueuePermit::with_thread`]
    /// waits for the thread.
    pub async fn to_read(self: &Arc<Self>, admin: &Admin) -> Result<QueuePermit> {
        self.take(Topic::Reads, admin.role.scope()).await
    }

    async fn take(self: &Arc<Self>, topic: Topic, scope: &Scope) -> Result<QueuePermit> {
        let (entry, one) = self.enter((topic, scope.clone()))?;
        Ok(QueuePermit { _one: permit(&one).await?, entry, _answering: None })
    }

    fn enter(self: &Arc<Self>, key: Key) -> Result<(QueueEntry, Arc<Semaphore>)> {
        let mut queues = self.queues.lock();
        let is_of_orgs = |(topic, scope): &Key| *topic == Topic::Reads && *scope != Scope::Platform;
        let of_orgs = queues.iter().filter(|(key, _)| is_of_orgs(key)).map(|(_, queue)| queue.present);
        let reads: usize = if is_of_orgs(&key) { of_orgs.sum() } else { 0 };
        if reads >= MAX_READS {
            return Err(Problem::new(
                Code::Overloaded,
                format!("{MAX_READS} reads are queued already: send it again after a moment"),
            ));
        }
        let own_bound = if reads >= MANY_READS { FEW_READS } else { MAX_OF_ORG };
        let queue = queues
            .entry(key.clone())
            .or_insert_with(|| Queue { one: Arc::new(Semaphore::new(1)), present: 0 });
        if queue.present >= own_bound {
            return Err(Problem::new(
                Code::TooManyRequests,
                format!("{own_bound} requests of this kind are queued already: send fewer at a time"),
            ));
        }
        queue.present += 1;
        let one = Arc::clone(&queue.one);
        Ok((QueueEntry { queues: Arc::clone(self), key }, one))
    }
}

async fn permit(of: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit> {
    // The semaphore is never closed.
    Arc::clone(of).acquire_owned().await.map_err(|_| Problem::new(Code::Internal, ""))
}

impl Drop for QueueEntry {
    fn drop(&mut self) {
        let mut queues = self.queues.queues.lock();
        if let Some(queue) = queues.get_mut(&self.key) {
            queue.present -= 1;
            if queue.present == 0 {
                queues.remove(&self.key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use asp_issuers::admin_role::AdminRole;
    use futures::FutureExt;

    use super::*;

    fn admin(role: &str) -> Admin {
        Admin::test("ops", AdminRole::parse(role).unwrap())
    }

    /// Invariant I-4.
    #[tokio::test]
    async fn an_org_has_one_turn_at_a_time_and_a_bounded_number_that_wait() {
        let queues = OrgQueues::new();
        let acme = admin("org:acme");
        let first = queues.to_write(Topic::Policy, &acme).await.unwrap();
        let mut waiting: Vec<_> =
            (1..MAX_OF_ORG).map(|_| Box::pin(queues.to_write(Topic::Policy, &acme))).collect();
        for one in &mut waiting {
            assert!(futures::poll!(one).is_pending());
        }
        let refused = queues.to_write(Topic::Policy, &acme).await.err().unwrap();
        assert_eq!(refused.code(), Code::TooManyRequests);
        assert!(queues.to_write(Topic::Revocations, &acme).await.is_ok(), "another topic");
        assert!(queues.to_write(Topic::Policy, &admin("org:other")).await.is_ok(), "another org");
        assert!(queues.to_write(Topic::Policy, &admin("platform")).await.unwrap().is_none());
        drop(first);
        assert!(futures::poll!(&mut waiting[0]).is_ready(), "in the order in which they came");
        drop(waiting);
        assert!(queues.queues.lock().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn an_org_writes_so_often_and_takes_nothing_from_others() {
        let queues = OrgQueues::with_write_rate(WriteRate { burst: 2, per_second: 1 });
        let acme = admin("org:acme");
        let write = async |topic, admin: &Admin| queues.to_write(topic, admin).await.map(drop);
        for _ in 0..2 {
            write(Topic::Policy, &acme).await.ok().unwrap();
        }
        let refused = write(Topic::Policy, &acme).await.err().unwrap();
        assert_eq!(refused.code(), Code::TooManyRequests);
        for _ in 0..20 {
            write(Topic::Revocations, &acme).await.ok().unwrap();
        }
        assert!(write(Topic::Revocations, &acme).await.is_err());
        assert!(write(Topic::Policy, &admin("org:other")).await.is_ok());
        for _ in 0..100 {
            write(Topic::Policy, &admin("platform")).await.ok().unwrap();
        }
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert!(write(Topic::Policy, &acme).await.is_ok());
        assert!(write(Topic::Policy, &acme).await.is_err());
        let unbounded = OrgQueues::with_write_rate(WriteRate { burst: 1, per_second: 0 });
        for _ in 0..100 {
            unbounded.to_write(Topic::Policy, &acme).await.map(drop).ok().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_team_of_a_server_writes_so_often_too() {
        let queues = OrgQueues::with_write_rate(WriteRate { burst: 2, per_second: 1 });
        let write = async |role: &str| queues.to_write(Topic::Policy, &admin(role)).await.map(drop);
        for _ in 0..2 {
            write("server:pay").await.ok().unwrap();
        }
        let refused = write("server:pay").await.err().unwrap();
        assert_eq!(refused.code(), Code::TooManyRequests);
        for other in ["server:shop", "org:pay"] {
            assert!(write(other).await.is_ok(), "{other}");
        }
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
        assert!(write("server:pay").await.is_ok());
    }

    #[tokio::test]
    async fn reads_of_many_orgs_are_bounded_together() {
        let queues = OrgQueues::new();
        let mut asked = Vec::new();
        for number in 0..MAX_READS {
            let admin = admin(&format!("org:o{number}"));
            let queues = Arc::clone(&queues);
            let mut asking = Box::pin(async move { queues.enter_read_queue(&admin).await });
            asked.push((futures::poll!(&mut asking), asking));
        }
        let answered = asked.iter().filter(|(polled, _)| polled.is_ready()).count();
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(answered, (cores / 2).max(1), "half of the machine answers");
        let refused = queues.enter_read_queue(&admin("org:late")).await.err().unwrap();
        assert_eq!(refused.code(), Code::Overloaded);
        let platform = queues.enter_read_queue(&admin("platform")).now_or_never();
        assert!(!matches!(platform, Some(Err(_))), "it waits at most");
        drop((asked, platform));
        assert!(queues.enter_read_queue(&admin("org:late")).await.is_ok());
    }

    #[tokio::test]
    async fn a_read_of_the_store_takes_no_thread_from_others() {
        let queues = OrgQueues::new();
        let mut reading = Vec::new();
        for number in 0..MAX_READS - 2 {
            reading.push(queues.to_read(&admin(&format!("org:o{number}"))).await.unwrap());
        }
        let late = admin("org:late");
        let answered = queues.enter_read_queue(&late).now_or_never();
        assert!(matches!(answered, Some(Ok(_))), "all threads are free");
        drop(answered);
        let first = admin("org:o0");
        let mut second = Box::pin(queues.to_read(&first));
        assert!(futures::poll!(&mut second).is_pending(), "one read of an org at a time");
        let answering = reading.remove(0).with_thread().await.unwrap();
        assert!(futures::poll!(&mut second).is_pending());
        drop(answering);
        assert!(futures::poll!(&mut second).is_ready());
    }

    #[tokio::test]
    async fn reads_of_a_few_orgs_leave_some_to_others() {
        let queues = OrgQueues::new();
        let mut asked = Vec::new();
        let mut asks = |org: usize| {
            let (queues, admin) = (Arc::clone(&queues), admin(&format!("org:o{org}")));
            let mut asking = Box::pin(async move { queues.enter_read_queue(&admin).await });
            let polled = asking.as_mut().now_or_never();
            if matches!(polled, Some(Err(_))) {
                return false;
            }
            asked.push((polled, asking));
            true
        };
        let taken: Vec<usize> = (0..5).map(|org| (0..MAX_OF_ORG).filter(|_| asks(org)).count()).collect();
        assert_eq!(taken, [MAX_OF_ORG, MAX_OF_ORG, FEW_READS, FEW_READS, FEW_READS]);
    }

    #[tokio::test]
    async fn reads_of_installers_take_no_place_of_the_platform() {
        let queues = OrgQueues::new();
        let installer = admin("installer");
        let first = queues.enter_read_queue(&installer).await.unwrap();
        let mut waiting: Vec<_> =
            (1..MAX_OF_ORG).map(|_| Box::pin(queues.enter_read_queue(&installer))).collect();
        for one in &mut waiting {
            assert!(futures::poll!(one).is_pending());
        }
        assert!(queues.enter_read_queue(&installer).await.is_err());
        assert!(
            !matches!(queues.enter_read_queue(&admin("platform")).now_or_never(), Some(Err(_))),
            "it waits at most"
        );
        drop((first, waiting));
    }

    #[tokio::test]
    async fn a_caller_who_goes_away_keeps_the_turn_until_the_work_is_done() {
        let queues = OrgQueues::new();
        let acme = admin("org:acme");
        let permit = queues.enter_read_queue(&acme).await.unwrap();
        let (release, released) = std::sync::mpsc::channel::<()>();
        let mut working = Box::pin(permit.work(move || released.recv()));
        assert!(futures::poll!(&mut working).is_pending());
        drop(working);
        let mut next = Box::pin(queues.enter_read_queue(&acme));
        assert!(futures::poll!(&mut next).is_pending(), "the work goes on");
        release.send(()).unwrap();
        assert!(next.await.is_ok());
    }
}
