//! The record of this run of the gateway in the audit log, by which others write the last events of its calls if it is
//! killed.
//!
//! Keeps true: while calls run whose first event may be in the log, the record is there and renewed every [`RENEW_EVERY`];
//! a gateway without calls writes nothing.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use asp_store::audit::{AuditLog, CallEvent};
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use super::lost::{LOST_AFTER, Phase, read_phase};

/// Interval between two renewals.
const RENEW_EVERY: Duration = Duration::from_secs(5);
/// Maximum time of a renewal: events wait for it.
const RENEW_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of running calls that are followed. Of further ones, those that started before the oldest followed one
/// are not finished by others.
const MAX_FOLLOWED: usize = 100_000;

/// This run of the gateway, as the writer of events.
pub(super) struct Writer {
    id: String,
    /// Time of the first event of each running call, by the call's id.
    running: HashMap<Uuid, i64>,
    /// Time of the last renewal, whether it succeeded or not; `None` while there is no record.
    renewed: Option<Instant>,
    /// Time of the last renewal that succeeded; `None` while there is no record.
    seen: Option<Instant>,
    /// Calls that others may have ended as `unknown`, because the record was out of date while they ran.
    doubtful: HashSet<Uuid>,
}

impl Writer {
    pub(super) fn new() -> Writer {
        Writer {
            id: Uuid::now_v7().to_string(),
            running: HashMap::new(),
            renewed: None,
            seen: None,
            doubtful: HashSet::new(),
        }
    }

    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Follows the calls that these events begin or end.
    pub(super) fn note(&mut self, events: &[CallEvent]) {
        let is_outdated = self.is_outdated();
        for event in events {
            match read_phase(&event.event) {
                Some((Phase::Begun, call)) if self.running.len() < MAX_FOLLOWED => {
                    self.running.insert(call, event.at_ms);
                }
                Some((Phase::Ended, call)) => {
                    if self.running.remove(&call).is_some() && is_outdated {
                        self.doubtful.insert(call);
                    }
                }
                Some((Phase::Begun, _)) | None => {}
            }
        }
    }

    /// Takes out the ends of calls that others may have ended.
    pub(super) fn take_late(&mut self, events: &mut Vec<CallEvent>) -> Vec<CallEvent> {
        if self.doubtful.is_empty() {
            return Vec::new();
        }
        let doubtful = &mut self.doubtful;
        let is_late = |event: &mut CallEvent| match read_phase(&event.event) {
            Some((Phase::Ended, call)) => doubtful.remove(&call),
            Some((Phase::Begun, _)) | None => false,
        };
        events.extract_if(.., is_late).collect()
    }

    /// Whether others may take this gateway for lost.
    fn is_outdated(&self) -> bool {
        self.seen.is_some_and(|seen| seen.elapsed() >= LOST_AFTER)
    }

    /// Time until the record must be renewed or removed; `None` if there is no record.
    pub(super) fn due_in(&self) -> Option<Duration> {
        self.renewed.map(|renewed| RENEW_EVERY.saturating_sub(renewed.elapsed()))
    }

    /// Whether the record is missing although calls run, or is due for its renewal.
    pub(super) fn is_due(&self) -> bool {
        self.due_in().map_or(!self.running.is_empty(), |due| due.is_zero())
    }

    /// Renews the record or, without running calls, removes it. If the log does not answer, it is tried again after
    /// [`RENEW_EVERY`].
    pub(super) async fn renew(&mut self, log: &dyn AuditLog) {
        let oldest = self.running.values().min().copied();
        let done = match oldest {
            Some(oldest) => timeout(RENEW_WITHIN, log.renew_writer(&self.id, oldest)).await,
            None => timeout(RENEW_WITHIN, log.release_writer(&self.id)).await,
        };
        let is_done = matches!(done, Ok(Ok(())));
        if !is_done {
            tracing::debug!("record of this gateway in the audit log could not be renewed");
        }
        self.renewed = (oldest.is_some() || !is_done).then(Instant::now);
        if is_done {
            if self.is_outdated() {
                self.doubtful.extend(self.running.keys());
            }
            self.seen = self.renewed;
        }
    }
}

/// Adds the id of a run of a gateway to an event.
pub(super) fn stamp(id: &str, event: CallEvent) -> CallEvent {
    let Some(open) = event.event.strip_suffix('}').filter(|open| open.len() > 1) else { return event };
    let text = format!("{open},\"gateway\":\"{id}\"}}");
    CallEvent { event: text, ..event }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use asp_store::audit::{AuditError, AuditQuery, StoredEvent};
    use async_trait::async_trait;

    use super::*;

    #[derive(Default)]
    struct CountingLog {
        renewals: AtomicUsize,
        releases: AtomicUsize,
    }

    #[async_trait]
    impl AuditLog for CountingLog {
        async fn append(&self, _events: &[CallEvent]) -> Result<(), AuditError> {
            Ok(())
        }

        async fn page(&self, _query: &AuditQuery) -> Result<Vec<StoredEvent>, AuditError> {
            Ok(Vec::new())
        }

        async fn renew_writer(&self, _id: &str, _oldest_ms: i64) -> Result<(), AuditError> {
            self.renewals.fetch_add(1, Ordering::AcqRel);
            Ok(())
        }

        async fn release_writer(&self, _id: &str) -> Result<(), AuditError> {
            self.releases.fetch_add(1, Ordering::AcqRel);
            Ok(())
        }
    }

    fn event(kind: &str, call: Uuid) -> CallEvent {
        let event = format!(r#"{{"event":"{kind}","call":"{call}"}}"#);
        CallEvent { at_ms: 7, org: "acme".into(), event }
    }

    #[tokio::test(start_paused = true)]
    async fn a_record_is_renewed_while_calls_run_and_removed_when_none_does() {
        let log = Arc::new(CountingLog::default());
        let mut writer = Writer::new();
        assert_eq!(writer.due_in(), None);
        let call = Uuid::now_v7();
        writer.note(&[event("call.start", call)]);
        writer.renew(log.as_ref()).await;
        assert_eq!(writer.due_in(), Some(RENEW_EVERY));
        tokio::time::advance(RENEW_EVERY).await;
        assert_eq!(writer.due_in(), Some(Duration::ZERO));
        writer.note(&[event("call.finish", call)]);
        writer.renew(log.as_ref()).await;
        assert_eq!(writer.due_in(), None, "an idle gateway writes nothing");
        assert_eq!((log.renewals.load(Ordering::Acquire), log.releases.load(Ordering::Acquire)), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_ran_while_the_record_was_out_of_date_may_have_another_end() {
        let log = CountingLog::default();
        let mut writer = Writer::new();
        let [early, ended, running, later] = [1, 2, 3, 4].map(|n| Uuid::from_bytes([n; 16]));
        writer.note(&[early, ended, running].map(|call| event("call.start", call)));
        writer.renew(&log).await;
        let mut ends = vec![event("call.finish", early)];
        writer.note(&ends);
        assert!(writer.take_late(&mut ends).is_empty(), "the record is renewed");
        tokio::time::advance(LOST_AFTER).await;
        let mut ends = vec![event("call.start", later), event("call.finish", ended)];
        writer.note(&ends);
        writer.renew(&log).await;
        assert_eq!(writer.take_late(&mut ends), [event("call.finish", ended)]);
        assert_eq!(ends, [event("call.start", later)]);
        let mut ends = vec![event("call.finish", running)];
        writer.note(&ends);
        assert_eq!(writer.take_late(&mut ends).len(), 1, "also if it ends after the renewal");
        assert!(ends.is_empty() && writer.take_late(&mut vec![event("call.finish", running)]).is_empty());
    }

    #[test]
    fn an_event_names_its_gateway_and_stays_json() {
        let writer = Writer::new();
        let stamped = stamp(writer.id(), event("call.start", Uuid::nil()));
        let value: serde_json::Value = serde_json::from_str(&stamped.event).unwrap();
        assert_eq!(
            (value["gateway"].as_str(), value["event"].as_str()),
            (Some(writer.id()), Some("call.start"))
        );
        for text in ["{}", "no JSON", ""] {
            let event = CallEvent { event: text.into(), ..event("x", Uuid::nil()) };
            assert_eq!(stamp(writer.id(), event.clone()), event, "{text}");
        }
    }
}
