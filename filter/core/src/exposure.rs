//! Whether an org may see a server over a protocol.
//!
//! Owns the orgs' exceptions from the servers' defaults. A caller without an org (scheme `none`) has no exceptions.
//! Hidden and unknown look the same to the caller (I-10). An exception is four bytes, as in `OrgExposure`: ten thousand
//! orgs with twenty exceptions each take about two megabytes in every Envoy worker. Successive snapshots share the
//! exceptions of an org that a change does not touch.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use asp_proto::snapshot::{EdgeSnapshot, ExposureException, OrgExposure, Protocol};

use crate::error::SnapshotError;

/// Exception as `number of the server << 3 | protocol << 1 | enabled`; all bits but the last name its server and
/// protocol.
type ExceptionCode = u32;
/// Largest server number; the other three bits of a code hold the protocol and the flag.
const MAX_NUMBER: u32 = u32::MAX >> 3;
/// Number of unused names to tolerate before a sweep is worth its cost.
const SPARE_NAMES: usize = 1024;

/// Exceptions by org. Clones share everything.
#[derive(Clone, Default)]
pub(crate) struct Exceptions {
    numbers: Numbers,
    /// Codes of each org, sorted by server and protocol, without repetition.
    orgs: Arc<HashMap<Arc<str>, Arc<[ExceptionCode]>>>,
}

impl Exceptions {
    /// Indexes a message in which each server has a name of its own: a code refers to its server by position.
    pub(crate) fn index(message: &EdgeSnapshot) -> Result<Exceptions, SnapshotError> {
        let mut numbers = Numbers::default();
        for server in &message.servers {
            numbers.of(&server.name);
        }
        let mut orgs: HashMap<Arc<str>, Arc<[ExceptionCode]>> =
            HashMap::with_capacity(message.exposure.len());
        for (position, entry) in message.exposure.iter().enumerate() {
            let path = format!("exposure[{position}]");
            check(entry, message.servers.len(), &path)?;
            if orgs.insert(entry.org.as_str().into(), entry.exceptions.as_slice().into()).is_some() {
                return Err(SnapshotError::invalid(path, "repeats the org of another entry"));
            }
        }
        Ok(Exceptions { numbers, orgs: Arc::new(orgs) })
    }

    /// Returns a copy in which all exceptions of these orgs are replaced. Servers are given by name and need not exist.
    pub(crate) fn with(&self, orgs: &[(&str, &[ExposureException])]) -> Result<Exceptions, SnapshotError> {
        let mut changed = self.clone();
        if orgs.is_empty() {
            return Ok(changed);
        }
        let all = Arc::make_mut(&mut changed.orgs);
        let mut seen = HashSet::new();
        for (org, entries) in orgs {
            if org.is_empty() || !seen.insert(*org) {
                return Err(SnapshotError::invalid(
                    format!("exposure[{org:?}]"),
                    "is empty or repeats an org",
                ));
            }
            let mut codes = Vec::with_capacity(entries.len());
            for (position, entry) in entries.iter().enumerate() {
                let refused = |fault| SnapshotError::invalid(format!("exposure[{org:?}][{position}]"), fault);
                if !entry.org.is_empty() && entry.org != *org {
                    return Err(refused("belongs to another org"));
                }
                changed.numbers.add(entry, &mut codes).map_err(refused)?;
            }
            entries.iter().for_each(|entry| changed.numbers.deny_unknown(entry, &mut codes));
            match codes.is_empty() {
                true => drop(all.remove(*org)),
                false => drop(all.insert((*org).into(), codes.into())),
            }
        }
        changed.numbers.sweep(all);
        Ok(changed)
    }

    /// Returns the most specific exception, if any: this protocol takes precedence over all protocols.
    pub(crate) fn of(&self, org: &str, server: &str, protocol: Protocol) -> Option<bool> {
        let codes = self.orgs.get(org)?;
        let number = *self.numbers.by_name.get(server)?;
        let find = |protocol: Protocol| {
            let position = codes.binary_search_by_key(&case(number, protocol), |code| code >> 1).ok()?;
            codes.get(position).map(|code| code & 1 == 1)
        };
        find(protocol).or_else(|| find(Protocol::Unspecified))
    }

    #[cfg(test)]
    pub(crate) fn shares_all(&self, other: &Exceptions) -> bool {
        Arc::ptr_eq(&self.orgs, &other.orgs) && Arc::ptr_eq(&self.numbers.by_name, &other.numbers.by_name)
    }
}

/// Numbers of the servers that exceptions refer to.
#[derive(Clone, Default)]
struct Numbers {
    by_name: Arc<HashMap<Arc<str>, u32>>,
    /// Next free number. Numbers are never reused, so a change that removes a name need not search every org.
    next: u32,
    /// Number of names after the last sweep.
    swept: usize,
}

impl Numbers {
    /// Returns the number of `server`, assigning one if it has none; `None` when no numbers are left.
    fn of(&mut self, server: &str) -> Option<u32> {
        if let Some(number) = self.by_name.get(server) {
            return Some(*number);
        }
        let number = self.next;
        if number > MAX_NUMBER {
            return None;
        }
        self.next += 1;
        Arc::make_mut(&mut self.by_name).insert(server.into(), number);
        Some(number)
    }

    /// Adds an exception to those of its org; the error says what is wrong with it.
    fn add(&mut self, entry: &ExposureException, codes: &mut Vec<ExceptionCode>) -> Result<(), &'static str> {
        if entry.server.is_empty() {
            return Err("needs an org and a server");
        }
        let number = self.of(&entry.server).ok_or("exceeds the maximum number of servers")?;
        // Unknown protocol: an older reader accepts a newer snapshot; `deny_unknown` applies the denial at the end.
        let Ok(protocol) = Protocol::try_from(entry.protocol) else { return Ok(()) };
        let case = case(number, protocol);
        match codes.binary_search_by_key(&case, |code| code >> 1) {
            Ok(_) => return Err("repeats another exception"),
            Err(position) => codes.insert(position, case << 1 | ExceptionCode::from(entry.enabled)),
        }
        Ok(())
    }

    /// Denies a server over every protocol without an exception of its own if `entry` denies it over a protocol that
    /// this reader does not know. Runs after all known exceptions were added.
    fn deny_unknown(&mut self, entry: &ExposureException, codes: &mut Vec<ExceptionCode>) {
        if entry.enabled || Protocol::try_from(entry.protocol).is_ok() {
            return;
        }
        // `add` has assigned a number.
        let Some(number) = self.of(&entry.server) else { return };
        let denied = case(number, Protocol::Unspecified) << 1;
        match codes.binary_search_by_key(&(denied >> 1), |code| code >> 1) {
            Ok(position) => {
                if let Some(code) = codes.get_mut(position) {
                    *code = denied;
                }
            }
            Err(position) => codes.insert(position, denied),
        }
    }

    /// Drops the names that no exception refers to, once they may be more than half of all names.
    fn sweep(&mut self, orgs: &HashMap<Arc<str>, Arc<[ExceptionCode]>>) {
        if self.by_name.len() <= 2 * self.swept + SPARE_NAMES {
            return;
        }
        let used: HashSet<u32> = orgs.values().flat_map(|codes| codes.iter().map(|code| code >> 3)).collect();
        let by_name = Arc::make_mut(&mut self.by_name);
        by_name.retain(|_, number| used.contains(number));
        self.swept = by_name.len();
    }
}

fn case(number: u32, protocol: Protocol) -> u32 {
    number << 2 | (protocol as u32)
}

/// Checks the codes of one org. Their protocols need no check: two bits hold the protocol, and each of the four values
/// is valid.
fn check(entry: &OrgExposure, servers: usize, path: &str) -> Result<(), SnapshotError> {
    let refused = |member: &str, fault| Err(SnapshotError::invalid(format!("{path}.{member}"), fault));
    if entry.org.is_empty() {
        return refused("org", "is empty");
    }
    for (position, code) in entry.exceptions.iter().enumerate() {
        let member = || format!("exceptions[{position}]");
        if usize::try_from(code >> 3).is_ok_and(|number| number >= servers) {
            return refused(&member(), "refers to a server that is not in the snapshot");
        }
        let before = position.checked_sub(1).and_then(|before| entry.exceptions.get(before));
        if before.is_some_and(|before| before >> 1 >= code >> 1) {
            return refused(&member(), "is out of order or repeats another exception");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
