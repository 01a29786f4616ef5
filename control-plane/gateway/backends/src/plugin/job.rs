//! One call in the form that its runtime and its plugin receive: the allocation, and the messages that begin the
//! work.
//!
//! Keeps true: the client's token is never passed on (I-8), and a credential is sent to the runtime only; the
//! deadline is absolute, so that no hop extends it.

use std::collections::BTreeMap;
use std::sync::Arc;

use asp_call::call::event::{LogLevel, cut_text};
use asp_call::call::started::StartGuard;
use asp_call::call::{Call, CallKind};
use asp_call::clock::since_epoch;
use asp_call::execution::Execution;
use asp_identity::minting;
use asp_json::Json;
use asp_mcp_client::lines;
use asp_platform::secret::Secret;
use asp_proto::envelope::packed;
use asp_proto::plugin::{self as ppp, client_message, log_line};
use asp_proto::snapshot::{Kind, RiskClass};
use asp_proto::supervisor::{AllocateWorkerRequest, Context, PluginRef, RuntimeHints};
use asp_runtime_client::runtimes::Fleet;
use asp_runtime_client::tunnel::{self, WorkMark};
use prost_types::Any;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::attempt_state::AttemptState;
use super::credential_lease::LeasedCredential;
use super::dependencies::PluginDeps;
use super::reference::{STDIO, called_as};
use crate::accepted::watching::Watches;
use crate::conversation::downstream::Clients;
use crate::conversation::upstream_call;

/// One call with what its plugin needs.
pub(super) struct Job<'a> {
    pub deps: &'a PluginDeps,
    /// Watches over the lists of stdio servers.
    pub watches: &'a Watches,
    pub execution: &'a Execution,
    pub plugin: PluginRef,
    pub language: &'static str,
    /// The plugin's own name of the primitive.
    pub primitive: String,
    pub hints: RuntimeHints,
    /// The runtimes of its language.
    pub fleet: Arc<Fleet>,
    /// Token that the plugin presents to services instead of the platform's, if its spec asks for an exchange.
    pub exchanged: Option<Secret>,
    /// Credential with which the worker's proxy authenticates requests.
    pub lease: Option<LeasedCredential>,
    /// Clients that a stdio server's own requests are sent to.
    pub clients: Arc<Clients>,
    /// Name of the stdio server in the watches over their lists; `None` for a plugin.
    pub package: Option<String>,
}

impl Job<'_> {
    pub(super) fn call(&self) -> &Arc<Call> {
        &self.execution.call
    }

    /// Returns the mark of the call, for the tunnel of one attempt.
    pub(super) fn mark(&self) -> Box<dyn WorkMark> {
        Box::new(CallMark { call: self.call().clone(), guard: None })
    }

    /// Converts a log line of the plugin to the form of events, and passes it to the listener.
    pub(super) fn handle_log(&self, line: ppp::LogLine) -> (LogLevel, String) {
        let level = LogLevel::parse(&line.severity).unwrap_or_else(|| match line.level() {
            log_line::Level::Trace | log_line::Level::Debug => LogLevel::Debug,
            log_line::Level::Info => LogLevel::Info,
            log_line::Level::Warn => LogLevel::Warning,
            log_line::Level::Error => LogLevel::Error,
        });
        let text = cut_text(line.message);
        if let Some(listener) = &self.deps.listener {
            listener(&self.plugin.id, level, &text);
        }
        (level, text)
    }

    /// Passes a log message of a stdio server to the listener.
    pub(super) fn pass_to_listener(&self, level: Option<&str>, data: &Json) {
        if self.deps.listener.is_none() {
            return;
        }
        let line = ppp::LogLine {
            level: log_line::Level::Info.into(),
            severity: level.unwrap_or_default().to_owned(),
            message: data.as_str().map_or_else(|| data.text().to_owned(), str::to_owned),
            ..ppp::LogLine::default()
        };
        drop(self.handle_log(line));
    }

    /// Reports that the stdio server has announced a change of its lists.
    pub(super) fn lists_changed(&self) {
        if let Some(name) = &self.package {
            self.watches.changed(name);
        }
    }

    pub(super) fn allocation(&self) -> AllocateWorkerRequest {
        let call = self.call();
        let left = call.deadline().saturating_duration_since(Instant::now());
        AllocateWorkerRequest {
            plugin: Some(called_as(&self.plugin, &call.server.message.name, &call.entry.primitive.id)),
            ctx: Some(Context {
                tenant_id: call.caller.org.clone(),
                user_id: call.caller.user.clone(),
                wcit_hash: call.caller.wcit.clone(),
                session_id: call.session.clone(),
                correlation_id: call.id.to_string(),
                mcp_request_id: call.protocol_request_id.clone(),
                primitive: call.entry.primitive.id.clone(),
            }),
            hints: Some(self.hints.clone()),
            soft_deadline: prost_types::Duration::try_from(left).ok(),
            // A worker that served somebody else is not used for the most sensitive calls (ADR 5).
            force_fresh_process: call.entry.primitive.risk_class() == RiskClass::High,
            work: None,
            credential: self.lease.as_ref().map(LeasedCredential::newest),
            subscription: false,
            lines: (self.language == STDIO).then(lines::protocol),
        }
    }

    /// Reports that the service behind the plugin refused the leased credential.
    pub(super) fn refused(&self) {
        self.lease.iter().for_each(LeasedCredential::refused);
    }

    fn context(&self) -> ppp::Context {
        let call = self.call();
        ppp::Context {
            tenant_id: call.caller.org.clone(),
            user_id: call.caller.user.clone(),
            wcit_hash: call.caller.wcit.clone(),
            session_id: call.session.clone(),
            correlation_id: call.id.to_string(),
        }
    }

    pub(super) fn init(&self) -> Any {
        let init = ppp::InitRequest { ctx: Some(self.context()), ..ppp::InitRequest::default() };
        tunnel::pack(client_message::Payload::Init(init))
    }

    /// Returns the message that begins the work.
    pub(super) fn work(&self, attempt_state: &AttemptState, resume: Option<ppp::Resume>) -> Any {
        match self.call().entry.primitive.kind() {
            _ if self.language == STDIO => tunnel::pack(client_message::Payload::LineRequest(self.line())),
            Kind::ResourceTemplate if self.call().kind == CallKind::List => packed(&self.list()),
            Kind::Resource | Kind::ResourceTemplate => packed(&self.read(attempt_state)),
            Kind::Prompt => packed(&self.prompt(attempt_state)),
            _ => tunnel::pack(client_message::Payload::Invoke(self.invoke(attempt_state, resume))),
        }
    }

    /// Returns the request to a stdio server.
    fn line(&self) -> ppp::LineRequest {
        let call = self.call();
        let request_id = call.id.to_string();
        let (method, mut params) = upstream_call::request(&self.primitive, self.execution);
        let meta = json!({"progressToken": request_id, "traceparent": call.trace.traceparent()});
        params.insert("_meta".into(), meta);
        ppp::LineRequest {
            ctx: Some(self.context()),
            request_id,
            method: method.to_owned(),
            params: Some(lines::params(
                &upstream_call::client_params(self.execution),
                &Value::Object(params),
            )),
            deadline: self.deadline(),
            attrs: self.attributes(),
        }
    }

    fn invoke(&self, attempt_state: &AttemptState, mut resume: Option<ppp::Resume>) -> ppp::InvokeRequest {
        let call = self.call();
        if let Some(resume) = &mut resume {
            resume.resume_token = self.resume_token(resume.attempt);
        }
        ppp::InvokeRequest {
            ctx: Some(self.context()),
            primitive: self.primitive.clone(),
            version: call.entry.primitive.version.clone(),
            arguments: Some(self.arguments()),
            request_id: call.id.to_string(),
            task_id: attempt_state.task_id.clone(),
            attrs: self.attributes(),
            deadline: self.deadline(),
            budget: self.execution.budget,
            access_token: self.access_token(),
            idempotency_key: call.idempotency_key.clone().unwrap_or_default(),
            mcp_request_id: call.protocol_request_id.clone(),
            resume,
            describe: false,
        }
    }

    fn list(&self) -> ppp::ListResourcesRequest {
        ppp::ListResourcesRequest {
            ctx: Some(self.context()),
            request_id: self.call().id.to_string(),
            mcp: false,
            primitive: self.primitive.clone(),
        }
    }

    fn read(&self, attempt_state: &AttemptState) -> ppp::ReadResourceRequest {
        let call = self.call();
        // A completion reads nothing yet: a variable of that name is not a URI.
        let uri = match call.kind.completed_argument() {
            Some(_) => None,
            None => self.execution.arguments.get("uri").and_then(Value::as_str),
        };
        ppp::ReadResourceRequest {
            ctx: Some(self.context()),
            primitive: self.primitive.clone(),
            version: call.entry.primitive.version.clone(),
            uri: uri.unwrap_or_default().to_owned(),
            arguments: Some(self.arguments()),
            request_id: call.id.to_string(),
            deadline: self.deadline(),
            access_token: self.access_token(),
            attrs: self.attributes(),
            given: attempt_state.given.clone(),
            completing: call.kind.completed_argument().unwrap_or_default().to_owned(),
        }
    }

    fn prompt(&self, attempt_state: &AttemptState) -> ppp::GetPromptRequest {
        let call = self.call();
        ppp::GetPromptRequest {
            ctx: Some(self.context()),
            name: self.primitive.clone(),
            version: call.entry.primitive.version.clone(),
            arguments: Some(self.arguments()),
            request_id: call.id.to_string(),
            deadline: self.deadline(),
            access_token: self.access_token(),
            attrs: self.attributes(),
            given: attempt_state.given.clone(),
            completing: call.kind.completed_argument().unwrap_or_default().to_owned(),
        }
    }

    /// Returns the plugin's token; empty if the plugin may call nobody. A stdio server gets none, because MCP has no
    /// field for it.
    fn access_token(&self) -> String {
        let plugin = self.plugin_name();
        let minted =
            || self.deps.minter.access(minting::PluginExecution { call: self.call(), plugin: &plugin });
        let token = self.exchanged.clone().or_else(minted);
        token.map_or_else(String::new, |token| token.expose().to_owned())
    }

    /// Returns the proof that the resuming execution replaces the previous one; empty if the plugin may call nobody.
    fn resume_token(&self, attempt: u32) -> String {
        let plugin = self.plugin_name();
        let execution = minting::PluginExecution { call: self.call(), plugin: &plugin };
        let token = self.deps.minter.succession(execution, attempt, attempt.saturating_sub(1));
        token.map_or_else(String::new, |token| token.expose().to_owned())
    }

    /// `id@version`.
    pub(super) fn plugin_name(&self) -> String {
        format!("{}@{}", self.plugin.id, self.plugin.version)
    }

    fn arguments(&self) -> ppp::Json {
        ppp::Json { value: self.execution.arguments.to_string().into_bytes() }
    }

    fn attributes(&self) -> BTreeMap<String, String> {
        BTreeMap::from([("traceparent".to_owned(), self.call().trace.traceparent())])
    }

    fn deadline(&self) -> Option<prost_types::Timestamp> {
        let left = self.call().deadline().saturating_duration_since(Instant::now());
        let at = since_epoch() + left;
        Some(prost_types::Timestamp {
            seconds: i64::try_from(at.as_secs()).ok()?,
            nanos: i32::try_from(at.subsec_nanos()).ok()?,
        })
    }
}

/// The mark of a call, as its tunnel keeps it.
struct CallMark {
    call: Arc<Call>,
    /// Guard of the attempt; `None` until the work is sent.
    guard: Option<StartGuard>,
}

impl WorkMark for CallMark {
    fn mark_sent(&mut self) {
        self.guard.get_or_insert_with(|| StartGuard::of(&self.call)).mark_sent();
    }

    fn undelivered(&mut self) {
        self.guard.iter_mut().for_each(StartGuard::undelivered);
    }
}
