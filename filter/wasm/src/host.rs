//! What the filter needs from Envoy, as one trait, so that the glue runs natively in tests.

use asp_edge::Reply;

/// The calls a request makes to its host. Each is made only while the request's headers are held back.
pub trait Host {
    /// The whole header map as Envoy serializes it ([`crate::map`]), fetched once per request.
    fn headers(&self) -> Vec<u8>;
    /// The first `size` buffered bytes of the body.
    fn body(&self, size: usize) -> Vec<u8>;
    fn remove_header(&self, name: &str);
    fn set_header(&self, name: &str, value: &str);
    /// Makes Envoy choose the route again.
    fn clear_route_cache(&self);
    /// Answers the client; the request goes no further.
    fn respond(&self, reply: &Reply);
    /// A line for whoever runs Envoy.
    fn warn(&self, text: &str);
    /// Unix milliseconds.
    fn now_ms(&self) -> u64;
    /// Address of the client as Envoy sees it, `ip:port`; `None`: this stream has none.
    fn peer(&self) -> Option<String>;
    /// Counts a verdict: `None` for a request let through or answered, else the reason of its refusal.
    fn count(&self, verdict: Counted);
}

/// A verdict as the metric knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Forward,
    /// Answered without refusing (a CORS preflight).
    Answer,
    Refuse(asp_edge::Reason),
}

impl Counted {
    /// `asp_edge_verdicts_total.<verdict>.<reason>`
    pub fn metric(self) -> String {
        match self {
            Counted::Forward => "asp_edge_verdicts_total.forward.none".to_owned(),
            Counted::Answer => "asp_edge_verdicts_total.answer.none".to_owned(),
            Counted::Refuse(reason) => format!("asp_edge_verdicts_total.refuse.{}", reason.as_str()),
        }
    }
}
