//! Calls of a killed gateway: which get a last event, when, and how often.

use asp_store::audit::MemoryAudit;
use prometheus_client::metrics::counter::Counter;

use super::*;

const KILLED: &str = "0198a000-0000-7000-8000-000000000001";
const LIVING: &str = "0198a000-0000-7000-8000-000000000002";

fn call(n: u8) -> Uuid {
    Uuid::from_bytes([n; 16])
}

fn event(kind: &str, n: u8, gateway: &str, at_ms: i64) -> CallEvent {
    let id = call(n);
    let event =
        format!(r#"{{"event":"{kind}","call":"{id}","user":"alice","trace":"t{n}","gateway":"{gateway}"}}"#);
    CallEvent { at_ms, org: "acme".into(), event }
}

/// Scans once, while another gateway can continue the calls `continued`; returns the number of calls that were finished.
async fn scan(audit: &Audit, lost: &LostCalls, continued: &[Uuid]) -> usize {
    let gateways = audit.lost_gateways().await.unwrap();
    lost.retain(&gateways);
    let continued = continued.iter().copied().collect();
    let mut finished = 0;
    for gateway in &gateways {
        finished += audit.finish_lost(lost, gateway, &continued).await.unwrap();
    }
    finished
}

fn ends(log: &MemoryAudit) -> Vec<Value> {
    let events = log.events();
    let ends = events.iter().map(|event| serde_json::from_str::<Value>(&event.event).unwrap());
    ends.filter(|event| event["outcome"] == "unknown").collect()
}

#[tokio::test]
async fn a_call_of_a_killed_gateway_ends_once_and_as_unknown() {
    let log = Arc::new(MemoryAudit::default());
    let first = LostCalls::default();
    let second = LostCalls::default();
    let one = Audit::new(log.clone(), Counter::default());
    let other = Audit::new(log.clone(), Counter::default());
    log.append(&[
        event("call.start", 1, KILLED, 1_000_000),
        event("call.start", 2, KILLED, 1_000_001),
        event("call.finish", 1, KILLED, 1_000_002),
        event("call.start", 3, KILLED, 1_000_003),
        event("call.start", 4, KILLED, 1_000_004),
        // Taken over by a gateway whose clock is behind.
        event("call.resume", 3, LIVING, 1_000_005),
    ])
    .await
    .unwrap();
    log.renew_writer(KILLED, 1_000_001).await.unwrap();
    assert_eq!(scan(&one, &first, &[]).await, 0, "its record is renewed");
    log.lose_writers();
    let continued = [call(4)];
    assert_eq!(scan(&one, &first, &continued).await, 0, "a first scan only looks");
    assert_eq!(scan(&other, &second, &continued).await, 0);
    let gateways = other.lost_gateways().await.unwrap();
    assert_eq!(scan(&one, &first, &continued).await, 1);
    let again = other.finish_lost(&second, &gateways[0], &HashSet::from(continued)).await.unwrap();
    assert_eq!(again, 0, "another gateway was faster");
    assert_eq!(scan(&other, &second, &continued).await, 0);
    let found = ends(&log);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0]["call"], call(2).to_string());
    for (member, text) in
        [("event", "call.finish"), ("reason", "gateway_lost"), ("user", "alice"), ("gateway", KILLED)]
    {
        assert_eq!(found[0][member], text, "{member}");
    }
    // No gateway continues the other call any more.
    assert_eq!(scan(&one, &first, &[]).await, 0, "the last event of its taker may be under way");
    assert_eq!(scan(&one, &first, &[]).await, 1);
    assert_eq!(scan(&one, &first, &[]).await, 0);
    assert!(
        log.lost_writers(Duration::ZERO).await.unwrap().is_empty(),
        "a gateway without calls is forgotten"
    );
    assert_eq!(ends(&log).len(), 2);
}

#[tokio::test]
async fn a_call_that_several_lost_gateways_had_ends_at_the_last_of_them() {
    let log = Arc::new(MemoryAudit::default());
    let lost = LostCalls::default();
    let audit = Audit::new(log.clone(), Counter::default());
    let gateways: Vec<String> =
        (1..=u128::try_from(GATEWAYS).unwrap() + 2).map(|n| Uuid::from_u128(n).to_string()).collect();
    let mut events = vec![event("call.start", 1, &gateways[0], 1_000_000)];
    for (gateway, at_ms) in gateways.iter().zip(1_000_001..).skip(1) {
        events.push(event("call.resume", 1, gateway, at_ms));
    }
    // One call of each, of which another lost gateway has ended every second one.
    for (gateway, n) in gateways.iter().zip(10..) {
        events.push(event("call.start", n, gateway, 1_000_100));
        if n % 2 == 0 {
            events.push(event("call.finish", n, &gateways[3], 1_000_200));
        }
    }
    log.append(&events).await.unwrap();
    for gateway in &gateways {
        log.renew_writer(gateway, 1_000_000).await.unwrap();
    }
    log.lose_writers();
    assert_eq!(scan(&audit, &lost, &[]).await, 0);
    scan(&audit, &lost, &[]).await;
    let found = ends(&log);
    let of_first: Vec<&Value> = found.iter().filter(|end| end["call"] == call(1).to_string()).collect();
    assert_eq!(of_first.len(), 1);
    assert_eq!(of_first[0]["gateway"].as_str(), gateways.last().map(String::as_str));
    assert_eq!(found.len(), 1 + gateways.len() / 2);
    assert!(log.lost_writers(Duration::ZERO).await.unwrap().is_empty());
}

#[test]
fn only_the_begin_and_the_end_of_a_call_are_phases() {
    let id = call(7);
    assert_eq!(read_phase(&event("call.start", 7, KILLED, 0).event), Some((Phase::Begun, id)));
    assert_eq!(read_phase(&event("call.resume", 7, KILLED, 0).event), Some((Phase::Begun, id)));
    assert_eq!(read_phase(&event("call.finish", 7, KILLED, 0).event), Some((Phase::Ended, id)));
    for text in ["", "{}", r#"{"event":"call.start"}"#, r#"{"event":"call.start","call":"x"}"#] {
        assert_eq!(read_phase(text), None, "{text}");
    }
    assert_eq!(read_phase(&event("call.delegation", 7, KILLED, 0).event), None);
}
