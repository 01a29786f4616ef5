//! The collector of spans, by the variables that OpenTelemetry defines for every program.
//!
//! Keeps true: without an endpoint no call has a span; headers, which may hold a key, print as `***`.

use std::time::Duration;

use asp_call::telemetry::traces::Sampling;
use asp_platform::secret::Secret;
use clap::{ArgAction, Args};
use http::{HeaderMap, HeaderName, HeaderValue};
use percent_encoding::percent_decode_str;
use reqwest::Url;

use super::values::{List, choice, list, number};

/// Samplers of the specification, by their names there.
const SAMPLERS: [(&str, Sampler); 6] = [
    ("always_on", Sampler { by_parent: false, ratio: Some(1.0) }),
    ("always_off", Sampler { by_parent: false, ratio: Some(0.0) }),
    ("traceidratio", Sampler { by_parent: false, ratio: None }),
    ("parentbased_always_on", Sampler { by_parent: true, ratio: Some(1.0) }),
    ("parentbased_always_off", Sampler { by_parent: true, ratio: Some(0.0) }),
    ("parentbased_traceidratio", Sampler { by_parent: true, ratio: None }),
];

/// Choice of the traces that have spans.
#[derive(Clone, Copy, Debug)]
struct Sampler {
    by_parent: bool,
    /// Share of the traces; `None`: that of `OTEL_TRACES_SAMPLER_ARG`.
    ratio: Option<f64>,
}

/// Form of the requests to the collector.
#[derive(Clone, Copy, Debug)]
enum OtlpForm {
    HttpProtobuf,
}

/// Settings of traces
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Traces")]
pub struct TraceSection {
    /// Collector that gets spans of calls by OTLP over HTTP, e.g. `http://collector:4318`; `/v1/traces` is appended (docs/traces.md)
    /// [default: none: no spans]
    #[arg(long, env = "OTEL_EXPORTER_OTLP_ENDPOINT", value_parser = url)]
    otlp_endpoint: Option<Url>,
    /// Whole URL for spans, in place of `OTEL_EXPORTER_OTLP_ENDPOINT`
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", value_parser = url)]
    otlp_traces_endpoint: Option<Url>,
    /// Headers of the requests to the collector: `name=value,…`, values percent-encoded
    #[arg(long, env = "OTEL_EXPORTER_OTLP_HEADERS", hide_env_values = true, value_parser = header_list)]
    otlp_headers: Option<Secret>,
    /// Form of the requests: `http/protobuf`
    #[arg(long, env = "OTEL_EXPORTER_OTLP_PROTOCOL", default_value = "http/protobuf",
        value_parser = choice(&[("http/protobuf", OtlpForm::HttpProtobuf)]))]
    otlp_protocol: OtlpForm,
    /// Timeout of a request to the collector, in milliseconds
    #[arg(long, env = "OTEL_EXPORTER_OTLP_TIMEOUT", default_value_t = 10_000, value_parser = number(1..=600_000_u64))]
    otlp_timeout: u64,
    /// Choice of the traces that have spans: `always_on`, `always_off` or `traceidratio`, each also with `parentbased_`, with which
    /// the caller's choice counts
    #[arg(long, env = "OTEL_TRACES_SAMPLER", default_value = "parentbased_always_on", value_parser = choice(&SAMPLERS))]
    traces_sampler: Sampler,
    /// Share of the traces for the samplers with `traceidratio`, from 0 to 1
    #[arg(long, env = "OTEL_TRACES_SAMPLER_ARG", default_value_t = 1.0, value_parser = number(0.0..=1.0_f64))]
    traces_sampler_arg: f64,
    /// Name of the service in spans
    #[arg(long, env = "OTEL_SERVICE_NAME", default_value = "asp-gateway")]
    service_name: String,
    /// Further attributes of the resource in spans: `name=value,…`, values percent-encoded [default: none]
    #[arg(long, env = "OTEL_RESOURCE_ATTRIBUTES", default_value = "", value_parser = pairs)]
    resource_attributes: List<(String, String)>,
    /// `true` for no spans, whatever the endpoint: `true` or `false`
    #[arg(long, env = "OTEL_SDK_DISABLED", action = ArgAction::Set, default_value = "false",
        value_parser = choice(&[("true", true), ("false", false)]))]
    sdk_disabled: bool,
}

/// A collector and what it gets.
#[derive(Clone, Debug)]
pub struct TraceSettings {
    pub url: Url,
    pub headers: HeaderMap,
    pub timeout: Duration,
    pub sampling: Sampling,
    /// Attributes of the resource.
    pub resource: Vec<(String, String)>,
}

impl TraceSection {
    /// Returns the collector; `None` if calls have no spans.
    pub fn collector(&self) -> Option<TraceSettings> {
        let url = match (&self.otlp_traces_endpoint, &self.otlp_endpoint) {
            (Some(whole), _) => whole.clone(),
            (None, Some(base)) => {
                let path = format!("{}/v1/traces", base.path().trim_end_matches('/'));
                let mut url = base.clone();
                url.set_path(&path);
                url
            }
            (None, None) => return None,
        };
        let OtlpForm::HttpProtobuf = self.otlp_protocol;
        let Sampler { by_parent, ratio } = self.traces_sampler;
        let sampling = Sampling { by_parent, ratio: ratio.unwrap_or(self.traces_sampler_arg) };
        let mut resource = self.resource_attributes.clone();
        resource.retain(|(name, _)| name != "service.name");
        resource.push(("service.name".to_owned(), self.service_name.clone()));
        resource.push(("service.version".to_owned(), env!("CARGO_PKG_VERSION").to_owned()));
        let headers = self.otlp_headers.as_ref().and_then(|text| headers(text.expose()).ok());
        (!self.sdk_disabled).then(|| TraceSettings {
            url,
            headers: headers.unwrap_or_default(),
            timeout: Duration::from_millis(self.otlp_timeout),
            sampling,
            resource,
        })
    }
}

fn url(text: &str) -> Result<Url, String> {
    let parsed = Url::parse(text).ok();
    let parsed = parsed.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    parsed.ok_or_else(|| "must be an http or https URL, e.g. http://collector:4318".to_owned())
}

/// Checks the headers. They are kept as text, so that nothing prints them.
fn header_list(text: &str) -> Result<Secret, String> {
    headers(text).map(|_| Secret::new(text.to_owned()))
}

/// Parses headers. No fault repeats one.
fn headers(text: &str) -> Result<HeaderMap, String> {
    let fault = || "must be name=value,… with names and values of HTTP headers".to_owned();
    let mut headers = HeaderMap::new();
    for (name, value) in pairs(text).map_err(|_| fault())? {
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| fault())?;
        let mut value = HeaderValue::from_str(&value).map_err(|_| fault())?;
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// Parses `name=value,…` with percent-encoded values.
fn pairs(text: &str) -> Result<List<(String, String)>, String> {
    list(text, |pair| {
        let (name, value) = pair.split_once('=').ok_or("must be name=value,…")?;
        let value =
            percent_decode_str(value.trim()).decode_utf8().map_err(|_| "has a value that is not UTF-8")?;
        Ok((name.trim().to_owned(), value.into_owned()))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::settings::source::Checks;

    fn section(environment: &[(&'static str, &'static str)]) -> Result<TraceSection, Vec<String>> {
        let environment: BTreeMap<&str, &str> = environment.iter().copied().collect();
        let mut checks = Checks::new(&environment, false);
        let read = checks.read::<TraceSection>();
        checks.finish(read).map_err(|faults| faults.into_iter().map(|fault| fault.name).collect())
    }

    #[test]
    fn spans_are_off_without_an_endpoint_and_where_they_are_disabled() {
        assert!(section(&[]).unwrap().collector().is_none());
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318/");
        let disabled = section(&[endpoint, ("OTEL_SDK_DISABLED", "true")]).unwrap();
        assert!(disabled.collector().is_none());
        let on = section(&[endpoint]).unwrap().collector().unwrap();
        assert_eq!(on.url.as_str(), "http://collector:4318/v1/traces");
        assert_eq!(on.sampling, Sampling { by_parent: true, ratio: 1.0 });
        assert!(on.resource.contains(&("service.name".into(), "asp-gateway".into())), "{:?}", on.resource);
    }

    #[test]
    fn the_variables_of_the_specification_are_read() {
        let on = section(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://ignored:1"),
            ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://collector/spans"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "api-key=a%20b, x=1"),
            ("OTEL_TRACES_SAMPLER", "traceidratio"),
            ("OTEL_TRACES_SAMPLER_ARG", "0.25"),
            ("OTEL_SERVICE_NAME", "edge"),
            ("OTEL_RESOURCE_ATTRIBUTES", "service.name=other,deployment.environment=prod"),
        ]);
        let on = on.unwrap().collector().unwrap();
        assert_eq!(on.url.as_str(), "https://collector/spans");
        assert_eq!(
            (&on.headers["api-key"], &on.headers["x"]),
            (&"a b".parse().unwrap(), &"1".parse().unwrap())
        );
        assert_eq!(on.sampling, Sampling { by_parent: false, ratio: 0.25 });
        let names: Vec<&str> = on.resource.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["deployment.environment", "service.name", "service.version"]);
        assert_eq!(on.resource[1].1, "edge");
    }

    #[test]
    fn a_wrong_value_is_a_fault_that_names_the_variable() {
        let faults = section(&[
            ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
            ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"),
            ("OTEL_EXPORTER_OTLP_HEADERS", "no header"),
            ("OTEL_TRACES_SAMPLER_ARG", "2"),
        ])
        .unwrap_err();
        assert_eq!(
            faults,
            [
                "OTEL_EXPORTER_OTLP_ENDPOINT",
                "OTEL_EXPORTER_OTLP_HEADERS",
                "OTEL_EXPORTER_OTLP_PROTOCOL",
                "OTEL_TRACES_SAMPLER_ARG"
            ]
        );
    }
}
