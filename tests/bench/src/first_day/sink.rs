//! A collector of spans: takes requests of OTLP over HTTP with binary Protobuf, and counts what is in them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use asp_proto::otlp::{ExportTraceServiceRequest, Span, SpanKind};
use prost::Message as _;

use crate::backend;

const TAKEN: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
const REFUSED: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n";
const REQUEST: &[u8] = b"POST /v1/traces ";
/// Beginning of the name of a span that is a whole call of a tool.
const CALL: &str = "tools/call";

/// A collector on a free loopback port; it lives as long as the process.
pub(crate) struct Sink {
    address: SocketAddr,
    counts: Arc<Counts>,
}

#[derive(Default)]
struct Counts {
    requests: AtomicU64,
    spans: AtomicU64,
    calls: AtomicU64,
}

impl Sink {
    pub(crate) fn start() -> Result<Sink> {
        let counts = Arc::new(Counts::default());
        let counting = Arc::clone(&counts);
        let address = backend::start_with(move |request, out| {
            out.extend_from_slice(counting.answer(request.head, request.body));
        })?;
        Ok(Sink { address, counts })
    }

    /// The value of `OTEL_EXPORTER_OTLP_ENDPOINT`.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Number of requests that were taken.
    pub(crate) fn requests(&self) -> u64 {
        self.counts.requests.load(Ordering::Relaxed)
    }

    /// Number of spans in them.
    pub(crate) fn spans(&self) -> u64 {
        self.counts.spans.load(Ordering::Relaxed)
    }

    /// Number of spans that are a whole call of a tool.
    pub(crate) fn calls(&self) -> u64 {
        self.counts.calls.load(Ordering::Relaxed)
    }
}

impl Counts {
    /// Counts a request; returns its answer.
    fn answer(&self, head: &[u8], body: &[u8]) -> &'static [u8] {
        let sent = head.starts_with(REQUEST).then(|| ExportTraceServiceRequest::decode(body));
        let Some(Ok(request)) = sent else { return REFUSED };
        let of_scopes = request.resource_spans.iter().flat_map(|resource| &resource.scope_spans);
        for span in of_scopes.flat_map(|scope| &scope.spans) {
            self.spans.fetch_add(1, Ordering::Relaxed);
            self.calls.fetch_add(u64::from(is_call(span)), Ordering::Relaxed);
        }
        self.requests.fetch_add(1, Ordering::Relaxed);
        TAKEN
    }
}

fn is_call(span: &Span) -> bool {
    span.kind == i32::from(SpanKind::Server) && span.name.starts_with(CALL)
}

#[cfg(test)]
mod tests {
    use asp_proto::otlp::{ResourceSpans, ScopeSpans};

    use super::*;

    fn span(name: &str, kind: SpanKind) -> Span {
        Span { name: name.into(), kind: kind.into(), ..Span::default() }
    }

    #[test]
    fn calls_are_told_from_their_parts_and_other_requests() {
        let spans = vec![
            span("tools/call echo", SpanKind::Server),
            span("policy", SpanKind::Internal),
            span("initialize", SpanKind::Server),
        ];
        let scope = ScopeSpans { spans, ..ScopeSpans::default() };
        let resource = ResourceSpans { scope_spans: vec![scope], ..ResourceSpans::default() };
        let body = ExportTraceServiceRequest { resource_spans: vec![resource] }.to_bytes();
        let counts = Counts::default();
        assert_eq!(counts.answer(b"POST /v1/traces HTTP/1.1\r\n\r\n", &body), TAKEN);
        assert_eq!(counts.answer(b"POST /v1/traces HTTP/1.1\r\n\r\n", b"\xff"), REFUSED);
        assert_eq!(counts.answer(b"POST /v1/metrics HTTP/1.1\r\n\r\n", &body), REFUSED);
        let counted = [&counts.requests, &counts.spans, &counts.calls].map(|one| one.load(Ordering::Relaxed));
        assert_eq!(counted, [1, 3, 1]);
    }
}
