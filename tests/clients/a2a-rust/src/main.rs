//! The official Rust SDK of A2A 1.0 goes through what a client can do: `asp-client-a2a-rust EDGE SERVER BINDING`.
//!
//! BINDING is `JSONRPC`, `HTTP+JSON` or `GRPC`. The bearer token is in ASP_TOKEN, the URL of the webhook in ASP_HOOK. The steps
//! and what is printed are those of `tests/clients/a2a-python/steps.py`, without signatures, which this SDK does not verify.

use std::env;
use std::sync::Arc;

use a2a::{
    AgentCard, AgentInterface, Artifact, CancelTaskRequest, GetExtendedAgentCardRequest, GetTaskRequest,
    ListTasksRequest, Message, Part, PartContent, Role, SendMessageConfiguration, SendMessageRequest,
    SendMessageResponse, StreamResponse, SubscribeToTaskRequest, Task, TaskPushNotificationConfig, TaskState,
};
use a2a_client::agent_card::AgentCardResolver;
use a2a_client::auth::AuthInterceptor;
use a2a_client::{A2AClient, A2AClientFactory, Transport};
use a2a_grpc::GrpcTransportFactory;
use anyhow::{Context, Result, bail};
use futures::TryStreamExt;
use serde_json::{Map, Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [edge, server, binding] = arguments.as_slice() else { bail!("usage: EDGE SERVER BINDING") };
    let agent = Agent::connect(edge, server, binding).await?;
    print("card", agent.card().await);
    print("send", agent.finish().await);
    print("message", agent.reply().await);
    print("artifacts", agent.artifacts().await);
    print("failure", agent.fail().await);
    print("stream", agent.stream().await);
    print("question", agent.answer().await);
    print("cancel", agent.cancel().await);
    print("list", agent.list().await);
    print("resubscribe", agent.resubscribe().await);
    print("push", agent.push().await);
    Ok(())
}

/// Prints one line of JSON: the observations of a step, or its error.
fn print(step: &str, seen: Result<Value>) {
    let mut line = seen.unwrap_or_else(|error| json!({"error": format!("{error:#}")}));
    line["step"] = step.into();
    println!("{line}");
}

/// An agent over one binding.
struct Agent {
    found: AgentCard,
    interface: AgentInterface,
    client: A2AClient<Box<dyn Transport>>,
}

impl Agent {
    async fn connect(edge: &str, server: &str, binding: &str) -> Result<Agent> {
        let found = AgentCardResolver::new(None).resolve(&format!("{edge}/{server}")).await?;
        // A preferred binding gives way to others; there are none in the card that the SDK gets.
        let mut card = found.clone();
        card.supported_interfaces.retain(|interface| {
            interface.protocol_version == a2a::VERSION && interface.protocol_binding == binding
        });
        let factory = A2AClientFactory::builder()
            .register(Arc::new(GrpcTransportFactory::new()))
            .with_interceptor(Arc::new(AuthInterceptor::bearer(env::var("ASP_TOKEN")?)))
            .build();
        let (client, interface) = factory.create_from_card_with_interface(&card).await?;
        Ok(Agent { found, interface, client })
    }

    async fn card(&self) -> Result<Value> {
        let extended =
            self.client.get_extended_agent_card(&GetExtendedAgentCardRequest { tenant: None }).await?;
        let skills =
            |card: &AgentCard| card.skills.iter().map(|skill| skill.id.clone()).collect::<Vec<String>>();
        Ok(json!({
            "name": self.found.name,
            "url": self.interface.url,
            "skills": skills(&self.found),
            "extended": skills(&extended),
        }))
    }

    async fn finish(&self) -> Result<Value> {
        let task = self.task("tck-complete-task by a client", None, false).await?;
        let request = GetTaskRequest { id: task.id.clone(), history_length: None, tenant: None };
        let got = self.client.get_task(&request).await?;
        let (state, got_state) = (state_name(&task.status.state)?, state_name(&got.status.state)?);
        Ok(json!({"kind": "task", "state": state, "got": got_state, "same": got.id == task.id}))
    }

    async fn reply(&self) -> Result<Value> {
        match self.send("tck-message-response by a client", None, false).await? {
            SendMessageResponse::Message(message) => {
                Ok(json!({"kind": "message", "text": message.text().unwrap_or_default()}))
            }
            SendMessageResponse::Task(task) => Ok(json!({"kind": "task", "id": task.id})),
        }
    }

    async fn artifacts(&self) -> Result<Value> {
        let mut found = Map::new();
        for kind in ["text", "file", "file-url", "data"] {
            let task = self.task(&format!("tck-artifact-{kind} by a client"), None, false).await?;
            let parts = task.artifacts.iter().flatten().flat_map(|Artifact { parts, .. }| parts);
            let kinds: Vec<&str> = parts.map(|part| part_kind(&part.content)).collect();
            found.insert(kind.to_owned(), json!(kinds));
        }
        Ok(found.into())
    }

    async fn fail(&self) -> Result<Value> {
        let task = self.task("tck-task-failure by a client", None, false).await?;
        Ok(json!({"state": state_name(&task.status.state)?}))
    }

    async fn stream(&self) -> Result<Value> {
        let request = request("tck-stream-basic by a client", None, false);
        outline(self.client.send_streaming_message(&request).await?.try_collect().await?)
    }

    async fn answer(&self) -> Result<Value> {
        let asked = self.task("tck-multi-turn by a client", None, false).await?;
        let answered = self.task("done", Some(&asked), false).await?;
        let text = asked.status.message.as_ref().and_then(Message::text).unwrap_or_default();
        Ok(json!({
            "asked": state_name(&asked.status.state)?,
            "text": text,
            "answered": state_name(&answered.status.state)?,
            "same": asked.id == answered.id && asked.context_id == answered.context_id,
        }))
    }

    async fn cancel(&self) -> Result<Value> {
        let running = self.task("tck-cancel by a client", None, true).await?;
        let request = CancelTaskRequest { id: running.id.clone(), metadata: None, tenant: None };
        let ended = self.client.cancel_task(&request).await?;
        Ok(json!({"state": state_name(&ended.status.state)?, "same": ended.id == running.id}))
    }

    async fn list(&self) -> Result<Value> {
        let task = self.task("tck-complete-task to be listed", None, false).await?;
        let request = ListTasksRequest {
            context_id: Some(task.context_id),
            status: None,
            page_size: None,
            page_token: None,
            history_length: None,
            status_timestamp_after: None,
            include_artifacts: None,
            tenant: None,
        };
        let listed = self.client.list_tasks(&request).await?;
        let ids: Vec<&str> = listed.tasks.iter().map(|task| task.id.as_str()).collect();
        Ok(json!({"same": ids == [task.id.as_str()]}))
    }

    async fn resubscribe(&self) -> Result<Value> {
        let running = self.task("tck-long-running by a client", None, true).await?;
        let request = SubscribeToTaskRequest { id: running.id, tenant: None };
        outline(self.client.subscribe_to_task(&request).await?.try_collect().await?)
    }

    async fn push(&self) -> Result<Value> {
        let task = self.task("tck-complete-task by a client", None, false).await?;
        let config = TaskPushNotificationConfig {
            url: env::var("ASP_HOOK")?,
            id: Some("hook".to_owned()),
            task_id: task.id.clone(),
            token: None,
            authentication: None,
            tenant: None,
        };
        self.client.create_push_config(&config).await?;
        Ok(json!({"registered": task.id}))
    }

    /// Sends a message that is answered with a task; `earlier` is the task that it continues.
    async fn task(&self, text: &str, earlier: Option<&Task>, immediately: bool) -> Result<Task> {
        match self.send(text, earlier, immediately).await? {
            SendMessageResponse::Task(task) => Ok(task),
            SendMessageResponse::Message(message) => {
                bail!("{text:?} is answered with a message: {message:?}")
            }
        }
    }

    async fn send(
        &self,
        text: &str,
        earlier: Option<&Task>,
        immediately: bool,
    ) -> Result<SendMessageResponse> {
        Ok(self.client.send_message(&request(text, earlier, immediately)).await?)
    }
}

fn request(text: &str, earlier: Option<&Task>, immediately: bool) -> SendMessageRequest {
    let mut message = Message::new(Role::User, vec![Part::text(text)]);
    message.task_id = earlier.map(|task| task.id.clone());
    message.context_id = earlier.map(|task| task.context_id.clone());
    let configuration = SendMessageConfiguration {
        accepted_output_modes: None,
        task_push_notification_config: None,
        history_length: None,
        return_immediately: Some(immediately),
    };
    SendMessageRequest { message, configuration: Some(configuration), metadata: None, tenant: None }
}

/// Returns the name that 0.3 has for a state.
fn state_name(state: &TaskState) -> Result<String> {
    let name = serde_json::to_value(state)?;
    let name = name.as_str().context("a state is a string")?;
    Ok(name.trim_start_matches("TASK_STATE_").to_lowercase().replace('_', "-"))
}

fn part_kind(content: &PartContent) -> &'static str {
    match content {
        PartContent::Text(_) => "text",
        PartContent::Raw(_) => "raw",
        PartContent::Url(_) => "url",
        PartContent::Data(_) => "data",
    }
}

/// Returns the kinds of events, and the states that they report.
fn outline(events: Vec<StreamResponse>) -> Result<Value> {
    let mut kinds = Vec::new();
    let mut states = Vec::new();
    for event in &events {
        let (kind, status) = match event {
            StreamResponse::Task(task) => ("task", Some(&task.status)),
            StreamResponse::Message(_) => ("message", None),
            StreamResponse::StatusUpdate(update) => ("status-update", Some(&update.status)),
            StreamResponse::ArtifactUpdate(_) => ("artifact-update", None),
        };
        kinds.push(kind);
        if let Some(status) = status {
            states.push(state_name(&status.state)?);
        }
    }
    Ok(json!({"kinds": kinds, "states": states}))
}
