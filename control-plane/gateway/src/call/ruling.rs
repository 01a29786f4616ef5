//! What bindings said of a call's arguments: for its audit, and for the question whether a person approves it.

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
pub struct Ruling(Mutex<Ruled>);

impl Ruling {
    /// A binding decides, for the arguments with which the call goes on.
    pub(crate) fn decides(&self, rule: Option<String>) {
        self.0.lock().rule = rule;
    }

    /// A binding that is observed would decide; whether it is the first that is heard of.
    pub(crate) fn observes(&self, would: &'static str, rule: String) -> bool {
        let mut ruled = self.0.lock();
        let is_first = ruled.observed.is_none();
        if is_first {
            ruled.observed = Some((would, rule));
        }
        is_first
    }

    pub fn get(&self) -> Ruled {
        self.0.lock().clone()
    }
}
