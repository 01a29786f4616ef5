//! Tests of the log.

use std::collections::BTreeMap;

use super::*;

fn progress(n: u64) -> Event {
    Event::Progress { progress: (n as f64).into(), total: None, message: None, gauges: BTreeMap::new() }
}

async fn read(reader: &mut EventReader) -> Option<(u64, Event)> {
    reader.next().await.map(|logged| (logged.number, logged.event))
}

#[tokio::test]
async fn every_reader_sees_every_event_in_order_and_then_the_end() {
    let log = Arc::new(EventLog::default());
    let mut early = log.reader_from(0);
    assert_eq!((log.push(progress(1)), log.push(progress(2))), (Some(0), Some(1)));
    let mut late = log.reader_from(0);
    log.close();
    assert_eq!(log.push(progress(3)), None);
    for reader in [&mut early, &mut late] {
        assert_eq!(read(reader).await, Some((0, progress(1))));
        assert_eq!(read(reader).await, Some((1, progress(2))));
        assert_eq!(read(reader).await, None);
    }
}

#[test]
fn the_progress_before_an_event_is_the_highest_there_was() {
    let log = EventLog::default();
    for n in [3, 7, 5] {
        log.push(progress(n));
    }
    assert_eq!(log.progress_before(0), None);
    assert_eq!(log.progress_before(1), Some(3.0.into()));
    assert_eq!(log.progress_before(3), Some(7.0.into()));
    assert_eq!(log.progress_before(9), Some(7.0.into()));
    for _ in 0..MAX_EVENTS {
        log.push(Event::Chunk { text: String::new() });
    }
    assert_eq!(log.progress_before(3), Some(7.0.into()), "also when its event is gone");
    assert_eq!(log.progress_before(1), None, "what came after it was not shown");
}

#[tokio::test]
async fn a_reader_that_falls_behind_gets_what_matters_of_the_oldest_and_can_tell_which_are_gone() {
    let log = Arc::new(EventLog::default());
    let mut reader = log.reader_from(0);
    for n in 0..(MAX_EVENTS as u64 + 10) {
        log.push(progress(n));
    }
    assert_eq!(reader.position(), 0);
    assert_eq!(read(&mut reader).await, Some((9, progress(9))), "the highest that the log has no room for");
    assert_eq!(read(&mut reader).await, Some((10, progress(10))));
    assert_eq!((reader.position(), log.inner.lock().events.len()), (11, MAX_EVENTS));
    let last = MAX_EVENTS as u64 + 9;
    let FoldedLog { events, next, generation } = log.folded();
    let events: Vec<_> = events.into_iter().map(|logged| (logged.number, logged.event)).collect();
    assert_eq!((events, next, generation), (vec![(last, progress(last))], last + 1, last + 2));
}

#[test]
fn the_end_of_what_is_kept_of_a_partial_result_is_told() {
    let log = EventLog::default();
    for text in ["dropped", "aü", "b"] {
        log.push(Event::Chunk { text: text.into() });
        log.push(progress(1));
    }
    assert_eq!((log.partial(4).as_str(), log.partial(3).as_str(), log.oldest()), ("aüb", "üb", 0));
    assert_eq!(log.partial(2), "b", "not half a character");
    for _ in 0..MAX_EVENTS - 2 {
        log.push(progress(2));
    }
    assert_eq!((log.partial(99).as_str(), log.oldest()), ("b", 4));
}

fn log_message(level: LogLevel) -> Event {
    Event::Log { level, logger: None, data: "said".into() }
}

#[tokio::test]
async fn a_log_that_goes_on_elsewhere_counts_on_and_says_what_is_gone() {
    let kept = |number| LoggedEvent::first(number, 1, progress(number));
    let log = Arc::new(EventLog::continued(9, vec![kept(5), kept(6)], 7));
    assert_eq!((log.stream(), log.next_number(), log.oldest()), (9, 7, 5));
    assert_eq!(log.push(progress(7)), Some(7));
    // A reader that has read everything before gets nothing twice, and misses nothing.
    let mut reader = log.reader_from(6);
    assert_eq!(read(&mut reader).await, Some((6, progress(6))));
    assert_eq!((read(&mut reader).await, reader.lost_logs(LogLevel::Debug)), (Some((7, progress(7))), None));
    // A reader that has not may have missed log messages of any level.
    let mut late = log.reader_from(3);
    assert_eq!(read(&mut late).await, Some((5, progress(5))));
    assert_eq!(late.lost_logs(LogLevel::Emergency), Some(LogLevel::Emergency));
    assert_eq!(EventLog::continued(9, Vec::new(), 4).next_number(), 4);
}

#[test]
fn generations_rise_over_takeovers_whatever_is_kept_of_the_events() {
    let first = EventLog::default();
    let mut shown = vec![first.generation()];
    for n in 0..5 {
        first.push(progress(n));
        shown.push(first.generation());
    }
    assert_eq!(shown, [1, 2, 3, 4, 5, 6]);
    let kept: Vec<LoggedEvent> = first.inner.lock().events.iter().take(3).cloned().collect();
    for (kept, next, before) in [(kept, 3, 4), (Vec::new(), 0, first_generation(1))] {
        let second = EventLog::continued(9, kept, next);
        second.begin_after(1);
        assert_eq!(second.generation(), before, "as it is shown elsewhere");
        assert_eq!(second.push(Event::Resumed), Some(next));
        let after = second.generation();
        assert!(after > 6, "{after}");
        // A gateway that only reads the events has the same generations.
        let mirror = EventLog::continued(9, Vec::new(), 0);
        second.inner.lock().events.iter().cloned().for_each(|logged| mirror.push_numbered(logged));
        assert_eq!(mirror.generation(), after);
        let third = EventLog::continued(9, Vec::new(), next);
        third.begin_after(2);
        assert!(third.generation() > after);
    }
    let ended = EventLog::continued(9, Vec::new(), 0);
    ended.raise_to(7);
    ended.raise_to(6);
    assert_eq!(ended.generation(), 7);
    let unread = EventLog::continued(9, vec![LoggedEvent::first(5, 1, progress(5))], 8);
    assert_eq!(unread.generation(), 9, "what does not open counts");
}

#[test]
fn a_reader_continues_only_where_the_event_it_saw_last_is_the_same() {
    let first = EventLog::default();
    for n in 0..3 {
        first.push(progress(n));
    }
    let kept: Vec<LoggedEvent> = first.inner.lock().events.iter().take(2).cloned().collect();
    let second = EventLog::continued(9, kept, 2);
    second.begin_after(1);
    second.push(Event::Resumed);
    assert!(second.continues_at(0, 1) && second.continues_at(2, 3));
    assert!(first.continues_at(3, 4) && !second.continues_at(3, 4), "another event has its number");
    assert!(second.continues_at(3, second.generation()));
    assert!(!second.continues_at(4, 5), "it is not known");
}

#[test]
fn a_log_goes_by_its_last_names_and_by_no_other() {
    let log = EventLog::continued(0, Vec::new(), 0);
    for name in 1..=MAX_NAMES as u32 {
        assert!(log.counts(0) && !log.counts(name));
        log.rename(name);
        assert_eq!((log.stream(), log.counts(name)), (name, true));
    }
    assert!(!log.counts(0) && log.counts(1), "those of before are bounded");
}

#[tokio::test]
async fn events_of_another_gateway_keep_their_numbers_and_a_gap_is_told() {
    let log = Arc::new(EventLog::continued(9, Vec::new(), 0));
    for number in [0, 1, 1, 0, 5] {
        log.push_numbered(LoggedEvent::first(number, 1, log_message(LogLevel::Info)));
    }
    let mut reader = log.reader_from(1);
    assert_eq!(read(&mut reader).await.map(|(number, _)| number), Some(1));
    assert_eq!(reader.lost_logs(LogLevel::Debug), None);
    assert_eq!(read(&mut reader).await.map(|(number, _)| number), Some(5));
    assert_eq!(reader.lost_logs(LogLevel::Debug), Some(LogLevel::Emergency), "2 to 4 are gone");
    assert_eq!(reader.lost_logs(LogLevel::Debug), None, "said once");
    assert_eq!(log.push(progress(1)), Some(6));
}

#[tokio::test]
async fn a_waiting_reader_wakes() {
    let log = Arc::new(EventLog::default());
    let waiting = tokio::spawn({
        let log = log.clone();
        async move { read(&mut log.reader_from(0)).await }
    });
    tokio::task::yield_now().await;
    log.push(progress(7));
    assert_eq!(waiting.await.unwrap(), Some((0, progress(7))));
}
