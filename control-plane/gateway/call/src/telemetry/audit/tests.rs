//! The queue in front of an audit log that does not accept events.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;

use asp_store::audit::{AuditError, AuditQuery, StoredEvent};
use async_trait::async_trait;

use super::*;

/// A log that rejects events, or never answers, until it is repaired.
#[derive(Default)]
struct Broken {
    hangs: bool,
    required: bool,
    /// Org for which it has no capacity.
    is_full_for: &'static str,
    repaired: AtomicBool,
    journals: Option<PathBuf>,
    appends: AtomicUsize,
    taken: AtomicUsize,
}

#[async_trait]
impl AuditLog for Broken {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        self.appends.fetch_add(1, Ordering::AcqRel);
        if self.repaired.load(Ordering::Acquire) {
            self.taken.fetch_add(events.len(), Ordering::AcqRel);
            return Ok(());
        }
        if self.hangs {
            std::future::pending::<()>().await;
        }
        Err(AuditError("the disk is full".into()))
    }

    async fn page(&self, _query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        Ok(Vec::new())
    }

    fn is_required(&self) -> bool {
        self.required
    }

    fn has_room(&self, org: &str) -> bool {
        org != self.is_full_for
    }

    fn journals(&self) -> Option<&Path> {
        self.journals.as_deref()
    }
}

fn event() -> CallEvent {
    CallEvent { at_ms: 0, org: "acme".into(), event: "{}".into() }
}

/// Returns a full queue in front of a writer that holds a batch of its own.
async fn full(log: &Arc<Broken>) -> (Audit, Counter) {
    let lost = Counter::default();
    let audit = Audit::new(log.clone(), lost.clone());
    while log.appends.load(Ordering::Acquire) == 0 {
        audit.offer(event());
        tokio::time::sleep(GATHER).await;
    }
    while audit.offer(event()).is_none() {}
    (audit, lost)
}

#[tokio::test(start_paused = true)]
async fn a_log_that_hangs_delays_an_event_by_the_patience_and_counts_its_loss() {
    let log = Arc::new(Broken { hangs: true, ..Broken::default() });
    let (audit, lost) = full(&log).await;
    let before = Instant::now();
    assert_eq!(audit.record(event()).await, Err(RecordingError));
    assert_eq!(before.elapsed(), PATIENCE);
    tokio::time::sleep(SLOW).await;
    let before = Instant::now();
    assert_eq!(audit.record(event()).await, Err(RecordingError));
    assert_eq!(before.elapsed(), Duration::ZERO, "an outage is known: nobody waits for it");
    audit.record_now(event());
    assert_eq!(lost.get(), 3);
    let before = Instant::now();
    audit.flush().await;
    assert_eq!(before.elapsed(), LAST_EVENTS, "a shutdown does not wait for ever");
}

#[tokio::test(start_paused = true)]
async fn a_log_that_recovers_gets_everything_that_was_queued() {
    let log = Arc::new(Broken::default());
    let (audit, lost) = full(&log).await;
    assert_eq!(audit.record(event()).await, Err(RecordingError));
    log.repaired.store(true, Ordering::Release);
    tokio::time::sleep(RETRY_AFTER).await;
    audit.flush().await;
    assert_eq!(audit.record(event()).await, Ok(()));
    audit.flush().await;
    assert!(log.taken.load(Ordering::Acquire) > QUEUE);
    assert_eq!(lost.get(), 1);
}

#[tokio::test]
async fn an_org_without_room_begins_nothing_and_what_it_began_is_recorded() {
    let log = Arc::new(Broken {
        required: true,
        is_full_for: "acme",
        repaired: AtomicBool::new(true),
        ..Broken::default()
    });
    let lost = Counter::default();
    let audit = Audit::new(log.clone(), lost.clone());
    assert_eq!(audit.record(event()).await, Err(RecordingError));
    assert_eq!(lost.get(), 1);
    assert_eq!(audit.record(CallEvent { org: "globex".into(), ..event() }).await, Ok(()));
    assert_eq!(audit.record_end(event()).await, Ok(()));
    audit.flush().await;
    assert_eq!(log.taken.load(Ordering::Acquire), 2);
}

#[tokio::test]
async fn what_only_reads_may_be_missed_unless_the_log_is_required() {
    for required in [false, true] {
        let log = Arc::new(Broken { required, ..Broken::default() });
        let audit = Audit::new(log, Counter::default());
        assert_eq!(audit.may_miss(false), !required, "a read");
        assert!(!audit.may_miss(true), "what may have effects");
    }
}

#[tokio::test(start_paused = true)]
async fn what_a_required_log_refuses_is_not_kept_in_memory() {
    let log = Arc::new(Broken { required: true, ..Broken::default() });
    let audit = Audit::new(log.clone(), Counter::default());
    assert_eq!(audit.record(event()).await, Ok(()), "nobody knows yet");
    while log.appends.load(Ordering::Acquire) == 0 {
        tokio::time::sleep(GATHER).await;
    }
    tokio::time::sleep(GATHER).await;
    assert_eq!(audit.record(event()).await, Err(RecordingError), "though the queue is all but empty");
    log.repaired.store(true, Ordering::Release);
    tokio::time::sleep(2 * RETRY_AFTER).await;
    assert_eq!(audit.record(event()).await, Ok(()));
    audit.flush().await;
    assert_eq!(log.taken.load(Ordering::Acquire), 2);
}

#[test]
fn an_event_has_no_secret_and_a_clean_one_keeps_its_text() {
    let clean =
        CallEvent { event: r#"{"event":"call.start","request":"token-1", "n":1.50}"#.into(), ..event() };
    assert_eq!(redact_event(clean.clone()), clean);
    let text = r#"{"event":"call.start","request":"api_key=abc","rule":"sk-proj-Abc123Def456Ghi789"}"#;
    let expected = r#"{"event":"call.start","request":"api_key=***","rule":"***"}"#;
    let named = CallEvent { event: text.into(), ..event() };
    assert_eq!(redact_event(named), CallEvent { event: expected.into(), ..event() });
}

/// A log that keeps what it gets.
#[derive(Default)]
struct MemoryLog(std::sync::Mutex<Vec<CallEvent>>);

#[async_trait]
impl AuditLog for MemoryLog {
    async fn append(&self, events: &[CallEvent]) -> Result<(), AuditError> {
        self.0.lock().unwrap().extend_from_slice(events);
        Ok(())
    }

    async fn page(&self, _query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
        Ok(Vec::new())
    }
}

#[tokio::test(start_paused = true)]
async fn no_secret_reaches_the_log() {
    let log = Arc::new(MemoryLog::default());
    let audit = Audit::new(log.clone(), Counter::default());
    let sent = CallEvent { event: r#"{"request":"Authorization: Bearer abc"}"#.into(), ..event() };
    audit.record(sent).await.unwrap();
    audit.flush().await;
    let kept = log.0.lock().unwrap();
    assert_eq!(kept.len(), 1);
    let text = &kept[0].event;
    assert!(text.starts_with(r#"{"request":"Authorization: Bearer ***","gateway":""#), "{text}");
}

/// Returns the text of all files of a directory.
fn texts(directory: &Path) -> String {
    let entries = std::fs::read_dir(directory).into_iter().flatten();
    entries.map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap()).collect()
}

#[tokio::test]
async fn an_event_is_in_a_file_without_secrets_from_its_acknowledgement_until_the_log_has_it() {
    let directory = std::env::temp_dir().join(format!("asp-journal-{}", uuid::Uuid::now_v7()));
    let log = Arc::new(Broken { journals: Some(directory.clone()), ..Broken::default() });
    let audit = Audit::new(log.clone(), Counter::default());
    let begun =
        CallEvent { event: r#"{"event":"call.start","request":"api_key=hidden-word"}"#.into(), ..event() };
    audit.record(begun).await.unwrap();
    let text = texts(&directory);
    assert!(text.contains("call.start") && text.contains("api_key=***"), "{text}");
    assert!(text.contains(&audit.id) && !text.contains("hidden-word"), "{text}");
    audit.record_now(CallEvent { event: r#"{"event":"call.finish"}"#.into(), ..event() });
    assert!(texts(&directory).contains("call.finish"), "where nothing waits, too");
    log.repaired.store(true, Ordering::Release);
    audit.flush().await;
    assert_eq!((texts(&directory).as_str(), log.taken.load(Ordering::Acquire)), ("", 2));
    std::fs::remove_dir_all(&directory).unwrap();
}
