//! Messages and artifacts.

use asp_json::Json;

use super::part::{read_parts, write_part};
use super::reader::Object;
use super::words::{read_role, role_name};
use super::writer::{self, Writer};
use super::{Dialect, read_value};
use crate::bounds::{MAX_ID, MAX_LISTED, MAX_NAME, MAX_URL};
use crate::model::{Artifact, Message, Part};

impl Message {
    /// Returns the message in the form of 1.0, from which [`Message::of_json`] reads it again.
    pub fn to_json(&self) -> Json {
        Json::part(writer::object(|writer| write_message(writer, self, Dialect::V10)))
    }

    /// Reads a message that was kept as JSON; `None` for anything else.
    pub fn of_json(json: &Json) -> Option<Message> {
        read_value(json.text(), |object| read_message(object, Dialect::V10)).ok()
    }
}

/// Reads a message; role and parts may be missing, as in a status.
pub(super) fn read_message(object: &Object<'_, '_>, dialect: Dialect) -> Message {
    Message {
        message_id: object.id("messageId").unwrap_or_default(),
        context_id: object.id("contextId"),
        task_id: object.id("taskId"),
        role: read_role(object),
        parts: read_parts(object, dialect),
        metadata: object.metadata("metadata"),
        extensions: object.strings("extensions", MAX_LISTED, MAX_URL),
        reference_task_ids: object.strings("referenceTaskIds", MAX_LISTED, MAX_ID),
    }
}

/// Writes the members of a message.
pub(super) fn write_message(writer: &mut Writer, message: &Message, dialect: Dialect) {
    if dialect == Dialect::V03 {
        writer.string("kind", "message");
    }
    writer.string("messageId", &message.message_id);
    writer.option("contextId", message.context_id.as_deref());
    writer.option("taskId", message.task_id.as_deref());
    writer.string("role", role_name(message.role, dialect));
    match dialect {
        Dialect::V10 => write_parts(writer, "parts", &message.parts, dialect),
        // Readers of JSON-RPC 0.3 demand the list.
        Dialect::V03 => writer.all("parts", &message.parts, |writer, part| write_part(writer, part, dialect)),
        Dialect::Proto03 => write_parts(writer, "content", &message.parts, dialect),
    }
    writer.json("metadata", message.metadata.as_ref());
    writer.strings("extensions", &message.extensions);
    // The protocol buffers of 0.3 do not have the field.
    if dialect != Dialect::Proto03 {
        writer.strings("referenceTaskIds", &message.reference_task_ids);
    }
}

fn write_parts(writer: &mut Writer, name: &str, parts: &[Part], dialect: Dialect) {
    writer.objects(name, parts, |writer, part| write_part(writer, part, dialect));
}

pub(super) fn read_artifact(object: &Object<'_, '_>, dialect: Dialect) -> Artifact {
    Artifact {
        artifact_id: object.required_id("artifactId"),
        name: object.word("name", MAX_NAME),
        description: object.word("description", usize::MAX),
        parts: read_parts(object, dialect),
        metadata: object.metadata("metadata"),
        extensions: object.strings("extensions", MAX_LISTED, MAX_URL),
    }
}

/// Writes the members of an artifact.
pub(super) fn write_artifact(writer: &mut Writer, artifact: &Artifact, dialect: Dialect) {
    writer.string("artifactId", &artifact.artifact_id);
    writer.option("name", artifact.name.as_deref());
    writer.option("description", artifact.description.as_deref());
    match dialect {
        Dialect::V03 => {
            writer.all("parts", &artifact.parts, |writer, part| write_part(writer, part, dialect))
        }
        Dialect::V10 | Dialect::Proto03 => write_parts(writer, "parts", &artifact.parts, dialect),
    }
    writer.json("metadata", artifact.metadata.as_ref());
    writer.strings("extensions", &artifact.extensions);
}
