//! Budgets for the parts of a snapshot, in encoded bytes: for one org, and for all orgs together.
//!
//! Owns the limits and the rule for refusing a write. A write may always shrink what is stored. A reserve of the total
//! is kept for small orgs, and part of that reserve for admins of the platform, so that full orgs take nothing away
//! from the others. [`super::build`] handles stored data that exceeds a budget nevertheless.

use prost::Message;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// Limit of the whole edge snapshot, which every Envoy worker copies (`snapshot.proto`).
pub const EDGE: usize = 4 * MIB;
/// Limit of the whole gateway snapshot, including the edge's.
pub const GATEWAY: usize = 144 * MIB;
/// Compiled servers and their primitives.
pub const SERVERS: PlatformBudget =
    PlatformBudget { what: "servers and their primitives", bytes: 36 * MIB, remedy: FEWER_SERVERS };
/// Servers in the edge snapshot.
pub const EDGE_SERVERS: PlatformBudget =
    PlatformBudget { what: "servers at the edge", bytes: 256 * KIB, remedy: FEWER_SERVERS };
const FEWER_SERVERS: &str = "delete a server that is no longer needed, or shorten schemas and texts";
/// Routes, including those in the servers' own files.
pub const ROUTES: PlatformBudget = PlatformBudget {
    what: "routes at the edge",
    bytes: 64 * KIB,
    remedy: "route whole servers or every primitive (`*`), or leave `pool` to the server",
};
/// Home regions of orgs.
pub const HOMES: PlatformBudget = PlatformBudget {
    what: "homes of orgs",
    bytes: 128 * KIB,
    remedy: "name many orgs by one pattern (`prefix*`, `*`), or delete homes that say no other than the pattern",
};
/// Issuers with their keys.
pub const ISSUERS: usize = asp_issuers::faults::ISSUERS_BYTES;
/// Keys and certificates of machines, which only gateways receive.
pub const MACHINE_KEYS: usize = asp_store::control::MAX_MACHINE_KEYS * KIB;
/// Part of a gateway snapshot left free for upstreams, digests and framing.
pub const SLACK: usize = MIB;
/// Maximum length of the tag and length prefix of an entry in a repeated field.
pub const FRAMING: usize = 6;

/// Encoded bytes of the entries of a repeated field.
pub fn bytes(messages: &[impl Message]) -> usize {
    messages.iter().map(|message| message.encoded_len() + FRAMING).sum()
}

/// Budget of one kind of data that belongs to the platform, not to orgs.
#[derive(Debug)]
pub struct PlatformBudget {
    pub what: &'static str,
    pub bytes: usize,
    pub remedy: &'static str,
}

impl PlatformBudget {
    /// Admits a write after which the data takes `all` bytes; a write that adds nothing is always admitted.
    pub fn admit(&self, grows: bool, all: usize) -> Result<(), BudgetError> {
        if !grows || all <= self.bytes {
            return Ok(());
        }
        let remedy = self.remedy;
        Err(BudgetError::Beyond { what: self.what, scope: "together", bytes: all, bound: self.bytes, remedy })
    }
}

/// Budget of one kind of data that orgs share.
#[derive(Debug)]
pub struct OrgBudget {
    pub what: &'static str,
    /// Limit for all orgs together.
    pub whole: usize,
    /// Limit for one org.
    pub org: usize,
    /// Last bytes of the whole, for orgs with at most `small` bytes; half of them are for the platform alone.
    pub reserve: usize,
    pub small: usize,
}

/// Exposure exceptions in the edge snapshot.
pub const EXPOSURE: OrgBudget =
    OrgBudget { what: "exposure exceptions", whole: MIB, org: 128 * KIB, reserve: 256 * KIB, small: 4 * KIB };
/// Policies of orgs in the gateway snapshot.
pub const POLICY: OrgBudget = OrgBudget {
    what: "bindings, rate limits and exposure exceptions",
    whole: 96 * MIB,
    org: 2 * MIB,
    reserve: 4 * MIB,
    small: 64 * KIB,
};
/// Live revocations, which both edges and gateways receive.
pub const REVOCATIONS: OrgBudget = OrgBudget {
    what: "live revocations",
    whole: 2 * MIB,
    org: 160 * KIB,
    reserve: 768 * KIB,
    small: 4 * KIB,
};

/// Bytes of an org before and after a write, and those of the other orgs.
#[derive(Clone, Copy, Debug)]
pub struct Growth {
    pub before: usize,
    pub after: usize,
    /// Bytes of all other orgs.
    pub others: usize,
    /// Whether the writer is an admin of the platform.
    pub platform: bool,
}

/// A write that exceeds a budget.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    #[error("the {what} {scope} would take {bytes} bytes of a snapshot, {bound} is the limit: {remedy}")]
    Beyond { what: &'static str, scope: &'static str, bytes: usize, bound: usize, remedy: &'static str },
    /// Does not report what the other orgs use: an org could see from it when another one writes.
    #[error("the budget that all orgs share for {what} is used up: {remedy}")]
    Shared { what: &'static str, remedy: &'static str },
}

impl OrgBudget {
    /// Admits a write that is within the budget.
    pub fn admit(&self, growth: Growth) -> Result<(), BudgetError> {
        let Growth { before, after, others, platform } = growth;
        if after <= before {
            return Ok(());
        }
        // The platform's revocations in an org must not fail because the org has used up its budget.
        if after > self.org && !platform {
            let remedy = "delete unneeded entries, or replace them by fewer and wider ones";
            return Err(BudgetError::Beyond {
                what: self.what,
                scope: "of this org",
                bytes: after,
                bound: self.org,
                remedy,
            });
        }
        let bound = match (platform, after <= self.small) {
            (true, _) => self.whole,
            (false, true) => self.whole - self.reserve / 2,
            (false, false) => self.whole - self.reserve,
        };
        let bytes = others + after;
        if bytes > bound {
            let what = self.what;
            let remedy = "an admin of the platform may still write, and delete unneeded entries";
            return Err(match platform {
                true => BudgetError::Beyond { what, scope: "of all orgs", bytes, bound, remedy },
                false => BudgetError::Shared { what, remedy },
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARE: OrgBudget = OrgBudget { what: "things", whole: 1_000, org: 300, reserve: 200, small: 20 };

    fn admits(before: usize, after: usize, all: usize, platform: bool) -> bool {
        SHARE.admit(Growth { before, after, others: all - before, platform }).is_ok()
    }

    #[test]
    fn an_org_grows_up_to_its_share_and_may_always_shrink() {
        assert!(admits(0, 300, 0, false) && !admits(0, 301, 0, false));
        assert!(admits(5_000, 4_999, 9_000, false), "older data may shrink");
        assert!(!admits(5_000, 5_001, 9_000, false));
    }

    #[test]
    fn full_orgs_leave_room_for_small_ones_and_for_the_platform() {
        assert!(
            admits(0, 100, 700, false) && !admits(0, 101, 700, false),
            "the reserve is not for large orgs"
        );
        assert!(
            admits(0, 20, 880, false) && !admits(0, 21, 880, false),
            "an org with little has the reserve"
        );
        assert!(!admits(0, 20, 881, false) && admits(0, 20, 980, true), "half of it is the platform's");
        assert!(!admits(0, 21, 980, true));
    }

    #[test]
    fn a_refusal_says_what_is_full_and_the_way_out() {
        let full = SHARE.admit(Growth { before: 0, after: 301, others: 0, platform: false }).unwrap_err();
        let text = full.to_string();
        assert!(text.contains("things of this org would take 301 bytes") && text.contains("300"), "{text}");
        assert!(text.contains("delete unneeded entries"), "{text}");
    }

    #[test]
    fn an_org_is_told_that_the_shared_room_is_used_up_and_not_by_whom_or_how_much() {
        let refused = |platform| {
            let growth = Growth { before: 0, after: 200, others: 987, platform };
            SHARE.admit(growth).unwrap_err().to_string()
        };
        let told = refused(false);
        assert!(told.contains("budget that all orgs share for things is used up"), "{told}");
        assert!(!told.contains(|c: char| c.is_ascii_digit()), "{told}");
        assert!(refused(true).contains("1187"), "the platform's admins see it");
    }

    #[test]
    fn the_parts_fit_into_the_whole() {
        const COARSE: usize = 320 * KIB;
        const PLACED: usize = ROUTES.bytes + HOMES.bytes;
        const {
            assert!(
                REVOCATIONS.whole + EXPOSURE.whole + COARSE + EDGE_SERVERS.bytes + ISSUERS + PLACED <= EDGE
            )
        };
        const { assert!(SERVERS.bytes + POLICY.whole + EDGE + MACHINE_KEYS + SLACK <= GATEWAY) };
    }
}
