//! MCP 2026-07-28: stateless. Every request carries its version, its capabilities and mirrored headers; closing the
//! response cancels the call; a question ends the response, and the client retries with the answer.
//!
//! The official conformance probes dictate the order of the checks.

use std::iter;
use std::sync::Arc;
use std::time::Duration;

use asp_call::call::authority::{Arrival, Attachment};
use asp_call::call::event::LogLevel;
use asp_call::call::question::Question;
use asp_call::call::{Call, ClientAbilities, HeldMemory};
use asp_edge::{Envelope, EnvelopeKind, Reason};
use asp_json::{Json, Members};
use asp_pipeline::pipeline::lookup::AttachResult;
use asp_proto::mcp_revision::Revision;
use asp_proto::snapshot::Kind;
use asp_snapshot::param_headers::decode;
use axum::response::Response;
use http::StatusCode;
use serde_json::{Map, Value, json};

use super::all_servers;
use super::codec::{self, Message, RpcFailure, RpcResponse, accepted};
use super::lacking::{TASKS_EXTENSION, has_scopes};
use super::lists::McpList;
use super::questions;
use super::requests;
use super::results::{CallResult, RequestKind, SERVER_INFO, server_info, set_meta};
use super::stream::{self, Era, StreamView};
use super::subscriptions;
use super::tasks;
use super::{Context, RequestAnswer, json as json_response, lists, progress_token, trace_of};
use crate::request_state::RequestState;
use crate::{ProtocolRequest, unserved};

const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
/// Time that a client may cache a list, in milliseconds. Short, because a revoked tool must disappear (I-10).
const LIST_TTL_MS: u64 = 1000;
/// Time limit for a call that another gateway took over to repeat the question that a retry answers.
const ASKS_WITHIN: Duration = Duration::from_secs(20);
const REVISION: Revision = Revision::V2026_07_28;

/// Answers one message.
pub(super) async fn post(request: ProtocolRequest, envelope: Envelope) -> Response {
    let id = envelope.id.as_deref();
    let trace = request.admitted.trace;
    match envelope.kind {
        EnvelopeKind::Request => {}
        EnvelopeKind::Notification => return accepted(),
        EnvelopeKind::Response | EnvelopeKind::Batch(_) => {
            return RpcFailure::with(
                Reason::InvalidRequest,
                "this protocol version has requests and notifications only",
            )
            .respond(id, trace);
        }
    }
    let message = match Message::read(&request.body) {
        Ok(message) => Arc::new(message),
        Err(_) => return RpcFailure::of(Reason::InvalidRequest).respond(id, trace),
    };
    match answer(&request, &message, envelope.meta_version.as_deref()).await {
        Ok(response) => response,
        Err(failure) => {
            let is_unserved = failure.is(Reason::UpstreamUnavailable);
            let mut response = failure.respond(id, trace_of(&request, &message));
            if is_unserved {
                unserved::mark(response.extensions_mut());
            }
            response
        }
    }
}

async fn answer(
    request: &ProtocolRequest,
    message: &Arc<Message>,
    version: Option<&str>,
) -> Result<Response, RpcFailure> {
    check_version(request, version)?;
    let abilities = abilities(message)?;
    check_mirrors(request, message)?;
    check_log_level(message)?;
    // Boxed, so that the state of other requests does not include these.
    if let Some((request, message)) = all_servers::route(request, message) {
        return Box::pin(handle(&request, &Arc::new(message), abilities)).await;
    }
    if request.reached.is_some()
        && let Some(request) = Box::pin(all_servers::route_task(request, message)).await
    {
        return Box::pin(handle(&request, message, abilities)).await;
    }
    handle(request, message, abilities).await
}

/// Answers a checked message.
async fn handle(
    request: &ProtocolRequest,
    message: &Arc<Message>,
    abilities: ClientAbilities,
) -> Result<Response, RpcFailure> {
    let id = message.id_text().ok_or_else(|| RpcFailure::of(Reason::InvalidRequest))?;
    let finished = |result, caching| {
        let result = ModernEra::of(request, message).finish(result, caching);
        json_response(RpcResponse::result(id, &result))
    };
    if message.method.as_deref() == Some("server/discover") {
        return Ok(finished(Members::from_iter(discover(request)), Caching::Public));
    }
    if let Some(answered) = tasks::answer(request, message, abilities).await {
        return Ok(finished(answered?, Caching::None));
    }
    if message.method.as_deref() == Some("subscriptions/listen") {
        return subscriptions::listen(request, message, id, abilities);
    }
    let listed = requests::listed_by_plugins(request, message, REVISION, "").await;
    let context = Context { revision: REVISION, abilities, session: String::new(), listed };
    let resumed = resumed(request, message).await?;
    let again = resumed.is_some();
    let from_event = resumed.as_ref().map_or(0, |resumed| resumed.from_event);
    let answer = match &resumed {
        Some(resumed) => Some(Ok(RequestAnswer::Call(resumed.returning.0.call().clone(), kind_of(message)))),
        None => requests::dispatch(request, message, &context),
    };
    match answer {
        None => Err(RpcFailure::of(Reason::UnknownMethod).status(StatusCode::NOT_FOUND)),
        Some(Err(failure)) => Err(failure),
        Some(Ok(RequestAnswer::Page(page))) => Ok(finished(Members::from_iter(page), Caching::Private)),
        Some(Ok(RequestAnswer::Completion(list))) => Ok(finished(Members::from_iter(list), Caching::None)),
        Some(Ok(RequestAnswer::Call(call, asked))) => {
            let attachment = match tasks::is_due(&call, abilities, again) {
                true => match tasks::create(request, &call, abilities).await {
                    Ok(task) => {
                        let result = ModernEra::of(request, message).task_result(task);
                        return Ok(json_response(RpcResponse::result(id, &result)));
                    }
                    Err(attachment) => attachment,
                },
                false => Attachment::to(call, abilities),
            };
            // The client is attached now.
            drop(resumed);
            Ok(stream::respond(StreamView {
                attachment,
                asked,
                revision: REVISION,
                id: id.into(),
                progress_token: progress_token(message),
                log_level: message.meta(LOG_LEVEL).and_then(Value::as_str).and_then(LogLevel::parse),
                accepts_stream: true,
                from_event,
                era: Box::new(ModernEra::of(request, message)),
            })
            .await)
        }
    }
}

/// Returns the abilities that the client declares in this request.
fn abilities(message: &Message) -> Result<ClientAbilities, RpcFailure> {
    let capabilities = message
        .meta(CAPABILITIES)
        .filter(|capabilities| capabilities.is_object())
        .ok_or_else(|| missing_meta(CAPABILITIES))?;
    let tasks = tasks::is_declared(capabilities);
    Ok(ClientAbilities { tasks, ..questions::abilities(Some(capabilities), REVISION) })
}

/// Checks that header and body name the same, supported revision.
fn check_version(request: &ProtocolRequest, in_body: Option<&str>) -> Result<(), RpcFailure> {
    let in_header = codec::header(&request.headers, "mcp-protocol-version");
    let version = match (in_header, in_body) {
        (Some(header), Some(body)) if header == body => body,
        (Some(_), None) => return Err(missing_meta(VERSION)),
        _ => return Err(mismatch("MCP-Protocol-Version")),
    };
    if Revision::parse(version) == Some(REVISION) {
        return Ok(());
    }
    let supported: Vec<&str> = Revision::SERVED.iter().rev().map(|revision| revision.as_str()).collect();
    Err(RpcFailure::of(Reason::UnsupportedVersion)
        .data("supported", json!(supported))
        .data("requested", version.into()))
}

/// Checks that `Mcp-Method` and `Mcp-Name` mirror the body (SEP-2243).
fn check_mirrors(request: &ProtocolRequest, message: &Message) -> Result<(), RpcFailure> {
    let method = message.method.as_deref().unwrap_or_default();
    if codec::header(&request.headers, "mcp-method") != Some(method) {
        return Err(mismatch("Mcp-Method"));
    }
    let name = match method {
        "tools/call" | "prompts/get" => message.text_param("name"),
        "resources/read" => message.text_param("uri"),
        "tasks/get" | "tasks/update" | "tasks/cancel" => message.text_param("taskId"),
        _ => return Ok(()),
    };
    let Some(name) = name else {
        return Err(RpcFailure::of(Reason::InvalidParams).status(StatusCode::BAD_REQUEST));
    };
    let sent = codec::header(&request.headers, "mcp-name").and_then(decode);
    if sent.as_deref() == Some(name) { Ok(()) } else { Err(mismatch("Mcp-Name")) }
}

/// Checks that the level of log messages, if the request names one, is known (2026-07-28, logging).
fn check_log_level(message: &Message) -> Result<(), RpcFailure> {
    match message.meta(LOG_LEVEL) {
        None | Some(Value::Null) => Ok(()),
        Some(level) if level.as_str().and_then(LogLevel::parse).is_some() => Ok(()),
        Some(_) => {
            let fault = format!("params._meta[\"{LOG_LEVEL}\"] is not a log level");
            Err(RpcFailure::with(Reason::InvalidParams, &fault).in_call())
        }
    }
}

fn mismatch(header: &str) -> RpcFailure {
    RpcFailure::with(
        Reason::HeaderMismatch,
        &format!("header {header} is missing or does not match the body"),
    )
}

fn missing_meta(name: &str) -> RpcFailure {
    RpcFailure::with(Reason::InvalidParams, &format!("params._meta[\"{name}\"] is required"))
        .status(StatusCode::BAD_REQUEST)
}

fn discover(request: &ProtocolRequest) -> Map<String, Value> {
    let supported: Vec<&str> = Revision::SERVED.iter().rev().map(|revision| revision.as_str()).collect();
    let mut result = Map::new();
    result.insert("supportedVersions".into(), json!(supported));
    let mut capabilities = lists::capabilities(request, true);
    let reached = request.reached.iter().flatten().map(|reached| &reached.server);
    let mut servers = iter::once(&request.server).chain(reached);
    if servers.any(|server| server.entries.iter().any(|entry| entry.primitive.kind() == Kind::Task))
        && let Some(capabilities) = capabilities.as_object_mut()
    {
        capabilities.insert("extensions".into(), json!({TASKS_EXTENSION: {}}));
    }
    result.insert("capabilities".into(), capabilities);
    if !request.server.message.instructions.is_empty() {
        result.insert("instructions".into(), request.server.message.instructions.clone().into());
    }
    result
}

fn kind_of(message: &Message) -> RequestKind {
    match message.method.as_deref() {
        Some("tools/call") => RequestKind::Tool,
        _ => RequestKind::Other,
    }
}

/// A client about to follow its call again. If it disconnects before, the call is cancelled, as it would be later.
struct ReturningClient(Arrival);

impl Drop for ReturningClient {
    fn drop(&mut self) {
        if self.0.close() {
            self.0.call().abandon();
        }
    }
}

/// A suspended call that a retry continues.
struct ResumedCall {
    returning: ReturningClient,
    /// Number of the first event that the client has not received.
    from_event: u64,
}

/// Returns the suspended call that a retry continues, after passing on the retry's answers.
async fn resumed(request: &ProtocolRequest, message: &Message) -> Result<Option<ResumedCall>, RpcFailure> {
    let Some(state) = message.param("requestState") else { return Ok(None) };
    let invalid =
        || RpcFailure::with(Reason::InvalidParams, "requestState is not valid or has expired").in_call();
    let method = message.method.as_deref().unwrap_or_default();
    if McpList::of_method(method).is_some() {
        return Ok(None);
    }
    let state = state.as_str().ok_or_else(invalid)?;
    let key = RequestState::digest(method, message.params().as_ref());
    let gateway = &request.gateway;
    let server = &request.server.message.name;
    let opened = RequestState::open(&gateway.sealer, state, &request.caller, server, key);
    let opened = opened.ok_or_else(invalid)?;
    let attached = gateway.pipeline.attach(opened.call, &request.caller, server).await;
    // The client keeps its answers and sends them again.
    let later = |why: &str| RpcFailure::with(Reason::UpstreamUnavailable, why);
    let call = match attached.map_err(|_| later("the store of calls does not answer: send this again"))? {
        AttachResult::Here(call) => call,
        AttachResult::Elsewhere => {
            return Err(later("the call runs at another gateway, which waits for this: send it again"));
        }
        AttachResult::Unknown => return Err(invalid()),
    };
    has_scopes(request, &call)?;
    let arguments = message.sent_param("arguments").unwrap_or_else(|| Value::Null.into());
    requests::check_param_headers(request, &call.entry, &arguments)?;
    let from_event = match opened.next_event(&call) {
        Some(next_event) => next_event,
        None => {
            // The call's gateway is gone. At its new one, the plugin asks again.
            call.asks_or_ends(ASKS_WITHIN).await;
            0
        }
    };
    let mut returning = ReturningClient(Arrival::at(call.clone()));
    gateway.pipeline.attend(&returning.0, &request.caller).await;
    if let Some(results) = message.sent_param("inputResponses").filter(|results| results.is_object()) {
        let answers = questions::answers(&call.questions, &results);
        if let Err(fault) = gateway.pipeline.answer_each(&call, answers).await {
            // The client keeps its answers and sends them again, so this must not cancel the call.
            returning.0.close();
            return Err(RpcFailure::of_input_fault(fault));
        }
    }
    Ok(Some(ResumedCall { returning, from_event }))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Caching {
    /// The same for every caller.
    Public,
    /// Depends on the caller.
    Private,
    /// A result that must not be cached.
    None,
}

struct ModernEra {
    gateway: Arc<crate::replica::Replica>,
    server: Arc<asp_snapshot::VirtualServer>,
    message: Arc<Message>,
    /// Memory held by the message.
    _memory: Option<HeldMemory>,
}

impl ModernEra {
    fn of(request: &ProtocolRequest, message: &Arc<Message>) -> ModernEra {
        ModernEra {
            gateway: request.gateway.clone(),
            server: request.server.clone(),
            message: message.clone(),
            _memory: request.memory.clone(),
        }
    }

    /// Returns the result for a call that has become a task.
    fn task_result(&self, mut task: Members) -> Json {
        task.insert("resultType", "task");
        set_meta(&mut task, SERVER_INFO, server_info(&self.server, REVISION));
        task.to_json()
    }

    fn finish(&self, mut result: Members, caching: Caching) -> Json {
        completing(caching).into_iter().for_each(|(name, value)| result.insert(name, value));
        set_meta(&mut result, SERVER_INFO, server_info(&self.server, REVISION));
        result.to_json()
    }
}

/// Returns the members that every complete result carries.
fn completing(caching: Caching) -> Vec<(&'static str, Value)> {
    let mut members = vec![("resultType", "complete".into())];
    if caching != Caching::None {
        let scope = if caching == Caching::Public { "public" } else { "private" };
        members.push(("ttlMs", LIST_TTL_MS.into()));
        members.push(("cacheScope", scope.into()));
    }
    members
}

impl Era for ModernEra {
    fn complete(&self, result: &mut CallResult<'_>) {
        let cacheable = self.message.method.as_deref() == Some("resources/read");
        for (name, value) in completing(if cacheable { Caching::Private } else { Caching::None }) {
            result.put(name, value);
        }
        result.put_meta(SERVER_INFO, server_info(&self.server, REVISION));
    }

    /// 2026-07-28 has no such message: the client retries when its user is done.
    fn visited(&self, _call: &Call, _question: &str) -> Option<String> {
        None
    }

    fn ask(&self, _call: &Arc<Call>, _question: &Question) -> Option<String> {
        None
    }

    fn suspend(&self, call: &Arc<Call>, questions: Vec<Question>, next_event: u64) -> Option<Json> {
        // A retry must repeat every parameter but those that make it a retry.
        let method = self.message.method.as_deref().unwrap_or_default();
        let digest = RequestState::digest(method, self.message.params().as_ref());
        let life = self.gateway.pipeline.promise_retry(call);
        let state = RequestState::issue(&self.gateway.sealer, call, digest, next_event, life)?;
        let mut result = Members::default();
        result.insert("resultType", "input_required");
        result.insert("inputRequests", questions::requests(&questions));
        result.insert("requestState", state);
        set_meta(&mut result, SERVER_INFO, server_info(&self.server, REVISION));
        Some(result.to_json())
    }

    /// A request with this state reaches the call again.
    fn may_be_sent_again(&self) -> bool {
        self.message.param("requestState").is_some()
    }

    /// Clients of this era cancel by closing the response. A response still open belongs to another request, such as a
    /// retry, and gets an answer.
    fn answers_cancelled(&self) -> bool {
        true
    }

    /// Closing the last response cancels the call in this era.
    fn abandoned(&self, call: &Arc<Call>) {
        call.abandon();
    }
}
