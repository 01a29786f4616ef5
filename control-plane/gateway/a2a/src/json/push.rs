//! Push configurations.
//!
//! Refuses control characters, such as line breaks, in everything that is put into a header.

use asp_platform::secret::Secret;

use super::Dialect;
use super::reader::Object;
use super::writer::Writer;
use crate::bounds::{MAX_ID, MAX_LISTED, MAX_NAME, MAX_RESOURCE_NAME, MAX_TOKEN, MAX_URL};
use crate::error::MISPLACED_TENANT;
use crate::model::{PushAuthentication, PushConfig};
use crate::names;

/// Reads a configuration with its task, in any form: flat as in 1.0, within `pushNotificationConfig`, or within the `config` of
/// a request of 0.3; task and id may be in a resource name.
pub(super) fn read_config(object: &Object<'_, '_>) -> PushConfig {
    let config = object.object("config");
    let middle = config.as_ref().unwrap_or(object);
    let nested = middle.object("pushNotificationConfig");
    let inner = nested.as_ref().unwrap_or(middle);
    config.iter().chain(&nested).for_each(check_tenant);
    let mut found = read_inner(inner);
    let name = middle.line("name", MAX_RESOURCE_NAME).or_else(|| object.line("parent", MAX_RESOURCE_NAME));
    let name = name.unwrap_or_default();
    let (task, id) = names::parse(&name).unwrap_or_default();
    if [Some(task), id].into_iter().flatten().any(|id| id.len() > MAX_ID) {
        middle.fault("name", format!("must have ids of at most {MAX_ID} bytes"));
    }
    let task_id = object.id("taskId").or_else(|| middle.id("taskId"));
    found.task_id = task_id.unwrap_or_else(|| task.to_owned());
    found.id = found.id.or_else(|| object.id("configId")).or_else(|| id.map(str::to_owned));
    found
}

/// Reports a tenant of a configuration within a request.
pub(super) fn check_tenant(object: &Object<'_, '_>) {
    if object.word("tenant", MAX_ID).is_some() {
        object.fault("tenant", MISPLACED_TENANT);
    }
}

/// Reads a configuration without its task.
pub(super) fn read_inner(object: &Object<'_, '_>) -> PushConfig {
    let url = object.required("url", MAX_URL);
    object.check_line("url", &url);
    PushConfig {
        id: object.id("id"),
        task_id: object.id("taskId").unwrap_or_default(),
        url,
        token: secret(object, "token"),
        authentication: object.object("authentication").and_then(|object| read_authentication(&object)),
    }
}

fn read_authentication(object: &Object<'_, '_>) -> Option<PushAuthentication> {
    let mut schemes = object.strings("schemes", MAX_LISTED, MAX_NAME);
    schemes.retain(|scheme| !scheme.is_empty());
    if schemes.is_empty() {
        schemes.extend(object.word("scheme", MAX_NAME));
    }
    schemes.iter().for_each(|scheme| object.check_line("scheme", scheme));
    let credentials = secret(object, "credentials");
    if schemes.is_empty() && credentials.is_none() {
        return None;
    }
    if schemes.is_empty() {
        object.fault("scheme", "is required");
    }
    Some(PushAuthentication { schemes, credentials })
}

fn secret(object: &Object<'_, '_>, name: &'static str) -> Option<Secret> {
    let text = object.word(name, MAX_TOKEN)?;
    object.check_line(name, &text);
    Some(Secret::new(text))
}

/// Writes the members of a configuration with its task.
pub(super) fn write_config(writer: &mut Writer, config: &PushConfig, dialect: Dialect) {
    match dialect {
        Dialect::V10 => write_inner(writer, config, dialect),
        Dialect::V03 => {
            writer.string("taskId", &config.task_id);
            writer.object("pushNotificationConfig", |writer| write_inner(writer, config, dialect));
        }
        Dialect::Proto03 => {
            let id = config.id.as_deref().unwrap_or_default();
            writer.string("name", &names::config_name(&config.task_id, id));
            writer.object("pushNotificationConfig", |writer| write_inner(writer, config, dialect));
        }
    }
}

/// Writes the members of a configuration without its task, which 1.0 has at the same place.
pub(super) fn write_inner(writer: &mut Writer, config: &PushConfig, dialect: Dialect) {
    if dialect == Dialect::V10 {
        writer.word("taskId", &config.task_id);
    }
    writer.option("id", config.id.as_deref());
    writer.string("url", &config.url);
    writer.option("token", config.token.as_ref().map(Secret::expose));
    let Some(authentication) = &config.authentication else { return };
    writer.object("authentication", |writer| {
        match dialect {
            Dialect::V10 => writer.option("scheme", authentication.schemes.first().map(String::as_str)),
            Dialect::V03 | Dialect::Proto03 => writer.strings("schemes", &authentication.schemes),
        }
        writer.option("credentials", authentication.credentials.as_ref().map(Secret::expose));
    });
}
