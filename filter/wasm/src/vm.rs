//! State that outlives a configuration push: the snapshot in force, verified tokens, coarse buckets, counts of log lines.
//!
//! A push gives every VM a new root context, so this state belongs to the thread, not to the context. Two roots deliver
//! the snapshot and the recent revocations into it, in any order. A lower revision than the one in force is not applied
//! (I-5).

use std::cell::RefCell;
use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;
use std::sync::Arc;

use asp_edge::{Edge, EdgeRole, RecentList, Snapshot, SnapshotError};

use crate::refusal_log::RefusalLog;

/// State of one VM.
pub struct Vm {
    pub edge: Edge,
    pub refusals: RefusalLog,
    current: RefCell<Rc<Snapshot>>,
    /// Seeded once from the host's randomness; yields affinity keys without a host call per request.
    seed: RandomState,
    drawn: std::cell::Cell<u64>,
}

/// Result of a configuration.
#[derive(Debug, PartialEq, Eq)]
pub enum ConfigurationResult {
    /// Put in force from the next request on, with its revision.
    InForce(u64),
    /// Older than the one in force, and not applied. Not an error for Envoy, which configures each worker by itself and
    /// takes one worker's refusal for a broken VM.
    Older(u64),
}

impl Default for Vm {
    fn default() -> Vm {
        Vm {
            edge: Edge::new(EdgeRole::Filter),
            refusals: RefusalLog::default(),
            current: RefCell::new(Rc::new(Snapshot::boot())),
            seed: RandomState::new(),
            drawn: std::cell::Cell::new(0),
        }
    }
}

impl Vm {
    /// Decodes a snapshot and puts it in force; an error leaves the old one in force and makes Envoy reject the push.
    pub fn configure(&self, bytes: &[u8]) -> Result<ConfigurationResult, SnapshotError> {
        let snapshot = Snapshot::decode(bytes)?;
        let revision = snapshot.revision();
        let mut current = self.current.borrow_mut();
        if revision < current.revision() {
            return Ok(ConfigurationResult::Older(revision));
        }
        let snapshot = match current.recent() {
            Some(recent) => snapshot.with_recent(recent),
            None => snapshot,
        };
        *current = Rc::new(snapshot);
        Ok(ConfigurationResult::InForce(revision))
    }

    /// Decodes a list of recent revocations and puts it in force with any snapshot; an error leaves the old list.
    pub fn configure_recent(&self, bytes: &[u8]) -> Result<ConfigurationResult, SnapshotError> {
        Ok(self.put_recent(&Arc::new(RecentList::decode(bytes)?)))
    }

    /// Whether a list of recent revocations is in force.
    pub fn has_recent(&self) -> bool {
        self.current.borrow().recent().is_some()
    }

    /// Puts a checked list in force.
    pub fn put_recent(&self, recent: &Arc<RecentList>) -> ConfigurationResult {
        let revision = recent.revision();
        let mut current = self.current.borrow_mut();
        if current.recent().is_some_and(|held| revision < held.revision()) {
            return ConfigurationResult::Older(revision);
        }
        *current = Rc::new(current.with_recent(recent));
        ConfigurationResult::InForce(revision)
    }

    /// Returns the snapshot in force; a request keeps the one it started with.
    pub fn current(&self) -> Rc<Snapshot> {
        Rc::clone(&self.current.borrow())
    }

    /// Returns eight bytes that nobody outside can predict.
    pub fn random(&self) -> [u8; 8] {
        let number = self.drawn.get();
        self.drawn.set(number.wrapping_add(1));
        self.seed.hash_one(number).to_be_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use asp_proto::snapshot::{EdgeSnapshot, RecentRevocations};
    use prost::Message;

    fn snapshot(revision: u64) -> Vec<u8> {
        EdgeSnapshot { revision, public_url: "https://h".into(), ..EdgeSnapshot::default() }.encode_to_vec()
    }

    #[test]
    fn a_higher_or_equal_revision_is_put_in_force_and_a_lower_one_is_not() {
        let vm = Vm::default();
        assert!(vm.current().is_boot());
        assert_eq!(vm.configure(&snapshot(5)).unwrap(), ConfigurationResult::InForce(5));
        assert_eq!(vm.configure(&snapshot(4)).unwrap(), ConfigurationResult::Older(4));
        assert_eq!(vm.configure(b"").unwrap(), ConfigurationResult::Older(0));
        assert_eq!(vm.current().revision(), 5);
        assert_eq!(vm.configure(&snapshot(6)).unwrap(), ConfigurationResult::InForce(6));
    }

    fn apart(revision: u64) -> Vec<u8> {
        let message = EdgeSnapshot {
            revision,
            public_url: "https://h".into(),
            revoked_through: 100,
            revocations_apart: true,
            ..EdgeSnapshot::default()
        };
        message.encode_to_vec()
    }

    fn list(revision: u64) -> Vec<u8> {
        RecentRevocations { revision, since: 100, until: 200, ..RecentRevocations::default() }.encode_to_vec()
    }

    #[test]
    fn snapshot_and_revocations_may_come_in_any_order_and_stay_when_the_other_is_replaced() {
        let (late, early) = (Vm::default(), Vm::default());
        late.configure(&apart(5)).unwrap();
        assert!(!late.current().accepts_tokens() && !late.has_recent());
        assert_eq!(late.configure_recent(&list(3)).unwrap(), ConfigurationResult::InForce(3));
        assert_eq!(early.configure_recent(&list(3)).unwrap(), ConfigurationResult::InForce(3));
        assert!(early.current().is_boot() && early.has_recent());
        early.configure(&apart(5)).unwrap();
        for vm in [&late, &early] {
            assert!(vm.current().accepts_tokens());
            vm.configure(&apart(6)).unwrap();
            assert_eq!(vm.configure_recent(&list(4)).unwrap(), ConfigurationResult::InForce(4));
            assert!(vm.current().accepts_tokens() && vm.current().revision() == 6);
        }
    }

    #[test]
    fn older_revocations_are_not_applied_and_bad_ones_leave_the_old() {
        let vm = Vm::default();
        vm.configure(&apart(5)).unwrap();
        vm.configure_recent(&list(3)).unwrap();
        assert_eq!(vm.configure_recent(&list(2)).unwrap(), ConfigurationResult::Older(2));
        assert!(vm.configure_recent(b"").is_err() && vm.configure_recent(b"\xff\xff").is_err());
        let snapshot = EdgeSnapshot { revision: 9, digest: vec![1; 32], ..EdgeSnapshot::default() };
        assert!(vm.configure_recent(&snapshot.encode_to_vec()).is_err());
        assert_eq!(vm.current().recent().unwrap().revision(), 3);
        assert!(vm.current().accepts_tokens());
    }

    /// Invariant I-5.
    #[test]
    fn a_bad_configuration_leaves_the_old_one_in_force() {
        let vm = Vm::default();
        vm.configure(&snapshot(5)).unwrap();
        assert!(vm.configure(b"\xff\xff").is_err());
        assert_eq!(vm.current().revision(), 5);
    }

    #[test]
    fn no_two_draws_are_equal() {
        let vm = Vm::default();
        let draws: std::collections::HashSet<_> = (0..1000).map(|_| vm.random()).collect();
        assert_eq!(draws.len(), 1000);
        assert!(!draws.contains(&Vm::default().random()));
    }
}
