//! HTTP by mapping (`runtime.http` of a spec): URL and query are RFC 6570 level 1 templates over the arguments, which
//! may be lists; headers contain the arguments unencoded; the body is the arguments or a mapping of JSON pointers, as
//! JSON or as a form; the result is a JSON pointer.

use std::sync::Arc;
use std::time::Duration;

use asp_call::call::outcome::{Output, Refusal};
use asp_call::call::started::StartGuard;
use asp_call::execution::Execution;
use asp_call::media_type::MediaType;
use asp_json::{Json, Members};
use asp_outbound::service_text::{sanitize, sanitize_body};
use asp_outbound::{Destination, Outbound, retry_after};
use asp_proto::snapshot::proxy_http::BodyFormat;
use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::{Kind, ProxyHttp};
use asp_registry::uri_template::{self, ExpandFault, UriTemplate};
use async_trait::async_trait;
use backon::{BackoffBuilder, ExponentialBuilder};
use reqwest::header::{ACCEPT, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::{Method, RequestBuilder, StatusCode, Url};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::artifacts::Artifacts;
use crate::backend::{Backend, misplaced, mode};
use crate::outbound::auth::Authorizer;
use crate::outbound::breaker::Breakers;
use crate::outbound::refused::{by_status, is_no_result};
use crate::outbound::upstream::{deadline_ms, idempotency_key, refusal_of, requested_by, unanswered};

mod answer;
mod arguments;
mod form;

use arguments::Arguments;

/// Maximum size of an accepted response body in bytes.
const MAX_RESPONSE: usize = 10 << 20;
/// Pauses before retries; they double.
const PAUSES: ExponentialBuilder =
    ExponentialBuilder::new().with_min_delay(Duration::from_millis(100)).without_max_delay();

/// The backend of services over HTTP/JSON.
pub struct HttpBackend {
    outbound: Arc<Outbound>,
    breakers: Arc<Breakers>,
    authorizer: Arc<Authorizer>,
    artifacts: Artifacts,
}

impl HttpBackend {
    pub(crate) fn new(
        outbound: Arc<Outbound>,
        breakers: Arc<Breakers>,
        authorizer: Arc<Authorizer>,
        artifacts: Artifacts,
    ) -> HttpBackend {
        HttpBackend { outbound, breakers, authorizer, artifacts }
    }
}

#[async_trait]
impl Backend for HttpBackend {
    /// Sends one HTTP/JSON request. Its credentials are fetched before: a failing issuer is not a failure of the
    /// service.
    async fn run(&self, execution: &Execution) -> Result<Output, Refusal> {
        let call = &execution.call;
        let Some(Mode::ProxyHttp(mapping)) = mode(&call.entry.primitive) else {
            return Err(misplaced(execution));
        };
        let mut started = execution.started();
        let proof = self.proof(mapping, execution).await?;
        let (status, result) = self.attempt((mapping, &proof), execution, &mut started).await;
        // The service certainly did nothing: its caller is asked to link the account again, once.
        let is_refused = status.is_some_and(|status| self.authorizer.is_rejection(call, status));
        if is_refused
            && self.authorizer.is_linked(call)
            && self.authorizer.refused(call, &execution.snapshot).await
        {
            started.undelivered();
            let proof = self.proof(mapping, execution).await?;
            let (status, result) = self.attempt((mapping, &proof), execution, &mut started).await;
            if status.is_some_and(|status| self.authorizer.is_rejection(call, status)) {
                self.authorizer.refused(call, &execution.snapshot).await;
            }
            return result;
        }
        result
    }
}

impl HttpBackend {
    /// Returns the headers of a call's request.
    async fn proof(&self, mapping: &ProxyHttp, execution: &Execution) -> Result<HeaderMap, Refusal> {
        let call = &execution.call;
        match &call.entry.primitive.service_auth {
            None => Ok(self.authorizer.extra_headers(call)),
            Some(_) => {
                let url = destination(&self.outbound, mapping, execution)?.url;
                let proof = self.authorizer.headers(call, &execution.snapshot, &url).await;
                proof.map_err(|unproved| unproved.refusal)
            }
        }
    }

    /// Sends a call's request; returns the status of the answer, if there was one, and the result.
    async fn attempt(
        &self,
        (mapping, proof): (&ProxyHttp, &HeaderMap),
        execution: &Execution,
        started: &mut StartGuard,
    ) -> (Option<StatusCode>, Result<Output, Refusal>) {
        let call = &execution.call;
        // A refusal by the breaker is final: no other gateway is tried.
        started.mark_sent();
        let permit = match self.breakers.enter_for(call, &mapping.url) {
            Ok(permit) => permit,
            Err(refusal) => return (None, Err(refusal)),
        };
        let by = (&*self.outbound, &*self.authorizer, proof);
        let (status, result) = match send(by, mapping, execution, started).await {
            Ok(answer) => (Some(answer.status), map(&self.artifacts, mapping, execution, answer).await),
            Err(refusal) => (None, Err(refusal)),
        };
        permit.leave(call, &result);
        (status, result)
    }
}

/// Sends the request, and again while it may be repeated; returns the last response.
async fn send(
    by: (&Outbound, &Authorizer, &HeaderMap),
    mapping: &ProxyHttp,
    execution: &Execution,
    started: &mut StartGuard,
) -> Result<HttpResponse, Refusal> {
    let call = &execution.call;
    let retries = if call.may_repeat() { mapping.retries } else { 0 };
    let mut pauses = PAUSES.with_max_times(retries as usize).build();
    loop {
        let answered = once(by, mapping, execution, started).await;
        let again = match &answered {
            Ok(answer) => matches!(answer.status.as_u16(), 502..=504),
            Err(Refusal::Upstream(_)) => true,
            Err(_) => false,
        };
        let pause = pauses.next().filter(|pause| again && Instant::now() + *pause < call.deadline());
        let Some(pause) = pause else { return answered };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = call.cancelled() => return Err(Refusal::Cancelled),
        }
    }
}

/// Response of the service, whatever its status.
struct HttpResponse {
    status: StatusCode,
    headers: HeaderMap,
    media_type: MediaType,
    body: Vec<u8>,
}

async fn once(
    (outbound, authorizer, proof): (&Outbound, &Authorizer, &HeaderMap),
    mapping: &ProxyHttp,
    execution: &Execution,
    started: &mut StartGuard,
) -> Result<HttpResponse, Refusal> {
    let call = &execution.call;
    started.mark_sent();
    let request = request(outbound, mapping, execution).inspect_err(|_| started.undelivered())?;
    let request = request.headers(proof.clone());
    let response = tokio::select! {
        sent = request.send() => sent.map_err(|error| refusal_of(call, &error))?,
        () = call.cancelled() => return Err(Refusal::Cancelled),
    };
    let status = response.status();
    if status == StatusCode::UNAUTHORIZED && !authorizer.is_linked(call) {
        authorizer.refused(call, &execution.snapshot).await;
    }
    let headers = response.headers().clone();
    let media_type = media_type(&headers);
    let body = tokio::select! {
        body = asp_outbound::body(response, MAX_RESPONSE) => body.map_err(|why| unanswered(call, why))?,
        () = call.cancelled() => return Err(Refusal::Cancelled),
    };
    Ok(HttpResponse { status, headers, media_type, body })
}

/// Returns the type of a body as received. A service that compresses it, although it was asked not to, sends other
/// bytes than those of the type that it names.
fn media_type(headers: &HeaderMap) -> MediaType {
    let coding = headers.get(CONTENT_ENCODING).and_then(|coding| coding.to_str().ok()).unwrap_or_default();
    match coding.trim().to_ascii_lowercase().as_str() {
        "gzip" | "x-gzip" => MediaType::parse("application/gzip"),
        "br" | "deflate" | "zstd" | "compress" => MediaType::parse("application/octet-stream"),
        // Some services put a charset there.
        _ => MediaType::of(headers),
    }
}

fn request(
    outbound: &Outbound,
    mapping: &ProxyHttp,
    execution: &Execution,
) -> Result<RequestBuilder, Refusal> {
    let arguments = &Arguments::as_sent(&execution.arguments);
    let destination = destination(outbound, mapping, execution)?;
    let mut url = destination.url;
    add_query(&mut url, mapping, (arguments, &execution.arguments))?;
    let method = Method::from_bytes(mapping.method.as_bytes()).map_err(|_| invalid("method"))?;
    let mut request = destination.client.request(method, url);
    let body = body(mapping, &execution.arguments)?;
    let mut names_accept = false;
    for (name, template) in &mapping.headers {
        // Some services read the body that a type announces, and fail.
        if body.is_none() && name.eq_ignore_ascii_case(CONTENT_TYPE.as_str()) {
            continue;
        }
        // A header whose argument is absent is omitted.
        if let Some(value) = expanded(template, arguments, UriTemplate::expand_header)? {
            names_accept |= name.eq_ignore_ascii_case(ACCEPT.as_str());
            request = request.header(name, value);
        }
    }
    if !names_accept {
        request = request.header(ACCEPT, "application/json, */*;q=0.5");
    }
    request = request
        .header("x-deadline-ms", deadline_ms(&execution.call))
        .header("idempotency-key", idempotency_key(&execution.call));
    if mapping.timeout_ms > 0 {
        request = request.timeout(Duration::from_millis(mapping.timeout_ms.into()));
    }
    let Some(body) = body else { return Ok(request) };
    if mapping.body_format() == BodyFormat::Unspecified {
        return Ok(request.json(body.raw()));
    }
    let form = form::encoded(mapping, &body)?;
    Ok(request.header(CONTENT_TYPE, form.media_type).body(form.text))
}

/// Builds the value of the request's body; `None` if there is none.
fn body(mapping: &ProxyHttp, arguments: &Json) -> Result<Option<Json>, Refusal> {
    match mapping.body.as_str() {
        "" => Ok(None),
        "args" => Ok(Some(arguments.clone())),
        pointer if pointer.starts_with('/') => Ok(arguments.pointed(pointer)),
        pointers => {
            let pointers: Map<String, Value> = serde_json::from_str(pointers).map_err(|_| invalid("body"))?;
            let mut body = Members::default();
            for (name, pointer) in pointers {
                if let Some(value) = pointer.as_str().and_then(|pointer| arguments.pointed(pointer)) {
                    body.insert(&name, value);
                }
            }
            Ok(Some(body.to_json()))
        }
    }
}

fn invalid(what: &str) -> Refusal {
    Refusal::Internal(format!("proxy mapping: {what}"))
}

fn destination<'a>(
    outbound: &'a Outbound,
    mapping: &ProxyHttp,
    execution: &Execution,
) -> Result<Destination<'a>, Refusal> {
    let arguments = Arguments::with_defaults(&execution.arguments);
    let url = expanded(&mapping.url, &arguments, UriTemplate::expand)?.ok_or_else(|| {
        Refusal::InvalidArguments {
            pointer: String::new(),
            message: "an argument of the service's URL is missing".into(),
        }
    })?;
    let destination =
        outbound.destination(&url, &execution.snapshot.upstreams, requested_by(&execution.call));
    destination.map_err(|error| Refusal::Upstream(error.to_string()))
}

fn add_query(
    url: &mut Url,
    mapping: &ProxyHttp,
    (arguments, sent): (&Arguments, &Json),
) -> Result<(), Refusal> {
    let mut written: Vec<String> = url.query().map(str::to_owned).into_iter().collect();
    for (name, template) in &mapping.query {
        for (name, value) in parameters(name, template, (arguments, sent))? {
            written.push(format!("{}={value}", uri_template::encoded(&name)));
        }
    }
    if !written.is_empty() {
        url.set_query(Some(&written.join("&")));
    }
    Ok(())
}

/// Returns the names and encoded values of the parameters that one template becomes; none if its argument is absent.
fn parameters(
    name: &str,
    template: &str,
    (arguments, sent): (&Arguments, &Json),
) -> Result<Vec<(String, String)>, Refusal> {
    let Some(argument) = uri_template::exploded(template) else {
        let value = expanded(template, arguments, UriTemplate::expand)?;
        return Ok(value.map(|value| (name.to_owned(), value)).into_iter().collect());
    };
    let Some(value) = sent.member(argument) else { return Ok(Vec::new()) };
    let parameters = form::exploded(name, argument, &value)?;
    Ok(parameters.into_iter().map(|(name, value)| (name, uri_template::encoded(&value))).collect())
}

/// Function that fills a template.
type Expand = fn(&UriTemplate, &Map<String, Value>) -> Result<String, ExpandFault>;

/// Fills the template with the arguments; `None` if one of them is absent.
fn expanded(template: &str, arguments: &Arguments, expand: Expand) -> Result<Option<String>, Refusal> {
    let template = UriTemplate::parse(template).map_err(|fault| invalid(&fault.to_string()))?;
    match expand(&template, arguments.as_map()) {
        Ok(text) => Ok(Some(text)),
        Err(ExpandFault::Missing(_)) => Ok(None),
        Err(fault) => Err(Refusal::misplaced(&fault)),
    }
}

/// Converts the response.
async fn map(
    artifacts: &Artifacts,
    mapping: &ProxyHttp,
    execution: &Execution,
    answer: HttpResponse,
) -> Result<Output, Refusal> {
    let HttpResponse { status, headers, media_type, body } = &answer;
    if !status.is_success() {
        let text = redirect(*status, headers).or_else(|| media_type.decode(body)).unwrap_or_default();
        // A page for people is markup.
        let said = if media_type.is("text/html") { sanitize(&text) } else { sanitize_body(&text) };
        return failed(execution, headers, *status, &said);
    }
    answer::output(artifacts, mapping, execution, &answer).await
}

/// Returns the place that a redirect names. It is not followed, and often it is the result, such as a download.
fn redirect(status: StatusCode, headers: &HeaderMap) -> Option<String> {
    let place = headers.get(LOCATION).filter(|_| status.is_redirection())?;
    Some(format!("it is at {}", place.to_str().ok()?))
}

/// Converts a failed response. A tool's caller sees the service's message; a resource or a prompt has no result for
/// it.
fn failed(
    execution: &Execution,
    headers: &HeaderMap,
    status: StatusCode,
    said: &str,
) -> Result<Output, Refusal> {
    match execution.call.entry.primitive.kind() {
        Kind::Resource | Kind::ResourceTemplate if status == StatusCode::NOT_FOUND => {
            let uri = execution.arguments.get("uri").and_then(Value::as_str).unwrap_or_default();
            Err(Refusal::UnknownResource { uri: uri.to_owned() })
        }
        Kind::Resource | Kind::ResourceTemplate | Kind::Prompt => {
            Err(by_status(status, retry_after(headers), said.to_owned()).of(&execution.call))
        }
        _ if is_no_result(status) => {
            Err(by_status(status, retry_after(headers), String::new()).of(&execution.call))
        }
        _ => Ok(Output::tool_error(&format!("the service answered {}: {said}", status.as_u16()))),
    }
}
