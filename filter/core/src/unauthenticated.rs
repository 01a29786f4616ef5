//! Limits of requests without a valid credential, by the network of their client and by kind.
//!
//! Owns a table of buckets of fixed size, apart from that of coarse limits, and the credentials that a gateway accepted
//! lately. Keeps true: neither a request whose token is verified here nor one whose credential a gateway accepted lately is
//! counted or refused; no kind draws from the bucket of another one. A flood of addresses evicts the least used buckets, so
//! it refuses nobody, and a client at its limit stays there.

use std::collections::HashSet;
use std::hash::Hash;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::coarse::{self, Buckets, Draw};
use crate::reason::Reason;

/// A bucket holds the requests of this many seconds: 500 at the default rate of 50.
const BURST_SECONDS: u32 = 10;
/// Maximum size of one generation of accepted credentials; the two together take about 200 KiB.
const ACCEPTED: usize = 4096;

/// Network of a client: an IPv4 address, or the /64 of an IPv6 address, the smallest network that is assigned to one site
/// (RFC 6177 section 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Network([u8; 16]);

impl Network {
    /// Returns the network of an address.
    pub fn of(address: IpAddr) -> Network {
        Network(match address.to_canonical() {
            IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
            IpAddr::V6(address) => (u128::from(address) & (u128::MAX << 64)).to_be_bytes(),
        })
    }

    /// Parses an address with or without a port; `None` if the text is neither, such as the path of a Unix socket.
    pub fn parse(text: &str) -> Option<Network> {
        let with_port = text.parse::<SocketAddr>().map(|address| address.ip());
        with_port.or_else(|_| text.parse()).ok().map(Network::of)
    }
}

/// Kind of a request without a valid credential. Each has a bucket of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum UnauthenticatedKind {
    /// No credential where the server needs one.
    Anonymous,
    /// Token that is malformed, expired, or otherwise invalid at the server.
    BadToken,
    /// Check of a signature that was not checked lately. Only checks that fail count.
    Signature,
    /// Credential that only the gateway can verify. It counts until the gateway accepts it.
    Unverified,
}

impl UnauthenticatedKind {
    pub const ALL: [UnauthenticatedKind; 4] = [
        UnauthenticatedKind::Anonymous,
        UnauthenticatedKind::BadToken,
        UnauthenticatedKind::Signature,
        UnauthenticatedKind::Unverified,
    ];

    /// Returns the label of the metric.
    pub const fn as_str(self) -> &'static str {
        match self {
            UnauthenticatedKind::Anonymous => "anonymous",
            UnauthenticatedKind::BadToken => "bad_token",
            UnauthenticatedKind::Signature => "signature",
            UnauthenticatedKind::Unverified => "unverified",
        }
    }

    /// Returns the kind of a request that is refused for this reason. A revoked token and a missing right are none: the
    /// caller is known.
    pub(crate) fn of_refusal(reason: Option<Reason>) -> Option<UnauthenticatedKind> {
        match reason? {
            Reason::TokenMissing => Some(UnauthenticatedKind::Anonymous),
            Reason::TokenInvalid | Reason::TokenExpired => Some(UnauthenticatedKind::BadToken),
            _ => None,
        }
    }
}

/// Forwarded request whose credential only the gateway can verify.
#[derive(Clone, Copy, Debug)]
pub struct CredentialAttempt {
    /// Key of the credential.
    credential: u64,
    /// The request taken from the bucket; `None` if the credential was accepted lately.
    draw: Option<Draw>,
}

/// State of the limits in one process. Threads may share it.
#[derive(Default)]
pub(crate) struct UnauthenticatedLimits {
    buckets: Buckets,
    accepted: Mutex<AcceptedCredentials>,
}

impl UnauthenticatedLimits {
    /// Settles an attempt by the status of its response, and by its `grpc-status` if the headers have one.
    pub(crate) fn settle(&self, attempt: &CredentialAttempt, status: &[u8], grpc_status: Option<&[u8]>) {
        match (status, grpc_status) {
            (b"401", _) | (_, Some(b"16")) => self.accepted().remove(attempt.credential),
            // The gateway limits credentials that no issuer knows, too.
            (b"429", _) | (_, Some(b"8")) => {}
            ([b'2', ..], None | Some(b"0")) => {
                self.accepted().insert(attempt.credential);
                self.give_back(attempt.draw);
            }
            _ => self.give_back(attempt.draw),
        }
    }

    fn give_back(&self, draw: Option<Draw>) {
        draw.into_iter().for_each(|draw| self.buckets.give_back(draw));
    }

    fn accepted(&self) -> MutexGuard<'_, AcceptedCredentials> {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keys of credentials that a gateway accepted lately, in two generations: when the young one is full it becomes the old
/// one, so that recently used keys stay. Only accepted credentials enter, so a flood of others evicts none.
#[derive(Default)]
struct AcceptedCredentials {
    young: HashSet<u64>,
    old: HashSet<u64>,
}

impl AcceptedCredentials {
    fn contains(&mut self, credential: u64) -> bool {
        if self.young.contains(&credential) {
            return true;
        }
        let known = self.old.remove(&credential);
        if known {
            self.insert(credential);
        }
        known
    }

    fn insert(&mut self, credential: u64) {
        if self.young.len() >= ACCEPTED {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(credential);
    }

    fn remove(&mut self, credential: u64) {
        self.young.remove(&credential);
        self.old.remove(&credential);
    }
}

/// Limits of one request.
pub(crate) struct Meter<'a> {
    pub(crate) state: &'a UnauthenticatedLimits,
    /// Requests per second; 0 for no limit.
    pub(crate) rate: u32,
    /// Returns the network of the client; `None` if the process does not count it. Called only for a request that is counted.
    pub(crate) network: &'a dyn Fn() -> Option<Network>,
    /// Unix milliseconds.
    pub(crate) now_ms: u64,
}

impl Meter<'_> {
    /// Takes one request; the error is the number of seconds to wait, at least 1.
    pub(crate) fn take(&self, kind: UnauthenticatedKind) -> Result<Option<Draw>, u64> {
        let Some(draw) = self.draw(kind) else { return Ok(None) };
        self.state.buckets.take_draw(draw, self.now_ms)?;
        Ok(Some(draw))
    }

    /// Gives back a request that turned out not to count.
    pub(crate) fn give_back(&self, draw: Option<Draw>) {
        self.state.give_back(draw);
    }

    /// Begins a request whose credential only the gateway can verify; `None` if nothing limits it.
    pub(crate) fn begin(&self, credential: impl Hash) -> Result<Option<CredentialAttempt>, u64> {
        if self.rate == 0 {
            return Ok(None);
        }
        let credential = self.state.buckets.key(credential);
        let accepted = self.state.accepted().contains(credential);
        let draw = if accepted { None } else { self.take(UnauthenticatedKind::Unverified)? };
        Ok(Some(CredentialAttempt { credential, draw }))
    }

    fn draw(&self, kind: UnauthenticatedKind) -> Option<Draw> {
        let quota = coarse::quota(f64::from(self.rate), self.rate.saturating_mul(BURST_SECONDS))?;
        let network = (self.network)()?;
        Some((self.state.buckets.key((network, kind)), quota))
    }
}

#[cfg(test)]
mod tests;
