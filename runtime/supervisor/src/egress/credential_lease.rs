//! Credentials of running calls: the header by which a worker's proxy authenticates requests to one origin.
//!
//! Keeps true: the header goes only to its own origin and is never printed; a worker can use it only while the call
//! that brought it runs. It cannot be known for which of its calls a worker sends a request, so one worker serves specs
//! of a single credential (`PluginKey`).

use std::sync::Arc;

use hyper::header::{HeaderName, HeaderValue};
use parking_lot::Mutex;
use tokio::sync::Notify;

use super::head::{authority, hop_by_hop, same_host};
use super::rules::{PLAIN, TLS};

/// Maximum size of a header's name and of its value in bytes: a token of 16 KiB with its scheme.
const MAX_NAME: usize = 256;
const MAX_VALUE: usize = 17 << 10;

/// The credential of one call.
#[derive(Debug)]
pub struct CredentialLease {
    /// The operator's name for it, for the audit.
    pub(super) name: String,
    origin: Origin,
    header: Mutex<(HeaderName, HeaderValue)>,
    refused: Notify,
}

/// Destination of the credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    pub(super) tls: bool,
    pub(super) host: String,
    pub(super) port: u16,
    /// `host[:port]` as a request has it.
    pub(super) authority: HeaderValue,
}

/// Error: a gateway sent an invalid credential. Does not contain its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadCredential {
    #[error("the credential's origin is not of the form http(s)://host[:port]")]
    Origin,
    #[error("the credential's header is invalid, or belongs to the message or the connection")]
    Header,
    #[error("the credential's value is not valid in a header")]
    Value,
    #[error("the credential is for another origin than the one before it")]
    OtherOrigin,
}

impl CredentialLease {
    pub fn new(
        name: &str,
        origin: &str,
        header: &str,
        value: &str,
    ) -> Result<CredentialLease, BadCredential> {
        Ok(CredentialLease {
            name: name.to_owned(),
            origin: Origin::parse(origin).ok_or(BadCredential::Origin)?,
            header: Mutex::new(checked(header, value)?),
            refused: Notify::new(),
        })
    }

    /// Replaces the header with a newer one for the same origin.
    pub fn renew(&self, origin: &str, header: &str, value: &str) -> Result<(), BadCredential> {
        if Origin::parse(origin).as_ref() != Some(&self.origin) {
            return Err(BadCredential::OtherOrigin);
        }
        *self.header.lock() = checked(header, value)?;
        Ok(())
    }

    /// Waits until the service has refused the credential since the last wait.
    pub async fn wait_for_refusal(&self) {
        self.refused.notified().await;
    }

    pub(super) fn refuse(&self) {
        self.refused.notify_one();
    }

    pub(super) fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(super) fn header(&self) -> (HeaderName, HeaderValue) {
        self.header.lock().clone()
    }
}

impl Origin {
    fn parse(text: &str) -> Option<Origin> {
        let (tls, name) = match text.strip_prefix("https://") {
            Some(name) => (true, name),
            None => (false, text.strip_prefix("http://")?),
        };
        let (host, port) = authority(name, Some(if tls { TLS } else { PLAIN }))?;
        Some(Origin { tls, host, port, authority: name.parse().ok()? })
    }

    /// Whether a request that a worker sends to the proxy without TLS, for this host and port, is meant for this
    /// origin. For an origin of TLS at its default port, the default port of plain HTTP matches too, because clients
    /// write such requests that way.
    fn applies_to(&self, host: &str, port: u16) -> bool {
        let usual = self.tls && self.port == TLS && port == PLAIN;
        same_host(&self.host, host) && (port == self.port || usual)
    }
}

fn checked(header: &str, value: &str) -> Result<(HeaderName, HeaderValue), BadCredential> {
    let name = HeaderName::try_from(header).ok().filter(|_| header.len() <= MAX_NAME);
    let name = name.filter(|name| !hop_by_hop(name.as_str())).ok_or(BadCredential::Header)?;
    let value = HeaderValue::from_str(value).ok().filter(|value| value.len() <= MAX_VALUE);
    let mut value = value.filter(|value| !value.is_empty()).ok_or(BadCredential::Value)?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// The credentials of the running calls of one worker: one each, and a worker has few calls.
#[derive(Debug, Default)]
pub struct ActiveCredentials(Mutex<Vec<Arc<CredentialLease>>>);

/// Use of a call's credential, until this is dropped.
#[derive(Debug)]
pub struct CredentialUse {
    credentials: Arc<ActiveCredentials>,
    lease: Arc<CredentialLease>,
}

impl ActiveCredentials {
    pub fn activate(self: &Arc<Self>, lease: &Arc<CredentialLease>) -> CredentialUse {
        self.0.lock().push(Arc::clone(lease));
        CredentialUse { credentials: Arc::clone(self), lease: Arc::clone(lease) }
    }

    /// Returns the credential for a request to this host and port; the newest if several calls brought one.
    pub(super) fn find(&self, host: &str, port: u16) -> Option<Arc<CredentialLease>> {
        let all = self.0.lock();
        all.iter().rev().find(|lease| lease.origin.applies_to(host, port)).cloned()
    }

    /// Returns the credential itself while its call runs, otherwise the newest of another running call for the same
    /// origin.
    pub(super) fn current(&self, lease: &Arc<CredentialLease>) -> Option<Arc<CredentialLease>> {
        let all = self.0.lock();
        let own = all.iter().find(|other| Arc::ptr_eq(other, lease));
        own.or_else(|| all.iter().rev().find(|other| other.origin == lease.origin)).cloned()
    }
}

impl Drop for CredentialUse {
    fn drop(&mut self) {
        self.credentials.0.lock().retain(|lease| !Arc::ptr_eq(lease, &self.lease));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lease(origin: &str) -> Arc<CredentialLease> {
        Arc::new(CredentialLease::new("crm", origin, "x-api-key", "hunter2").unwrap())
    }

    #[test]
    fn a_credential_is_not_printed() {
        let printed = format!("{:?}", lease("https://crm.example.com"));
        assert!(printed.contains("crm.example.com") && !printed.contains("hunter2"), "{printed}");
    }

    #[test]
    fn what_is_no_credential_is_refused() {
        let long = "x".repeat(MAX_VALUE + 1);
        for (origin, header, value, expected) in [
            ("", "x-api-key", "a", BadCredential::Origin),
            ("crm.example.com", "x-api-key", "a", BadCredential::Origin),
            ("ftp://crm.example.com", "x-api-key", "a", BadCredential::Origin),
            ("https://", "x-api-key", "a", BadCredential::Origin),
            ("https://crm.example.com/", "x-api-key", "a", BadCredential::Origin),
            ("https://user@crm.example.com", "x-api-key", "a", BadCredential::Origin),
            ("https://crm.example.com:0x50", "x-api-key", "a", BadCredential::Origin),
            ("https://crm.example.com\r\nx: y", "x-api-key", "a", BadCredential::Origin),
            ("https://crm.example.com", "", "a", BadCredential::Header),
            ("https://crm.example.com", "x api", "a", BadCredential::Header),
            ("https://crm.example.com", "x\r\ny", "a", BadCredential::Header),
            ("https://crm.example.com", "Host", "a", BadCredential::Header),
            ("https://crm.example.com", "content-length", "1", BadCredential::Header),
            ("https://crm.example.com", "Transfer-Encoding", "chunked", BadCredential::Header),
            ("https://crm.example.com", "connection", "a", BadCredential::Header),
            ("https://crm.example.com", "x-api-key", "", BadCredential::Value),
            ("https://crm.example.com", "x-api-key", "a\r\nx: y", BadCredential::Value),
            ("https://crm.example.com", "x-api-key", "a\0", BadCredential::Value),
            ("https://crm.example.com", "x-api-key", &long, BadCredential::Value),
        ] {
            let refused = CredentialLease::new("crm", origin, header, value).unwrap_err();
            assert_eq!(refused, expected, "{origin:?} {header:?} {value:.20?}");
        }
    }

    #[test]
    fn a_newer_header_is_for_the_same_origin() {
        let lease = lease("https://crm.example.com");
        lease.renew("https://crm.example.com", "x-api-key", "other").unwrap();
        assert_eq!(lease.header().1, "other");
        for origin in ["http://crm.example.com", "https://crm.example.com:8443", "https://evil.example", ""] {
            let refused = lease.renew(origin, "x-api-key", "third").unwrap_err();
            assert_eq!(refused, BadCredential::OtherOrigin, "{origin}");
        }
        assert_eq!(lease.header().1, "other");
    }

    #[test]
    fn requests_for_its_own_origin_have_it_while_a_call_runs_that_brought_it() {
        for (origin, host, port, has) in [
            ("https://crm.example.com", "crm.example.com", 80, true),
            ("https://crm.example.com", "CRM.example.com.", 443, true),
            ("https://crm.example.com", "crm.example.com", 8443, false),
            ("https://crm.example.com", "api.crm.example.com", 80, false),
            ("https://crm.example.com", "crm.example.com.evil.example", 80, false),
            ("https://crm.example.com:8443", "crm.example.com", 8443, true),
            ("https://crm.example.com:8443", "crm.example.com", 80, false),
            ("https://crm.example.com:8443", "crm.example.com", 443, false),
            ("http://crm.example.com", "crm.example.com", 80, true),
            ("http://crm.example.com", "crm.example.com", 443, false),
            ("http://crm.example.com:443", "crm.example.com", 80, false),
            ("https://[2001:db8::1]:8443", "2001:db8::1", 8443, true),
        ] {
            let credentials = Arc::new(ActiveCredentials::default());
            assert!(credentials.find(host, port).is_none());
            let active = credentials.activate(&lease(origin));
            assert_eq!(credentials.find(host, port).is_some(), has, "{origin} {host} {port}");
            drop(active);
            assert!(credentials.find(host, port).is_none(), "{origin} is forgotten with its call");
        }
    }

    #[test]
    fn the_newest_calls_is_used_and_another_calls_stays_when_it_ends() {
        let credentials = Arc::new(ActiveCredentials::default());
        let (first, second) = (lease("https://crm.example.com"), lease("https://crm.example.com"));
        let _first = credentials.activate(&first);
        let active = credentials.activate(&second);
        assert!(Arc::ptr_eq(&credentials.find("crm.example.com", 80).unwrap(), &second));
        let current = |lease| credentials.current(lease).unwrap();
        assert!(Arc::ptr_eq(&current(&first), &first) && Arc::ptr_eq(&current(&second), &second));
        drop(active);
        assert!(Arc::ptr_eq(&current(&second), &first));
        assert!(credentials.current(&lease("https://other.example.com")).is_none());
        assert!(Arc::ptr_eq(&credentials.find("crm.example.com", 80).unwrap(), &first));
    }
}
