//! Metrics of delegations: their number, outcomes and durations, and the tokens reported by the models.

use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds of the buckets, in seconds: a model takes longer than a call.
const SECONDS: [f64; 9] = [0.05, 0.25, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0];

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OutcomeLabels {
    /// `client`, `model`, `primitive` or `nobody`
    by: &'static str,
    /// `ok`, or the reason why there is no answer.
    outcome: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct AnswererLabel {
    by: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Direction {
    /// `in` or `out`
    direction: &'static str,
}

/// The metrics of delegations.
pub struct Delegations {
    ended: Family<OutcomeLabels, Counter>,
    seconds: Family<AnswererLabel, Histogram, fn() -> Histogram>,
    tokens: Family<Direction, Counter>,
}

impl Default for Delegations {
    fn default() -> Delegations {
        Delegations {
            ended: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(SECONDS)),
            tokens: Family::default(),
        }
    }
}

impl Delegations {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register("asp_delegations", "Delegations by answerer and outcome", self.ended.clone());
        registry.register(
            "asp_delegation_duration_seconds",
            "Time from a plugin's question to its answer",
            self.seconds.clone(),
        );
        registry.register(
            "asp_delegation_tokens",
            "Tokens counted by the endpoints of the platform's models",
            self.tokens.clone(),
        );
    }

    /// Records the end of a delegation; `by` and `outcome` are from closed sets.
    pub fn ended(&self, by: &'static str, outcome: &'static str, took: Duration, usage: Usage) {
        self.ended.get_or_create(&OutcomeLabels { by, outcome }).inc();
        self.seconds.get_or_create(&AnswererLabel { by }).observe(took.as_secs_f64());
        for (direction, tokens) in [("in", usage.tokens_in), ("out", usage.tokens_out)] {
            if tokens > 0 {
                self.tokens.get_or_create(&Direction { direction }).inc_by(tokens);
            }
        }
    }
}

/// The tokens of one answer as the endpoint counts them; 0 if it does not report them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub tokens_in: u64,
    pub tokens_out: u64,
}
