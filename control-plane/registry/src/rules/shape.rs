//! Keys that a kind or runtime mode requires, and keys that have no meaning there.
//!
//! Keeps true: no key is silently ignored. A key without a meaning is a fault, since its author expects an effect.

use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{ContentType, Kind, Mode, PrimitiveSchema, Runtime, Spec};

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    check_schema_keys(spec, findings);
    check_contents(spec, findings);
    check_runtime(spec, findings);
    check_exposure(spec, findings);
    check_annotations(spec, findings);
}

/// Checks every key of `primitiveSchema` against the kinds it belongs to.
fn check_schema_keys(spec: &Spec, findings: &mut Findings<'_>) {
    use Kind::{Delegate, Elicitation, Prompt, Resource, ResourceTemplate, Task, Tool};
    let schema = &spec.schema;
    let keys: [(&str, bool, &[Kind]); 19] = [
        ("input_schema", schema.input_schema.is_some(), &[Tool, Task, Delegate]),
        ("output_schema", schema.output_schema.is_some(), &[Tool, Task, Delegate]),
        ("artifacts", schema.artifacts.is_some(), &[Task]),
        ("uri", schema.uri.is_some(), &[Resource]),
        ("uriTemplate", schema.uri_template.is_some(), &[ResourceTemplate]),
        ("mimeType", schema.mime_type.is_some(), &[Resource, ResourceTemplate]),
        ("contents", schema.contents.is_some(), &[Resource]),
        ("arguments", schema.arguments.is_some(), &[Prompt]),
        ("messages", schema.messages.is_some(), &[Prompt]),
        ("completions", schema.completions.is_some(), &[Prompt, ResourceTemplate]),
        ("listed", schema.listed.is_some(), &[ResourceTemplate]),
        ("watched", schema.watched.is_some(), &[Resource, ResourceTemplate]),
        ("message", schema.message.is_some(), &[Elicitation]),
        ("fields", schema.fields.is_some(), &[Elicitation]),
        ("requested_schema", schema.requested_schema.is_some(), &[Elicitation]),
        ("url", schema.url.is_some(), &[Elicitation]),
        ("sampling", schema.sampling.is_some(), &[Delegate]),
        ("roots", schema.roots.is_some(), &[Delegate]),
        ("prefer", schema.prefer.is_some(), &[Delegate]),
    ];
    for (key, written, kinds) in keys {
        if written && !kinds.contains(&spec.kind) {
            misplaced(spec, &format!("/primitiveSchema/{key}"), key, findings);
        }
    }
    let required: &[(&str, bool)] = match spec.kind {
        // A plugin's schema may come from its code.
        Tool | Task => &[("input_schema", schema.input_schema.is_some() || spec.has_code())],
        Resource => &[("uri", schema.uri.is_some())],
        ResourceTemplate => &[("uriTemplate", schema.uri_template.is_some())],
        Elicitation => {
            let is_form = schema.fields.is_some() || schema.requested_schema.is_some();
            &[("fields", is_form || schema.url.is_some())]
        }
        Delegate => {
            &[("sampling", schema.sampling.is_some() || schema.roots.is_some() || spec.runtime.is_some())]
        }
        Prompt => &[],
    };
    for (key, present) in required {
        if !present {
            missing(&format!("/primitiveSchema/{key}"), key, spec.kind.word(), findings);
        }
    }
    check_questions(schema, findings);
}

/// Checks that an elicitation defines its question in only one way.
fn check_questions(schema: &PrimitiveSchema, findings: &mut Findings<'_>) {
    if schema.url.is_some() {
        for (key, written) in
            [("fields", schema.fields.is_some()), ("requested_schema", schema.requested_schema.is_some())]
        {
            if written {
                let path = format!("/primitiveSchema/{key}");
                let message = "a user who is sent to a page does not fill in a form";
                findings.add(FaultCode::MisplacedKey, &path, message, "keep this or `url`");
            }
        }
    }
    if schema.fields.is_some() && schema.requested_schema.is_some() {
        let message = "`fields` and `requested_schema` define the same form";
        findings.add(FaultCode::MisplacedKey, "/primitiveSchema/fields", message, "keep one of the two");
    }
}

fn check_contents(spec: &Spec, findings: &mut Findings<'_>) {
    for (index, item) in spec.schema.contents.iter().flatten().enumerate() {
        let path = format!("/primitiveSchema/contents/{index}");
        match (&item.text, &item.blob) {
            (None, None) => missing(&format!("{path}/text"), "text", "resource contents", findings),
            (Some(_), Some(_)) => {
                let hint = "keep `text` for text, `blob` for everything else";
                findings.add(
                    FaultCode::MisplacedKey,
                    &format!("{path}/blob"),
                    "both `text` and `blob`",
                    hint,
                );
            }
            (None, Some(blob)) => check_base64(blob, &format!("{path}/blob"), findings),
            (Some(_), None) => {}
        }
    }
    for (index, message) in spec.schema.messages.iter().flatten().enumerate() {
        let path = format!("/primitiveSchema/messages/{index}/content");
        let block = &message.content;
        let is_text = block.kind == ContentType::Text;
        let keys = [
            ("text", block.text.is_some(), is_text),
            ("data", block.data.is_some(), !is_text),
            ("mimeType", block.mime_type.is_some(), !is_text),
        ];
        for (key, written, wanted) in keys {
            match (written, wanted) {
                (false, true) => missing(&format!("{path}/{key}"), key, "content block", findings),
                (true, false) => misplaced(spec, &format!("{path}/{key}"), key, findings),
                _ => {}
            }
        }
        if let (Some(data), false) = (&block.data, is_text) {
            check_base64(data, &format!("{path}/data"), findings);
        }
    }
}

fn check_base64(text: &str, path: &str, findings: &mut Findings<'_>) {
    let body = text.trim_end_matches('=');
    let fits = text.len().is_multiple_of(4)
        && text.len() - body.len() <= 2
        && body.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'+' || byte == b'/');
    if !fits {
        let hint = "encode it with the standard alphabet and padding (RFC 4648 section 4)";
        findings.add(FaultCode::BadValue, path, "this is not Base64", hint);
    }
}

fn check_runtime(spec: &Spec, findings: &mut Findings<'_>) {
    let is_static = spec.schema.messages.is_some() || spec.schema.contents.is_some();
    let Some(runtime) = &spec.runtime else {
        let needs = match spec.kind {
            Kind::Elicitation | Kind::Delegate => false,
            Kind::Prompt | Kind::Resource => !is_static,
            Kind::Tool | Kind::Task | Kind::ResourceTemplate => true,
        };
        if needs {
            missing("/runtime", "runtime", spec.kind.word(), findings);
        }
        return;
    };
    if spec.kind == Kind::Elicitation {
        misplaced(spec, "/runtime", "runtime", findings);
        return;
    }
    if is_static {
        let message = "static content and `runtime` exclude each other";
        let hint = "remove `runtime`, or the `messages` or `contents`";
        findings.add(FaultCode::MisplacedKey, "/runtime", message, hint);
    }
    use Mode::{Builtin, McpStdio, Plugin, Primitive, Proxy};
    let keys: [(&str, bool, &[Mode], &[Mode]); 18] = [
        ("entrypoint", runtime.entrypoint.is_some(), &[Builtin, Plugin], &[Builtin, Plugin]),
        ("language", runtime.language.is_some(), &[Plugin], &[Plugin]),
        ("resources", runtime.resources.is_some(), &[Plugin, McpStdio], &[]),
        ("pool", runtime.pool.is_some(), &[Plugin, McpStdio], &[]),
        ("minIsolation", runtime.min_isolation.is_some(), &[Plugin, McpStdio], &[]),
        ("artifactSha256", runtime.artifact_sha256.is_some(), &[Plugin, McpStdio], &[]),
        ("storage", runtime.storage.is_some(), &[Plugin], &[]),
        ("secrets", !runtime.secrets.is_empty(), &[Plugin], &[]),
        ("http", runtime.http.is_some(), &[Proxy], &[]),
        ("mcp", runtime.mcp.is_some(), &[Proxy], &[]),
        ("calls", runtime.calls.is_some(), &[Proxy], &[]),
        ("a2a", runtime.a2a.is_some(), &[Proxy], &[]),
        ("openai", runtime.openai.is_some(), &[Proxy], &[]),
        ("primitive", runtime.primitive.is_some(), &[Primitive], &[Primitive]),
        ("package", runtime.package.is_some(), &[Plugin, McpStdio], &[McpStdio]),
        ("tool", runtime.tool.is_some(), &[McpStdio], &[]),
        ("auth", runtime.auth.is_some(), &[Proxy, Plugin], &[]),
        ("pin", runtime.pin.is_some(), &[McpStdio], &[]),
    ];
    for (key, written, allowed, required) in keys {
        let path = format!("/runtime/{key}");
        if written && !allowed.contains(&runtime.mode) {
            let message = format!("`{key}` means nothing in this mode");
            findings.add(FaultCode::MisplacedKey, &path, message, format!("remove `{key}` or change `mode`"));
        }
        if !written && required.contains(&runtime.mode) {
            missing(&path, key, "runtime mode", findings);
        }
    }
    // Only tools and tasks have a stream for its requests.
    if runtime.storage.is_some() && runtime.mode == Plugin && !spec.kind.is_tool() {
        misplaced(spec, "/runtime/storage", "storage", findings);
    }
    // Delegates have rules of their own.
    if runtime.mode == Proxy && spec.kind != Kind::Delegate {
        check_forwarding(runtime, findings);
    }
    check_entrypoint(spec, findings);
    check_domains_used(spec, findings);
}

/// Checks that a proxy forwards in exactly one way.
fn check_forwarding(runtime: &Runtime, findings: &mut Findings<'_>) {
    let ways = [
        ("http", runtime.http.is_some()),
        ("mcp", runtime.mcp.is_some()),
        ("calls", runtime.calls.is_some()),
        ("a2a", runtime.a2a.is_some()),
    ];
    let written: Vec<&str> = ways.iter().filter(|(_, written)| *written).map(|(key, _)| *key).collect();
    match written.as_slice() {
        [] => missing("/runtime/http", "http", "runtime mode", findings),
        [_] => {}
        [first, others @ ..] => {
            for other in others {
                let message = format!("both `{first}` and `{other}`");
                let path = format!("/runtime/{other}");
                findings.add(FaultCode::MisplacedKey, &path, message, "keep one of the two");
            }
        }
    }
}

fn check_entrypoint(spec: &Spec, findings: &mut Findings<'_>) {
    let Some(runtime) = &spec.runtime else { return };
    let hint = "write a path or module inside the package, without `..`, spaces and backslashes";
    for (key, value) in [("entrypoint", &runtime.entrypoint), ("package", &runtime.package)] {
        let Some(value) = value else { continue };
        let plain = value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_./$:@-{}".contains(&byte));
        let inside = !value.starts_with(['/', '-', '.']) && !value.split('/').any(|part| part == "..");
        let fits = match key {
            // A plugin's package is a folder of this name.
            "package" if runtime.mode == Mode::Plugin => !value.starts_with('@') && names_a_package(value),
            "package" => names_a_package(value),
            _ => inside,
        };
        if value.is_empty() || value.len() > 256 || !plain || !fits {
            let message = format!("`{}` is not a valid {key}", super::name::escape(value));
            findings.add(FaultCode::BadEntrypoint, &format!("/runtime/{key}"), message, hint);
        }
    }
    // The server's own name, or a URI with any characters: it is sent to that server and nowhere else.
    if runtime.tool.as_deref() == Some("") {
        let hint = "write the server's own name or URI, or leave it out for the id";
        findings.add(FaultCode::BadEntrypoint, "/runtime/tool", "the tool has no name", hint);
    }
    if let Some(hash) = &runtime.artifact_sha256
        && !(hash.len() == 64 && hash.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')))
    {
        let hint = "write 64 lower-case hex digits";
        findings.add(FaultCode::BadValue, "/runtime/artifactSha256", "not a SHA-256", hint);
    }
}

/// Whether a text is `name` or `@scope/name`, either with `@version`. Name and version become folders of an
/// installation, which replaces them.
fn names_a_package(value: &str) -> bool {
    let part = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
        !part.is_empty() && !part.starts_with(['.', '-']) && part.bytes().all(plain)
    };
    let (bare, is_scoped) = match value.strip_prefix('@') {
        Some(bare) => (bare, true),
        None => (value, false),
    };
    let (name, version) = bare.split_once('@').unwrap_or((bare, "0"));
    let parts = if is_scoped { 2 } else { 1 };
    name.split('/').count() == parts && name.split('/').all(part) && part(version)
}

/// Checks that only plugins and stdio servers have allowed domains, since only they have an egress proxy.
fn check_domains_used(spec: &Spec, findings: &mut Findings<'_>) {
    let runs_sandboxed =
        spec.runtime.as_ref().is_some_and(|runtime| matches!(runtime.mode, Mode::Plugin | Mode::McpStdio));
    let keys =
        [("allowedDomains", &spec.security.allowed_domains), ("allowedTcp", &spec.security.allowed_tcp)];
    for (key, _) in keys.into_iter().filter(|(_, listed)| !listed.is_empty() && !runs_sandboxed) {
        let message =
            format!("`{key}` opens the network of a sandboxed worker, and this does not run in one");
        findings.add(
            FaultCode::MisplacedKey,
            &format!("/security/{key}"),
            message,
            format!("remove `{key}`"),
        );
    }
}

fn check_exposure(spec: &Spec, findings: &mut Findings<'_>) {
    let exposure = &spec.exposure;
    let kind = spec.kind;
    let keys = [
        ("mcp/tool", exposure.mcp.tool.is_some(), kind.is_tool()),
        ("mcp/resource", exposure.mcp.resource.is_some(), kind.is_resource()),
        ("mcp/prompt", exposure.mcp.prompt.is_some(), kind == Kind::Prompt),
        ("a2a/skill", exposure.a2a.skill.is_some(), kind.is_tool()),
        ("rest/operation", exposure.rest.operation.is_some(), kind.is_tool()),
    ];
    for (key, written, fits) in keys {
        if written && !fits {
            let message = format!("a primitive of type {} cannot be exposed as {key}", kind.word());
            let hint = "remove the exposure, or correct `type`";
            findings.add(FaultCode::NotExposable, &format!("/exposure/{key}"), message, hint);
        }
    }
}

fn check_annotations(spec: &Spec, findings: &mut Findings<'_>) {
    let hints = &spec.annotations;
    let kind = spec.kind;
    let keys = [
        ("title", hints.title.is_some(), kind.is_tool()),
        ("readOnlyHint", hints.read_only_hint.is_some(), kind.is_tool()),
        ("destructiveHint", hints.destructive_hint.is_some(), kind.is_tool()),
        ("idempotentHint", hints.idempotent_hint.is_some(), kind.is_tool()),
        ("openWorldHint", hints.open_world_hint.is_some(), kind.is_tool()),
        ("audience", !hints.audience.is_empty(), kind.is_resource()),
        ("priority", hints.priority.is_some(), kind.is_resource()),
    ];
    for (key, written, fits) in keys {
        if written && !fits {
            misplaced(spec, &format!("/annotations/{key}"), key, findings);
        }
    }
    if spec.idempotency.is_some() && !kind.is_tool() {
        misplaced(spec, "/idempotency", "idempotency", findings);
    }
}

fn missing(path: &str, key: &str, of: &str, findings: &mut Findings<'_>) {
    let message = format!("the key `{key}` is missing; a {of} needs it");
    findings.add(FaultCode::MissingKey, path, message, format!("add `{key}`"));
}

fn misplaced(spec: &Spec, path: &str, key: &str, findings: &mut Findings<'_>) {
    let message = format!("`{key}` means nothing for a primitive of type {}", spec.kind.word());
    findings.add(FaultCode::MisplacedKey, path, message, format!("remove `{key}` or correct `type`"));
}
