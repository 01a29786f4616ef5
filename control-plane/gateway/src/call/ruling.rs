//! What bindings said of a call's arguments, and whether a person has approved it: for its audit, for the question, and
//! for a gateway that goes on with it, so that nobody is asked twice.

use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Which bindings spoke, in words; the arguments themselves are never kept here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ruled {
    /// The binding that refused it, or had a person asked.
    pub rule: Option<String>,
    /// What would have come of it by a binding that is observed, and that binding.
    pub observed: Option<(&'static str, String)>,
}

/// The same, while the call runs.
#[derive(Debug, Default)]
pub struct Ruling {
    ruled: Mutex<Ruled>,
    approved: AtomicBool,
}

impl Ruling {
    /// A binding decides, for the arguments with which the call goes on.
    pub(crate) fn decides(&self, rule: Option<String>) {
        self.ruled.lock().rule = rule;
    }

    /// A binding that is observed would decide; whether it is the first that is heard of.
    pub(crate) fn observes(&self, would: &'static str, rule: String) -> bool {
        let mut ruled = self.ruled.lock();
        let is_first = ruled.observed.is_none();
        if is_first {
            ruled.observed = Some((would, rule));
        }
        is_first
    }

    pub fn get(&self) -> Ruled {
        self.ruled.lock().clone()
    }

    /// A person has approved the call, here or at the gateway that had it before.
    pub(crate) fn approve(&self) {
        self.approved.store(true, Ordering::Release);
    }

    pub(crate) fn is_approved(&self) -> bool {
        self.approved.load(Ordering::Acquire)
    }
}
