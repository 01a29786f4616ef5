//! The A2A agent card of a server.
//!
//! Owns one JSON object for both wire versions: the fields of 0.3, and `supportedInterfaces`, `securityRequirements`
//! and the named scheme wrappers of 1.0. A reader of either version ignores the fields of the other. In every URL
//! `${public_url}` stands for the platform's public URL; the gateway replaces it when it serves the card. Sources:
//! A2A 0.3.0 section 5.5, A2A 1.0 `AgentCard`.

use asp_proto::snapshot;
use serde_json::{Map, Value, json};

use crate::server_file::ServerFile;
use crate::spec::{Scheme, Spec};

const DEFAULT_MODES: [&str; 2] = ["application/json", "text/plain"];

/// Compiles the card; skills keep list order.
pub(super) fn card(
    file: &ServerFile,
    server: &snapshot::Server,
    primitives: &[snapshot::Primitive],
) -> Value {
    let card = &file.card;
    let url = card.url.clone().unwrap_or_else(|| format!("${{public_url}}/{}/a2a", file.name));
    let interface =
        |version: &str| json!({"url": url, "protocolBinding": "JSONRPC", "protocolVersion": version});
    let mut object = Map::new();
    object.insert("protocolVersion".into(), json!("0.3.0"));
    object.insert("name".into(), json!(card.name.as_ref().unwrap_or(&server.title)));
    let description = card.description.as_ref().unwrap_or(&server.description);
    object.insert("description".into(), json!(description));
    object.insert("url".into(), json!(url));
    object.insert("preferredTransport".into(), json!("JSONRPC"));
    object.insert("additionalInterfaces".into(), json!([{"url": url, "transport": "JSONRPC"}]));
    object.insert("supportedInterfaces".into(), json!([interface("1.0"), interface("0.3")]));
    if let Some(provider) = &card.provider {
        let provider = json!({"organization": provider.organization, "url": provider.url});
        object.insert("provider".into(), provider);
    }
    object.insert("version".into(), json!(server.version));
    for (key, value) in [("documentationUrl", &card.documentation_url), ("iconUrl", &card.icon_url)] {
        if let Some(value) = value {
            object.insert(key.into(), json!(value));
        }
    }
    let mut capabilities = Map::new();
    if let Some(streaming) = card.capabilities.streaming {
        capabilities.insert("streaming".into(), json!(streaming));
    }
    if let Some(push) = card.capabilities.push_notifications {
        capabilities.insert("pushNotifications".into(), json!(push));
    }
    object.insert("capabilities".into(), Value::Object(capabilities));
    security(file, &mut object);
    object.insert("defaultInputModes".into(), modes(&card.default_input_modes));
    object.insert("defaultOutputModes".into(), modes(&card.default_output_modes));
    object.insert("skills".into(), skills(server, primitives).into());
    Value::Object(object)
}

/// Returns a skill under its default id; `None` for kinds that cannot be skills.
pub(super) fn skill(spec: &Spec) -> Option<Value> {
    if !spec.kind.is_tool() {
        return None;
    }
    let written = spec.exposure.a2a.skill.as_ref();
    let id = written.and_then(|skill| skill.id.as_deref()).unwrap_or(&spec.id);
    let mut object = Map::new();
    object.insert("id".into(), json!(id));
    object.insert("name".into(), json!(spec.name));
    object.insert("description".into(), json!(spec.summary.as_deref().unwrap_or(&spec.name)));
    object.insert("tags".into(), json!(spec.tags));
    let examples = examples(spec);
    if !examples.is_empty() {
        object.insert("examples".into(), json!(examples));
    }
    if let Some(skill) = written {
        for (key, modes) in [("inputModes", &skill.input_modes), ("outputModes", &skill.output_modes)] {
            if !modes.is_empty() {
                object.insert(key.into(), json!(modes));
            }
        }
    }
    if let Some(auth) = &spec.security.auth
        && auth.scheme != Scheme::None
    {
        let name = scheme_name(auth.scheme);
        object.insert("security".into(), json!([{name: auth.scopes}]));
        object.insert("securityRequirements".into(), requirements([(name, auth.scopes.as_slice())]));
    }
    Some(Value::Object(object))
}

/// Returns examples as strings, as A2A wants them: texts, and arguments as JSON text.
fn examples(spec: &Spec) -> Vec<String> {
    let mut examples = Vec::new();
    for example in &spec.examples {
        examples.extend(example.text.clone());
        examples.extend(example.input.as_ref().map(Value::to_string));
    }
    examples
}

fn skills(server: &snapshot::Server, primitives: &[snapshot::Primitive]) -> Vec<Value> {
    let mut skills = Vec::new();
    for listing in server.listings.iter().filter(|listing| !listing.a2a_skill.is_empty()) {
        let is_listed = |primitive: &&snapshot::Primitive| {
            primitive.id == listing.id && primitive.version == listing.version
        };
        let found = primitives.iter().find(is_listed);
        let parsed = found.and_then(|primitive| serde_json::from_str::<Value>(&primitive.a2a_skill).ok());
        let Some(Value::Object(mut skill)) = parsed else { continue };
        skill.insert("id".into(), json!(listing.a2a_skill));
        skills.push(Value::Object(skill));
    }
    skills
}

fn modes(written: &[String]) -> Value {
    if written.is_empty() { json!(DEFAULT_MODES) } else { json!(written) }
}

/// Adds the schemes and the requirement that one of them is met, in the forms of both versions.
fn security(file: &ServerFile, card: &mut Map<String, Value>) {
    let schemes: Vec<Scheme> =
        file.auth.schemes.iter().copied().filter(|scheme| *scheme != Scheme::None).collect();
    if schemes.is_empty() {
        return;
    }
    let declared: Map<_, _> =
        schemes.iter().map(|scheme| (scheme_name(*scheme).to_string(), scheme_object(*scheme))).collect();
    card.insert("securitySchemes".into(), Value::Object(declared));
    let scopes = file.auth.scopes.as_slice();
    let security: Vec<_> = schemes.iter().map(|scheme| json!({scheme_name(*scheme): scopes})).collect();
    card.insert("security".into(), json!(security));
    let named = schemes.iter().map(|scheme| (scheme_name(*scheme), scopes));
    card.insert("securityRequirements".into(), requirements(named));
}

fn requirements<'a>(schemes: impl IntoIterator<Item = (&'static str, &'a [String])>) -> Value {
    schemes.into_iter().map(|(name, scopes)| json!({"schemes": {name: {"list": scopes}}})).collect()
}

fn scheme_name(scheme: Scheme) -> &'static str {
    match scheme {
        Scheme::Jwt => "bearer-jwt",
        Scheme::Opaque => "bearer-opaque",
        Scheme::Psk => "bearer-psk",
        Scheme::Mtls => "mtls",
        Scheme::None => "none",
    }
}

fn scheme_object(scheme: Scheme) -> Value {
    match scheme {
        Scheme::Jwt => json!({
            "type": "http", "scheme": "bearer", "bearerFormat": "JWT",
            "httpAuthSecurityScheme": {"scheme": "bearer", "bearerFormat": "JWT"},
        }),
        Scheme::Mtls => json!({"type": "mutualTLS", "mtlsSecurityScheme": {}}),
        Scheme::Opaque | Scheme::Psk | Scheme::None => json!({
            "type": "http", "scheme": "bearer",
            "httpAuthSecurityScheme": {"scheme": "bearer"},
        }),
    }
}
