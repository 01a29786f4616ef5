//! Metrics of linked accounts (`asp_link_*`).

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

use super::Labels;

/// Upper bounds of the buckets, in seconds: a refresh is given up before the last.
const SECONDS: [f64; 9] = [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0];

/// Outcome of a call's request for the token of a linked account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkUse {
    /// The stored token was used.
    Used,
    /// The token was used after a refresh, which this call may have waited for.
    Refreshed,
    /// No link, or one that lacks a scope.
    Missing,
    /// The service or its provider rejected the link, or its tokens do not open.
    Dead,
    /// The operator does not allow the caller or the primitive such a token.
    Refused,
    /// The store, the vault or the provider did not answer.
    Failed,
}

impl LinkUse {
    const fn as_str(self) -> &'static str {
        match self {
            LinkUse::Used => "used",
            LinkUse::Refreshed => "refreshed",
            LinkUse::Missing => "missing",
            LinkUse::Dead => "dead",
            LinkUse::Refused => "refused",
            LinkUse::Failed => "failed",
        }
    }
}

/// Outcome of a refresh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRefresh {
    Done,
    /// The provider rejected the link.
    Rejected,
    Failed,
}

/// Outcome of an attempt to revoke the tokens of an ended link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkRevocation {
    Revoked,
    /// A failed attempt, after which another one follows.
    Retried,
    GivenUp,
}

/// Metrics of linked accounts; clones share their values.
#[derive(Clone)]
pub struct LinkMetrics {
    uses: Family<Labels<1>, Counter>,
    refreshes: Family<Labels<1>, Histogram, fn() -> Histogram>,
    revocations: Family<Labels<1>, Counter>,
}

impl Default for LinkMetrics {
    fn default() -> LinkMetrics {
        LinkMetrics {
            uses: Family::default(),
            refreshes: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            revocations: Family::default(),
        }
    }
}

impl LinkMetrics {
    pub fn register(&self, registry: &mut Registry) {
        registry.register(
            "asp_link_uses",
            "Requests of calls for the token of a linked account, by outcome",
            self.uses.clone(),
        );
        registry.register(
            "asp_link_refresh_duration_seconds",
            "Time from a request for new tokens of a linked account until they are stored, by outcome",
            self.refreshes.clone(),
        );
        registry.register(
            "asp_link_revocations",
            "Attempts to revoke the tokens of ended linked accounts at their providers, by outcome",
            self.revocations.clone(),
        );
    }

    pub fn used(&self, outcome: LinkUse) {
        self.uses.get_or_create(&[("outcome", outcome.as_str())]).inc();
    }

    pub fn refreshed(&self, outcome: LinkRefresh, took: Duration) {
        let outcome = match outcome {
            LinkRefresh::Done => "ok",
            LinkRefresh::Rejected => "rejected",
            LinkRefresh::Failed => "failed",
        };
        self.refreshes.get_or_create(&[("outcome", outcome)]).observe(took.as_secs_f64());
    }

    pub fn revoked(&self, outcome: LinkRevocation) {
        let outcome = match outcome {
            LinkRevocation::Revoked => "revoked",
            LinkRevocation::Retried => "retried",
            LinkRevocation::GivenUp => "given_up",
        };
        self.revocations.get_or_create(&[("outcome", outcome)]).inc();
    }
}
