//! Whether an org may see a server over a protocol.
//!
//! Owns the server's default and the org's exceptions to it. A caller without an org (scheme `none`) gets the
//! default. Hidden and unknown look the same to the caller (I-10).

use std::collections::HashMap;

use asp_proto::snapshot::{ExposureException, Protocol};

use crate::error::SnapshotError;

/// Exceptions by (org, server, protocol number); protocol 0 covers every protocol.
#[derive(Default)]
pub(crate) struct Exceptions {
    enabled: HashMap<(String, String, i32), bool>,
}

impl Exceptions {
    pub(crate) fn index(messages: &[ExposureException]) -> Result<Exceptions, SnapshotError> {
        let mut enabled = HashMap::new();
        for (position, entry) in messages.iter().enumerate() {
            let path = format!("exposure_exceptions[{position}]");
            if entry.org.is_empty() || entry.server.is_empty() {
                return Err(SnapshotError::invalid(path, "needs an org and a server"));
            }
            let key = (entry.org.clone(), entry.server.clone(), entry.protocol);
            if enabled.insert(key, entry.enabled).is_some() {
                return Err(SnapshotError::invalid(path, "repeats another exception"));
            }
        }
        Ok(Exceptions { enabled })
    }

    /// The most specific exception, if any: this protocol before all protocols.
    pub(crate) fn of(&self, org: &str, server: &str, protocol: Protocol) -> Option<bool> {
        if self.enabled.is_empty() {
            return None;
        }
        let find = |protocol: i32| self.enabled.get(&(org.to_owned(), server.to_owned(), protocol)).copied();
        find(protocol as i32).or_else(|| find(Protocol::Unspecified as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exception(protocol: Protocol, enabled: bool) -> ExposureException {
        ExposureException { org: "o".into(), server: "s".into(), protocol: protocol as i32, enabled }
    }

    #[test]
    fn an_exception_for_the_protocol_beats_one_for_all() {
        let list = [exception(Protocol::Unspecified, false), exception(Protocol::A2a, true)];
        let exceptions = Exceptions::index(&list).unwrap();
        assert_eq!(exceptions.of("o", "s", Protocol::Mcp), Some(false));
        assert_eq!(exceptions.of("o", "s", Protocol::A2a), Some(true));
        assert_eq!(exceptions.of("p", "s", Protocol::A2a), None);
        assert_eq!(exceptions.of("o", "t", Protocol::A2a), None);
    }

    #[test]
    fn two_exceptions_for_one_case_are_refused() {
        assert!(
            Exceptions::index(&[exception(Protocol::Mcp, true), exception(Protocol::Mcp, false)]).is_err()
        );
    }
}
