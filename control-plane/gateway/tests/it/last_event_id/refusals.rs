//! Clients that may not resume, and streams that cannot be resumed.

use std::time::Duration;

use serde_json::json;

use super::{Stream, connect, count, get, refused};
use crate::support::{Fixture, Legacy};

/// The id of an event of a call of its own.
async fn event_of(client: &Legacy) -> String {
    Stream::of(client.open(&count(3, 1)).await).rest().await[1].id()
}

#[tokio::test]
async fn what_is_not_the_sessions_own_is_refused_as_what_never_was() {
    let fixture = Fixture::new();
    let client = connect(&fixture, "alice", "2025-11-25").await;
    let own = event_of(&client).await;
    let others = [
        ("another session", connect(&fixture, "alice", "2025-11-25").await),
        ("another user", connect(&fixture, "bob", "2025-11-25").await),
        ("another server", Legacy::connect(&fixture, "policy", "alice", "2025-11-25", json!({})).await),
    ];
    let unknown = refused(&client, &fixture, "never-was").await;
    assert_eq!((unknown.status.as_u16(), unknown.reason().as_str()), (400, "invalid_request"));
    for (who, other) in &others {
        let foreign = refused(other, &fixture, &own).await;
        assert_eq!((foreign.status, &foreign.text), (unknown.status, &unknown.text), "{who}");
    }
    let mut changes = get(&client, &fixture, None).await.into_body();
    let primer = http_body_util::BodyExt::frame(&mut changes).await.unwrap().unwrap().into_data().unwrap();
    let primer = String::from_utf8(primer.to_vec()).unwrap();
    let changes_id = primer.lines().find_map(|line| line.strip_prefix("id: ")).unwrap().to_owned();
    for (who, other) in &others {
        assert_eq!(refused(other, &fixture, &changes_id).await.text, unknown.text, "{who}");
    }
    let mut rows = vec![
        String::new(),
        "A".repeat(9000),
        format!("{own}A"),
        format!("{own}.{own}"),
        client.session.clone(),
    ];
    rows.extend((0..own.len()).step_by(7).map(|at| {
        let mut altered = own.clone().into_bytes();
        altered[at] = if altered[at] == b'A' { b'B' } else { b'A' };
        String::from_utf8(altered).unwrap()
    }));
    rows.extend((1..own.len()).step_by(11).map(|end| own[..end].to_owned()));
    for row in rows {
        let altered = refused(&client, &fixture, &row).await;
        assert_eq!((altered.status, &altered.text), (unknown.status, &unknown.text), "{row}");
    }
    // Another gateway has the keys and not the call.
    let elsewhere = Fixture::new();
    assert_eq!(refused(&client, &elsewhere, &own).await.text, unknown.text);
    // A session that is over is over for its streams.
    let headers = client.headers();
    let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
    assert_eq!(fixture.send(http::Method::DELETE, "/demo/mcp", &headers, "").await.status.as_u16(), 200);
    let over = refused(&client, &fixture, &own).await;
    assert_eq!((over.status.as_u16(), over.reason().as_str()), (404, "session_unknown"));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_not_kept_any_more_is_refused_and_not_passed_over() {
    let fixture = Fixture::new();
    let client = connect(&fixture, "alice", "2025-11-25").await;
    let own = event_of(&client).await;
    let registry = fixture.gateway.pipeline.internals().registry;
    // The time of `count` is two minutes, and two more are for who comes back.
    tokio::time::advance(Duration::from_secs(235)).await;
    registry.sweep();
    let kept = get(&client, &fixture, Some(&own)).await;
    assert_eq!(kept.status().as_u16(), 200);
    tokio::time::advance(Duration::from_secs(10)).await;
    registry.sweep();
    let gone = refused(&client, &fixture, &own).await;
    assert_eq!((gone.status.as_u16(), gone.reason().as_str()), (400, "invalid_request"));
    assert_eq!(gone.text, refused(&client, &fixture, "never-was").await.text);
}
