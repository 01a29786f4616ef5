//! Sends spans of calls to a collector, by OTLP over HTTP with binary Protobuf.
//!
//! Keeps true: the spans of at most [`QUEUE`] calls wait; a collector that does not answer delays no call, and the spans that it does
//! not take are dropped and counted in the log; at the end of the process, the last spans have [`LAST_WITHIN`].

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use asp_call::telemetry::traces::{EndedSpan, SpanKind, Tracer};
use asp_command::http_client;
use asp_gateway::gateway::Gateway;
use asp_proto::otlp;
use http::header::CONTENT_TYPE;
use reqwest::Client;
use tokio::sync::mpsc::Receiver;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::Process;
use crate::settings::traces::TraceSettings;

/// Maximum number of calls whose spans wait; those of one take about 2 KiB.
const QUEUE: usize = 8_192;
/// Number of spans from which a request is sent at once.
const BATCH: usize = 512;
/// Pause between two looks into the queue.
const EVERY: Duration = Duration::from_secs(1);
/// Timeout of the last requests.
const LAST_WITHIN: Duration = Duration::from_secs(3);
/// Media type of the requests.
const PROTOBUF: &str = "application/x-protobuf";

/// Starts to make and send spans, if there is a collector.
pub(super) fn start(process: &Process, gateway: &Gateway) -> anyhow::Result<()> {
    let Some(settings) = process.settings.traces.collector() else { return Ok(()) };
    let (tracer, spans) = Tracer::new(settings.sampling, QUEUE);
    let tracer = Arc::new(tracer);
    let exporter = Exporter::new(settings)?;
    gateway.pipeline.trace_to(Arc::clone(&tracer));
    process.tasks.spawn(exporter.run(tracer, spans, process.stop_background.clone()));
    Ok(())
}

/// Sender of spans.
struct Exporter {
    client: Client,
    settings: TraceSettings,
    /// Whether the last request failed.
    is_failing: bool,
    /// Spans that the collector did not take since the last report.
    refused: usize,
}

impl Exporter {
    fn new(settings: TraceSettings) -> anyhow::Result<Exporter> {
        let builder = match settings.headers.is_empty() {
            true => http_client::without_credential(&settings.url),
            false => http_client::with_credential(&settings.url),
        };
        let client =
            builder.timeout(settings.timeout).build().context("create the client of the collector")?;
        Ok(Exporter { client, settings, is_failing: false, refused: 0 })
    }

    /// Sends spans until `stop`, and then those that are left.
    async fn run(
        mut self,
        tracer: Arc<Tracer>,
        mut spans: Receiver<Vec<EndedSpan>>,
        stop: CancellationToken,
    ) {
        let sending = async {
            loop {
                sleep(EVERY).await;
                self.send_queued(&mut spans).await;
                report_dropped(tracer.take_dropped());
            }
        };
        tokio::select! {
            () = stop.cancelled() => {}
            () = sending => {}
        }
        if timeout(LAST_WITHIN, self.send_queued(&mut spans)).await.is_err() {
            tracing::warn!("last spans were not sent to the collector in time");
        }
    }

    /// Sends what waits.
    async fn send_queued(&mut self, spans: &mut Receiver<Vec<EndedSpan>>) {
        let mut batch = Vec::new();
        while let Ok(of_call) = spans.try_recv() {
            batch.extend(of_call.into_iter().map(message));
            if batch.len() >= BATCH {
                self.send(std::mem::take(&mut batch)).await;
            }
        }
        if !batch.is_empty() {
            self.send(batch).await;
        }
    }

    async fn send(&mut self, spans: Vec<otlp::Span>) {
        let count = spans.len();
        let scope =
            otlp::InstrumentationScope { name: "asp".into(), version: env!("CARGO_PKG_VERSION").into() };
        let of_scope = otlp::ScopeSpans { scope: Some(scope), spans };
        let attributes = self.settings.resource.iter().map(|(name, value)| attribute(name, value)).collect();
        let resource = Some(otlp::Resource { attributes });
        let of_resource = otlp::ResourceSpans { resource, scope_spans: vec![of_scope] };
        let body = otlp::ExportTraceServiceRequest { resource_spans: vec![of_resource] }.to_bytes();
        let request = self.client.post(self.settings.url.clone()).headers(self.settings.headers.clone());
        let fault = match request.header(CONTENT_TYPE, PROTOBUF).body(body).send().await {
            Ok(answer) if answer.status().is_success() => None,
            Ok(answer) => Some(format!("it answered {}", answer.status())),
            Err(error) => Some(error.without_url().to_string()),
        };
        if fault.is_some() {
            self.refused += count;
        }
        self.note(fault);
    }

    /// Logs the first of several failures, and the first success after it.
    fn note(&mut self, fault: Option<String>) {
        match (&fault, self.is_failing) {
            (Some(reason), false) => tracing::warn!(
                host = self.settings.url.host_str(), %reason,
                "collector does not take spans; they are dropped until it does: check OTEL_EXPORTER_OTLP_ENDPOINT"
            ),
            (None, true) => {
                let refused = std::mem::take(&mut self.refused);
                tracing::info!(refused, "collector takes spans again");
            }
            _ => {}
        }
        self.is_failing = fault.is_some();
    }
}

fn report_dropped(calls: u64) {
    if calls > 0 {
        tracing::warn!(calls, "spans of calls were dropped, because too many wait for the collector");
    }
}

fn message(span: EndedSpan) -> otlp::Span {
    let kind = match span.kind {
        SpanKind::Internal => otlp::SpanKind::Internal,
        SpanKind::Server => otlp::SpanKind::Server,
        SpanKind::Client => otlp::SpanKind::Client,
    };
    let status = otlp::Status { message: String::new(), code: otlp::StatusCode::Error.into() };
    otlp::Span {
        trace_id: span.trace.to_be_bytes().to_vec(),
        span_id: span.id.to_be_bytes().to_vec(),
        parent_span_id: span.parent.map(|parent| parent.to_be_bytes().to_vec()).unwrap_or_default(),
        name: span.name.into_owned(),
        kind: kind.into(),
        start_time_unix_nano: span.began_ns,
        end_time_unix_nano: span.ended_ns,
        attributes: span.attributes.iter().map(|(name, value)| attribute(name, value)).collect(),
        status: span.is_error.then_some(status),
    }
}

fn attribute(name: &str, value: &str) -> otlp::KeyValue {
    let value = otlp::AnyValue { string_value: value.to_owned() };
    otlp::KeyValue { key: name.to_owned(), value: Some(value) }
}

#[cfg(test)]
mod tests {
    use asp_call::telemetry::traces::Sampling;
    use http::HeaderMap;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    fn span() -> EndedSpan {
        EndedSpan {
            trace: 0x0af7,
            id: 0xb7,
            parent: Some(1),
            name: "tools/call echo".into(),
            kind: SpanKind::Server,
            began_ns: 5,
            ended_ns: 7,
            attributes: vec![("asp.server", "demo".into())],
            is_error: true,
        }
    }

    fn settings(port: u16) -> TraceSettings {
        TraceSettings {
            url: format!("http://127.0.0.1:{port}/v1/traces").parse().unwrap(),
            headers: HeaderMap::from_iter([("api-key".parse().unwrap(), "k".parse().unwrap())]),
            timeout: Duration::from_secs(5),
            sampling: Sampling { by_parent: true, ratio: 1.0 },
            resource: vec![("service.name".into(), "asp-gateway".into())],
        }
    }

    #[test]
    fn a_span_has_the_ids_and_numbers_of_the_protocol() {
        let sent = message(span());
        assert_eq!((sent.trace_id.len(), sent.span_id.len(), sent.parent_span_id.len()), (16, 8, 8));
        assert_eq!((sent.trace_id[14..].to_vec(), sent.span_id[7]), (vec![0x0a, 0xf7], 0xb7));
        assert_eq!((sent.kind, sent.start_time_unix_nano, sent.end_time_unix_nano), (2, 5, 7));
        assert_eq!(sent.status.unwrap().code, 2);
        assert!(message(EndedSpan { parent: None, is_error: false, ..span() }).parent_span_id.is_empty());
    }

    #[tokio::test]
    async fn waiting_spans_are_sent_with_the_headers_and_a_refusal_is_noted() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let collector = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut got = Vec::new();
            while !String::from_utf8_lossy(&got).contains("asp.server") {
                assert!(stream.read_buf(&mut got).await.unwrap() > 0, "the request ended early");
            }
            stream
                .write_all(b"HTTP/1.1 503 Busy\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                .await
                .unwrap();
            String::from_utf8_lossy(&got).into_owned()
        });
        let (queue, mut spans) = tokio::sync::mpsc::channel(4);
        queue.try_send(vec![span()]).unwrap();
        let mut exporter = Exporter::new(settings(port)).unwrap();
        exporter.send_queued(&mut spans).await;
        let got = collector.await.unwrap();
        for part in ["POST /v1/traces", "api-key: k", PROTOBUF, "service.name", "tools/call echo"] {
            assert!(got.contains(part), "{part}: {got}");
        }
        assert!(exporter.is_failing && exporter.refused == 1);
    }
}
