//! The events that a killed process left in its journal, brought to the log: each once, whichever of them the log has.
//!
//! Owns the comparison with the log, also for events that waited in a file ([`LateEvents`]). Refuses: files of runs that have
//! only just ended, because the database may still be writing their last batch. Keeps true: a call has one last event. One
//! that a journal brings replaces the `unknown` that another gateway wrote meanwhile, because it is what the client saw;
//! beside any other end it is dropped, and so is the late end of a call that another gateway has taken over. A file is removed
//! after its events are in the log, and finds them there if it is read again.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use super::journal::{FormerFile, FormerFiles, Journal, former_files};
use super::search::{AuditPage, AuditSearch, EventPosition, MemberFilter, SearchOrder};
use super::{AuditError, AuditLog, CallEvent, StoredEvent};

/// Interval between two looks at the directory. A file is read at the second one that finds it, so that a statement that was
/// under way when its process was killed has ended.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Maximum time for one file.
const LONGEST: Duration = Duration::from_secs(60);
/// Number of events that are compared and appended at once: little enough that the record of the gateway, renewed before
/// them, is not out of date after them.
const AT_A_TIME: usize = 100;
/// Time in which nobody ends the calls of a gateway whose record was renewed, with a margin.
const UP_TO_DATE: Duration = Duration::from_secs(5);
/// Clocks of gateways differ by less than this.
const CLOCKS: i64 = 60_000;
/// Number of events in a page.
const PAGE: u32 = 1_000;

/// Numbers of a journal's events, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReplayCounts {
    /// Events that the log lacked.
    pub appended: usize,
    /// Ends that took the place of an `unknown`.
    pub replaced: usize,
    /// Ends of calls that another gateway has ended.
    pub dropped: usize,
}

/// Brings the events of former runs to the log whenever there are some; ends with the journal.
pub async fn keep_replaying(log: Arc<dyn AuditLog>, journal: Weak<Journal>) {
    let mut seen: HashSet<PathBuf> = HashSet::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let Some(journal) = journal.upgrade() else { return };
        let Some(former) = look(journal.directory()).await else { continue };
        journal.set_former_bytes(former.bytes);
        drop(journal);
        for path in former.paths.iter().filter(|path| seen.contains(*path)) {
            if let Err(error) = replay_file(log.as_ref(), path).await {
                tracing::debug!(%error, file = %path.display(), "events of a process that has ended still wait for the audit log");
            }
        }
        seen = former.paths.into_iter().collect();
    }
}

async fn look(directory: &Path) -> Option<FormerFiles> {
    let directory = directory.to_owned();
    match spawn_blocking(move || former_files(&directory)).await {
        Ok(Ok(former)) => Some(former),
        Ok(Err(error)) => {
            tracing::debug!(%error, "the directory of the audit's journals could not be read");
            None
        }
        Err(_) => None,
    }
}

/// Brings the events of one file to the log, and removes the file.
async fn replay_file(log: &dyn AuditLog, path: &Path) -> Result<(), AuditError> {
    let reading = path.to_owned();
    let read = spawn_blocking(move || FormerFile::read(&reading)).await;
    let read = read.map_err(|error| AuditError(error.to_string()))?;
    let Some(file) = read.map_err(|error| AuditError(error.to_string()))? else { return Ok(()) };
    let replaying = timeout(LONGEST, replay(log, &file.id, &file.events)).await;
    let replayed = replaying.map_err(|_| AuditError("no answer in time".to_owned()))??;
    if replayed != ReplayCounts::default() || file.broken > 0 {
        let ReplayCounts { appended, replaced, dropped } = replayed;
        tracing::info!(appended, replaced, dropped, unreadable = file.broken, file = %path.display(), "events of calls that were not in the audit log when their process ended are there now");
    }
    file.remove().map_err(|error| AuditError(error.to_string()))
}

/// Appends those of a gateway's events that the log lacks. The gateway must have ended; if this is cut off, it can be
/// repeated.
pub async fn replay(
    log: &dyn AuditLog,
    gateway: &str,
    events: &[CallEvent],
) -> Result<ReplayCounts, AuditError> {
    let Some(first) = events.iter().map(|event| event.at_ms).min() else {
        return Ok(ReplayCounts::default());
    };
    let lacking = lacking(log, gateway, events).await?;
    let mut replayed = ReplayCounts::default();
    for some in lacking.chunks(AT_A_TIME) {
        // From here on nobody else ends the gateway's calls, neither one that has already read which of them are open.
        log.return_writer(gateway, first).await?;
        let mut append = Vec::with_capacity(some.len());
        for event in some {
            match end_of(log, event, begun_ms(event)).await? {
                None => append.push((*event).clone()),
                Some(end) if !is_unknown(&end.event.event) => replayed.dropped += 1,
                Some(end) => {
                    if !log.replace(&end, event).await? {
                        return Err(AuditError("another process has changed the same event".to_owned()));
                    }
                    replayed.replaced += 1;
                }
            }
        }
        if !append.is_empty() {
            log.append(&append).await?;
            replayed.appended += append.len();
        }
    }
    Ok(replayed)
}

/// Returns the events that the log lacks, of equal ones as many as it lacks. Reads the log around the events alone: where a clock
/// was set, they may be years apart.
async fn lacking<'e>(
    log: &dyn AuditLog,
    gateway: &str,
    events: &'e [CallEvent],
) -> Result<Vec<&'e CallEvent>, AuditError> {
    let mut by_time: Vec<(usize, &CallEvent)> = events.iter().enumerate().collect();
    by_time.sort_by_key(|(_, event)| event.at_ms);
    let is_near = |one: &(usize, &CallEvent), next: &(usize, &CallEvent)| {
        next.1.at_ms.saturating_sub(one.1.at_ms) < CLOCKS
    };
    let near: Vec<&[(usize, &CallEvent)]> = by_time.chunk_by(is_near).collect();
    let mut lacking = Vec::new();
    for some in near {
        let (Some((_, first)), Some((_, last))) = (some.first(), some.last()) else { continue };
        let mut known = stored_events(log, gateway, (first.at_ms, last.at_ms)).await?;
        lacking.extend(some.iter().copied().filter(|(_, event)| !take(&mut known, event)));
    }
    lacking.sort_by_key(|(place, _)| *place);
    Ok(lacking.into_iter().map(|(_, event)| event).collect())
}

/// Returns the events of a gateway that the log has of these times, each with its number.
async fn stored_events(
    log: &dyn AuditLog,
    gateway: &str,
    (first, last): (i64, i64),
) -> Result<HashMap<CallEvent, usize>, AuditError> {
    let mut known: HashMap<CallEvent, usize> = HashMap::new();
    let mut after: Option<EventPosition> = None;
    loop {
        let search = AuditSearch {
            from_ms: Some(first),
            to_ms: Some(last.saturating_add(1)),
            members: vec![MemberFilter::is("gateway", gateway)],
            order: SearchOrder::Oldest,
            after,
            limit: PAGE,
            ..AuditSearch::default()
        };
        let AuditPage { events, next } = log.search(&search).await?;
        for stored in events {
            *known.entry(stored.event).or_default() += 1;
        }
        after = next;
        if after.is_none() {
            return Ok(known);
        }
    }
}

/// Takes an event out of those that are known; false if it is not there.
fn take(known: &mut HashMap<CallEvent, usize>, event: &CallEvent) -> bool {
    match known.get_mut(event) {
        Some(count) if *count > 0 => {
            *count -= 1;
            true
        }
        Some(_) | None => false,
    }
}

/// Puts the ends among late events in the place of the `unknown` that others wrote, and returns the events that are to be
/// appended: those that the log has are left out, and so are ends of calls that another gateway has taken over.
pub async fn settle(log: &dyn AuditLog, events: Vec<CallEvent>) -> Result<Vec<CallEvent>, AuditError> {
    LateEvents::default().settle(log, events).await
}

/// The state of a log for events that come to it late, in several batches, while other gateways could write there.
#[derive(Default)]
pub(crate) struct LateEvents {
    has_begun: bool,
    /// The `unknown` ends that others wrote of each gateway's calls, and the calls that they took over.
    unknown: HashMap<String, UnknownEnds>,
}

struct UnknownEnds {
    /// Last event of each call, by the call's id.
    ends: HashMap<String, StoredEvent>,
    /// Ids of calls that others have taken over.
    continued: HashSet<String>,
    /// Lower bound of the times of their calls' starts.
    from_ms: i64,
    read: Instant,
}

impl LateEvents {
    /// Replaces and filters one batch as [`settle`] does. Only of the first batch those that the log has are left out: an
    /// earlier attempt may have appended them without learning of it.
    pub(crate) async fn settle(
        &mut self,
        log: &dyn AuditLog,
        mut events: Vec<CallEvent>,
    ) -> Result<Vec<CallEvent>, AuditError> {
        if !self.has_begun {
            for (gateway, times) in times_by_gateway(&events) {
                let mut known = stored_events(log, &gateway, times).await?;
                events.retain(|event| !take(&mut known, event));
            }
            self.has_begun = true;
        }
        let begun_ms = events.iter().filter(|event| ended_call(&event.event).is_some()).map(begun_ms).min();
        let from_ms = begun_ms.unwrap_or(i64::MAX);
        let mut append = Vec::with_capacity(events.len());
        for event in events {
            let (unknown, is_continued) = match ended_call(&event.event) {
                Some((gateway, call)) => {
                    let others = self.unknown_of(log, gateway, from_ms).await?;
                    (others.ends.remove(call), others.continued.contains(call))
                }
                None => (None, false),
            };
            let is_replaced = match unknown {
                Some(unknown) => log.replace(&unknown, &event).await?,
                None => false,
            };
            // The gateway that took the call over ends it.
            if !is_replaced && !is_continued {
                append.push(event);
            }
        }
        Ok(append)
    }

    /// Returns the `unknown` ends of a gateway's calls, and which of them others took over; from then on nobody adds an end
    /// before they are read again.
    async fn unknown_of(
        &mut self,
        log: &dyn AuditLog,
        gateway: &str,
        from_ms: i64,
    ) -> Result<&mut UnknownEnds, AuditError> {
        let former = self.unknown.get(gateway);
        let is_enough =
            |former: &UnknownEnds| former.read.elapsed() < UP_TO_DATE && former.from_ms <= from_ms;
        if !former.is_some_and(is_enough) {
            let from_ms = former.map_or(from_ms, |former| former.from_ms.min(from_ms));
            let read = unknown_ends(log, gateway, from_ms).await?;
            self.unknown.insert(gateway.to_owned(), read);
        }
        let missing = || AuditError("the ends of a gateway's calls are not there".to_owned());
        self.unknown.get_mut(gateway).ok_or_else(missing)
    }
}

/// Returns the time at which the call of a last event began.
fn begun_ms(event: &CallEvent) -> i64 {
    let digits = event.event.split_once("\"latencyUs\":").map_or("", |(_, rest)| rest);
    let end = digits.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(digits.len());
    let latency_us: i64 = digits.get(..end).and_then(|digits| digits.parse().ok()).unwrap_or_default();
    event.at_ms.saturating_sub(latency_us / 1_000)
}

async fn unknown_ends(log: &dyn AuditLog, gateway: &str, from_ms: i64) -> Result<UnknownEnds, AuditError> {
    let mut ends = HashMap::new();
    let mut after: Option<EventPosition> = None;
    loop {
        log.return_writer(gateway, from_ms).await?;
        let read = Instant::now();
        let search = AuditSearch {
            from_ms: Some(from_ms.saturating_sub(CLOCKS)),
            members: vec![MemberFilter::is("gateway", gateway), MemberFilter::is("reason", "gateway_lost")],
            order: SearchOrder::Oldest,
            after,
            limit: PAGE,
            ..AuditSearch::default()
        };
        let AuditPage { events, next } = log.search(&search).await?;
        for stored in events {
            let call = ended_call(&stored.event.event).map(|(_, call)| call.to_owned());
            if let Some(call) = call.filter(|_| is_unknown(&stored.event.event)) {
                ends.insert(call, stored);
            }
        }
        after = next;
        if after.is_none() {
            let continued = continued_calls(log, gateway, from_ms).await?;
            return Ok(UnknownEnds { ends, continued, from_ms, read });
        }
    }
}

/// Returns the ids of the calls whose last takeover since this time is by another gateway.
async fn continued_calls(
    log: &dyn AuditLog,
    gateway: &str,
    from_ms: i64,
) -> Result<HashSet<String>, AuditError> {
    let mut continued = HashSet::new();
    let mut after: Option<EventPosition> = None;
    loop {
        let search = AuditSearch {
            from_ms: Some(from_ms.saturating_sub(CLOCKS)),
            members: vec![MemberFilter::is("event", "call.resume")],
            order: SearchOrder::Oldest,
            after,
            limit: PAGE,
            ..AuditSearch::default()
        };
        let AuditPage { events, next } = log.search(&search).await?;
        for stored in events {
            let event = &stored.event.event;
            let Some(call) = member(event, "call") else { continue };
            if member(event, "gateway") == Some(gateway) {
                continued.remove(call);
            } else {
                continued.insert(call.to_owned());
            }
        }
        after = next;
        if after.is_none() {
            return Ok(continued);
        }
    }
}

/// Returns the first and the last time of each gateway's events.
fn times_by_gateway(events: &[CallEvent]) -> HashMap<String, (i64, i64)> {
    let mut times: HashMap<String, (i64, i64)> = HashMap::new();
    for event in events {
        if let Some(gateway) = member(&event.event, "gateway") {
            let (first, last) = times.entry(gateway.to_owned()).or_insert((event.at_ms, event.at_ms));
            *first = event.at_ms.min(*first);
            *last = event.at_ms.max(*last);
        }
    }
    times
}

/// Returns the gateway and the call of an event that ends one.
fn ended_call(event: &str) -> Option<(&str, &str)> {
    MemberFilter::is("event", "call.finish").passes(event).then_some(())?;
    Some((member(event, "gateway")?, member(event, "call")?))
}

/// Whether the log has the last event of the call that this event ends, and which began at `begun_ms`. An `unknown` that
/// another gateway wrote is replaced.
pub async fn has_end(log: &dyn AuditLog, event: &CallEvent, begun_ms: i64) -> Result<bool, AuditError> {
    let Some(end) = end_of(log, event, begun_ms).await? else { return Ok(false) };
    if is_unknown(&end.event.event) {
        // If it has changed since, another process has replaced it.
        log.replace(&end, event).await?;
    }
    Ok(true)
}

/// Returns the last event of the call that this event ends; `None` if it ends none, or the log has no such event. Reads the log
/// from the start of the call on, `begun_ms`: callers choose their traces, and all calls of a month may have the same one.
async fn end_of(
    log: &dyn AuditLog,
    event: &CallEvent,
    begun_ms: i64,
) -> Result<Option<StoredEvent>, AuditError> {
    let is_end = MemberFilter::is("event", "call.finish");
    let call = member(&event.event, "call").filter(|_| is_end.passes(&event.event));
    let (Some(call), Some(trace)) = (call, member(&event.event, "trace")) else { return Ok(None) };
    let mut after = None;
    loop {
        let search = AuditSearch {
            org: Some(event.org.clone()),
            trace: Some(trace.to_owned()),
            from_ms: Some(begun_ms.saturating_sub(CLOCKS)),
            members: vec![is_end.clone(), MemberFilter::is("call", call)],
            after,
            limit: 1,
            ..AuditSearch::default()
        };
        let AuditPage { mut events, next } = log.search(&search).await?;
        if let Some(end) = events.pop() {
            return Ok(Some(end));
        }
        after = next;
        if after.is_none() {
            return Ok(None);
        }
    }
}

/// Whether this is the end of a call of which nobody knew how it ended.
fn is_unknown(event: &str) -> bool {
    MemberFilter::is("outcome", "unknown").passes(event)
        && MemberFilter::is("reason", "gateway_lost").passes(event)
}

/// Returns the text of a member of an event, if it needs no escapes.
fn member<'e>(event: &'e str, name: &str) -> Option<&'e str> {
    let text = event.split_once(&format!("\"{name}\":\""))?.1.split('"').next()?;
    (!text.is_empty() && !text.contains('\\')).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::super::MemoryAudit;
    use super::*;

    fn event(at_ms: i64) -> CallEvent {
        let event =
            format!("{{\"event\":\"call.start\",\"call\":\"c{at_ms}\",\"trace\":\"t\",\"gateway\":\"one\"}}");
        CallEvent { at_ms, org: "acme".into(), event }
    }

    #[tokio::test(start_paused = true)]
    async fn the_events_of_a_former_run_come_to_the_log_once_and_those_of_a_running_one_do_not() {
        let directory = tempfile::tempdir().unwrap();
        let log = Arc::new(MemoryAudit::default());
        let former = Journal::new(directory.path(), "one");
        former.add(&event(1)).unwrap();
        former.add(&event(2)).unwrap();
        log.append(&[event(1)]).await.unwrap();
        drop(former);
        let running = Journal::new(directory.path(), "two");
        running.add(&event(3)).unwrap();
        let next = Arc::new(Journal::new(directory.path(), "three"));
        let replaying = tokio::spawn(keep_replaying(log.clone(), Arc::downgrade(&next)));
        while log.events().len() < 2 || former_files(directory.path()).unwrap().bytes > 0 {
            tokio::time::sleep(LOOK_EVERY).await;
        }
        tokio::time::sleep(3 * LOOK_EVERY).await;
        assert_eq!(log.events(), [event(1), event(2)]);
        drop(next);
        replaying.await.unwrap();
    }

    #[tokio::test]
    async fn events_that_are_years_apart_are_compared_where_they_are() {
        const YEAR: i64 = 365 * 24 * 3_600_000;
        let log = MemoryAudit::default();
        log.append(&[event(2), event(YEAR), event(3 * YEAR)]).await.unwrap();
        let left = [event(3 * YEAR + 1), event(1), event(2), event(3 * YEAR), event(1)];
        let lacking = lacking(&log, "one", &left).await.unwrap();
        assert_eq!(lacking, [&event(3 * YEAR + 1), &event(1), &event(1)], "in their order");
        let replayed = replay(&log, "one", &left).await.unwrap();
        assert_eq!((replayed.appended, log.events().len()), (3, 6));
    }

    #[tokio::test]
    async fn a_call_has_an_end_if_any_gateway_wrote_one_and_an_unknown_gives_way() {
        let end = |gateway: &str, at_ms: i64, reason: &str| {
            let outcome = if reason == "gateway_lost" { "unknown" } else { "completed" };
            let event = format!(
                "{{\"event\":\"call.finish\",\"outcome\":\"{outcome}\",\"reason\":\"{reason}\",\"call\":\"c1\",\"trace\":\"t\",\"gateway\":\"{gateway}\"}}"
            );
            CallEvent { at_ms, org: "acme".into(), event }
        };
        let log = MemoryAudit::default();
        let late = end("two", 9_000_000, "ok");
        assert!(!has_end(&log, &late, 1).await.unwrap());
        log.append(&[end("one", 1, "ok")]).await.unwrap();
        assert!(has_end(&log, &late, 1).await.unwrap(), "long before");
        assert_eq!(log.events(), [end("one", 1, "ok")]);
        let log = MemoryAudit::default();
        log.append(&[end("one", 1, "gateway_lost")]).await.unwrap();
        assert!(has_end(&log, &late, 1).await.unwrap());
        assert_eq!(log.events(), [late]);
    }

    #[test]
    fn the_start_of_a_call_is_known_by_its_end() {
        for (event, begun) in [
            (r#"{"latencyUs":2500000,"x":1}"#, 7_500),
            (r#"{"latencyUs":7}"#, 10_000),
            (r#"{"latencyUs":}"#, 10_000),
            (r#"{"latencyUs":99999999999999999999}"#, 10_000),
            ("{}", 10_000),
        ] {
            let event = CallEvent { at_ms: 10_000, org: "acme".into(), event: event.into() };
            assert_eq!(begun_ms(&event), begun, "{event:?}");
        }
    }

    #[test]
    fn a_member_is_read_as_it_is_written() {
        let event = r#"{"event":"call.finish","call":"c-1","request":"a\"b","trace":""}"#;
        assert_eq!(member(event, "call"), Some("c-1"));
        for name in ["request", "trace", "user"] {
            assert_eq!(member(event, name), None, "{name}");
        }
        assert!(is_unknown(r#"{"outcome":"unknown","reason":"gateway_lost"}"#));
        assert!(!is_unknown(r#"{"outcome":"unknown","reason":"ok"}"#));
    }
}
