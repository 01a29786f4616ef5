//! The reference to a primitive's plugin that the runtime receives.

use asp_proto::snapshot::runtime::Mode;
use asp_proto::snapshot::service_auth::Kind;
use asp_proto::snapshot::{McpStdio, Plugin, Primitive};
use asp_proto::supervisor::{PluginRef, RuntimeHints};

/// Language of stdio MCP servers, whatever they are written in.
pub(crate) const STDIO: &str = "mcp-stdio";

/// Returns the plugin reference of a primitive; `None` if it needs no runtime.
pub(crate) fn run_by(primitive: &Primitive) -> Option<(PluginRef, RuntimeHints)> {
    match primitive.runtime.as_ref()?.mode.as_ref()? {
        Mode::Plugin(plugin) => Some(plugin_ref(primitive, plugin)),
        Mode::McpStdio(target) => Some(stdio_ref(primitive, target)),
        _ => None,
    }
}

/// Returns the language of the runtime that the primitive needs, if it needs one.
pub fn plugin_language(primitive: &Primitive) -> Option<&str> {
    match primitive.runtime.as_ref()?.mode.as_ref()? {
        Mode::Plugin(plugin) => Some(&plugin.language),
        Mode::McpStdio(_) => Some(STDIO),
        _ => None,
    }
}

/// Returns the reference and the resource hints of a primitive's plugin, which is installed under the name of its package.
pub(crate) fn plugin_ref(primitive: &Primitive, plugin: &Plugin) -> (PluginRef, RuntimeHints) {
    let (id, version) = asp_registry::plugin_package(plugin, &primitive.id, &primitive.version);
    let reference = PluginRef {
        id: id.to_owned(),
        version: version.to_owned(),
        language: plugin.language.clone(),
        entrypoint: plugin.entrypoint.clone(),
        artifact_sha256: plugin.artifact_sha256.clone(),
        credential: credential(primitive).unwrap_or_default().to_owned(),
        called_as: String::new(),
        primitive: primitive.id.clone(),
    };
    (reference, hints(plugin.cpu_millis, plugin.memory_bytes))
}

/// Adds the called primitive: the runtime decides by it which private networks a worker may reach.
pub(crate) fn called_as(plugin: &PluginRef, server: &str, primitive: &str) -> PluginRef {
    PluginRef { called_as: format!("{server}/{primitive}"), ..plugin.clone() }
}

/// Returns the operator's credential that the spec names.
fn credential(primitive: &Primitive) -> Option<&str> {
    match primitive.service_auth.as_ref()?.kind.as_ref()? {
        Kind::Credential(name) => Some(name),
        Kind::Token(_) | Kind::Exchange(_) | Kind::Linked(_) => None,
    }
}

/// Returns the reference of a stdio server, which is installed under the name of its package.
pub(crate) fn stdio_ref(primitive: &Primitive, target: &McpStdio) -> (PluginRef, RuntimeHints) {
    let (id, version) = asp_registry::stdio_package(target, &primitive.version);
    let reference = PluginRef {
        id,
        version,
        language: STDIO.into(),
        artifact_sha256: target.artifact_sha256.clone(),
        ..PluginRef::default()
    };
    (reference, hints(target.cpu_millis, target.memory_bytes))
}

fn hints(cpu_millis: u32, memory_bytes: u64) -> RuntimeHints {
    RuntimeHints { cpu_millis, memory_bytes, ..RuntimeHints::default() }
}

/// Returns the language as a metric's label, from a closed set.
pub(crate) fn language_name(language: &str) -> Option<&'static str> {
    ["python", "node", "java", STDIO].into_iter().find(|known| *known == language)
}
