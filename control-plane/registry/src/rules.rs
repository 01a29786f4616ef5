//! Rules for the values of a file, beyond their types.
//!
//! Owns the order of the rules of one file; each rule is a module and adds faults, none stops another. Rules across
//! files are in `link`.

mod completion;
mod delegate;
mod deprecation;
mod hints;
mod listed;
mod meta;
mod name;
mod prompt;
mod proxy;
pub(crate) mod quantity;
pub(crate) mod schema;
mod server;
mod service_auth;
mod shape;
mod text;
mod uri;
mod watched;

pub use name::is_resource_name;
pub use proxy::is_refused_header;
pub use server::MAX_PRIMITIVES;
pub(crate) use server::check_server;
pub use text::visible_text;

use std::collections::BTreeMap;

use serde_json::Value;

use crate::document::Document;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{Dependency, Spec, bare_id};
use crate::uri_template::UriTemplate;

/// Maximum size of an example in bytes, as JSON text: validating a large value against a large schema takes long.
const MAX_EXAMPLE_BYTES: usize = 16 * 1024;
/// Maximum number of services that a plugin reaches by TCP: each has a listener in every sandbox.
const MAX_TCP: usize = 16;

/// Checks the texts of any file, whether or not its keys are known.
pub(crate) fn check_texts(document: &Document, findings: &mut Findings<'_>) {
    text::check(document, findings);
}

/// Checks a primitive spec.
pub(crate) fn check_spec(spec: &Spec, findings: &mut Findings<'_>) {
    name::check(spec, findings);
    shape::check(spec, findings);
    hints::check(spec, findings);
    quantity::check(spec, findings);
    check_domains(spec, findings);
    check_tcp(spec, findings);
    check_icons(spec, findings);
    check_media_types(spec, findings);
    let input = check_input(spec, findings);
    let output = spec.schema.output_schema.as_ref().and_then(|written| {
        // MCP 2026-07-28 lets a tool return any JSON value, so an upstream's tool may.
        let object_root = spec.kind.is_tool() && !spec.is_upstream();
        let rules = schema::SchemaRules { object_root, header_annotations: false };
        schema::check(written, "/primitiveSchema/output_schema", rules, findings)
    });
    if let Some(artifacts) = &spec.schema.artifacts {
        let rules = schema::SchemaRules { object_root: false, header_annotations: false };
        schema::check(artifacts, "/primitiveSchema/artifacts", rules, findings);
    }
    check_examples(spec, input.as_ref(), output.as_ref(), findings);
    check_places(spec, findings);
    prompt::check(spec, findings);
    completion::check(spec, findings);
    listed::check(spec, findings);
    watched::check(spec, findings);
    meta::check(spec, findings);
    deprecation::check(spec, findings);
    proxy::check(spec, findings);
    service_auth::check(spec, findings);
    delegate::check(spec, findings);
}

fn check_input(spec: &Spec, findings: &mut Findings<'_>) -> Option<jsonschema::Validator> {
    let written = spec.schema.input_schema.as_ref()?;
    let rules = schema::SchemaRules { object_root: spec.kind.is_tool(), header_annotations: true };
    let validator = schema::check(written, "/primitiveSchema/input_schema", rules, findings);
    let skill = spec.exposure.a2a.skill.as_ref();
    let agent = spec.runtime.as_ref().and_then(|runtime| runtime.a2a.as_ref());
    for (path, argument) in [
        ("/idempotency/argument", spec.idempotency.as_ref().map(|key| &key.argument)),
        ("/runtime/a2a/textArgument", agent.and_then(|agent| agent.text_argument.as_ref())),
        ("/exposure/a2a/skill/textArgument", skill.and_then(|skill| skill.text_argument.as_ref())),
    ] {
        let Some(argument) = argument else { continue };
        let property = written.pointer("/properties").and_then(|properties| properties.get(argument));
        if property.and_then(|property| property.get("type")).and_then(Value::as_str) != Some("string") {
            let message = format!("the input schema has no text argument `{argument}`");
            let hint = "name a top-level property of type string";
            findings.add(FaultCode::BadMapping, path, message, hint);
        }
    }
    validator
}

fn check_examples(
    spec: &Spec,
    input: Option<&jsonschema::Validator>,
    output: Option<&jsonschema::Validator>,
    findings: &mut Findings<'_>,
) {
    for (index, example) in spec.examples.iter().enumerate() {
        if example.text.is_none() && example.input.is_none() {
            let path = format!("/examples/{index}/input");
            findings.add(
                FaultCode::MissingKey,
                &path,
                "an example needs `text` or `input`",
                "add `text` or `input`",
            );
        }
        check_answers(spec, &format!("/examples/{index}/answers"), &example.answers, findings);
        for (key, value, validator) in [("input", &example.input, input), ("output", &example.output, output)]
        {
            let (Some(value), Some(validator)) = (value, validator) else { continue };
            let path = format!("/examples/{index}/{key}");
            if value.to_string().len() > MAX_EXAMPLE_BYTES {
                let message = format!("the example is larger than {MAX_EXAMPLE_BYTES} bytes");
                findings.add(FaultCode::BadExample, &path, message, "shorten the example");
            } else if let Err(error) = validator.validate(value) {
                // Only the first error is reported: a hostile schema has one for each pair of value and subschema.
                let path = format!("{path}{}", error.instance_path().as_str());
                let hint = format!("correct the example or the {key} schema");
                findings.add(FaultCode::BadExample, &path, error.to_string(), hint);
            }
        }
    }
}

/// Checks that scripted answers are for questions that the spec declares, in a form that a user's client could send.
fn check_answers(spec: &Spec, path: &str, answers: &BTreeMap<String, Value>, findings: &mut Findings<'_>) {
    let declared =
        |dependencies: &[Dependency], id: &str| dependencies.iter().any(|one| bare_id(&one.id) == id);
    for (id, answer) in answers {
        let path = format!("{path}/{}", crate::document::escape(id));
        let fits = answer.is_object() || answer == "decline" || answer == "cancel";
        if answer.to_string().len() > MAX_EXAMPLE_BYTES {
            let message = format!("the answer is larger than {MAX_EXAMPLE_BYTES} bytes");
            findings.add(FaultCode::BadExample, &path, message, "shorten the answer");
        } else if declared(&spec.dependencies.elicitations, id) {
            if !fits {
                let hint = "write an object of its fields, \"decline\" or \"cancel\"";
                findings.add(FaultCode::BadExample, &path, "not an answer that a user can give", hint);
            }
        } else if !declared(&spec.dependencies.delegations, id) {
            let message = format!("`{}` is not declared", name::escape(id));
            let hint = "name an id of `primitiveDependencies`";
            findings.add(FaultCode::BadExample, &path, message, hint);
        }
    }
}

fn check_domains(spec: &Spec, findings: &mut Findings<'_>) {
    for (index, domain) in spec.security.allowed_domains.iter().enumerate() {
        if !uri::is_host_name(domain) {
            let path = format!("/security/allowedDomains/{index}");
            let message = format!("`{domain}` is not a host name");
            let hint =
                "write a full host name such as api.example.com: no scheme, port, path, wildcard or address";
            findings.add(FaultCode::BadHost, &path, message, hint);
        }
    }
}

fn check_tcp(spec: &Spec, findings: &mut Findings<'_>) {
    let path = "/security/allowedTcp";
    let listed = &spec.security.allowed_tcp;
    if listed.len() > MAX_TCP {
        let message = format!("a plugin reaches at most {MAX_TCP} services by TCP");
        findings.add(FaultCode::TooMany, path, message, "list those that this primitive needs");
    }
    for (index, service) in listed.iter().enumerate() {
        // The second is the proxy of the sandbox.
        if !is_service(service) || service == "localhost:3128" {
            let message = format!("`{}` is not a host and port", name::escape(service));
            let hint = "write a full host name in lower case and a port, such as db.example.com:5432: no scheme, wildcard or \
                address";
            findings.add(FaultCode::BadHost, &format!("{path}/{index}"), message, hint);
        }
    }
}

/// Whether a text is `host:port`.
fn is_service(text: &str) -> bool {
    let Some((host, port)) = text.rsplit_once(':') else { return false };
    let is_digits = port.bytes().all(|byte| byte.is_ascii_digit()) && !port.starts_with('0');
    let is_port = is_digits && port.parse::<u16>().is_ok();
    is_port && uri::is_host_name(host) && !host.bytes().any(|byte| byte.is_ascii_uppercase())
}

fn check_icons(spec: &Spec, findings: &mut Findings<'_>) {
    for (index, icon) in spec.icons.iter().enumerate() {
        let is_https = icon.src.starts_with("https://") && uri::http_url(&icon.src).is_ok();
        if !is_https && !icon.src.starts_with("data:image/") {
            let path = format!("/icons/{index}/src");
            let message = "an icon is an https URL or a data:image URI";
            findings.add(FaultCode::BadUrl, &path, message, "host the icon on https or embed it");
        }
    }
}

/// Checks media types, which end up in cards, results and `Content-Type`. Parameters such as `charset` are up to the
/// author.
fn check_media_types(spec: &Spec, findings: &mut Findings<'_>) {
    let mut written = Vec::new();
    if let Some(mime_type) = &spec.schema.mime_type {
        written.push(("/primitiveSchema/mimeType".to_string(), mime_type));
    }
    for (index, item) in spec.schema.contents.iter().flatten().enumerate() {
        let path = format!("/primitiveSchema/contents/{index}/mimeType");
        written.extend(item.mime_type.as_ref().map(|mime_type| (path, mime_type)));
    }
    for (index, message) in spec.schema.messages.iter().flatten().enumerate() {
        let path = format!("/primitiveSchema/messages/{index}/content/mimeType");
        written.extend(message.content.mime_type.as_ref().map(|mime_type| (path, mime_type)));
    }
    for (index, icon) in spec.icons.iter().enumerate() {
        let path = format!("/icons/{index}/mimeType");
        written.extend(icon.mime_type.as_ref().map(|mime_type| (path, mime_type)));
    }
    if let Some(skill) = &spec.exposure.a2a.skill {
        for (key, modes) in [("inputModes", &skill.input_modes), ("outputModes", &skill.output_modes)] {
            let paths = (0..).map(|index: usize| format!("/exposure/a2a/skill/{key}/{index}"));
            written.extend(paths.zip(modes));
        }
    }
    for (path, text) in written {
        let (media_type, parameters) = text.split_once(';').unwrap_or((text, ""));
        let is_plain =
            parameters.len() <= 128 && parameters.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
        if !server::is_media_type(media_type.trim_end()) || !is_plain {
            let message = format!("`{}` is not a media type", name::escape(text));
            findings.add(FaultCode::BadValue, &path, message, "write type/subtype");
        }
    }
}

/// Checks a resource's URI, a template, and the URIs of static contents.
fn check_places(spec: &Spec, findings: &mut Findings<'_>) {
    let hint = "write scheme:path, e.g. demo://about; file, data and script schemes are refused";
    if let Some(uri) = &spec.schema.uri
        && let Err(reason) = uri::resource_uri(uri)
    {
        findings.add(FaultCode::BadUri, "/primitiveSchema/uri", reason, hint);
    }
    for (index, item) in spec.schema.contents.iter().flatten().enumerate() {
        if let Some(uri) = &item.uri
            && let Err(reason) = uri::resource_uri(uri)
        {
            findings.add(FaultCode::BadUri, &format!("/primitiveSchema/contents/{index}/uri"), reason, hint);
        }
    }
    let Some(template) = &spec.schema.uri_template else { return };
    let parsed = UriTemplate::parse_matching(template)
        .map_err(|fault| fault.to_string())
        .and_then(|template| uri::resource_uri(&template.sample_uri()));
    if let Err(reason) = parsed {
        let hint = "use plain {name} expressions (RFC 6570 level 1), e.g. demo://items/{id}";
        findings.add(FaultCode::BadUriTemplate, "/primitiveSchema/uriTemplate", reason, hint);
    }
}
