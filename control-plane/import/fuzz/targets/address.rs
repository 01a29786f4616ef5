//! Any text as the address of an agent or of a receiver of push notifications: no panic; without a list of the operator it is https, and
//! of no private address, however that is written; with one it is private or plain at a listed origin alone; it has no
//! credentials and no port of another service.
#![no_main]

// The address of a receiver by the name of its crate, which is no dependency of this one.
extern crate self as asp_outbound;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::LazyLock;

use asp_import::outbound_testkit::{Destination, Outbound, OutboundError};
use libfuzzer_sys::fuzz_target;

#[path = "../../../gateway/protocols/src/push/address.rs"]
mod address;

/// The origin that the operator lists.
const LISTED: &str = "http://127.0.0.1:8080";

static OUTBOUND: LazyLock<Outbound> = LazyLock::new(|| Outbound::new().expect("two clients"));

fuzz_target!(|text: &str| {
    if let Ok(destination) = OUTBOUND.of_origins(text, &[]) {
        assert_eq!(destination.url.scheme(), "https");
        check(&destination);
    }
    if let Ok(Destination { url, .. }) = receiver(text) {
        assert!(!text.contains(|char: char| char.is_control() || matches!(char, ' ' | '#' | '\\')));
        assert!(!matches!(url.port(), Some(0 | 25 | 465 | 587 | 6379)));
        assert!(url.username().is_empty() && url.password().is_none());
        if url.scheme() != "https" {
            assert_eq!((url.scheme(), url.host_str(), url.port()), ("http", Some("127.0.0.1"), Some(8080)));
        }
    }
});

/// Checks an address as that of a receiver.
fn receiver(text: &str) -> Result<Destination<'static>, OutboundError> {
    address::check_text(text)?;
    let destination = OUTBOUND.of_origins(text, &[LISTED.to_owned()])?;
    address::check_target(&destination)?;
    Ok(destination)
}

fn check(destination: &Destination<'_>) {
    let url = &destination.url;
    let host = url.host_str().expect("a host");
    assert!(url.username().is_empty() && url.password().is_none());
    let private = match host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>() {
        Ok(IpAddr::V4(four)) => is_private(four),
        Ok(IpAddr::V6(six)) => {
            six.is_loopback()
                || six.is_unspecified()
                || six.is_multicast()
                || six.is_unique_local()
                || six.is_unicast_link_local()
                || six.to_ipv4_mapped().is_some_and(is_private)
        }
        Err(_) => false,
    };
    assert!(!private, "{host}");
}

fn is_private(address: Ipv4Addr) -> bool {
    address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_unspecified()
        || address.is_multicast()
        || address.is_broadcast()
}
