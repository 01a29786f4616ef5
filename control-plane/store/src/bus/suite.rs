//! Conformance suite of [`Bus`].

// Test code that other backends' crates call too: a failed expectation panics.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::BoxStream;

use super::{Bus, BusError, BusEvent, MAX_MESSAGE};
use crate::records::OwnerId;

/// Interval between messages that test whether the listener receives.
const PAUSE: Duration = Duration::from_millis(20);
/// A hang guard, not an expectation.
const LONG: Duration = Duration::from_secs(30);
/// Number of messages that nobody reads.
const UNREAD: usize = 2_048;

fn gateway(number: u8) -> OwnerId {
    OwnerId([number; 16])
}

/// Runs the suite.
pub async fn run(bus: &dyn Bus) {
    each_hears_what_it_is_told(bus).await;
    what_is_too_large_is_refused(bus).await;
    who_does_not_take_it_holds_nobody_up(bus).await;
}

/// Listens, and returns once messages arrive; earlier ones may be lost.
pub async fn listening(bus: &dyn Bus, gateway: OwnerId) -> BoxStream<'static, BusEvent<Bytes>> {
    let mut heard = bus.listen(gateway);
    let first = async {
        loop {
            bus.tell(gateway, Bytes::from_static(b"hello")).await.unwrap();
            if tokio::time::timeout(PAUSE, heard.next()).await.is_ok() {
                return;
            }
        }
    };
    tokio::time::timeout(LONG, first).await.expect("it listens");
    heard
}

/// Returns the next message that does not come from [`listening`].
pub async fn next(heard: &mut BoxStream<'static, BusEvent<Bytes>>) -> Bytes {
    let next = async {
        loop {
            match heard.next().await.expect("it does not end") {
                BusEvent::Message(message) if message.as_ref() != b"hello" => return message,
                BusEvent::Message(_) | BusEvent::Gap => {}
            }
        }
    };
    tokio::time::timeout(LONG, next).await.expect("it is told")
}

async fn each_hears_what_it_is_told(bus: &dyn Bus) {
    let mut first = listening(bus, gateway(1)).await;
    let mut second = listening(bus, gateway(2)).await;
    bus.tell(gateway(2), Bytes::from_static(b"of the second")).await.unwrap();
    let any = Bytes::from(vec![0, 255, b'\r', b'\n', 128]);
    bus.tell(gateway(1), any.clone()).await.unwrap();
    assert_eq!(next(&mut first).await, any);
    assert_eq!(next(&mut second).await, "of the second");
    // Nobody listens there.
    bus.tell(gateway(3), any).await.unwrap();
}

async fn what_is_too_large_is_refused(bus: &dyn Bus) {
    let mut heard = listening(bus, gateway(4)).await;
    let largest = Bytes::from(vec![b'x'; MAX_MESSAGE]);
    let refused = bus.tell(gateway(4), Bytes::from(vec![b'x'; MAX_MESSAGE + 1])).await;
    assert!(matches!(refused, Err(BusError::TooLarge)), "{refused:?}");
    bus.tell(gateway(4), largest.clone()).await.unwrap();
    assert_eq!(next(&mut heard).await, largest);
}

async fn who_does_not_take_it_holds_nobody_up(bus: &dyn Bus) {
    let _sleeps = listening(bus, gateway(5)).await;
    let mut awake = listening(bus, gateway(6)).await;
    for _ in 0..UNREAD {
        bus.tell(gateway(5), Bytes::from_static(b"unread")).await.unwrap();
    }
    bus.tell(gateway(6), Bytes::from_static(b"read")).await.unwrap();
    assert_eq!(next(&mut awake).await, "read");
}
