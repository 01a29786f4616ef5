//! Evaluates a write before it is stored: with the builders that edges and gateways use to accept a snapshot, and
//! against the budgets of its org and of all orgs together.
//!
//! Keeps true: no accepted write can stop publishing; no write waits here for another one, least of all a revocation.
//! The snapshot's builder handles what another process stores in the same database in the meantime.

use std::sync::Arc;

use asp_store::control::sql::ControlStore;
use asp_store::control::{
    BindingRecord, Change, Commit, ExposureRecord, LimitRecord, ListDifference, OfferRecord, Precondition,
    RevocationEvent, RevocationRecord, StoreError,
};

use crate::catalog::Compiler;
use crate::catalog::budget::BudgetError;
use crate::catalog::offers::{self, OfferSource};
use crate::catalog::orgs::{OrgPolicy, Records};
use crate::catalog::usage::{BudgetKind, Totals, Usage, revocation_bytes, size};

/// Reason why a write is not stored.
#[derive(Debug, thiserror::Error)]
pub enum AdmissionError {
    #[error(transparent)]
    OverBudget(#[from] BudgetError),
    /// The org is not offered such a server.
    #[error("the server is not offered to the org")]
    NotOffered,
    /// Edges or gateways would not accept it.
    #[error("it cannot be published: {0}")]
    Unpublishable(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Evaluates writes and stores them.
pub struct Admission {
    store: Arc<ControlStore>,
    compiler: Compiler,
    usage: Arc<Usage>,
}

impl Admission {
    /// Creates an admission; `usage` must be the one that the publisher updates.
    pub fn new(store: Arc<ControlStore>, compiler: Compiler, usage: Arc<Usage>) -> Admission {
        Admission { store, compiler, usage }
    }

    /// Returns why a server is offered to an org; `None` if it is not, or there is no such server.
    pub async fn offered(&self, server: &str, org: &str) -> Result<Option<OfferSource>, StoreError> {
        let Some(record) = self.store.server(server).await? else { return Ok(None) };
        let stored = self.store.offers_to(org).await?.iter().any(|offer| offer.server == server);
        let compiler = self.compiler.clone();
        let compiled = tokio::task::spawn_blocking(move || compiler.compile_one(&record)).await;
        let compiled = compiled.map_err(|error| StoreError::Backend(error.to_string()))?;
        // A faulty server has no compiled form; a stored offer still counts.
        let Some(compiled) = compiled else { return Ok(stored.then_some(OfferSource::Offer)) };
        Ok(offers::source(&compiled, org, stored))
    }

    /// Sets an exposure exception. An org can only narrow what it is offered. If an admin of the platform (`platform`)
    /// switches a server on for an org, that offers it, too.
    pub async fn put_exposure(
        &self,
        platform: bool,
        change: &Change,
        record: &ExposureRecord,
    ) -> Result<Commit, AdmissionError> {
        let org = record.org.as_str();
        let offered = self.offered(&record.server, org).await?;
        if offered.is_none() && !platform {
            return Err(AdmissionError::NotOffered);
        }
        self.evaluate(org, &Records { exposure: vec![record], ..Records::default() }).await?;
        let offer = OfferRecord { server: record.server.clone(), org: org.to_owned() };
        let offers = offered.is_none() && record.enabled;
        if offers {
            // Checked before anything is written: without the offer the exposure has no effect.
            self.store.offer_fits(&offer).await?;
        }
        let mut list = self.store.exposure(org).await?.value;
        let bytes = |list: &[ExposureRecord]| {
            size(org, &Records { exposure: list.iter().collect(), ..Records::default() })
        };
        let before = bytes(&list);
        list.retain(|known| (&known.server, &known.protocol) != (&record.server, &record.protocol));
        list.push(record.clone());
        let after = bytes(&list);
        let usage = self.usage().await?;
        let at_edges = grown(before.exposure, after.exposure);
        let at_edges = usage.begin(BudgetKind::Exposure, org, at_edges, platform)?;
        let at_gateways = grown(before.named_exposure, after.named_exposure);
        let at_gateways = usage.begin(BudgetKind::Policy, org, at_gateways, platform)?;
        let written = self.store.put_exposure(change, record).await?;
        let written = at_gateways.done(at_edges.done(written));
        if !offers {
            return Ok(written);
        }
        let change = Change { precondition: Precondition::None, ..change.clone() };
        match self.store.put_offer(&change, &offer).await {
            Ok(offer) => Ok(Commit { changed: written.changed || offer.changed, ..written }),
            // The server does not exist yet. The switch waits for it; whether it is offered then depends on its file or
            // an offer.
            Err(StoreError::NotFound) => Ok(written),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes and stores exposure exceptions of an org, and offers nothing.
    pub async fn replace_exposure(
        &self,
        platform: bool,
        change: &Change,
        org: &str,
        replaced: &ListDifference<ExposureRecord>,
    ) -> Result<Commit, AdmissionError> {
        for record in replaced.after.iter().filter(|_| !platform) {
            if self.offered(&record.server, org).await?.is_none() {
                return Err(AdmissionError::NotOffered);
            }
        }
        let records = Records { exposure: replaced.after.iter().collect(), ..Records::default() };
        self.evaluate(org, &records).await?;
        let stored = self.store.exposure(org).await?.value;
        let bytes = |list: &[ExposureRecord]| {
            size(org, &Records { exposure: list.iter().collect(), ..Records::default() })
        };
        let before = bytes(&stored);
        let after = bytes(&replaced.applied(&stored));
        let usage = self.usage().await?;
        let at_edges = grown(before.exposure, after.exposure);
        let at_edges = usage.begin(BudgetKind::Exposure, org, at_edges, platform)?;
        let at_gateways = grown(before.named_exposure, after.named_exposure);
        let at_gateways = usage.begin(BudgetKind::Policy, org, at_gateways, platform)?;
        let written = self.store.replace_exposure(change, org, replaced).await?;
        Ok(at_gateways.done(at_edges.done(written)))
    }

    /// Removes and stores bindings of an org.
    pub async fn replace_bindings(
        &self,
        platform: bool,
        change: &Change,
        org: &str,
        replaced: &ListDifference<BindingRecord>,
    ) -> Result<Commit, AdmissionError> {
        let records = Records { bindings: replaced.after.iter().collect(), ..Records::default() };
        self.evaluate(org, &records).await?;
        let stored = self.store.bindings(org).await?.value;
        let bytes = |list: &[BindingRecord]| {
            size(org, &Records { bindings: list.iter().collect(), ..Records::default() }).bindings
        };
        let grown = grown(bytes(&stored), bytes(&replaced.applied(&stored)));
        let usage = self.usage().await?;
        let under_way = usage.begin(BudgetKind::Policy, org, grown, platform)?;
        Ok(under_way.done(self.store.replace_bindings(change, org, replaced).await?))
    }

    /// Sets a binding.
    pub async fn put_binding(
        &self,
        platform: bool,
        change: &Change,
        record: &BindingRecord,
    ) -> Result<Commit, AdmissionError> {
        let org = record.org.as_str();
        self.evaluate(org, &Records { bindings: vec![record], ..Records::default() }).await?;
        let mut list = self.store.bindings(org).await?.value;
        let bytes = |list: &[BindingRecord]| {
            size(org, &Records { bindings: list.iter().collect(), ..Records::default() }).bindings
        };
        let before = bytes(&list);
        list.retain(|known| !known.same_key(record));
        list.push(record.clone());
        let grown = grown(before, bytes(&list));
        let usage = self.usage().await?;
        let under_way = usage.begin(BudgetKind::Policy, org, grown, platform)?;
        Ok(under_way.done(self.store.put_binding(change, record).await?))
    }

    /// Replaces an org's limits.
    pub async fn put_limits(
        &self,
        platform: bool,
        change: &Change,
        org: &str,
        list: &[LimitRecord],
    ) -> Result<Commit, AdmissionError> {
        let records = Records { limits: list.iter().collect(), ..Records::default() };
        self.evaluate(org, &records).await?;
        let stored = self.store.limits(org).await?.value;
        let before = size(org, &Records { limits: stored.iter().collect(), ..Records::default() }).limits;
        let grown = grown(before, size(org, &records).limits);
        let usage = self.usage().await?;
        let under_way = usage.begin(BudgetKind::Policy, org, grown, platform)?;
        Ok(under_way.done(self.store.put_limits(change, org, list).await?))
    }

    /// Adds a revocation. Part of the budget is reserved for the platform, so that it can always revoke.
    pub async fn add_revocation(
        &self,
        platform: bool,
        change: &Change,
        record: &RevocationRecord,
    ) -> Result<Commit, AdmissionError> {
        self.add_revocation_of(platform, change, record, None).await
    }

    /// Adds a revocation, for an event of a topic if there is one.
    pub async fn add_revocation_of(
        &self,
        platform: bool,
        change: &Change,
        record: &RevocationRecord,
        event: Option<&RevocationEvent>,
    ) -> Result<Commit, AdmissionError> {
        let grown = grown(0, revocation_bytes(record, &self.compiler.trusted()));
        let usage = self.usage().await?;
        let under_way = usage.begin(BudgetKind::Revocations, &record.org, grown, platform)?;
        Ok(under_way.done(self.store.add_revocation_of(change, record, event).await?))
    }

    /// Adds several revocations of one org.
    pub async fn add_revocations(
        &self,
        platform: bool,
        change: &Change,
        records: &[RevocationRecord],
    ) -> Result<Commit, AdmissionError> {
        let org = records.first().map_or("", |first| first.org.as_str());
        let issuers = self.compiler.trusted();
        let bytes = records.iter().map(|record| revocation_bytes(record, &issuers)).sum();
        let usage = self.usage().await?;
        let under_way = usage.begin(BudgetKind::Revocations, org, grown(0, bytes), platform)?;
        Ok(under_way.done(self.store.add_revocations(change, records).await?))
    }

    /// Returns the totals. The publisher keeps them up to date, but a write may come before its first read of the
    /// store.
    async fn usage(&self) -> Result<&Usage, StoreError> {
        if !self.usage.is_known() {
            let state = self.store.load().await?;
            let issuers = self.compiler.trusted();
            let totals = tokio::task::spawn_blocking(move || Totals::of(&state, &issuers)).await;
            self.usage.take(totals.map_err(|error| StoreError::Backend(error.to_string()))?);
        }
        Ok(&self.usage)
    }

    /// Checks that edges and gateways accept these records of an org.
    async fn evaluate(&self, org: &str, records: &Records<'_>) -> Result<(), AdmissionError> {
        let (compiled, unreadable) = OrgPolicy::compile(org, records);
        if !unreadable.is_empty() {
            return Err(AdmissionError::Unpublishable(unreadable.join("; ")));
        }
        let compiler = self.compiler.clone();
        let org = org.to_owned();
        let evaluated = tokio::task::spawn_blocking(move || compiler.evaluate(&org, &compiled)).await;
        evaluated
            .map_err(|error| StoreError::Backend(error.to_string()))?
            .map_err(AdmissionError::Unpublishable)
    }
}

fn grown(before: usize, after: usize) -> isize {
    // Sizes of objects in memory: both fit into `isize`.
    after.cast_signed().saturating_sub(before.cast_signed())
}
