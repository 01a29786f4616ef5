//! Tests with a log that becomes unavailable and returns.

use parking_lot::Mutex as Lock;
use tempfile::TempDir;

use super::*;
use crate::audit::MemoryAudit;

const ROOM: u64 = 1 << 20;

/// State of the log behind the file.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    Well,
    Away,
    Silent,
}

struct Behind {
    is: Lock<Is>,
    taken: Lock<Vec<i64>>,
}

impl Behind {
    fn new(is: Is) -> Arc<Behind> {
        Arc::new(Behind { is: Lock::new(is), taken: Lock::default() })
    }

    fn becomes(&self, is: Is) {
        *self.is.lock() = is;
    }

    fn taken(&self) -> Vec<i64> {
        self.taken.lock().clone()
    }
}

#[async_trait]
impl AuditLog for Behind {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        let is = *self.is.lock();
        match is {
            Is::Well => {
                self.taken.lock().extend(events.iter().map(|event| event.at_ms));
                Ok(())
            }
            Is::Away => Err(AuditError("connection refused".into())),
            Is::Silent => std::future::pending().await,
        }
    }

    async fn page(&self, _query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        Ok(Vec::new())
    }
}

fn event(at_ms: i64) -> CallEvent {
    CallEvent { at_ms, org: "acme".into(), event: "x".repeat(1_000) }
}

async fn open(directory: &TempDir, log: &Arc<Behind>, room: u64) -> SpooledAudit {
    let path = directory.path().join("spool.db");
    let mut spool = SpooledAudit::open(log.clone(), &path, room).await.unwrap();
    spool.patience = Duration::from_millis(50);
    spool
}

#[tokio::test]
async fn a_log_that_is_well_gets_events_at_once() {
    let directory = TempDir::new().unwrap();
    let log = Behind::new(Is::Well);
    let spool = open(&directory, &log, ROOM).await;
    spool.append(&[event(1), event(2)]).await.unwrap();
    assert_eq!(log.taken(), [1, 2]);
    assert!(spool.file.is_empty().await.unwrap());
}

#[tokio::test]
async fn what_a_log_does_not_take_waits_and_comes_in_order() {
    for is in [Is::Away, Is::Silent] {
        let directory = TempDir::new().unwrap();
        let log = Behind::new(is);
        let spool = open(&directory, &log, ROOM).await;
        spool.append(&[event(1), event(2)]).await.unwrap();
        assert!(spool.move_waiting().await.is_err());
        log.becomes(Is::Well);
        // Queued behind earlier events, though the log is available again.
        spool.append(&[event(3)]).await.unwrap();
        assert!(log.taken().is_empty());
        assert_eq!(spool.move_waiting().await.unwrap(), 3);
        spool.append(&[event(4)]).await.unwrap();
        assert_eq!(log.taken(), [1, 2, 3, 4]);
        assert!(spool.file.is_empty().await.unwrap());
    }
}

#[tokio::test]
async fn what_waits_outlives_the_process() {
    let directory = TempDir::new().unwrap();
    let log = Behind::new(Is::Away);
    let before = open(&directory, &log, ROOM).await;
    before.append(&[event(1)]).await.unwrap();
    before.file.close().await;
    log.becomes(Is::Well);
    let after = open(&directory, &log, ROOM).await;
    after.append(&[event(2)]).await.unwrap();
    assert!(log.taken().is_empty(), "later events wait behind earlier ones");
    assert_eq!(after.move_waiting().await.unwrap(), 2);
    assert_eq!(log.taken(), [1, 2]);
}

#[tokio::test]
async fn a_full_file_refuses_and_keeps_what_it_has() {
    let directory = TempDir::new().unwrap();
    let log = Behind::new(Is::Away);
    let spool = open(&directory, &log, ROOM).await;
    let mut kept = Vec::new();
    let refused = loop {
        let next = kept.len() as i64;
        let batch: Vec<CallEvent> = (next..next + 100).map(event).collect();
        match spool.append(&batch).await {
            Ok(()) => kept.extend(batch.iter().map(|event| event.at_ms)),
            Err(error) => break error.to_string(),
        }
        assert!(kept.len() < 2_000, "a file of 1 MiB took {} events of 1 KiB", kept.len());
    };
    assert!(refused.contains("spool.db") && refused.contains("full"), "{refused}");
    assert!(kept.len() > 500, "{}", kept.len());
    log.becomes(Is::Well);
    assert_eq!(spool.move_waiting().await.unwrap(), kept.len() as u64);
    assert_eq!(log.taken(), kept);
    spool.append(&[event(-1)]).await.unwrap();
    assert_eq!(log.taken().last(), Some(&-1));
}

#[tokio::test]
async fn an_org_has_a_tenth_of_a_file_that_is_half_full_and_what_ends_is_taken_beyond_it() {
    let directory = TempDir::new().unwrap();
    let log = Behind::new(Is::Away);
    let spool = open(&directory, &log, ROOM).await;
    let few: Vec<CallEvent> = (0..450).map(event).collect();
    spool.append(&few).await.unwrap();
    assert!(spool.has_room("acme"), "nobody else needs it");
    let more: Vec<CallEvent> = (450..600).map(event).collect();
    spool.append(&more).await.unwrap();
    assert!(!spool.has_room("acme"), "600 of 1 KB each in a file of 1 MiB");
    assert!(spool.has_room("globex"));
    spool.append(&[event(600), CallEvent { org: "globex".into(), ..event(601) }]).await.unwrap();
    spool.file.close().await;
    let after = open(&directory, &log, ROOM).await;
    assert!(!after.has_room("acme"), "what an earlier process left counts too");
    assert!(after.has_room("globex"));
    log.becomes(Is::Well);
    assert_eq!(after.move_waiting().await.unwrap(), 602);
    assert!(after.has_room("acme"));
    log.becomes(Is::Away);
    after.append(&[event(602)]).await.unwrap();
    assert!(after.has_room("acme"), "what left the file counts no more");
}

#[tokio::test]
async fn processes_that_share_the_file_bring_each_event_once() {
    let directory = TempDir::new().unwrap();
    let log = Behind::new(Is::Away);
    let one = open(&directory, &log, ROOM).await;
    let other = open(&directory, &log, ROOM).await;
    for at in 0..50 {
        one.append(&[event(2 * at)]).await.unwrap();
        other.append(&[event(2 * at + 1)]).await.unwrap();
    }
    log.becomes(Is::Well);
    let both = tokio::join!(one.move_waiting(), other.move_waiting());
    assert_eq!(
        both.0.unwrap() + both.1.unwrap(),
        100,
        "whoever has the right moves what the other one added too"
    );
    for spool in [&one, &other] {
        spool.move_waiting().await.unwrap();
        assert!(!spool.waiting.load(Ordering::Acquire));
    }
    assert_eq!(log.taken(), (0..100).collect::<Vec<i64>>());
}

#[tokio::test]
async fn what_a_process_that_is_gone_left_in_a_shared_file_is_brought_by_one_that_was_idle() {
    let directory = TempDir::new().unwrap();
    let log = Behind::new(Is::Away);
    let idle = open(&directory, &log, ROOM).await;
    let gone = open(&directory, &log, ROOM).await;
    gone.append(&[event(1)]).await.unwrap();
    drop(gone);
    log.becomes(Is::Well);
    assert_eq!(idle.move_waiting().await.unwrap(), 1);
    assert_eq!(log.taken(), [1]);
    assert_eq!(idle.move_waiting().await.unwrap(), 0);
}

/// A log that this process cannot reach at times, while other gateways write to it.
struct Cut {
    log: MemoryAudit,
    is_away: Lock<bool>,
}

impl Cut {
    fn reach(&self) -> Result<&MemoryAudit, AuditError> {
        if *self.is_away.lock() { Err(AuditError("connection refused".into())) } else { Ok(&self.log) }
    }
}

#[async_trait]
impl AuditLog for Cut {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        self.reach()?.append(events).await
    }

    async fn page(&self, query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        self.reach()?.page(query).await
    }

    async fn search(&self, search: &AuditSearch) -> Result<AuditPage, AuditError> {
        self.reach()?.search(search).await
    }

    async fn return_writer(&self, id: &str, oldest_ms: i64) -> Result<(), AuditError> {
        self.reach()?.return_writer(id, oldest_ms).await
    }

    async fn replace(&self, stored: &StoredEvent, event: &CallEvent) -> Result<bool, AuditError> {
        self.reach()?.replace(stored, event).await
    }
}

#[tokio::test]
async fn an_end_that_waited_takes_the_place_of_the_unknown_of_another_gateway() {
    let of = |at_ms: i64, call: &str, members: &str| CallEvent {
        at_ms,
        org: "acme".into(),
        event: format!(r#"{{"event":"call.finish","call":"{call}",{members},"gateway":"one"}}"#),
    };
    let end =
        |at_ms: i64, call: &str| of(at_ms, call, r#""outcome":"completed","reason":"ok","latencyUs":7"#);
    let directory = tempfile::tempdir().unwrap();
    let log = Arc::new(Cut { log: MemoryAudit::default(), is_away: Lock::new(true) });
    let spool = SpooledAudit::open(log.clone(), &directory.path().join("spool.db"), ROOM).await.unwrap();
    spool.append(&[end(1, "a"), end(2, "b")]).await.unwrap();
    assert!(spool.return_writer("one", 1).await.is_err(), "a journal waits for the file");
    let unknown = of(3, "a", r#""outcome":"unknown","reason":"gateway_lost""#);
    // The second one reached the log, and this process did not learn of it.
    log.log.append(&[unknown, end(2, "b")]).await.unwrap();
    *log.is_away.lock() = false;
    assert_eq!(spool.move_waiting().await.unwrap(), 2);
    assert_eq!(log.log.events(), [end(1, "a"), end(2, "b")]);
    assert!(spool.return_writer("one", 1).await.is_ok());
}
