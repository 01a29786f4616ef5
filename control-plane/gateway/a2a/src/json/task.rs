//! Tasks and events.

use super::Dialect;
use super::message::{read_artifact, read_message, write_artifact, write_message};
use super::reader::Object;
use super::words::{read_state, state_name};
use super::writer::Writer;
use crate::bounds::{MAX_ITEMS, MAX_NAME};
use crate::model::{StreamEvent, Task, TaskArtifactUpdate, TaskStatus, TaskStatusUpdate, Timestamp};

pub(super) fn read_task(object: &Object<'_, '_>, dialect: Dialect) -> Task {
    Task {
        id: object.required_id("id"),
        context_id: object.id("contextId").unwrap_or_default(),
        status: read_status(object, dialect),
        artifacts: object.objects("artifacts", MAX_ITEMS, |artifact| Some(read_artifact(artifact, dialect))),
        history: object.objects("history", MAX_ITEMS, |message| Some(read_message(message, dialect))),
        metadata: object.metadata("metadata"),
    }
}

fn read_status(object: &Object<'_, '_>, dialect: Dialect) -> TaskStatus {
    let Some(status) = object.object("status") else {
        object.fault("status", "is required");
        return TaskStatus::default();
    };
    // Some servers of REST 0.3 write the name of the protocol buffer's field.
    let name = if status.has("message") { "message" } else { "update" };
    TaskStatus {
        state: read_state(&status, "state"),
        message: status.object(name).map(|message| read_message(&message, dialect)),
        timestamp: status.word("timestamp", MAX_NAME).and_then(|text| Timestamp::parse(&text)),
    }
}

/// Writes the members of a task.
pub(super) fn write_task(writer: &mut Writer, task: &Task, dialect: Dialect) {
    if dialect == Dialect::V03 {
        writer.string("kind", "task");
    }
    writer.string("id", &task.id);
    writer.word("contextId", &task.context_id);
    write_status(writer, &task.status, dialect);
    writer
        .objects("artifacts", &task.artifacts, |writer, artifact| write_artifact(writer, artifact, dialect));
    writer.objects("history", &task.history, |writer, message| write_message(writer, message, dialect));
    writer.json("metadata", task.metadata.as_ref());
}

fn write_status(writer: &mut Writer, status: &TaskStatus, dialect: Dialect) {
    writer.object("status", |writer| {
        writer.string("state", state_name(status.state, dialect));
        if let Some(message) = &status.message {
            writer.object("message", |writer| write_message(writer, message, dialect));
        }
        if let Some(timestamp) = status.timestamp {
            writer.string("timestamp", &timestamp.to_string());
        }
    });
}

fn read_status_update(object: &Object<'_, '_>, dialect: Dialect) -> TaskStatusUpdate {
    let status = read_status(object, dialect);
    let is_final = object.boolean("final").unwrap_or(status.state.is_terminal());
    TaskStatusUpdate {
        task_id: object.required_id("taskId"),
        context_id: object.id("contextId").unwrap_or_default(),
        status,
        is_final,
        metadata: object.metadata("metadata"),
    }
}

fn write_status_update(writer: &mut Writer, update: &TaskStatusUpdate, dialect: Dialect) {
    if dialect == Dialect::V03 {
        writer.string("kind", "status-update");
    }
    writer.string("taskId", &update.task_id);
    writer.word("contextId", &update.context_id);
    write_status(writer, &update.status, dialect);
    match dialect {
        Dialect::V10 => {}
        Dialect::V03 => writer.scalar("final", Some(update.is_final)),
        Dialect::Proto03 => writer.flag("final", update.is_final),
    }
    writer.json("metadata", update.metadata.as_ref());
}

fn read_artifact_update(object: &Object<'_, '_>, dialect: Dialect) -> TaskArtifactUpdate {
    if !object.has("artifact") {
        object.fault("artifact", "is required");
    }
    TaskArtifactUpdate {
        task_id: object.required_id("taskId"),
        context_id: object.id("contextId").unwrap_or_default(),
        artifact: object
            .object("artifact")
            .map(|artifact| read_artifact(&artifact, dialect))
            .unwrap_or_default(),
        append: object.boolean("append").unwrap_or(false),
        last_chunk: object.boolean("lastChunk").unwrap_or(false),
        metadata: object.metadata("metadata"),
    }
}

fn write_artifact_update(writer: &mut Writer, update: &TaskArtifactUpdate, dialect: Dialect) {
    if dialect == Dialect::V03 {
        writer.string("kind", "artifact-update");
    }
    writer.string("taskId", &update.task_id);
    writer.word("contextId", &update.context_id);
    writer.object("artifact", |writer| write_artifact(writer, &update.artifact, dialect));
    writer.flag("append", update.append);
    writer.flag("lastChunk", update.last_chunk);
    writer.json("metadata", update.metadata.as_ref());
}

/// Reads an event, or the answer to a message, which is a task or a message.
pub(super) fn read_event(object: &Object<'_, '_>, dialect: Dialect) -> Option<StreamEvent> {
    if dialect != Dialect::V10
        && let Some(kind) = object.string("kind", MAX_NAME)
    {
        return read_kind(object, &kind);
    }
    let inner = |name: &'static str| object.object(name);
    let event = if let Some(task) = inner("task") {
        StreamEvent::Task(read_task(&task, dialect))
    } else if let Some(message) = inner("message").or_else(|| inner("msg")) {
        StreamEvent::Message(read_message(&message, dialect))
    } else if let Some(update) = inner("statusUpdate") {
        StreamEvent::Status(read_status_update(&update, dialect))
    } else if let Some(update) = inner("artifactUpdate") {
        StreamEvent::Artifact(read_artifact_update(&update, dialect))
    } else {
        object.fault("", "must have one of task, message, statusUpdate, artifactUpdate");
        return None;
    };
    Some(event)
}

fn read_kind(object: &Object<'_, '_>, kind: &str) -> Option<StreamEvent> {
    let dialect = Dialect::V03;
    match kind {
        "task" => Some(StreamEvent::Task(read_task(object, dialect))),
        "message" => Some(StreamEvent::Message(read_message(object, dialect))),
        "status-update" => Some(StreamEvent::Status(read_status_update(object, dialect))),
        "artifact-update" => Some(StreamEvent::Artifact(read_artifact_update(object, dialect))),
        _ => {
            object.fault("kind", "must be task, message, status-update or artifact-update");
            None
        }
    }
}

/// Writes the members of an event: in 0.3 over JSON-RPC those of its content, else one for the kind of its content.
pub(super) fn write_event(writer: &mut Writer, event: &StreamEvent, dialect: Dialect) {
    let name = match event {
        StreamEvent::Task(_) => "task",
        StreamEvent::Message(_) => "message",
        StreamEvent::Status(_) => "statusUpdate",
        StreamEvent::Artifact(_) => "artifactUpdate",
    };
    let content = |writer: &mut Writer| match event {
        StreamEvent::Task(task) => write_task(writer, task, dialect),
        StreamEvent::Message(message) => write_message(writer, message, dialect),
        StreamEvent::Status(update) => write_status_update(writer, update, dialect),
        StreamEvent::Artifact(update) => write_artifact_update(writer, update, dialect),
    };
    match dialect {
        Dialect::V03 => content(writer),
        Dialect::V10 | Dialect::Proto03 => writer.object(name, content),
    }
}
