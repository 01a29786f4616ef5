//! `a2a.v1`, the types of 0.3.
//!
//! As in 1.0 ([`super::v10`]). Data that is not an object is wrapped in one, media types of text and data have no place.

pub mod request;

use asp_platform::secret::Secret;
use asp_proto::a2a::a2a::v1 as wire;
use prost_types::Struct;

use super::value::{object, structure};
use super::{
    invalid_answer, option, read_role, read_state, read_timestamp, role_number, state_number, timestamp,
};
use crate::error::A2aFailure;
use crate::json::{data_of_v03, data_part};
use crate::model::{
    Artifact, Base64, Message, Part, PartContent, PushAuthentication, PushConfig, PushPage, SendResult,
    StreamEvent, Task, TaskArtifactUpdate, TaskStatus, TaskStatusUpdate,
};
use crate::names;

fn encode_part(part: &Part) -> Result<wire::Part, A2aFailure> {
    let file = |file: wire::file_part::File| {
        wire::part::Part::File(wire::FilePart {
            file: Some(file),
            mime_type: part.media_type.clone().unwrap_or_default(),
            name: part.filename.clone().unwrap_or_default(),
        })
    };
    let mut metadata = part.metadata.clone();
    let content = match &part.content {
        PartContent::Text(text) => wire::part::Part::Text(text.clone()),
        PartContent::Raw(bytes) => file(wire::file_part::File::FileWithBytes(bytes.decode())),
        PartContent::Url(url) => file(wire::file_part::File::FileWithUri(url.clone())),
        PartContent::Data(data) => {
            let (data, marked) = data_of_v03(data, part.metadata.as_ref());
            metadata = marked;
            wire::part::Part::Data(wire::DataPart { data: structure(Some(&data))? })
        }
    };
    Ok(wire::Part { part: Some(content), metadata: structure(metadata.as_ref())? })
}

/// Converts a part; `None` without content.
fn decode_part(part: wire::Part) -> Option<Part> {
    let metadata = part.metadata.as_ref().map(object);
    match part.part? {
        wire::part::Part::Text(text) => Some(Part { metadata, ..PartContent::Text(text).into() }),
        wire::part::Part::Data(data) => {
            Some(data_part(object(&data.data.unwrap_or_else(Struct::default)), metadata))
        }
        wire::part::Part::File(file) => {
            let content = match file.file? {
                wire::file_part::File::FileWithUri(url) => PartContent::Url(url),
                wire::file_part::File::FileWithBytes(bytes) => PartContent::Raw(Base64::of(&bytes)),
            };
            Some(Part { content, media_type: option(file.mime_type), filename: option(file.name), metadata })
        }
    }
}

fn encode_message(message: &Message) -> Result<wire::Message, A2aFailure> {
    Ok(wire::Message {
        message_id: message.message_id.clone(),
        context_id: message.context_id.clone().unwrap_or_default(),
        task_id: message.task_id.clone().unwrap_or_default(),
        role: role_number(message.role),
        content: message.parts.iter().map(encode_part).collect::<Result<_, _>>()?,
        metadata: structure(message.metadata.as_ref())?,
        extensions: message.extensions.clone(),
    })
}

/// Converts a message; a part without content is left out.
fn decode_message(message: wire::Message) -> Message {
    Message {
        message_id: message.message_id,
        context_id: option(message.context_id),
        task_id: option(message.task_id),
        role: read_role(message.role),
        parts: message.content.into_iter().filter_map(decode_part).collect(),
        metadata: message.metadata.as_ref().map(object),
        extensions: message.extensions,
        reference_task_ids: Vec::new(),
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
        update: status.message.as_ref().map(encode_message).transpose()?,
        timestamp: status.timestamp.map(timestamp),
    })
}

fn decode_status(status: Option<wire::TaskStatus>) -> TaskStatus {
    let status = status.unwrap_or_default();
    TaskStatus {
        state: read_state(status.state),
        message: status.update.map(decode_message),
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

/// Converts the answer to a message for a client.
pub fn encode_sent(result: &SendResult) -> Result<wire::SendMessageResponse, A2aFailure> {
    let payload = match result {
        SendResult::Task(task) => wire::send_message_response::Payload::Task(encode_task(task)?),
        SendResult::Message(message) => wire::send_message_response::Payload::Msg(encode_message(message)?),
    };
    Ok(wire::SendMessageResponse { payload: Some(payload) })
}

/// Converts an agent's answer to a message.
pub fn decode_sent(response: wire::SendMessageResponse) -> Result<SendResult, A2aFailure> {
    match response.payload.ok_or_else(|| invalid_answer("payload"))? {
        wire::send_message_response::Payload::Task(task) => Ok(SendResult::Task(decode_task(task))),
        wire::send_message_response::Payload::Msg(message) => {
            Ok(SendResult::Message(decode_message(message)))
        }
    }
}

/// Converts an event for a client.
pub fn encode_event(event: &StreamEvent) -> Result<wire::StreamResponse, A2aFailure> {
    use wire::stream_response::Payload;
    let payload = match event {
        StreamEvent::Task(task) => Payload::Task(encode_task(task)?),
        StreamEvent::Message(message) => Payload::Msg(encode_message(message)?),
        StreamEvent::Status(update) => Payload::StatusUpdate(wire::TaskStatusUpdateEvent {
            task_id: update.task_id.clone(),
            context_id: update.context_id.clone(),
            status: Some(encode_status(&update.status)?),
            r#final: update.is_final,
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
        Payload::Msg(message) => StreamEvent::Message(decode_message(message)),
        Payload::StatusUpdate(update) => StreamEvent::Status(TaskStatusUpdate {
            task_id: update.task_id,
            context_id: update.context_id,
            status: decode_status(update.status),
            is_final: update.r#final,
            metadata: update.metadata.as_ref().map(object),
        }),
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

fn encode_inner(config: &PushConfig) -> wire::PushNotificationConfig {
    let text =
        |secret: &Option<Secret>| secret.as_ref().map(|text| text.expose().to_owned()).unwrap_or_default();
    let authentication = config.authentication.as_ref().map(|authentication| wire::AuthenticationInfo {
        schemes: authentication.schemes.clone(),
        credentials: text(&authentication.credentials),
    });
    wire::PushNotificationConfig {
        id: config.id.clone().unwrap_or_default(),
        url: config.url.clone(),
        token: text(&config.token),
        authentication,
    }
}

fn decode_inner(config: wire::PushNotificationConfig) -> PushConfig {
    PushConfig {
        id: option(config.id),
        task_id: String::new(),
        url: config.url,
        token: option(config.token).map(Secret::new),
        authentication: config.authentication.map(|authentication| PushAuthentication {
            schemes: authentication.schemes,
            credentials: option(authentication.credentials).map(Secret::new),
        }),
    }
}

/// Converts a push configuration, in either direction.
pub fn encode_push(config: &PushConfig) -> wire::TaskPushNotificationConfig {
    wire::TaskPushNotificationConfig {
        name: names::config_name(&config.task_id, config.id.as_deref().unwrap_or_default()),
        push_notification_config: Some(encode_inner(config)),
    }
}

/// Converts a push configuration, in either direction; its name says task and id.
pub fn decode_push(config: wire::TaskPushNotificationConfig) -> PushConfig {
    let (task, id) = names::parse(&config.name).unwrap_or_default();
    let inner = decode_inner(config.push_notification_config.unwrap_or_default());
    PushConfig { task_id: task.to_owned(), id: inner.id.clone().or_else(|| id.map(str::to_owned)), ..inner }
}

/// Converts a page of push configurations for a client.
pub fn encode_pushes(page: &PushPage) -> wire::ListTaskPushNotificationConfigResponse {
    wire::ListTaskPushNotificationConfigResponse {
        configs: page.configs.iter().map(encode_push).collect(),
        next_page_token: page.next_page_token.clone(),
    }
}

/// Converts a page of push configurations of an agent.
pub fn decode_pushes(page: wire::ListTaskPushNotificationConfigResponse) -> PushPage {
    PushPage {
        configs: page.configs.into_iter().map(decode_push).collect(),
        next_page_token: page.next_page_token,
    }
}
