//! Push notifications of any protocol: the addresses of their receivers, and how many are on their way at a time.
//!
//! Refuses: the content of a notification. Keeps true: a receiver has a public https address, or an origin that the operator
//! lists for the task's primitive; both are checked when it is registered and again when something is sent.

mod address;
mod lanes;

use std::sync::Arc;
use std::time::Duration;

use asp_outbound::{Destination, Outbound, OutboundError};
use asp_pipeline::pushes::{PushReceiver, Pushes};
use asp_platform::operator_list;

use address::{check_target, check_text};
pub(crate) use lanes::{LanePlace, Lanes};

/// Maximum time of one request, from its connection to the end of its answer.
pub(crate) const ANSWERS_WITHIN: Duration = Duration::from_secs(10);

/// Origin of receivers that may be private or speak plain HTTP, and the primitives whose tasks may be sent there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PushOrigin {
    /// `http(s)://host[:port]`
    pub origin: String,
    /// Patterns of primitives (`docs/operator-lists.md`).
    pub primitives: Vec<String>,
}

/// Origins of receivers that may be private or speak plain HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PushOrigins {
    /// Every origin, in development.
    Every,
    Listed(Vec<PushOrigin>),
}

impl PushOrigins {
    /// Returns the origins that are listed for a primitive; for a URL, because all of them may be.
    fn of(&self, url: &str, server: &str, primitive: &str) -> Vec<String> {
        match self {
            PushOrigins::Every => vec![url.to_owned()],
            PushOrigins::Listed(listed) => {
                let serves = |one: &&PushOrigin| operator_list::allows(&one.primitives, server, primitive);
                listed.iter().filter(serves).map(|one| one.origin.clone()).collect()
            }
        }
    }
}

/// Parts of a gateway that send push notifications.
pub struct PushService {
    pub(crate) pushes: Arc<Pushes>,
    pub(crate) lanes: Arc<Lanes>,
    outbound: Outbound,
    origins: PushOrigins,
}

impl PushService {
    pub fn new(pushes: Arc<Pushes>, origins: PushOrigins) -> Result<PushService, OutboundError> {
        let outbound = Outbound::with_silence(ANSWERS_WITHIN)?;
        Ok(PushService { pushes, lanes: Arc::new(Lanes::default()), outbound, origins })
    }

    /// Checks the address of a receiver of `org`, and returns its origin. A name is looked up.
    pub(crate) async fn check(&self, receiver: &PushReceiver, org: &str) -> Result<String, OutboundError> {
        self.destination(receiver)?;
        let PushReceiver { url, server, primitive, .. } = receiver;
        self.outbound.check_origin(url, &self.origins.of(url, server, primitive), org).await
    }

    /// Returns where to send something for a receiver; looks no name up.
    pub(crate) fn destination(&self, receiver: &PushReceiver) -> Result<Destination<'_>, OutboundError> {
        let PushReceiver { url, server, primitive, .. } = receiver;
        check_text(url)?;
        let destination = self.outbound.of_origins(url, &self.origins.of(url, server, primitive))?;
        check_target(&destination)?;
        Ok(destination)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed() -> PushOrigins {
        let of = |origin: &str, primitives: &[&str]| PushOrigin {
            origin: origin.into(),
            primitives: primitives.iter().map(|pattern| (*pattern).to_owned()).collect(),
        };
        PushOrigins::Listed(vec![of("http://127.0.0.1:8080", &["crm/*"]), of("https://10.0.0.1", &[])])
    }

    /// Returns the result of both checks, the one at registration and the one before something is sent, in this order.
    async fn allowed(origins: &PushOrigins, url: &str, server: &str) -> [bool; 2] {
        let outbound = Outbound::new().unwrap();
        let found = origins.of(url, server, "find");
        let sent = check_text(url).and_then(|()| outbound.of_origins(url, &found));
        let is_sent = sent.is_ok_and(|destination| check_target(&destination).is_ok());
        let is_registered = is_sent && outbound.check_origin(url, &found, "acme").await.is_ok();
        [is_registered, is_sent]
    }

    /// The table of B6: nothing but public https addresses, whichever way another one is written.
    #[tokio::test]
    async fn only_public_https_addresses_and_listed_origins_are_receivers() {
        for url in [
            "https://127.1/",
            "https://0/",
            "https://0x7f000001/",
            "https://017700000001/",
            "https://2130706433/",
            "https://[::1]/",
            "https://[::ffff:127.0.0.1]/",
            "https://[::ffff:7f00:1]/",
            "https://[64:ff9b::7f00:1]/",
            "https://169.254.169.254/latest/meta-data",
            "https://[fd00:ec2::254]/",
            "https://100.64.0.1/",
            "https://198.18.0.1/",
            "https://224.0.0.1/",
            "https://255.255.255.255/",
            "https://user@example.com/",
            "https://example.com#@127.0.0.1/",
            "https://example.com\\@127.0.0.1/",
            "https://127。0。0。1/",
            "https://8.8.8.8:0/",
            "https://8.8.8.8:25/",
            "https://8.8.8.8:6379/",
            "http://8.8.8.8/",
            "gopher://8.8.8.8/",
            "file:///etc/passwd",
            "ftp://8.8.8.8/",
            "unix:/run/x.sock",
            "https://8.8.8.8/a b",
            "https://8.8.8.8/\r\nX: y",
            "",
        ] {
            assert_eq!(allowed(&listed(), url, "crm").await, [false, false], "{url}");
        }
        // A name is resolved when it is registered; when something is sent, its resolver refuses the addresses.
        assert_eq!(allowed(&listed(), "https://localhost/", "crm").await, [false, true]);
        assert_eq!(allowed(&listed(), "https://8.8.8.8/hook?x=1", "crm").await, [true, true]);
    }

    /// Invariant I-12.
    #[tokio::test]
    async fn a_listed_origin_serves_the_primitives_that_its_entry_names() {
        assert_eq!(allowed(&listed(), "http://127.0.0.1:8080/hook", "crm").await, [true, true]);
        assert_eq!(allowed(&listed(), "http://127.0.0.1:8080/hook", "erp").await, [false, false]);
        assert_eq!(allowed(&listed(), "http://127.0.0.1:8081/hook", "crm").await, [false, false]);
        assert_eq!(allowed(&listed(), "https://10.0.0.1/", "crm").await, [false, false], "serves nobody");
        assert_eq!(allowed(&PushOrigins::Every, "http://127.0.0.1:1/x", "erp").await, [true, true]);
        for url in ["ftp://127.0.0.1/", "http://user@127.0.0.1/", "http://127.0.0.1:6379/"] {
            assert_eq!(allowed(&PushOrigins::Every, url, "erp").await, [false, false], "{url}");
        }
    }
}
