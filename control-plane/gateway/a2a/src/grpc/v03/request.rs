//! Requests of 0.3: `decode_…` for servers, which checks them, and `encode_…` for clients.

use asp_proto::a2a::a2a::v1 as wire;

use super::{decode_inner, decode_message, decode_push, encode_inner, encode_message, encode_push};
use crate::error::{A2aError, A2aFailure};
use crate::grpc::check::Check;
use crate::grpc::value::{NOT_JSON, is_json_object, object, structure};
use crate::grpc::{integer, option, parse};
use crate::model::{Operation, OperationKind, PushConfig, Request, Role, SendConfiguration, SendRequest};
use crate::names;
use crate::version::Generation;

fn finish(check: Check, operation: Operation) -> Result<Request, A2aFailure> {
    check.finish(Request { generation: Generation::V03, tenant: None, operation })
}

/// Reads the message of a request.
pub fn decode(kind: OperationKind, message: &[u8]) -> Result<Request, A2aFailure> {
    match kind {
        OperationKind::Send => decode_send(parse(message)?, false),
        OperationKind::Stream => decode_send(parse(message)?, true),
        OperationKind::GetTask => decode_get_task(&parse(message)?),
        // 0.3 has no list.
        OperationKind::ListTasks => Err(A2aError::MethodNotFound.into()),
        OperationKind::CancelTask => decode_cancel_task(&parse(message)?),
        OperationKind::Subscribe => decode_subscribe(&parse(message)?),
        OperationKind::CreatePush => decode_create_push(parse(message)?),
        OperationKind::GetPush => decode_get_push(&parse(message)?),
        OperationKind::ListPush => decode_list_push(&parse(message)?),
        OperationKind::DeletePush => decode_delete_push(&parse(message)?),
        OperationKind::ExtendedCard => {
            parse::<wire::GetAgentCardRequest>(message)?;
            Ok(decode_card())
        }
    }
}

/// Reads `SendMessage` and `SendStreamingMessage`.
pub fn decode_send(request: wire::SendMessageRequest, is_streaming: bool) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    let message = request.request.unwrap_or_default();
    let sent_parts = message.content.len();
    let mut data = message.content.iter().filter_map(|part| match &part.part {
        Some(wire::part::Part::Data(data)) => data.data.as_ref(),
        _ => None,
    });
    if !data.all(is_json_object) {
        check.fault("message.content", NOT_JSON);
    }
    let configuration = match request.configuration {
        None => SendConfiguration::default(),
        Some(configuration) => SendConfiguration {
            accepted_output_modes: configuration.accepted_output_modes,
            push: configuration.push_notification.map(decode_inner),
            history_length: history_length(
                &mut check,
                "configuration.history_length",
                configuration.history_length,
            ),
            return_immediately: !configuration.blocking,
        },
    };
    let mut send = SendRequest {
        message: decode_message(message),
        configuration,
        metadata: request.metadata.as_ref().map(object),
    };
    check.send(&send);
    if send.message.parts.len() < sent_parts {
        check.fault("message.content", "must each have exactly one of text, file, data");
    }
    send.message.role = Role::User;
    let operation = if is_streaming { Operation::Stream(send) } else { Operation::Send(send) };
    finish(check, operation)
}

/// Reads a maximum number of messages; 0 is none.
fn history_length(check: &mut Check, field: &str, length: i32) -> Option<u32> {
    check.count(field, Some(length)).filter(|length| *length > 0)
}

/// Writes the request of [`Operation::Send`] and [`Operation::Stream`].
pub fn encode_send(request: &SendRequest) -> Result<wire::SendMessageRequest, A2aFailure> {
    let configuration = &request.configuration;
    Ok(wire::SendMessageRequest {
        request: Some(encode_message(&request.message)?),
        configuration: Some(wire::SendMessageConfiguration {
            accepted_output_modes: configuration.accepted_output_modes.clone(),
            push_notification: configuration.push.as_ref().map(encode_inner),
            history_length: configuration.history_length.map(integer).unwrap_or_default(),
            blocking: !configuration.return_immediately,
        }),
        metadata: structure(request.metadata.as_ref())?,
    })
}

/// Returns the id of the task in a resource name.
fn task_id(check: &mut Check, field: &str, name: &str) -> String {
    let Some((task, None)) = names::parse(name) else {
        check.fault(field, "must be tasks/{id}");
        return String::new();
    };
    check.id(field, task);
    task.to_owned()
}

/// Returns the ids of task and push configuration in a resource name; the second one may be missing.
fn config_ids(check: &mut Check, name: &str) -> (String, Option<String>) {
    let Some((task, config)) = names::parse(name) else {
        check.fault("name", "must be tasks/{id}/pushNotificationConfigs/{id}");
        return (String::new(), None);
    };
    check.id("name", task);
    check.option("name", config);
    (task.to_owned(), config.map(str::to_owned))
}

pub fn decode_get_task(request: &wire::GetTaskRequest) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    let id = task_id(&mut check, "name", &request.name);
    let history_length = history_length(&mut check, "history_length", request.history_length);
    finish(check, Operation::GetTask { id, history_length })
}

pub fn encode_get_task(id: &str, history_length: Option<u32>) -> wire::GetTaskRequest {
    let history_length = history_length.map(integer).unwrap_or_default();
    wire::GetTaskRequest { name: names::task_name(id), history_length }
}

pub fn decode_cancel_task(request: &wire::CancelTaskRequest) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    let id = task_id(&mut check, "name", &request.name);
    finish(check, Operation::CancelTask { id, metadata: None })
}

pub fn encode_cancel_task(id: &str) -> wire::CancelTaskRequest {
    wire::CancelTaskRequest { name: names::task_name(id) }
}

pub fn decode_subscribe(request: &wire::TaskSubscriptionRequest) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    let id = task_id(&mut check, "name", &request.name);
    finish(check, Operation::Subscribe { id })
}

pub fn encode_subscribe(id: &str) -> wire::TaskSubscriptionRequest {
    wire::TaskSubscriptionRequest { name: names::task_name(id) }
}

/// Reads a configuration: its task is the parent, its id the request's or its own.
pub fn decode_create_push(
    request: wire::CreateTaskPushNotificationConfigRequest,
) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    let config: PushConfig = decode_push(request.config.unwrap_or_default());
    let (task_id, _) = names::parse(&request.parent).unwrap_or((&config.task_id, None));
    let config = PushConfig {
        task_id: task_id.to_owned(),
        id: option(request.config_id).or_else(|| config.id.clone()),
        ..config.clone()
    };
    check.id("parent", &config.task_id);
    check.push("config.push_notification_config", &config);
    finish(check, Operation::CreatePush(config))
}

pub fn encode_create_push(config: &PushConfig) -> wire::CreateTaskPushNotificationConfigRequest {
    wire::CreateTaskPushNotificationConfigRequest {
        parent: names::task_name(&config.task_id),
        config_id: config.id.clone().unwrap_or_default(),
        config: Some(encode_push(config)),
    }
}

pub fn decode_get_push(request: &wire::GetTaskPushNotificationConfigRequest) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    let (task_id, id) = config_ids(&mut check, &request.name);
    finish(check, Operation::GetPush { task_id, id })
}

pub fn encode_get_push(task_id: &str, id: &str) -> wire::GetTaskPushNotificationConfigRequest {
    wire::GetTaskPushNotificationConfigRequest { name: names::config_name(task_id, id) }
}

pub fn decode_list_push(
    request: &wire::ListTaskPushNotificationConfigRequest,
) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    let task_id = task_id(&mut check, "parent", &request.parent);
    check.token("page_token", &request.page_token);
    let page_size = check.count("page_size", Some(request.page_size)).filter(|size| *size > 0);
    let page_token = option(request.page_token.clone());
    finish(check, Operation::ListPush { task_id, page_size, page_token })
}

pub fn encode_list_push(task_id: &str) -> wire::ListTaskPushNotificationConfigRequest {
    wire::ListTaskPushNotificationConfigRequest { parent: names::task_name(task_id), ..Default::default() }
}

pub fn decode_delete_push(
    request: &wire::DeleteTaskPushNotificationConfigRequest,
) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    let (task_id, id) = config_ids(&mut check, &request.name);
    if id.is_none() {
        check.fault("name", "must name a push configuration");
    }
    finish(check, Operation::DeletePush { task_id, id: id.unwrap_or_default() })
}

pub fn encode_delete_push(task_id: &str, id: &str) -> wire::DeleteTaskPushNotificationConfigRequest {
    wire::DeleteTaskPushNotificationConfigRequest { name: names::config_name(task_id, id) }
}

pub fn decode_card() -> Request {
    Request { generation: Generation::V03, tenant: None, operation: Operation::ExtendedCard }
}
