//! The A2A agent card of a server.
//!
//! Owns one JSON object for both wire versions: `supportedInterfaces`, `securityRequirements` and the named scheme wrappers
//! of 1.0, and the top-level fields of 0.3. A reader of either version ignores the fields of the other. In every URL
//! `${public_url}` stands for the platform's public URL; the gateway replaces it, and adds the skills that the reader may
//! see, when it serves the card. Keeps true: nothing is empty but the scopes of a requirement, because official SDKs drop
//! what is empty before they verify a signature; abilities and URL are those of the platform, whatever `server.yaml` claims:
//! clients send their tokens to the URL of a card that the platform has signed.
//! Sources: A2A 0.3.0 section 5.5, A2A 1.0 `AgentCard`.

use asp_proto::snapshot;
use serde_json::{Map, Value, json};

use super::deprecation;
use crate::server_file::{Card, CardExtension, ServerFile};
use crate::spec::{Scheme, Spec};

const DEFAULT_MODES: [&str; 2] = ["application/json", "text/plain"];
/// Bindings that gateways serve at the agent's URL, by the names of both versions and in the order of preference.
const BINDINGS: [&str; 2] = ["JSONRPC", "HTTP+JSON"];

/// Compiles the card without its skills, which depend on the reader.
pub(super) fn card(file: &ServerFile, server: &snapshot::Server) -> Value {
    let Card { name, description, provider, documentation_url, icon_url, .. } = &file.card;
    let name = first([name.as_deref(), Some(&server.title), Some(&server.name)]);
    let description = first([description.as_deref(), Some(&server.description), Some(name)]);
    let mut card = Map::new();
    put(&mut card, "name", name);
    put(&mut card, "description", description);
    put(&mut card, "version", server.version.as_str());
    put(&mut card, "documentationUrl", documentation_url.as_deref());
    put(&mut card, "iconUrl", icon_url.as_deref());
    if let Some(provider) = provider {
        let mut members = Map::new();
        put(&mut members, "organization", provider.organization.as_str());
        put(&mut members, "url", provider.url.as_str());
        put(&mut card, "provider", members);
    }
    put(&mut card, "defaultInputModes", modes(&file.card.default_input_modes));
    put(&mut card, "defaultOutputModes", modes(&file.card.default_output_modes));
    put_interfaces(&mut card, &format!("${{public_url}}/{}/a2a", file.name));
    put_security(&mut card, file);
    Value::Object(card)
}

/// Returns the text of a card with all skills of the server, in list order.
pub(super) fn with_skills(
    card: &Value,
    server: &snapshot::Server,
    primitives: &[snapshot::Primitive],
) -> String {
    let mut card = card.clone();
    if let Some(members) = card.as_object_mut() {
        put(members, "skills", skills(server, primitives));
    }
    card.to_string()
}

/// Returns a skill under its default id; `None` for kinds that cannot be skills.
pub(super) fn skill(spec: &Spec) -> Option<Value> {
    if !spec.kind.is_tool() {
        return None;
    }
    let written = spec.exposure.a2a.skill.as_ref();
    let id = written.and_then(|skill| skill.id.as_deref()).unwrap_or(&spec.id);
    let mut skill = Map::new();
    put(&mut skill, "id", id);
    put(&mut skill, "name", spec.name.as_str());
    let description = first([spec.summary.as_deref(), Some(&spec.name), Some(&spec.id)]);
    let note = deprecation::note(spec);
    put(
        &mut skill,
        "description",
        [description].into_iter().chain(note.as_deref()).collect::<Vec<_>>().join("\n\n"),
    );
    // Both versions require a tag.
    let kind = [spec.kind.word().to_owned()];
    let tags = if spec.tags.is_empty() { kind.as_slice() } else { spec.tags.as_slice() };
    let is_deprecated = spec.deprecated.as_ref().map(|_| deprecation::TAG);
    put(&mut skill, "tags", tags.iter().map(String::as_str).chain(is_deprecated).collect::<Vec<_>>());
    put(&mut skill, "examples", examples(spec));
    if let Some(written) = written {
        put(&mut skill, "inputModes", written.input_modes.as_slice());
        put(&mut skill, "outputModes", written.output_modes.as_slice());
    }
    // Without scopes of its own, a skill needs what the server needs.
    if let Some(auth) = &spec.security.auth
        && auth.scheme != Scheme::None
        && !auth.scopes.is_empty()
    {
        let needed = (scheme_name(auth.scheme), auth.scopes.as_slice());
        put_requirements(&mut skill, &[needed]);
    }
    Some(Value::Object(skill))
}

/// Adds a member unless its value is empty.
fn put(members: &mut Map<String, Value>, name: &str, value: impl Into<Value>) {
    let value = value.into();
    let is_empty = match &value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    };
    if !is_empty {
        members.insert(name.to_owned(), value);
    }
}

/// Returns the first text that is not empty.
fn first(texts: [Option<&str>; 3]) -> &str {
    texts.into_iter().flatten().find(|text| !text.is_empty()).unwrap_or_default()
}

/// Returns examples as strings, as A2A wants them: texts, and arguments as JSON text.
fn examples(spec: &Spec) -> Vec<String> {
    let mut examples = Vec::new();
    for example in &spec.examples {
        examples.extend(example.text.clone());
        examples.extend(example.input.as_ref().map(Value::to_string));
    }
    examples.retain(|example| !example.is_empty());
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

fn modes(written: &[String]) -> Vec<&str> {
    if written.is_empty() { DEFAULT_MODES.to_vec() } else { written.iter().map(String::as_str).collect() }
}

/// Adds the interfaces: those of 1.0 first, because a client takes the first one that it can speak.
fn put_interfaces(card: &mut Map<String, Value>, url: &str) {
    let of = |version: &'static str| {
        BINDINGS.map(|binding| json!({"url": url, "protocolBinding": binding, "protocolVersion": version}))
    };
    put(card, "supportedInterfaces", [of("1.0"), of("0.3")].concat());
    put(card, "protocolVersion", "0.3.0");
    put(card, "url", url);
    put(card, "preferredTransport", BINDINGS.first().copied());
    let transports = BINDINGS.map(|binding| json!({"url": url, "transport": binding}));
    put(card, "additionalInterfaces", transports);
}

/// Adds the schemes and the requirement that one of them is met, in the forms of both versions; and the abilities, since
/// only a caller who is known has a card of its own.
fn put_security(card: &mut Map<String, Value>, file: &ServerFile) {
    let schemes: Vec<Scheme> =
        file.auth.schemes.iter().copied().filter(|scheme| *scheme != Scheme::None).collect();
    let mut capabilities = Map::new();
    put(&mut capabilities, "streaming", true);
    if !schemes.is_empty() {
        put(&mut capabilities, "extendedAgentCard", true);
        put(card, "supportsAuthenticatedExtendedCard", true);
    }
    put(&mut capabilities, "extensions", extensions(&file.card.extensions));
    put(card, "capabilities", capabilities);
    let declared: Map<_, _> =
        schemes.iter().map(|scheme| (scheme_name(*scheme).to_string(), scheme_object(*scheme))).collect();
    put(card, "securitySchemes", declared);
    let needed: Vec<_> =
        schemes.iter().map(|scheme| (scheme_name(*scheme), file.auth.scopes.as_slice())).collect();
    put_requirements(card, &needed);
}

fn extensions(declared: &[CardExtension]) -> Vec<Value> {
    let declared = declared.iter().map(|extension| {
        let mut members = Map::new();
        put(&mut members, "uri", extension.uri.as_str());
        put(&mut members, "description", extension.description.as_deref());
        if extension.required {
            put(&mut members, "required", true);
        }
        Value::Object(members)
    });
    declared.collect()
}

/// Adds the requirement that one of the schemes is met with its scopes. The list of a scheme without scopes stays, although
/// it is empty: clients send a credential only for a requirement.
fn put_requirements(members: &mut Map<String, Value>, schemes: &[(&str, &[String])]) {
    let of_v03: Vec<_> = schemes.iter().map(|(name, scopes)| json!({*name: scopes})).collect();
    let required: Vec<_> = schemes
        .iter()
        .map(|(name, scopes)| {
            let mut list = Map::new();
            put(&mut list, "list", *scopes);
            json!({"schemes": {*name: list}})
        })
        .collect();
    put(members, "security", of_v03);
    put(members, "securityRequirements", required);
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
        // Without a description the wrapper would be empty.
        Scheme::Mtls => json!({
            "type": "mutualTLS", "description": "TLS client certificate",
            "mtlsSecurityScheme": {"description": "TLS client certificate"},
        }),
        Scheme::Opaque | Scheme::Psk | Scheme::None => json!({
            "type": "http", "scheme": "bearer",
            "httpAuthSecurityScheme": {"scheme": "bearer"},
        }),
    }
}
