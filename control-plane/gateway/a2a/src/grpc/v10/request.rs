//! Requests of 1.0: `decode_…` for servers, which checks them, and `encode_…` for clients.

use asp_proto::a2a::lf::a2a::v1 as wire;

use super::{decode_message, decode_push, encode_message, encode_push};
use crate::error::{A2aFailure, MISPLACED_TENANT};
use crate::grpc::check::Check;
use crate::grpc::value::{NOT_JSON, is_json, object, structure};
use crate::grpc::{find_state, integer, option, parse, read_timestamp, state_number, timestamp};
use crate::model::{
    Operation, OperationKind, PushConfig, Request, Role, SendConfiguration, SendRequest, TaskQuery, TaskState,
};
use crate::version::Generation;

fn finish(check: Check, tenant: String, operation: Operation) -> Result<Request, A2aFailure> {
    check.finish(Request { generation: Generation::V10, tenant: option(tenant), operation })
}

/// Reads the message of a request.
pub fn decode(kind: OperationKind, message: &[u8]) -> Result<Request, A2aFailure> {
    match kind {
        OperationKind::Send => decode_send(parse(message)?, false),
        OperationKind::Stream => decode_send(parse(message)?, true),
        OperationKind::GetTask => decode_get_task(parse(message)?),
        OperationKind::ListTasks => decode_list_tasks(parse(message)?),
        OperationKind::CancelTask => decode_cancel_task(parse(message)?),
        OperationKind::Subscribe => decode_subscribe(parse(message)?),
        OperationKind::CreatePush => decode_create_push(parse(message)?),
        OperationKind::GetPush => decode_get_push(parse(message)?),
        OperationKind::ListPush => decode_list_push(parse(message)?),
        OperationKind::DeletePush => decode_delete_push(parse(message)?),
        OperationKind::ExtendedCard => Ok(decode_extended_card(parse(message)?)),
    }
}

/// Reads `SendMessage` and `SendStreamingMessage`.
pub fn decode_send(request: wire::SendMessageRequest, is_streaming: bool) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    let message = request.message.unwrap_or_default();
    let sent_parts = message.parts.len();
    let mut data = message.parts.iter().filter_map(|part| match &part.content {
        Some(wire::part::Content::Data(data)) => Some(data),
        _ => None,
    });
    if !data.all(is_json) {
        check.fault("message.parts", NOT_JSON);
    }
    let configuration = request.configuration.unwrap_or_default();
    let push = configuration.task_push_notification_config;
    if push.as_ref().is_some_and(|push| !push.tenant.is_empty()) {
        check.fault("configuration.push.tenant", MISPLACED_TENANT);
    }
    let mut send = SendRequest {
        message: decode_message(message),
        configuration: SendConfiguration {
            accepted_output_modes: configuration.accepted_output_modes,
            push: push.map(decode_push),
            history_length: check.count("configuration.history_length", configuration.history_length),
            return_immediately: configuration.return_immediately,
        },
        metadata: request.metadata.as_ref().map(object),
    };
    check.send(&send);
    if send.message.parts.len() < sent_parts {
        check.fault("message.parts", "must each have exactly one of text, raw, url, data");
    }
    send.message.role = Role::User;
    let operation = if is_streaming { Operation::Stream(send) } else { Operation::Send(send) };
    finish(check, request.tenant, operation)
}

/// Writes the request of [`Operation::Send`] and [`Operation::Stream`].
pub fn encode_send(request: &SendRequest) -> Result<wire::SendMessageRequest, A2aFailure> {
    let configuration = &request.configuration;
    Ok(wire::SendMessageRequest {
        tenant: String::new(),
        message: Some(encode_message(&request.message)?),
        configuration: Some(wire::SendMessageConfiguration {
            accepted_output_modes: configuration.accepted_output_modes.clone(),
            task_push_notification_config: configuration.push.as_ref().map(encode_push),
            history_length: configuration.history_length.map(integer),
            return_immediately: configuration.return_immediately,
        }),
        metadata: structure(request.metadata.as_ref())?,
    })
}

pub fn decode_get_task(request: wire::GetTaskRequest) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    check.id("id", &request.id);
    let history_length = check.count("history_length", request.history_length);
    finish(check, request.tenant, Operation::GetTask { id: request.id, history_length })
}

pub fn encode_get_task(id: &str, history_length: Option<u32>) -> wire::GetTaskRequest {
    wire::GetTaskRequest {
        tenant: String::new(),
        id: id.to_owned(),
        history_length: history_length.map(integer),
    }
}

pub fn decode_list_tasks(request: wire::ListTasksRequest) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    check.option("context_id", Some(&request.context_id));
    check.token("page_token", &request.page_token);
    let status = find_state(request.status);
    if status.is_none() {
        check.fault("status", "is not a state of a task");
    }
    let query = TaskQuery {
        context_id: option(request.context_id),
        status: status.filter(|state| *state != TaskState::Unspecified),
        page_size: check.page_size(request.page_size),
        page_token: option(request.page_token),
        history_length: check.count("history_length", request.history_length),
        status_timestamp_after: request.status_timestamp_after.as_ref().map(read_timestamp),
        include_artifacts: request.include_artifacts.unwrap_or(false),
    };
    finish(check, request.tenant, Operation::ListTasks(query))
}

pub fn encode_list_tasks(query: &TaskQuery) -> wire::ListTasksRequest {
    wire::ListTasksRequest {
        tenant: String::new(),
        context_id: query.context_id.clone().unwrap_or_default(),
        status: state_number(query.status.unwrap_or_default()),
        page_size: query.page_size.map(integer),
        page_token: query.page_token.clone().unwrap_or_default(),
        history_length: query.history_length.map(integer),
        status_timestamp_after: query.status_timestamp_after.map(timestamp),
        include_artifacts: query.include_artifacts.then_some(true),
    }
}

pub fn decode_cancel_task(request: wire::CancelTaskRequest) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    check.id("id", &request.id);
    let metadata = request.metadata.as_ref().map(object);
    finish(check, request.tenant, Operation::CancelTask { id: request.id, metadata })
}

pub fn encode_cancel_task(
    id: &str,
    metadata: Option<&asp_json::Json>,
) -> Result<wire::CancelTaskRequest, A2aFailure> {
    Ok(wire::CancelTaskRequest { tenant: String::new(), id: id.to_owned(), metadata: structure(metadata)? })
}

pub fn decode_subscribe(request: wire::SubscribeToTaskRequest) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    check.id("id", &request.id);
    finish(check, request.tenant, Operation::Subscribe { id: request.id })
}

pub fn encode_subscribe(id: &str) -> wire::SubscribeToTaskRequest {
    wire::SubscribeToTaskRequest { tenant: String::new(), id: id.to_owned() }
}

pub fn decode_create_push(request: wire::TaskPushNotificationConfig) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    let tenant = request.tenant.clone();
    let config: PushConfig = decode_push(request);
    check.id("task_id", &config.task_id);
    check.push("config", &config);
    finish(check, tenant, Operation::CreatePush(config))
}

pub fn decode_get_push(request: wire::GetTaskPushNotificationConfigRequest) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    check.id("task_id", &request.task_id);
    check.id("id", &request.id);
    finish(check, request.tenant, Operation::GetPush { task_id: request.task_id, id: option(request.id) })
}

pub fn encode_get_push(task_id: &str, id: &str) -> wire::GetTaskPushNotificationConfigRequest {
    let (task_id, id) = (task_id.to_owned(), id.to_owned());
    wire::GetTaskPushNotificationConfigRequest { tenant: String::new(), task_id, id }
}

pub fn decode_list_push(
    request: wire::ListTaskPushNotificationConfigsRequest,
) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    check.id("task_id", &request.task_id);
    check.token("page_token", &request.page_token);
    let page_size = check.count("page_size", Some(request.page_size)).filter(|size| *size > 0);
    let page_token = option(request.page_token);
    finish(check, request.tenant, Operation::ListPush { task_id: request.task_id, page_size, page_token })
}

pub fn encode_list_push(
    task_id: &str,
    page_token: Option<&str>,
) -> wire::ListTaskPushNotificationConfigsRequest {
    wire::ListTaskPushNotificationConfigsRequest {
        task_id: task_id.to_owned(),
        page_token: page_token.unwrap_or_default().to_owned(),
        ..Default::default()
    }
}

pub fn decode_delete_push(
    request: wire::DeleteTaskPushNotificationConfigRequest,
) -> Result<Request, A2aFailure> {
    let mut check = Check::default();
    check.id("task_id", &request.task_id);
    check.id("id", &request.id);
    finish(check, request.tenant, Operation::DeletePush { task_id: request.task_id, id: request.id })
}

pub fn encode_delete_push(task_id: &str, id: &str) -> wire::DeleteTaskPushNotificationConfigRequest {
    let (task_id, id) = (task_id.to_owned(), id.to_owned());
    wire::DeleteTaskPushNotificationConfigRequest { tenant: String::new(), task_id, id }
}

pub fn decode_extended_card(request: wire::GetExtendedAgentCardRequest) -> Request {
    Request {
        generation: Generation::V10,
        tenant: option(request.tenant),
        operation: Operation::ExtendedCard,
    }
}
