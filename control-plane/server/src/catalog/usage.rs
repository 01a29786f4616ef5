//! Snapshot bytes of every org, as far as this process knows, and the budgets that orgs share.
//!
//! Owns the totals against which writes are checked (those of the last build, plus the writes of this process since), and
//! the rule for refusing a write. A write may always shrink what is stored. A reserve of the total is kept for small orgs,
//! and part of that reserve for admins of the platform, so that full orgs take nothing away from the others.
//! Keeps true: a write in progress counts, so that two writes that fit only individually do not both pass; no caller
//! waits for another. Writes of other processes to the same database count from the next poll of the store
//! ([`crate::publisher::POLL`]), so that two processes together may exceed a budget by what is written within that
//! time. No budget guards memory or correctness: [`super::build`] handles what does not fit.

use std::collections::{HashMap, VecDeque};

use asp_platform::clock;
use asp_store::control::{Commit, ControlState, RevocationRecord};
use parking_lot::Mutex;
use prost::Message as _;

use super::budget::{BudgetError, FRAMING, KIB, MIB};
use super::orgs::{self, OrgPolicy, Records, Size};
use crate::policy::{self, RevocationEntries};

/// Minimum bytes of a revocation: one entry in `EdgeSnapshot.revoked`.
const REVOCATION: usize = 16;
/// Maximum number of writes kept individually since the last read of the store. That read is usually a moment ago; if
/// it keeps failing, the oldest writes are added to the totals.
const MAX_WRITES: usize = 10_000;

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
struct Growth {
    before: usize,
    after: usize,
    /// Bytes of all other orgs.
    others: usize,
    /// Whether the writer is an admin of the platform.
    platform: bool,
}

impl OrgBudget {
    /// Admits a write that is within the budget.
    fn admit(&self, growth: Growth) -> Result<(), BudgetError> {
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

/// Kind of data that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetKind {
    Exposure,
    /// Bindings and rate limits.
    Policy,
    Revocations,
}

impl BudgetKind {
    const fn budget(self) -> &'static OrgBudget {
        match self {
            BudgetKind::Exposure => &EXPOSURE,
            BudgetKind::Policy => &POLICY,
            BudgetKind::Revocations => &REVOCATIONS,
        }
    }
}

/// Snapshot bytes of one org.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Bytes {
    exposure: usize,
    policy: usize,
    revocations: usize,
}

impl Bytes {
    const fn of(&self, part: BudgetKind) -> usize {
        match part {
            BudgetKind::Exposure => self.exposure,
            BudgetKind::Policy => self.policy,
            BudgetKind::Revocations => self.revocations,
        }
    }

    const fn of_mut(&mut self, part: BudgetKind) -> &mut usize {
        match part {
            BudgetKind::Exposure => &mut self.exposure,
            BudgetKind::Policy => &mut self.policy,
            BudgetKind::Revocations => &mut self.revocations,
        }
    }
}

/// Bytes of every org at one revision of the store.
pub struct Totals {
    revision: u64,
    orgs: HashMap<String, Bytes>,
}

impl Totals {
    /// Joins the sizes of the policies and of the revocations of each org.
    pub fn new<'a>(
        revision: u64,
        policies: impl Iterator<Item = (&'a str, Size)>,
        revocations: impl Iterator<Item = (&'a String, usize)>,
    ) -> Totals {
        let of = |(org, size): (&str, Size)| {
            (org.to_owned(), Bytes { exposure: size.exposure, policy: size.policy(), revocations: 0 })
        };
        let mut orgs: HashMap<String, Bytes> = policies.map(of).collect();
        for (org, bytes) in revocations {
            orgs.entry(org.clone()).or_default().revocations = bytes;
        }
        Totals { revision, orgs }
    }

    /// Computes the totals of `state`; takes as long as compiling all policies.
    pub fn of(state: &ControlState, issuers: &[String]) -> Totals {
        let mut totals = Totals { revision: state.revision, orgs: HashMap::new() };
        for (org, records) in orgs::of_state(state) {
            let size = size(org, &records);
            let bytes = Bytes { exposure: size.exposure, policy: size.policy(), revocations: 0 };
            totals.orgs.insert(org.to_owned(), bytes);
        }
        let now = clock::now_ms();
        for record in state.revocations.iter().filter(|record| record.until > now) {
            totals.orgs.entry(record.org.clone()).or_default().revocations +=
                revocation_bytes(record, issuers);
        }
        totals
    }
}

/// Totals of all orgs; as many entries as the store has orgs.
#[derive(Default)]
pub struct Usage {
    known: Mutex<UsageCounts>,
}

#[derive(Default)]
struct UsageCounts {
    /// Revision of the last read of the store; `None` before the first.
    revision: Option<u64>,
    orgs: HashMap<String, Bytes>,
    /// Writes in the order in which they began.
    writes: VecDeque<Write>,
    begun: u64,
}

/// A write of this process that the last read of the store does not include.
struct Write {
    id: u64,
    org: String,
    part: BudgetKind,
    grown: isize,
    /// Revision of the write; `None` while it is in progress.
    revision: Option<u64>,
}

impl Usage {
    /// Whether the store has been read.
    pub fn is_known(&self) -> bool {
        self.known.lock().revision.is_some()
    }

    /// Takes the totals of a read of the store.
    pub fn take(&self, totals: Totals) {
        let mut known = self.known.lock();
        if known.revision.is_some_and(|revision| revision > totals.revision) {
            return;
        }
        known.revision = Some(totals.revision);
        known.orgs = totals.orgs;
        known.writes.retain(|write| write.revision.is_none_or(|revision| revision > totals.revision));
    }

    /// Begins a write that grows (or shrinks) one kind of data of an org by `grown` bytes. `platform`: the writer is an
    /// admin of the platform.
    pub fn begin(
        &self,
        part: BudgetKind,
        org: &str,
        grown: isize,
        platform: bool,
    ) -> Result<UnderWay<'_>, BudgetError> {
        let mut known = self.known.lock();
        let mut bytes: HashMap<&str, usize> =
            known.orgs.iter().map(|(org, bytes)| (org.as_str(), bytes.of(part))).collect();
        for write in known.writes.iter().filter(|write| write.part == part) {
            // A write that shrinks may still fail.
            let counts = write.revision.is_some() || write.grown > 0;
            let of_org = bytes.entry(&write.org).or_default();
            *of_org = of_org.saturating_add_signed(if counts { write.grown } else { 0 });
        }
        let before = bytes.remove(org).unwrap_or_default();
        let budget = part.budget();
        let others = fitting(bytes.into_values().collect(), budget.whole);
        budget.admit(Growth { before, after: before.saturating_add_signed(grown), others, platform })?;
        known.begun += 1;
        let id = known.begun;
        known.writes.push_back(Write { id, org: org.to_owned(), part, grown, revision: None });
        Ok(UnderWay { usage: self, id })
    }

    fn end(&self, id: u64, written: Option<Commit>) {
        let mut known = self.known.lock();
        let seen = known.revision;
        let stays = written
            .filter(|written| written.changed && seen.is_none_or(|seen| written.revision > seen))
            .map(|written| written.revision);
        let Some(position) = known.writes.iter().position(|write| write.id == id) else { return };
        match (stays, known.writes.get_mut(position)) {
            (Some(revision), Some(write)) => write.revision = Some(revision),
            _ => drop(known.writes.remove(position)),
        }
        while known.writes.len() > MAX_WRITES {
            let Some(Write { org, part, grown, .. }) = known.writes.pop_front() else { return };
            let bytes = known.orgs.entry(org).or_default().of_mut(part);
            *bytes = bytes.saturating_add_signed(grown);
        }
    }
}

/// A write in progress. Dropping it without `done` means that it did not happen; if it did (its caller was cancelled),
/// the next read of the store includes it.
pub struct UnderWay<'a> {
    usage: &'a Usage,
    id: u64,
}

impl UnderWay<'_> {
    /// Records that the write happened.
    pub fn done(self, written: Commit) -> Commit {
        self.usage.end(self.id, Some(written));
        written
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        // After `done` only a completed write is left, and that stays.
        let mut known = self.usage.known.lock();
        known.writes.retain(|write| write.id != self.id || write.revision.is_some());
    }
}

/// Sum of the parts that are published, smallest first. Data stored beyond the limit by an older version or another
/// process must not block the writes of the other orgs.
fn fitting(mut parts: Vec<usize>, whole: usize) -> usize {
    parts.sort_unstable();
    parts.into_iter().fold(0, |sum, part| if sum + part <= whole { sum + part } else { sum })
}

/// Returns the bytes of an org's policy in a snapshot.
pub fn size(org: &str, records: &Records<'_>) -> Size {
    OrgPolicy::compile(org, records).0.size()
}

/// Returns the encoded bytes of revocations in a snapshot.
fn revoked_bytes(revoked: &RevocationEntries) -> usize {
    let before = revoked.before.iter().map(|before| before.encoded_len() + FRAMING);
    revoked.tokens.len() * size_of::<[u8; 16]>() + before.sum::<usize>()
}

/// Returns the bytes of a live revocation in an edge snapshot.
pub fn revocation_bytes(record: &RevocationRecord, issuers: &[String]) -> usize {
    let bytes = match record.kind.as_str() {
        "token" if record.issuer.is_empty() => {
            REVOCATION * policy::issuers_of_jti(&record.target, issuers).count()
        }
        "token" | "token_hash" => REVOCATION,
        _ => revoked_bytes(&policy::revoked(std::slice::from_ref(record), issuers, 0)),
    };
    bytes.max(REVOCATION)
}

#[cfg(test)]
mod tests {
    use super::super::budget::{
        EDGE, EDGE_SERVERS, GATEWAY, HOMES, ISSUERS, MACHINE_KEYS, ROUTES, SERVERS, SLACK,
    };
    use super::*;

    const ORG: usize = EXPOSURE.org;

    fn grown(bytes: usize) -> isize {
        isize::try_from(bytes).unwrap()
    }

    fn at(revision: u64, org: &str, exposure: usize) -> Totals {
        let bytes = Bytes { exposure, ..Bytes::default() };
        Totals { revision, orgs: HashMap::from([(org.to_owned(), bytes)]) }
    }

    fn full(usage: &Usage, org: &str, bytes: usize) -> bool {
        usage.begin(BudgetKind::Exposure, org, grown(bytes), false).is_err()
    }

    #[test]
    fn two_writes_under_way_that_fit_alone_do_not_pass_together() {
        let usage = Usage::default();
        let one = usage.begin(BudgetKind::Exposure, "acme", grown(ORG), false).unwrap();
        assert!(full(&usage, "acme", 1), "it counts before it is written");
        assert!(!full(&usage, "other", ORG));
        drop(one);
        assert!(!full(&usage, "acme", ORG), "it was not written");
    }

    #[test]
    fn what_was_written_counts_once_whether_a_look_at_the_store_saw_it_or_not() {
        let usage = Usage::default();
        let written = |revision| Commit { revision, changed: true };
        let begin = || usage.begin(BudgetKind::Exposure, "acme", grown(ORG / 2), false).unwrap();
        begin().done(written(5));
        usage.take(at(4, "acme", 0));
        assert!(full(&usage, "acme", ORG / 2 + 1) && !full(&usage, "acme", ORG / 2), "not seen");
        usage.take(at(5, "acme", ORG / 2));
        assert!(full(&usage, "acme", ORG / 2 + 1) && !full(&usage, "acme", ORG / 2), "seen");
        let slow = begin();
        usage.take(at(6, "acme", ORG));
        slow.done(written(6));
        usage.take(at(7, "acme", ORG / 2));
        assert!(!full(&usage, "acme", ORG / 2), "a look that overtook it had it");
        usage.take(at(6, "acme", ORG));
        assert!(!full(&usage, "acme", ORG / 2), "an older look says nothing new");
    }

    #[test]
    fn a_write_that_shrinks_counts_when_it_is_done() {
        let usage = Usage::default();
        usage.take(at(1, "acme", ORG));
        let less = usage.begin(BudgetKind::Exposure, "acme", -grown(ORG), false).unwrap();
        assert!(full(&usage, "acme", 1));
        less.done(Commit { revision: 2, changed: true });
        assert!(!full(&usage, "acme", ORG));
    }

    #[test]
    fn writes_that_no_look_at_the_store_sees_stay_bounded_and_counted() {
        let usage = Usage::default();
        for revision in 1..=MAX_WRITES as u64 + 9 {
            let write = usage.begin(BudgetKind::Exposure, "acme", 1, false).unwrap();
            write.done(Commit { revision, changed: true });
        }
        assert_eq!(usage.known.lock().writes.len(), MAX_WRITES);
        assert!(full(&usage, "acme", ORG - MAX_WRITES - 8) && !full(&usage, "acme", ORG - MAX_WRITES - 9));
    }

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
