//! Permits for the calls that one gateway runs at a time, in all and per org, and for its memory.
//!
//! Keeps true: a call holds one permit from its start to its end, even while it waits for an answer; no org takes the
//! permits of all. Refuses: queueing; a rejected caller learns when to retry.

use std::sync::Arc;

use asp_call::call::outcome::Refusal;
use asp_platform::quota::Counts;
use parking_lot::Mutex;

/// Delay after which a rejected caller may retry.
const RETRY_AFTER_MS: u64 = 1_000;

/// Maximum number of calls at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionBounds {
    pub whole: usize,
    pub per_org: usize,
}

impl Default for AdmissionBounds {
    fn default() -> AdmissionBounds {
        AdmissionBounds { whole: 8_192, per_org: 2_048 }
    }
}

/// Maximum memory for the bodies of all requests, and for those of one org, in bytes.
pub const MEMORY: AdmissionBounds = AdmissionBounds { whole: 512 << 20, per_org: 256 << 20 };

/// Maximum memory for the bodies of requests that need no caller, such as login forms, in bytes: in all, and per client
/// network.
pub const MEMORY_OF_NOBODY: AdmissionBounds = AdmissionBounds { whole: 16 << 20, per_org: 2 << 20 };

/// Maximum memory for large headers of open requests, in bytes: in all, and per client network, for all callers there.
const MEMORY_OF_HEADERS: AdmissionBounds = AdmissionBounds { whole: 256 << 20, per_org: 64 << 20 };

/// The permits of one gateway.
pub struct Admission {
    bounds: AdmissionBounds,
    /// Names of the limits, in all and per org.
    limits: [&'static str; 2],
    taken: Mutex<PermitCounts>,
}

/// Memory of one gateway that requests occupy until their calls have ended.
pub struct RequestMemory {
    /// Bodies of requests with a caller, by org.
    pub of_callers: Arc<Admission>,
    /// Bodies of requests that need no caller, by the client's network: they take nothing from known callers.
    pub of_nobody: Arc<Admission>,
    /// Large headers, by the client's network.
    pub of_headers: Arc<Admission>,
}

impl RequestMemory {
    /// Creates the memory budgets; requests with a caller take at most `bounds`, in bytes.
    pub fn new(bounds: AdmissionBounds) -> RequestMemory {
        RequestMemory {
            of_callers: Admission::of(bounds, ["memory of requests", "memory of the org's requests"]),
            of_nobody: Admission::of(
                MEMORY_OF_NOBODY,
                ["memory of logins", "memory of the network's logins"],
            ),
            of_headers: Admission::of(
                MEMORY_OF_HEADERS,
                ["memory of headers", "memory of the network's headers"],
            ),
        }
    }
}

#[derive(Default)]
struct PermitCounts {
    whole: usize,
    orgs: Counts<String>,
}

/// A permit, or an amount, given back on drop.
pub struct AdmissionPermit {
    admission: Arc<Admission>,
    org: String,
    amount: usize,
}

impl Admission {
    pub fn new(bounds: AdmissionBounds) -> Arc<Admission> {
        Admission::of(bounds, ["running calls", "running calls of the org"])
    }

    /// Creates permits for another resource of a gateway: `limits` names it, in all and per org.
    pub fn of(bounds: AdmissionBounds, limits: [&'static str; 2]) -> Arc<Admission> {
        Arc::new(Admission { bounds, limits, taken: Mutex::default() })
    }

    /// Takes a permit for a call of `org`.
    pub fn admit(self: &Arc<Self>, org: &str) -> Result<AdmissionPermit, Refusal> {
        self.take(org, 1)
    }

    /// Returns the maximum that one org may hold.
    pub fn most_of_org(&self) -> usize {
        self.bounds.per_org.min(self.bounds.whole)
    }

    /// Takes `amount` for `org`.
    pub fn take(self: &Arc<Self>, org: &str, amount: usize) -> Result<AdmissionPermit, Refusal> {
        let mut taken = self.taken.lock();
        let limited = |limit| Err(Refusal::Limited { limit, retry_after_ms: RETRY_AFTER_MS });
        let [of_all, of_org] = self.limits;
        if taken.whole.saturating_add(amount) > self.bounds.whole {
            return limited(of_all);
        }
        if !taken.orgs.add_within(self.bounds.per_org, org.to_owned(), amount) {
            return limited(of_org);
        }
        taken.whole += amount;
        Ok(AdmissionPermit { admission: self.clone(), org: org.to_owned(), amount })
    }
}

impl Drop for AdmissionPermit {
    fn drop(&mut self) {
        let mut taken = self.admission.taken.lock();
        taken.whole = taken.whole.saturating_sub(self.amount);
        taken.orgs.remove(&self.org, self.amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forms_of_one_network_leave_memory_to_those_of_others() {
        let logins = RequestMemory::new(MEMORY).of_nobody;
        let _held = logins.take("a", MEMORY_OF_NOBODY.per_org).unwrap();
        assert!(logins.take("a", 1).is_err());
        assert!(logins.take("b", 1).is_ok());
    }

    #[test]
    fn an_org_at_its_bound_leaves_places_to_others_until_all_are_taken() {
        let admission = Admission::new(AdmissionBounds { whole: 3, per_org: 2 });
        let first = admission.admit("acme").unwrap();
        let _second = admission.admit("acme").unwrap();
        let refused = |org: &str| match admission.admit(org) {
            Err(Refusal::Limited { limit, .. }) => limit,
            _ => "admitted",
        };
        assert_eq!(refused("acme"), "running calls of the org");
        let _third = admission.admit("globex").unwrap();
        assert_eq!(refused("initech"), "running calls");
        drop(first);
        assert_eq!(refused("acme"), "admitted");
        assert_eq!(admission.taken.lock().orgs.len(), 2, "an org without a call is not counted");
    }
}
