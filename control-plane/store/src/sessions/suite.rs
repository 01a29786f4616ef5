//! Conformance suite of [`SessionDirectory`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use super::{MAX_GATEWAYS, OpenSession, SessionDirectory, SessionEntry, SessionId};
use crate::records::OwnerId;

/// Long enough for every test.
const LEFT: Duration = Duration::from_secs(3600);
/// A hang guard, not an expectation.
const LONG: Duration = Duration::from_secs(30);

fn gateway(number: u8) -> OwnerId {
    OwnerId([number; 16])
}

fn open(log_level: Option<u8>, gateways: &[u8]) -> SessionEntry {
    SessionEntry::Open(OpenSession {
        log_level,
        gateways: gateways.iter().map(|number| gateway(*number)).collect(),
    })
}

/// Runs the suite against an empty directory.
pub async fn run(directory: &dyn SessionDirectory) {
    knows_where_a_session_is(directory).await;
    remembers_the_gateways_that_came_last(directory).await;
    remembers_what_was_set(directory).await;
    an_ended_session_stays_ended(directory).await;
    forgets_what_cannot_be_used_any_more(directory).await;
}

async fn enter(directory: &dyn SessionDirectory, session: SessionId, number: u8) -> SessionEntry {
    directory.enter(session, gateway(number), LEFT).await.unwrap()
}

async fn knows_where_a_session_is(directory: &dyn SessionDirectory) {
    assert_eq!(enter(directory, [1; 16], 1).await, open(None, &[]));
    assert_eq!(enter(directory, [1; 16], 2).await, open(None, &[1]));
    assert_eq!(enter(directory, [1; 16], 1).await, open(None, &[2]), "of the others only");
    assert_eq!(enter(directory, [2; 16], 3).await, open(None, &[]), "sessions are apart");
}

async fn remembers_the_gateways_that_came_last(directory: &dyn SessionDirectory) {
    let many = MAX_GATEWAYS as u8 + 3;
    for number in 0..many {
        enter(directory, [3; 16], number).await;
    }
    let last: Vec<u8> = (3..many).collect();
    let SessionEntry::Open(known) = enter(directory, [3; 16], 100).await else { panic!("it has not ended") };
    let mut known: Vec<u8> = known.gateways.iter().map(|gateway| gateway.0[0]).collect();
    known.sort_unstable();
    assert_eq!(known, last);
}

async fn remembers_what_was_set(directory: &dyn SessionDirectory) {
    directory.set_log_level([4; 16], 6, LEFT).await.unwrap();
    assert_eq!(enter(directory, [4; 16], 1).await, open(Some(6), &[]));
    directory.set_log_level([4; 16], 0, LEFT).await.unwrap();
    assert_eq!(enter(directory, [4; 16], 2).await, open(Some(0), &[1]));
}

async fn an_ended_session_stays_ended(directory: &dyn SessionDirectory) {
    enter(directory, [5; 16], 1).await;
    enter(directory, [5; 16], 2).await;
    let mut were_at = directory.end([5; 16], LEFT).await.unwrap();
    were_at.sort_unstable_by_key(|gateway| gateway.0);
    assert_eq!(were_at, [gateway(1), gateway(2)]);
    assert_eq!(enter(directory, [5; 16], 1).await, SessionEntry::Ended);
    directory.set_log_level([5; 16], 3, LEFT).await.unwrap();
    assert_eq!(enter(directory, [5; 16], 3).await, SessionEntry::Ended, "nothing brings it back");
    assert_eq!(directory.end([5; 16], LEFT).await.unwrap(), [], "it was told once");
    // Unknown to this directory.
    assert_eq!(directory.end([6; 16], LEFT).await.unwrap(), []);
    assert_eq!(enter(directory, [6; 16], 1).await, SessionEntry::Ended);
}

async fn forgets_what_cannot_be_used_any_more(directory: &dyn SessionDirectory) {
    let short = Duration::from_millis(20);
    directory.end([7; 16], short).await.unwrap();
    directory.enter([8; 16], gateway(1), LEFT).await.unwrap();
    directory.enter([8; 16], gateway(2), short).await.unwrap();
    let forgotten = async {
        while enter(directory, [7; 16], 1).await == SessionEntry::Ended {
            tokio::time::sleep(short / 4).await;
        }
    };
    tokio::time::timeout(LONG, forgotten).await.unwrap();
    assert_eq!(enter(directory, [8; 16], 3).await, open(None, &[1, 2]), "the longest time counts");
}
