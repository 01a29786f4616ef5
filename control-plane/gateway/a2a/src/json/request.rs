//! Parameters of operations.

use super::Dialect;
use super::message::{read_message, write_message};
use super::push::{check_tenant, read_config, read_inner, write_config, write_inner};
use super::reader::Object;
use super::words::{parse_state, state_name};
use super::writer::Writer;
use crate::bounds::{MAX_LISTED, MAX_NAME, MAX_PAGE, MAX_TOKEN};
use crate::model::{
    Operation, OperationKind, Role, SendConfiguration, SendRequest, TaskQuery, TaskState, Timestamp,
};

/// Ids that a path contains; what a body says instead does not count.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PathIds {
    pub(crate) task: Option<String>,
    pub(crate) config: Option<String>,
}

/// Reads the parameters of an operation.
pub(crate) fn read_operation(
    kind: OperationKind,
    object: &Object<'_, '_>,
    dialect: Dialect,
    path: PathIds,
) -> Operation {
    let PathIds { task, config } = path;
    let task_id = |name: &'static str| task.clone().unwrap_or_else(|| object.required_id(name));
    match kind {
        OperationKind::Send => Operation::Send(read_send(object, dialect)),
        OperationKind::Stream => Operation::Stream(read_send(object, dialect)),
        OperationKind::GetTask => {
            Operation::GetTask { id: task_id("id"), history_length: read_history_length(object, dialect) }
        }
        OperationKind::ListTasks => Operation::ListTasks(read_query(object, dialect)),
        OperationKind::CancelTask => {
            Operation::CancelTask { id: task_id("id"), metadata: object.metadata("metadata") }
        }
        OperationKind::Subscribe => Operation::Subscribe { id: task_id("id") },
        OperationKind::CreatePush => {
            let mut found = read_config(object);
            found.task_id = task.unwrap_or(found.task_id);
            if found.task_id.is_empty() {
                object.fault("taskId", "is required");
            }
            Operation::CreatePush(found)
        }
        OperationKind::GetPush => {
            let (task_id, id) = read_push_ids(object, dialect, task, config);
            if id.is_none() && dialect == Dialect::V10 {
                object.fault("id", "is required");
            }
            Operation::GetPush { task_id, id }
        }
        OperationKind::ListPush => {
            let (task_id, _) = read_push_ids(object, dialect, task, config);
            let page_token = object.word("pageToken", MAX_TOKEN);
            Operation::ListPush { task_id, page_size: object.count("pageSize"), page_token }
        }
        OperationKind::DeletePush => {
            let (task_id, id) = read_push_ids(object, dialect, task, config);
            if id.is_none() {
                object.fault(
                    if dialect == Dialect::V10 { "id" } else { "pushNotificationConfigId" },
                    "is required",
                );
            }
            Operation::DeletePush { task_id, id: id.unwrap_or_default() }
        }
        OperationKind::ExtendedCard => Operation::ExtendedCard,
    }
}

/// Reads the ids of a task and of its push configuration: `taskId` and `id` in 1.0, `id` and `pushNotificationConfigId` in 0.3.
fn read_push_ids(
    object: &Object<'_, '_>,
    dialect: Dialect,
    task: Option<String>,
    config: Option<String>,
) -> (String, Option<String>) {
    let (task_name, config_name) = match dialect {
        Dialect::V10 => ("taskId", "id"),
        Dialect::V03 | Dialect::Proto03 => ("id", "pushNotificationConfigId"),
    };
    match task {
        Some(task) => (task, config),
        None => (object.required_id(task_name), object.id(config_name)),
    }
}

/// Reads a maximum number of messages. In protocol buffers of 0.3, 0 is the same as none.
fn read_history_length(object: &Object<'_, '_>, dialect: Dialect) -> Option<u32> {
    object.count("historyLength").filter(|length| dialect != Dialect::Proto03 || *length > 0)
}

fn read_send(object: &Object<'_, '_>, dialect: Dialect) -> SendRequest {
    // Some clients of REST 0.3 write the name of the protocol buffer's field.
    let name = if dialect == Dialect::Proto03 && object.has("request") { "request" } else { "message" };
    let message = object.object(name);
    if message.is_none() && !object.has(name) {
        object.fault("message", "is required");
    }
    let read = |message: Object<'_, '_>| {
        let mut found = read_message(&message, dialect);
        if found.message_id.is_empty() {
            message.fault("messageId", "is required");
        }
        if found.role == Role::Unspecified {
            message.fault("role", "is required");
        }
        if found.parts.is_empty() {
            let is_content = dialect == Dialect::Proto03 && !message.has("parts");
            let name = if is_content { "content" } else { "parts" };
            message.fault(name, "must have at least one valid part");
        }
        found.role = Role::User;
        found
    };
    SendRequest {
        message: message.map(read).unwrap_or_default(),
        configuration: object
            .object("configuration")
            .map(|configuration| read_configuration(&configuration, dialect))
            .unwrap_or_default(),
        metadata: object.metadata("metadata"),
    }
}

fn read_configuration(object: &Object<'_, '_>, dialect: Dialect) -> SendConfiguration {
    // The names of the versions and of both drafts of 1.0.
    let names = ["taskPushNotificationConfig", "pushNotificationConfig", "pushNotification"];
    let push = names.into_iter().find_map(|name| object.object(name)).map(|config| {
        check_tenant(&config);
        read_inner(&config)
    });
    let return_immediately = match dialect {
        Dialect::V10 => object.boolean("returnImmediately").unwrap_or(false),
        Dialect::V03 => !object.boolean("blocking").unwrap_or(true),
        Dialect::Proto03 => !object.boolean("blocking").unwrap_or(false),
    };
    SendConfiguration {
        accepted_output_modes: object.strings("acceptedOutputModes", MAX_LISTED, MAX_NAME),
        push,
        history_length: read_history_length(object, dialect),
        return_immediately,
    }
}

fn read_query(object: &Object<'_, '_>, dialect: Dialect) -> TaskQuery {
    let page_size = object.integer("pageSize");
    if let Some(size) = page_size.filter(|size| !(1..=MAX_PAGE).contains(size)) {
        object.fault("pageSize", format!("must be between 1 and {MAX_PAGE}, got {size}"));
    }
    let status = object.raw("status").map(parse_state);
    if status == Some(None) {
        object.fault("status", "is not a state of a task");
    }
    let after = object.word("statusTimestampAfter", MAX_NAME);
    let status_timestamp_after = after.as_deref().and_then(Timestamp::parse);
    if after.is_some() && status_timestamp_after.is_none() {
        object.fault("statusTimestampAfter", "must be a time as in RFC 3339");
    }
    TaskQuery {
        context_id: object.id("contextId"),
        status: status.flatten().filter(|state| *state != TaskState::Unspecified),
        page_size: page_size.and_then(|size| u32::try_from(size).ok()),
        page_token: object.word("pageToken", MAX_TOKEN),
        history_length: read_history_length(object, dialect),
        status_timestamp_after,
        include_artifacts: object.boolean("includeArtifacts").unwrap_or(false),
    }
}

/// Writes the parameters of an operation. `in_path` says that the ids of task and push configuration are in the path.
pub(crate) fn write_operation(writer: &mut Writer, operation: &Operation, dialect: Dialect, in_path: bool) {
    let task = |writer: &mut Writer, name: &str, id: &str| {
        if !in_path {
            writer.string(name, id);
        }
    };
    let (task_name, config_name) = match dialect {
        Dialect::V10 => ("taskId", "id"),
        Dialect::V03 | Dialect::Proto03 => ("id", "pushNotificationConfigId"),
    };
    match operation {
        Operation::Send(request) | Operation::Stream(request) => write_send(writer, request, dialect),
        Operation::GetTask { id, history_length } => {
            task(writer, "id", id);
            writer.scalar("historyLength", *history_length);
        }
        Operation::ListTasks(query) => write_query(writer, query),
        Operation::CancelTask { id, metadata } => {
            task(writer, "id", id);
            writer.json("metadata", metadata.as_ref());
        }
        Operation::Subscribe { id } => task(writer, "id", id),
        Operation::CreatePush(config) => write_config(writer, config, dialect),
        Operation::GetPush { task_id, id } => {
            task(writer, task_name, task_id);
            if let Some(id) = id {
                task(writer, config_name, id);
            }
        }
        Operation::ListPush { task_id, page_size, page_token } => {
            task(writer, task_name, task_id);
            writer.scalar("pageSize", *page_size);
            writer.option("pageToken", page_token.as_deref());
        }
        Operation::DeletePush { task_id, id } => {
            task(writer, task_name, task_id);
            task(writer, config_name, id);
        }
        Operation::ExtendedCard => {}
    }
}

fn write_send(writer: &mut Writer, request: &SendRequest, dialect: Dialect) {
    writer.object("message", |writer| write_message(writer, &request.message, dialect));
    let configuration = &request.configuration;
    // `false` waits in 1.0 and does not in 0.3, so 0.3 needs to say it.
    if *configuration != SendConfiguration::default() || dialect != Dialect::V10 {
        writer.object("configuration", |writer| write_configuration(writer, configuration, dialect));
    }
    writer.json("metadata", request.metadata.as_ref());
}

fn write_configuration(writer: &mut Writer, configuration: &SendConfiguration, dialect: Dialect) {
    writer.strings("acceptedOutputModes", &configuration.accepted_output_modes);
    if let Some(push) = &configuration.push {
        let name = match dialect {
            Dialect::V10 => "taskPushNotificationConfig",
            Dialect::V03 => "pushNotificationConfig",
            Dialect::Proto03 => "pushNotification",
        };
        writer.object(name, |writer| write_inner(writer, push, dialect));
    }
    writer.scalar("historyLength", configuration.history_length);
    match dialect {
        Dialect::V10 => writer.flag("returnImmediately", configuration.return_immediately),
        Dialect::V03 | Dialect::Proto03 => writer.scalar("blocking", Some(!configuration.return_immediately)),
    }
}

/// Writes the filter of a list, which only 1.0 has.
fn write_query(writer: &mut Writer, query: &TaskQuery) {
    writer.option("contextId", query.context_id.as_deref());
    writer.option("status", query.status.map(|state| state_name(state, Dialect::V10)));
    writer.scalar("pageSize", query.page_size);
    writer.option("pageToken", query.page_token.as_deref());
    writer.scalar("historyLength", query.history_length);
    writer
        .option("statusTimestampAfter", query.status_timestamp_after.map(|time| time.to_string()).as_deref());
    writer.flag("includeArtifacts", query.include_artifacts);
}
