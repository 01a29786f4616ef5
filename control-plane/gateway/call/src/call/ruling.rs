//! Decisions of bindings on a call's arguments, and whether a person has approved it: for the audit, for the question,
//! and for a gateway that continues the call, so that nobody is asked twice.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// The bindings that decided, in words; the arguments themselves are never kept here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RulingSummary {
    /// Binding or exposure that refused the call, or binding that required an approval.
    pub rule: Option<String>,
    /// Whether the rule hides the primitive from the caller, who gets the answer for one that does not exist.
    pub hides: bool,
    /// Effect that an observed binding would have had, and that binding.
    pub observed: Option<(&'static str, String)>,
}

/// The persons who may approve a call, if its caller may not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approvers {
    pub group: String,
    /// Name of the issuer whose groups count; empty for the caller's, `*` for every issuer.
    pub issuer: String,
    /// Version of the org's policy that names them.
    pub policy: [u8; 32],
}

/// Decisions while the call runs.
#[derive(Debug, Default)]
pub struct Ruling {
    ruled: Mutex<RulingSummary>,
    approvers: Mutex<Option<Approvers>>,
    approved: AtomicBool,
}

impl Ruling {
    /// Records the binding that decides, for the arguments with which the call continues.
    pub fn decides(&self, rule: Option<String>) {
        self.ruled.lock().rule = rule;
    }

    /// Records who must approve the call; `None`: its caller.
    pub fn requires(&self, approvers: Option<Approvers>) {
        *self.approvers.lock() = approvers;
    }

    /// Returns who must approve the call; `None`: its caller.
    pub fn approvers(&self) -> Option<Approvers> {
        self.approvers.lock().clone()
    }

    /// Records the rule that hides the call's primitive from its caller.
    pub fn hides(&self, rule: String) {
        let mut ruled = self.ruled.lock();
        ruled.rule = Some(rule);
        ruled.hides = true;
    }

    /// Records the effect that an observed binding would have; true for the first.
    pub fn observes(&self, would: &'static str, rule: String) -> bool {
        let mut ruled = self.ruled.lock();
        let is_first = ruled.observed.is_none();
        if is_first {
            ruled.observed = Some((would, rule));
        }
        is_first
    }

    pub fn get(&self) -> RulingSummary {
        self.ruled.lock().clone()
    }

    /// Records that a person has approved the call, here or at the gateway that ran it before.
    pub fn approve(&self) {
        self.approved.store(true, Ordering::Release);
    }

    pub fn is_approved(&self) -> bool {
        self.approved.load(Ordering::Acquire)
    }
}
