//! Results of operations and events of streams.

use asp_json::Json;

use super::message::write_message;
use super::push::{read_config, write_config};
use super::reader::Object;
use super::task::{read_event, read_task, write_event, write_task};
use super::writer::{self, Writer};
use super::{Dialect, read_value};
use crate::bounds::{MAX_ITEMS, MAX_TOKEN};
use crate::error::FieldViolation;
use crate::model::{A2aAnswer, OperationKind, PushConfig, PushPage, SendResult, StreamEvent, Task, TaskPage};

/// Writes an answer.
pub(crate) fn write_answer(answer: &A2aAnswer, dialect: Dialect) -> String {
    match answer {
        A2aAnswer::Sent(result) => writer::object(|writer| write_sent(writer, result, dialect)),
        A2aAnswer::Task(task) => writer::object(|writer| write_task(writer, task, dialect)),
        A2aAnswer::Tasks(page) => writer::object(|writer| write_tasks(writer, page, dialect)),
        A2aAnswer::Push(config) => writer::object(|writer| write_config(writer, config, dialect)),
        A2aAnswer::Pushes(page) => write_pushes(page, dialect),
        A2aAnswer::Deleted if dialect == Dialect::V03 => "null".to_owned(),
        A2aAnswer::Deleted => "{}".to_owned(),
        A2aAnswer::Card(card) => card.text().to_owned(),
    }
}

fn write_sent(writer: &mut Writer, result: &SendResult, dialect: Dialect) {
    match (result, dialect) {
        (SendResult::Task(task), Dialect::V03) => write_task(writer, task, dialect),
        (SendResult::Message(message), Dialect::V03) => write_message(writer, message, dialect),
        (SendResult::Task(task), _) => writer.object("task", |writer| write_task(writer, task, dialect)),
        (SendResult::Message(message), _) => {
            writer.object("message", |writer| write_message(writer, message, dialect));
        }
    }
}

/// Writes a page of tasks, all of whose members are required, empty ones too.
fn write_tasks(writer: &mut Writer, page: &TaskPage, dialect: Dialect) {
    writer.all("tasks", &page.tasks, |writer, task: &Task| write_task(writer, task, dialect));
    writer.string("nextPageToken", &page.next_page_token);
    writer.scalar("pageSize", Some(page.page_size));
    writer.scalar("totalSize", Some(page.total_size));
}

fn write_pushes(page: &PushPage, dialect: Dialect) -> String {
    let write = |writer: &mut Writer, config: &PushConfig| write_config(writer, config, dialect);
    match dialect {
        Dialect::V03 => writer::list(&page.configs, write),
        Dialect::V10 | Dialect::Proto03 => writer::object(|writer| {
            writer.all("configs", &page.configs, write);
            writer.word("nextPageToken", &page.next_page_token);
        }),
    }
}

/// Writes an event of a stream.
pub(crate) fn write_stream_event(event: &StreamEvent, dialect: Dialect) -> String {
    writer::object(|writer| write_event(writer, event, dialect))
}

/// Reads an event of a stream.
pub(crate) fn read_stream_event(text: &str, dialect: Dialect) -> Result<StreamEvent, Vec<FieldViolation>> {
    read_value(text, |object| read_event(object, dialect))?.ok_or_else(Vec::new)
}

/// Reads the answer to an operation of this kind; for a stream, its first event as the answer to a message.
pub(crate) fn read_answer(
    kind: OperationKind,
    text: &str,
    dialect: Dialect,
) -> Result<A2aAnswer, Vec<FieldViolation>> {
    match kind {
        OperationKind::Send | OperationKind::Stream | OperationKind::Subscribe => {
            read_value(text, |object| read_sent(object, dialect))?.ok_or_else(Vec::new)
        }
        OperationKind::GetTask | OperationKind::CancelTask => {
            read_value(text, |object| A2aAnswer::Task(read_task(object, dialect)))
        }
        OperationKind::ListTasks => read_value(text, |object| A2aAnswer::Tasks(read_tasks(object, dialect))),
        OperationKind::CreatePush | OperationKind::GetPush => {
            read_value(text, |object| A2aAnswer::Push(read_config(object)))
        }
        OperationKind::ListPush => read_pushes(text),
        OperationKind::DeletePush => Ok(A2aAnswer::Deleted),
        OperationKind::ExtendedCard => read_value(text, |_| A2aAnswer::Card(Json::part(text))),
    }
}

fn read_sent(object: &Object<'_, '_>, dialect: Dialect) -> Option<A2aAnswer> {
    match read_event(object, dialect)? {
        StreamEvent::Task(task) => Some(A2aAnswer::Sent(SendResult::Task(task))),
        StreamEvent::Message(message) => Some(A2aAnswer::Sent(SendResult::Message(message))),
        StreamEvent::Status(_) | StreamEvent::Artifact(_) => {
            object.fault("", "must be a task or a message");
            None
        }
    }
}

fn read_tasks(object: &Object<'_, '_>, dialect: Dialect) -> TaskPage {
    TaskPage {
        tasks: object.objects("tasks", MAX_ITEMS, |task| Some(read_task(task, dialect))),
        next_page_token: object.string("nextPageToken", MAX_TOKEN).unwrap_or_default(),
        page_size: object.count("pageSize").unwrap_or_default(),
        total_size: object.count("totalSize").unwrap_or_default(),
    }
}

/// Reads a list of push configurations: a list as in JSON-RPC 0.3, or a page.
fn read_pushes(text: &str) -> Result<A2aAnswer, Vec<FieldViolation>> {
    let as_page = match text.starts_with('[') {
        true => &format!(r#"{{"configs":{text}}}"#),
        false => text,
    };
    let page = read_value(as_page, |object| PushPage {
        configs: object.objects("configs", MAX_ITEMS, |config| Some(read_config(config))),
        next_page_token: object.string("nextPageToken", MAX_TOKEN).unwrap_or_default(),
    })?;
    Ok(A2aAnswer::Pushes(page))
}
