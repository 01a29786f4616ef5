//! Host functions that the filter needs from Envoy, as one trait, so that the glue runs natively in tests.

use asp_edge::{Reply, UnauthenticatedKind};

/// Host calls of a request. All but one are made only while the request's headers are held back.
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
    /// Returns a header of the response, while the response's headers are held back.
    fn response_header(&self, name: &str) -> Option<Vec<u8>>;
    /// Counts a verdict.
    fn count(&self, verdict: VerdictLabel);
    /// Counts a refusal of a caller of this org.
    fn count_refusal_of(&self, org: &str);
    /// Counts a refusal by the limit of unauthenticated requests of this kind.
    fn count_limited(&self, kind: UnauthenticatedKind);
}

/// Maximum number of orgs whose refusals a VM counts by name; Envoy never frees a metric.
pub const MAX_ORGS: usize = 100;
/// Label of the orgs beyond; no org is written like this.
pub const OTHER_ORGS: &str = "~";
/// Maximum length of an org's label, in bytes.
const MAX_LABEL: usize = 120;

/// Returns the name of the metric of an org's refusals, `asp_edge_org_refusals_total.<org>`. Bytes that Envoy would split or
/// replace are written as `~` and two hexadecimal digits.
pub fn org_metric(org: &str) -> String {
    let mut label = String::new();
    for byte in org.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => label.push(char::from(byte)),
            _ => label.push_str(&format!("~{byte:02x}")),
        }
        if label.len() >= MAX_LABEL {
            break;
        }
    }
    format!("asp_edge_org_refusals_total.{label}")
}

/// Returns the name of the metric of refusals by a limit of unauthenticated requests.
pub fn limited_metric(kind: UnauthenticatedKind) -> String {
    format!("asp_edge_unauthenticated_refusals_total.{}", kind.as_str())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_org_has_a_label_of_its_own_that_envoy_keeps_as_it_is() {
        assert_eq!(org_metric("acme-1_b"), "asp_edge_org_refusals_total.acme-1_b");
        assert_eq!(org_metric("a.b c~"), "asp_edge_org_refusals_total.a~2eb~20c~7e");
        assert_ne!(org_metric("~"), format!("asp_edge_org_refusals_total.{OTHER_ORGS}"));
        assert!(org_metric(&"é".repeat(500)).len() < 160);
    }
}
