//! The official Rust SDK goes through the script.

// Sampling, roots, logs and subscriptions of the older revisions, which it serves and advises against (SEP-2577, SEP-2575).
#![expect(deprecated)]

use std::sync::Arc;

use anyhow::{Context, Result, bail};
use asp_e2e::wait;
use parking_lot::Mutex;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    CreateMessageRequestParams, CreateMessageResult, ElicitRequestParams, ElicitResult, ElicitationAction,
    ErrorData, GetPromptRequestParams, Implementation, ListRootsResult, LoggingLevel,
    LoggingMessageNotificationParam, ProgressNotificationParam, ProtocolVersion, ReadResourceRequestParams,
    RequestMetaObject, ResourceUpdatedNotificationParam, Role, Root, SamplingMessage,
    SamplingMessageContentBlock, ServerNotification, SetLevelRequestParams, SubscribeRequestParams,
    SubscriptionFilter, UnsubscribeRequestParams,
};
use rmcp::service::{
    ClientLifecycleMode, ClientServiceExt, NotificationContext, PeerRequestOptions, RequestContext,
    RoleClient, RunningService,
};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::transport::streamable_http_client::StreamableHttpClientTransportConfig;
use rmcp::{ClientHandler, Peer};
use serde_json::{Map, Value, json};
use tokio::sync::Notify;

use super::SINCE_ELICITATION;
use crate::clients::{MODERN, named};

const WATCHED: &str = "test://watched-resource";
/// Progress notifications of `test_tool_with_progress`.
const STEPS: [f64; 3] = [0.0, 50.0, 100.0];

/// Answers what the server asks, and remembers what it says.
struct Answers {
    revision: ProtocolVersion,
    capabilities: ClientCapabilities,
    said: Arc<Said>,
}

#[derive(Default)]
struct Said {
    asked: Mutex<Vec<&'static str>>,
    /// Steps of a hundred at most, and of the call that counts.
    progress: Mutex<Vec<f64>>,
    logged: Mutex<u32>,
    updated: Mutex<Option<String>>,
    /// Something of the two was told.
    told: Notify,
}

impl ClientHandler for Answers {
    fn get_info(&self) -> ClientConfig {
        ClientConfig::new(self.capabilities.clone(), Implementation::new("asp-e2e-script-rmcp", "1.0.0"))
            .with_protocol_version(self.revision.clone())
    }

    async fn create_message(
        &self,
        _params: CreateMessageRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<CreateMessageResult, ErrorData> {
        self.said.asked.lock().push("sampling");
        let text = SamplingMessageContentBlock::text("Paris");
        Ok(CreateMessageResult::new(SamplingMessage::new(Role::Assistant, text), "test".into()))
    }

    async fn list_roots(&self, _context: RequestContext<RoleClient>) -> Result<ListRootsResult, ErrorData> {
        self.said.asked.lock().push("roots");
        Ok(ListRootsResult::new(vec![Root::new("file:///src").with_name("Sources")]))
    }

    async fn create_elicitation(
        &self,
        _request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        self.said.asked.lock().push("elicitation");
        let content = json!({"username": "ada", "email": "ada@example.com"});
        Ok(ElicitResult::new(ElicitationAction::Accept).with_content(content))
    }

    async fn on_progress(
        &self,
        params: ProgressNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        self.said.progress.lock().push(params.progress);
        self.said.told.notify_one();
    }

    async fn on_logging_message(
        &self,
        _params: LoggingMessageNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        *self.said.logged.lock() += 1;
    }

    async fn on_resource_updated(
        &self,
        params: ResourceUpdatedNotificationParam,
        _context: NotificationContext<RoleClient>,
    ) {
        *self.said.updated.lock() = Some(params.uri);
        self.said.told.notify_one();
    }
}

type Client = RunningService<RoleClient, Answers>;

/// What each step came to.
pub(super) async fn script(url: &str, revision: &str, traceparent: &str) -> Result<Value> {
    let said = Arc::new(Said::default());
    let client = connect(url, revision, &said).await?;
    let is_modern = revision == MODERN;
    let tools = client.list_all_tools().await?;
    let prompts = client.list_all_prompts().await?;
    let resources = client.list_all_resources().await?;
    let templates = client.list_all_resource_templates().await?;
    let completed = client.complete_prompt_simple("test_prompt_with_arguments", "arg1", "par").await?;
    let prompt = GetPromptRequestParams::new("test_prompt_with_arguments")
        .with_arguments(object(json!({"arg1": "a", "arg2": "b"})));
    let prompt = json!(client.get_prompt(prompt).await?);
    let read = json!(client.read_resource(ReadResourceRequestParams::new("test://static-text")).await?);
    let filled = json!(client.read_resource(ReadResourceRequestParams::new("test://template/7/data")).await?);
    let updated = match is_modern {
        true => listened(&client).await?,
        false => subscribed(&client, &said).await?,
    };
    let called = call(&client, "test_simple_text", json!({})).await?;
    said.progress.lock().clear();
    call(&client, "test_tool_with_progress", json!({})).await?;
    let progress = progressed(&said).await?;
    call(&client, "test_tool_with_logging", json!({})).await?;
    let sampled = call(&client, "test_sampling", json!({"prompt": "the capital of France"})).await?;
    let elicited = match revision >= SINCE_ELICITATION {
        true => call(&client, "test_elicitation", json!({"message": "Who?"})).await?,
        false => Value::Null,
    };
    let rooted = call(&client, "test_input_required_result_list_roots", json!({})).await?;
    gives_up(&client, &said, traceparent).await?;
    let protocol = client.peer_info().context("the server told its revision")?.protocol_version.to_string();
    let asked = said.asked.lock().clone();
    let logged = *said.logged.lock();
    client.cancel().await?;
    Ok(json!({
        "protocol": protocol,
        "tools": tools.iter().map(|tool| tool.name.to_string()).collect::<Vec<_>>(),
        "prompts": prompts.iter().map(|prompt| prompt.name.clone()).collect::<Vec<_>>(),
        "resources": resources.iter().map(|resource| resource.uri.clone()).collect::<Vec<_>>(),
        "templates": templates.iter().map(|template| template.uri_template.clone()).collect::<Vec<_>>(),
        "completed": completed,
        "prompt": prompt["messages"][0]["content"]["text"],
        "read": read["contents"][0]["text"],
        "filled": filled["contents"][0]["text"],
        "called": called, "sampled": sampled, "elicited": elicited, "rooted": rooted,
        "asked": asked, "logged": logged, "progress": progress, "updated": updated, "cancelled": true,
    }))
}

async fn connect(url: &str, revision: &str, said: &Arc<Said>) -> Result<Client> {
    let mut capabilities = json!({"sampling": {}, "roots": {"listChanged": true}});
    if revision >= SINCE_ELICITATION {
        capabilities["elicitation"] = json!({});
    }
    let version: ProtocolVersion = serde_json::from_value(json!(revision))?;
    let lifecycle = match revision == MODERN {
        true => ClientLifecycleMode::Discover { preferred_versions: vec![version.clone()] },
        false => ClientLifecycleMode::Initialize,
    };
    let answers = Answers {
        revision: version,
        capabilities: serde_json::from_value(capabilities)?,
        said: said.clone(),
    };
    let config = StreamableHttpClientTransportConfig::with_uri(url).custom_headers(named());
    let client =
        answers.serve_with_lifecycle(StreamableHttpClientTransport::from_config(config), lifecycle).await?;
    if revision != MODERN {
        client.set_level(SetLevelRequestParams::new(LoggingLevel::Debug)).await?;
        client.notify_roots_list_changed().await?;
    }
    Ok(client)
}

/// The text of a call's result. In 2026-07-28 a request asks for its logs.
async fn call(client: &Client, name: &'static str, arguments: Value) -> Result<Value> {
    let mut call = CallToolRequestParams::new(name).with_arguments(object(arguments));
    let mut meta = RequestMetaObject::default();
    meta.set_log_level(LoggingLevel::Debug);
    call.meta = Some(meta);
    let result = json!(client.call_tool(call).await.context(name)?);
    Ok(result["content"][0]["text"].clone())
}

/// What a call's progress was, once all its steps were told. The client handles each in a task of its own, which may
/// begin after the call's answer is there, and after the next one's: the order on the wire is tried in `conformance`.
async fn progressed(said: &Said) -> Result<Vec<f64>> {
    let all = || async {
        Some(said.progress.lock().clone()).filter(|told| STEPS.iter().all(|step| told.contains(step)))
    };
    let mut told = wait::until("all progress is told", wait::CONVERGE, all).await?;
    told.sort_by(f64::total_cmp);
    Ok(told)
}

/// Of which resource the client is told that it has changed, in a revision with sessions.
async fn subscribed(client: &Client, said: &Said) -> Result<String> {
    client.subscribe(SubscribeRequestParams::new(WATCHED)).await?;
    call(client, "change_watched_resource", json!({})).await?;
    let uri = loop {
        said.told.notified().await;
        if let Some(uri) = said.updated.lock().take() {
            break uri;
        }
    };
    client.unsubscribe(UnsubscribeRequestParams::new(WATCHED)).await?;
    Ok(uri)
}

/// Likewise in 2026-07-28.
async fn listened(client: &Client) -> Result<String> {
    let filter = SubscriptionFilter::builder().resource_subscriptions([WATCHED]).build();
    let mut listening = client.listen(filter).await?;
    call(client, "change_watched_resource", json!({})).await?;
    let told = listening.next().await?.context("the subscription ended")?;
    listening.cancel().await?;
    let ServerNotification::ResourceUpdatedNotification(told) = told else { bail!("told of {told:?}") };
    Ok(told.params.uri)
}

/// Gives up a call that runs.
async fn gives_up(client: &Client, said: &Said, traceparent: &str) -> Result<()> {
    let peer: &Peer<RoleClient> = client.peer();
    let mut meta = RequestMetaObject::default();
    meta.set_traceparent(traceparent);
    let counting =
        CallToolRequestParams::new("count").with_arguments(object(json!({"to": 100, "delayMs": 500})));
    let request = ClientRequest::CallToolRequest(CallToolRequest::new(counting));
    said.progress.lock().clear();
    let running =
        peer.send_cancellable_request(request, PeerRequestOptions::no_options().with_meta(meta)).await?;
    while said.progress.lock().is_empty() {
        said.told.notified().await;
    }
    Ok(running.cancel(Some("enough".into())).await?)
}

fn object(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}
