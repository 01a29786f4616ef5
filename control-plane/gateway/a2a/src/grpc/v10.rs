//! `lf.a2a.v1`, the types of 1.0.
//!
//! For a server: `decode_…` of requests ([`request`]), `encode_…` of answers. For a client the other way round.

pub mod request;

use asp_platform::secret::Secret;
use asp_proto::a2a::lf::a2a::v1 as wire;

use super::value::{json, object, structure, value};
use super::{
    integer, invalid_answer, option, read_role, read_state, read_timestamp, role_number, state_number,
    timestamp,
};
use crate::error::A2aFailure;
use crate::model::{
    Artifact, Base64, Message, Part, PartContent, PushAuthentication, PushConfig, PushPage, SendResult,
    StreamEvent, Task, TaskArtifactUpdate, TaskPage, TaskStatus, TaskStatusUpdate,
};

fn encode_part(part: &Part) -> Result<wire::Part, A2aFailure> {
    let content = match &part.content {
        PartContent::Text(text) => wire::part::Content::Text(text.clone()),
        PartContent::Raw(bytes) => wire::part::Content::Raw(bytes.decode()),
        PartContent::Url(url) => wire::part::Content::Url(url.clone()),
        PartContent::Data(data) => wire::part::Content::Data(value(data)?),
    };
    Ok(wire::Part {
        content: Some(content),
        metadata: structure(part.metadata.as_ref())?,
        filename: part.filename.clone().unwrap_or_default(),
        media_type: part.media_type.clone().unwrap_or_default(),
    })
}

/// Converts a part; `None` without content.
fn decode_part(part: wire::Part) -> Option<Part> {
    let content = match part.content? {
        wire::part::Content::Text(text) => PartContent::Text(text),
        wire::part::Content::Raw(bytes) => PartContent::Raw(Base64::of(&bytes)),
        wire::part::Content::Url(url) => PartContent::Url(url),
        wire::part::Content::Data(data) => PartContent::Data(json(&data)),
    };
    Some(Part {
        content,
        media_type: option(part.media_type),
        filename: option(part.filename),
        metadata: part.metadata.as_ref().map(object),
    })
}

fn encode_message(message: &Message) -> Result<wire::Message, A2aFailure> {
    Ok(wire::Message {
        message_id: message.message_id.clone(),
        context_id: message.context_id.clone().unwrap_or_default(),
        task_id: message.task_id.clone().unwrap_or_default(),
        role: role_number(message.role),
        parts: message.parts.iter().map(encode_part).collect::<Result<_, _>>()?,
        metadata: structure(message.metadata.as_ref())?,
        extensions: message.extensions.clone(),
        reference_task_ids: message.reference_task_ids.clone(),
    })
}

/// Converts a message; a part without content is left out.
fn decode_message(message: wire::Message) -> Message {
    Message {
        message_id: message.message_id,
        context_id: option(message.context_id),
        task_id: option(message.task_id),
        role: read_role(message.role),
        parts: message.parts.into_iter().filter_map(decode_part).collect(),
        metadata: message.metadata.as_ref().map(object),
        extensions: message.extensions,
        reference_task_ids: message.reference_task_ids,
    }
}

fn encode_artifact(artifact: &Artifact) -> Result<wire::Artifact, A2aFailure> {
    Ok(wire::Artifact {
        artifact_id: artifact.artifact_id.clone(),
        name: artifact.name.clone().unwrap_or_default(),
        description: artifact.description.clone().unwrap_or_default(),
        parts: artifact.parts.iter().map(encode_part).collect::<Result<_, _>>()?,
        metadata: structure(artifact.metadata.as_ref())?,
        extensions: artifact.extensions.clone(),
    })
}

fn decode_artifact(artifact: wire::Artifact) -> Artifact {
    Artifact {
        artifact_id: artifact.artifact_id,
        name: option(artifact.name),
        description: option(artifact.description),
        parts: artifact.parts.into_iter().filter_map(decode_part).collect(),
        metadata: artifact.metadata.as_ref().map(object),
        extensions: artifact.extensions,
    }
}

fn encode_status(status: &TaskStatus) -> Result<wire::TaskStatus, A2aFailure> {
    Ok(wire::TaskStatus {
        state: state_number(status.state),
        message: status.message.as_ref().map(encode_message).transpose()?,
        timestamp: status.timestamp.map(timestamp),
    })
}

fn decode_status(status: Option<wire::TaskStatus>) -> TaskStatus {
    let status = status.unwrap_or_default();
    TaskStatus {
        state: read_state(status.state),
        message: status.message.map(decode_message),
        timestamp: status.timestamp.as_ref().map(read_timestamp),
    }
}

/// Converts a task for a client.
pub fn encode_task(task: &Task) -> Result<wire::Task, A2aFailure> {
    Ok(wire::Task {
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: Some(encode_status(&task.status)?),
        artifacts: task.artifacts.iter().map(encode_artifact).collect::<Result<_, _>>()?,
        history: task.history.iter().map(encode_message).collect::<Result<_, _>>()?,
        metadata: structure(task.metadata.as_ref())?,
    })
}

/// Converts a task of an agent.
pub fn decode_task(task: wire::Task) -> Task {
    Task {
        id: task.id,
        context_id: task.context_id,
        status: decode_status(task.status),
        artifacts: task.artifacts.into_iter().map(decode_artifact).collect(),
        history: task.history.into_iter().map(decode_message).collect(),
        metadata: task.metadata.as_ref().map(object),
    }
}

/// Converts a page of tasks for a client.
pub fn encode_tasks(page: &TaskPage) -> Result<wire::ListTasksResponse, A2aFailure> {
    Ok(wire::ListTasksResponse {
        tasks: page.tasks.iter().map(encode_task).collect::<Result<_, _>>()?,
        next_page_token: page.next_page_token.clone(),
        page_size: integer(page.page_size),
        total_size: integer(page.total_size),
    })
}

/// Converts a page of tasks of an agent.
pub fn decode_tasks(page: wire::ListTasksResponse) -> TaskPage {
    TaskPage {
        tasks: page.tasks.into_iter().map(decode_task).collect(),
        next_page_token: page.next_page_token,
        page_size: u32::try_from(page.page_size).unwrap_or_default(),
        total_size: u32::try_from(page.total_size).unwrap_or_default(),
    }
}

/// Converts the answer to a message for a client.
pub fn encode_sent(result: &SendResult) -> Result<wire::SendMessageResponse, A2aFailure> {
    let payload = match result {
        SendResult::Task(task) => wire::send_message_response::Payload::Task(encode_task(task)?),
        SendResult::Message(message) => {
            wire::send_message_response::Payload::Message(encode_message(message)?)
        }
    };
    Ok(wire::SendMessageResponse { payload: Some(payload) })
}

/// Converts an agent's answer to a message.
pub fn decode_sent(response: wire::SendMessageResponse) -> Result<SendResult, A2aFailure> {
    match response.payload.ok_or_else(|| invalid_answer("payload"))? {
        wire::send_message_response::Payload::Task(task) => Ok(SendResult::Task(decode_task(task))),
        wire::send_message_response::Payload::Message(message) => {
            Ok(SendResult::Message(decode_message(message)))
        }
    }
}

/// Converts an event for a client.
pub fn encode_event(event: &StreamEvent) -> Result<wire::StreamResponse, A2aFailure> {
    use wire::stream_response::Payload;
    let payload = match event {
        StreamEvent::Task(task) => Payload::Task(encode_task(task)?),
        StreamEvent::Message(message) => Payload::Message(encode_message(message)?),
        StreamEvent::Status(update) => Payload::StatusUpdate(wire::TaskStatusUpdateEvent {
            task_id: update.task_id.clone(),
            context_id: update.context_id.clone(),
            status: Some(encode_status(&update.status)?),
            metadata: structure(update.metadata.as_ref())?,
        }),
        StreamEvent::Artifact(update) => Payload::ArtifactUpdate(wire::TaskArtifactUpdateEvent {
            task_id: update.task_id.clone(),
            context_id: update.context_id.clone(),
            artifact: Some(encode_artifact(&update.artifact)?),
            append: update.append,
            last_chunk: update.last_chunk,
            metadata: structure(update.metadata.as_ref())?,
        }),
    };
    Ok(wire::StreamResponse { payload: Some(payload) })
}

/// Converts an event of an agent.
pub fn decode_event(response: wire::StreamResponse) -> Result<StreamEvent, A2aFailure> {
    use wire::stream_response::Payload;
    Ok(match response.payload.ok_or_else(|| invalid_answer("payload"))? {
        Payload::Task(task) => StreamEvent::Task(decode_task(task)),
        Payload::Message(message) => StreamEvent::Message(decode_message(message)),
        Payload::StatusUpdate(update) => {
            let status = decode_status(update.status);
            StreamEvent::Status(TaskStatusUpdate {
                task_id: update.task_id,
                context_id: update.context_id,
                is_final: status.state.is_terminal(),
                status,
                metadata: update.metadata.as_ref().map(object),
            })
        }
        Payload::ArtifactUpdate(update) => StreamEvent::Artifact(TaskArtifactUpdate {
            task_id: update.task_id,
            context_id: update.context_id,
            artifact: decode_artifact(update.artifact.ok_or_else(|| invalid_answer("artifact"))?),
            append: update.append,
            last_chunk: update.last_chunk,
            metadata: update.metadata.as_ref().map(object),
        }),
    })
}

/// Converts a push configuration, in either direction.
pub fn encode_push(config: &PushConfig) -> wire::TaskPushNotificationConfig {
    let text =
        |secret: &Option<Secret>| secret.as_ref().map(|text| text.expose().to_owned()).unwrap_or_default();
    let authentication = config.authentication.as_ref().map(|authentication| wire::AuthenticationInfo {
        scheme: authentication.schemes.first().cloned().unwrap_or_default(),
        credentials: text(&authentication.credentials),
    });
    wire::TaskPushNotificationConfig {
        tenant: String::new(),
        id: config.id.clone().unwrap_or_default(),
        task_id: config.task_id.clone(),
        url: config.url.clone(),
        token: text(&config.token),
        authentication,
    }
}

/// Converts a push configuration, in either direction.
pub fn decode_push(config: wire::TaskPushNotificationConfig) -> PushConfig {
    PushConfig {
        id: option(config.id),
        task_id: config.task_id,
        url: config.url,
        token: option(config.token).map(Secret::new),
        authentication: config.authentication.map(|authentication| PushAuthentication {
            schemes: option(authentication.scheme).into_iter().collect(),
            credentials: option(authentication.credentials).map(Secret::new),
        }),
    }
}

/// Converts a page of push configurations for a client.
pub fn encode_pushes(page: &PushPage) -> wire::ListTaskPushNotificationConfigsResponse {
    wire::ListTaskPushNotificationConfigsResponse {
        configs: page.configs.iter().map(encode_push).collect(),
        next_page_token: page.next_page_token.clone(),
    }
}

/// Converts a page of push configurations of an agent.
pub fn decode_pushes(page: wire::ListTaskPushNotificationConfigsResponse) -> PushPage {
    PushPage {
        configs: page.configs.into_iter().map(decode_push).collect(),
        next_page_token: page.next_page_token,
    }
}
