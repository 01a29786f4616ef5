//! Whether an org may see a server over a protocol.
//!
//! Owns the orgs' exceptions from the servers' defaults. A caller without an org (scheme `none`) has none. Hidden and
//! unknown look the same to the caller (I-10). An exception is four bytes, as in `OrgExposure`: ten thousand orgs with
//! twenty each are about two megabytes, in every Envoy worker. What one org has is shared by the snapshots before
//! and after a change that is not about it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use asp_proto::snapshot::{EdgeSnapshot, ExposureException, OrgExposure, Protocol};

use crate::error::SnapshotError;

/// `number of the server << 3 | protocol << 1 | enabled`; without its last bit it is the case the exception is about.
type Code = u32;
/// Three bits of a code are not the server's.
const MAX_NUMBER: u32 = u32::MAX >> 3;
/// Names that may be kept for nothing: below this a sweep is not worth its while.
const SPARE_NAMES: usize = 1024;

/// Exceptions by org. Clones share everything.
#[derive(Clone, Default)]
pub(crate) struct Exceptions {
    numbers: Numbers,
    /// Sorted, each case once.
    orgs: Arc<HashMap<Arc<str>, Arc<[Code]>>>,
}

impl Exceptions {
    /// Of a message whose servers have names of their own: a code names the server by its position.
    pub(crate) fn index(message: &EdgeSnapshot) -> Result<Exceptions, SnapshotError> {
        let mut numbers = Numbers::default();
        for server in &message.servers {
            numbers.of(&server.name);
        }
        let mut orgs: HashMap<Arc<str>, Vec<Code>> = HashMap::with_capacity(message.exposure.len());
        for (position, entry) in message.exposure.iter().enumerate() {
            let path = format!("exposure[{position}]");
            check(entry, message.servers.len(), &path)?;
            if orgs.insert(entry.org.as_str().into(), entry.exceptions.clone()).is_some() {
                return Err(SnapshotError::invalid(path, "repeats the org of another entry"));
            }
        }
        for (position, entry) in message.exposure_exceptions.iter().enumerate() {
            let path = || format!("exposure_exceptions[{position}]");
            if entry.org.is_empty() {
                return Err(SnapshotError::invalid(path(), "needs an org and a server"));
            }
            let codes = match orgs.get_mut(entry.org.as_str()) {
                Some(codes) => codes,
                None => orgs.entry(entry.org.as_str().into()).or_default(),
            };
            numbers.add(entry, codes).map_err(|fault| SnapshotError::invalid(path(), fault))?;
        }
        for entry in &message.exposure_exceptions {
            if let Some(codes) = orgs.get_mut(entry.org.as_str()) {
                numbers.deny_unknown(entry, codes);
            }
        }
        let orgs = orgs.into_iter().map(|(org, codes)| (org, codes.into())).collect();
        Ok(Exceptions { numbers, orgs: Arc::new(orgs) })
    }

    /// The same with all exceptions of these orgs replaced; servers are named, and need not be there.
    pub(crate) fn with(&self, orgs: &[(&str, &[ExposureException])]) -> Result<Exceptions, SnapshotError> {
        let mut changed = self.clone();
        if orgs.is_empty() {
            return Ok(changed);
        }
        let all = Arc::make_mut(&mut changed.orgs);
        let mut seen = HashSet::new();
        for (org, entries) in orgs {
            if org.is_empty() || !seen.insert(*org) {
                return Err(SnapshotError::invalid(format!("exposure[{org:?}]"), "is no org or given twice"));
            }
            let mut codes = Vec::with_capacity(entries.len());
            for (position, entry) in entries.iter().enumerate() {
                let refused = |fault| SnapshotError::invalid(format!("exposure[{org:?}][{position}]"), fault);
                if !entry.org.is_empty() && entry.org != *org {
                    return Err(refused("is another org's"));
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

    /// The most specific exception, if any: this protocol before all protocols.
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

/// The numbers of servers that exceptions are about.
#[derive(Clone, Default)]
struct Numbers {
    by_name: Arc<HashMap<Arc<str>, u32>>,
    /// Never given twice: a change that takes a name away need not look at every org.
    next: u32,
    /// Names after the last sweep.
    swept: usize,
}

impl Numbers {
    /// The number of `server`, a new one where it has none; `None` when there are no more.
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

    /// Adds an exception to its org's; an error says what is wrong with it.
    fn add(&mut self, entry: &ExposureException, codes: &mut Vec<Code>) -> Result<(), &'static str> {
        if entry.server.is_empty() {
            return Err("needs an org and a server");
        }
        let number = self.of(&entry.server).ok_or("names more servers than have numbers")?;
        // An older reader accepts a newer snapshot; what this denies comes last.
        let Ok(protocol) = Protocol::try_from(entry.protocol) else { return Ok(()) };
        let case = case(number, protocol);
        match codes.binary_search_by_key(&case, |code| code >> 1) {
            Ok(_) => return Err("repeats another exception"),
            Err(position) => codes.insert(position, case << 1 | Code::from(entry.enabled)),
        }
        Ok(())
    }

    /// Denies a server over every protocol that no exception names, if this one denies it over a protocol that this reader does
    /// not know. Comes after all that are known.
    fn deny_unknown(&mut self, entry: &ExposureException, codes: &mut Vec<Code>) {
        if entry.enabled || Protocol::try_from(entry.protocol).is_ok() {
            return;
        }
        // It has one since it was added.
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

    /// Forgets the names that no exception is about any more, once they may be half of all.
    fn sweep(&mut self, orgs: &HashMap<Arc<str>, Arc<[Code]>>) {
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

/// Two bits hold the protocol, and each of their four values is one.
fn check(entry: &OrgExposure, servers: usize, path: &str) -> Result<(), SnapshotError> {
    let refused = |member: &str, fault| Err(SnapshotError::invalid(format!("{path}.{member}"), fault));
    if entry.org.is_empty() {
        return refused("org", "is empty");
    }
    for (position, code) in entry.exceptions.iter().enumerate() {
        let member = || format!("exceptions[{position}]");
        if usize::try_from(code >> 3).is_ok_and(|number| number >= servers) {
            return refused(&member(), "is about a server that is not there");
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
