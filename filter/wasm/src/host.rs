//! Host functions that the filter needs from Envoy, as one trait, so that the glue runs natively in tests.

use asp_edge::Reply;

/// Host calls of a request. All are made only while the request's headers are held back.
pub trait Host {
    /// Returns the whole header map as Envoy serializes it ([`crate::map`]); fetched once per request.
    fn headers(&self) -> Vec<u8>;
    /// Returns the first `size` buffered bytes of the body.
    fn body(&self, size: usize) -> Vec<u8>;
    fn remove_header(&self, name: &str);
    fn set_header(&self, name: &str, value: &str);
    /// Makes Envoy choose the route again.
    fn clear_route_cache(&self);
    /// Answers the client; the request is not forwarded.
    fn respond(&self, reply: &Reply);
    /// Logs a line for Envoy's operator.
    fn info(&self, text: &str);
    /// Logs a warning for Envoy's operator.
    fn warn(&self, text: &str);
    /// Returns the time in Unix milliseconds.
    fn now_ms(&self) -> u64;
    /// Returns the client address as Envoy sees it, `ip:port`; `None` if this stream has none.
    fn peer(&self) -> Option<String>;
    /// Counts a verdict.
    fn count(&self, verdict: VerdictLabel);
}

/// Verdict label of the metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerdictLabel {
    Forward,
    /// Answer that is not a refusal (a CORS preflight).
    Answer,
    Refuse(asp_edge::Reason),
}

impl VerdictLabel {
    /// Returns the metric's name, `asp_edge_verdicts_total.<verdict>.<reason>`.
    pub fn metric(self) -> String {
        match self {
            VerdictLabel::Forward => "asp_edge_verdicts_total.forward.none".to_owned(),
            VerdictLabel::Answer => "asp_edge_verdicts_total.answer.none".to_owned(),
            VerdictLabel::Refuse(reason) => format!("asp_edge_verdicts_total.refuse.{}", reason.as_str()),
        }
    }
}
