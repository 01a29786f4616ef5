//! The schema of a card in 1.0, and what of a card is signed.

use serde_json::{Map, Value};

/// A field of a message.
struct CardField {
    name: &'static str,
    kind: CardFieldKind,
    presence: DefaultRule,
}

enum CardFieldKind {
    /// A text, a boolean, or a list or map of texts.
    Plain,
    /// Any JSON object.
    Any,
    Message(&'static [CardField]),
    List(&'static [CardField]),
    Map(&'static [CardField]),
}

/// Whether a field with its default value is part of the canonical form (A2A 1.0, section 8.4.1).
enum DefaultRule {
    /// Required, `optional`, or a message: part of it if it is sent.
    Explicit,
    /// Only with another value than its default.
    Default,
}

const fn field(name: &'static str, kind: CardFieldKind, presence: DefaultRule) -> CardField {
    CardField { name, kind, presence }
}

const fn explicit(name: &'static str) -> CardField {
    field(name, CardFieldKind::Plain, DefaultRule::Explicit)
}

const fn plain(name: &'static str) -> CardField {
    field(name, CardFieldKind::Plain, DefaultRule::Default)
}

const fn any(name: &'static str) -> CardField {
    field(name, CardFieldKind::Any, DefaultRule::Explicit)
}

const fn message(name: &'static str, fields: &'static [CardField]) -> CardField {
    field(name, CardFieldKind::Message(fields), DefaultRule::Explicit)
}

const fn list(name: &'static str, fields: &'static [CardField], presence: DefaultRule) -> CardField {
    field(name, CardFieldKind::List(fields), presence)
}

const fn map(name: &'static str, fields: &'static [CardField]) -> CardField {
    field(name, CardFieldKind::Map(fields), DefaultRule::Default)
}

static STRING_LIST: [CardField; 1] = [plain("list")];
static REQUIREMENT: [CardField; 1] = [map("schemes", &STRING_LIST)];
static INTERFACE: [CardField; 4] =
    [explicit("url"), explicit("protocolBinding"), plain("tenant"), explicit("protocolVersion")];
static PROVIDER: [CardField; 2] = [explicit("url"), explicit("organization")];
static EXTENSION: [CardField; 4] = [plain("uri"), plain("description"), plain("required"), any("params")];
static CAPABILITIES: [CardField; 4] = [
    explicit("streaming"),
    explicit("pushNotifications"),
    list("extensions", &EXTENSION, DefaultRule::Default),
    explicit("extendedAgentCard"),
];
static SKILL: [CardField; 8] = [
    explicit("id"),
    explicit("name"),
    explicit("description"),
    explicit("tags"),
    plain("examples"),
    plain("inputModes"),
    plain("outputModes"),
    list("securityRequirements", &REQUIREMENT, DefaultRule::Default),
];
static API_KEY: [CardField; 3] = [plain("description"), explicit("location"), explicit("name")];
static HTTP: [CardField; 3] = [plain("description"), explicit("scheme"), plain("bearerFormat")];
static OPEN_ID: [CardField; 2] = [plain("description"), explicit("openIdConnectUrl")];
static MUTUAL_TLS: [CardField; 1] = [plain("description")];
static AUTHORIZATION_CODE: [CardField; 5] = [
    explicit("authorizationUrl"),
    explicit("tokenUrl"),
    plain("refreshUrl"),
    explicit("scopes"),
    plain("pkceRequired"),
];
static CLIENT_CREDENTIALS: [CardField; 3] = [explicit("tokenUrl"), plain("refreshUrl"), explicit("scopes")];
static IMPLICIT: [CardField; 3] = [plain("authorizationUrl"), plain("refreshUrl"), plain("scopes")];
static PASSWORD: [CardField; 3] = [plain("tokenUrl"), plain("refreshUrl"), plain("scopes")];
static DEVICE_CODE: [CardField; 4] =
    [explicit("deviceAuthorizationUrl"), explicit("tokenUrl"), plain("refreshUrl"), explicit("scopes")];
static FLOWS: [CardField; 5] = [
    message("authorizationCode", &AUTHORIZATION_CODE),
    message("clientCredentials", &CLIENT_CREDENTIALS),
    message("implicit", &IMPLICIT),
    message("password", &PASSWORD),
    message("deviceCode", &DEVICE_CODE),
];
static OAUTH2: [CardField; 3] = [plain("description"), message("flows", &FLOWS), plain("oauth2MetadataUrl")];
static SCHEME: [CardField; 5] = [
    message("apiKeySecurityScheme", &API_KEY),
    message("httpAuthSecurityScheme", &HTTP),
    message("oauth2SecurityScheme", &OAUTH2),
    message("openIdConnectSecurityScheme", &OPEN_ID),
    message("mtlsSecurityScheme", &MUTUAL_TLS),
];
/// A card without its signatures, which do not sign themselves.
static CARD: [CardField; 13] = [
    explicit("name"),
    explicit("description"),
    list("supportedInterfaces", &INTERFACE, DefaultRule::Explicit),
    message("provider", &PROVIDER),
    explicit("version"),
    explicit("documentationUrl"),
    message("capabilities", &CAPABILITIES),
    map("securitySchemes", &SCHEME),
    list("securityRequirements", &REQUIREMENT, DefaultRule::Default),
    explicit("defaultInputModes"),
    explicit("defaultOutputModes"),
    list("skills", &SKILL, DefaultRule::Explicit),
    explicit("iconUrl"),
];

/// Returns what of a card the schema of 1.0 has, without signatures, and without defaults that the canonical form leaves out.
pub(super) fn project(card: &Value) -> Value {
    message_of(card, &CARD)
}

/// Projects a message. The depth of the recursion is that of the schema.
fn message_of(value: &Value, fields: &[CardField]) -> Value {
    let Some(members) = value.as_object() else { return value.clone() };
    let mut found = Map::new();
    for field in fields {
        let Some(value) = members.get(field.name).or_else(|| members.get(&snake_case(field.name))) else {
            continue;
        };
        let value = match field.kind {
            CardFieldKind::Plain | CardFieldKind::Any => value.clone(),
            CardFieldKind::Message(fields) => message_of(value, fields),
            CardFieldKind::List(fields) => match value.as_array() {
                Some(items) => Value::Array(items.iter().map(|item| message_of(item, fields)).collect()),
                None => value.clone(),
            },
            CardFieldKind::Map(fields) => match value.as_object() {
                Some(entries) => {
                    let entry = |(name, value): (&String, &Value)| (name.clone(), message_of(value, fields));
                    Value::Object(entries.iter().map(entry).collect())
                }
                None => value.clone(),
            },
        };
        let is_default = is_empty(&value) || value == Value::Bool(false);
        let is_left_out = is_default && matches!(field.presence, DefaultRule::Default);
        if !value.is_null() && !is_left_out {
            found.insert(field.name.to_owned(), value);
        }
    }
    Value::Object(found)
}

fn snake_case(name: &str) -> String {
    let mut snake = String::new();
    for c in name.chars() {
        if c.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(c.to_ascii_lowercase());
    }
    snake
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(members) => members.is_empty(),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Removes every empty text, list and object, at every depth: the official SDKs do so before they sign and verify. The depth of
/// the recursion is bounded by the parser that read the value.
pub(super) fn prune(value: &Value) -> Value {
    match value {
        Value::Array(items) => Value::Array(items.iter().map(prune).filter(|item| !is_empty(item)).collect()),
        Value::Object(members) => {
            let pruned = members.iter().map(|(name, value)| (name.clone(), prune(value)));
            Value::Object(pruned.filter(|(_, value)| !is_empty(value)).collect())
        }
        other => other.clone(),
    }
}

/// Members of a card of 0.3, with the value that is the default of the official Python SDK.
const FORMER_DEFAULTS: [(&str, &str); 2] = [("protocolVersion", "0.3.0"), ("preferredTransport", "JSONRPC")];

/// Returns what the official Python SDK for 0.3 signs of a card without signatures: what is neither empty nor a default there.
pub(super) fn former(card: &Value) -> Value {
    let mut card = card.clone();
    if let Some(members) = card.as_object_mut() {
        members.retain(|name, value| {
            !FORMER_DEFAULTS.iter().any(|(default, text)| name == default && value == text)
        });
        if let Some(Value::Object(schemes)) = members.get_mut("securitySchemes") {
            for scheme in schemes.values_mut().filter_map(Value::as_object_mut) {
                // Each kind of scheme has its own as the default.
                scheme.remove("type");
            }
        }
    }
    prune(&card)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_example_of_the_specification_keeps_what_is_required_or_explicit() {
        // A2A 1.0.1, section 8.4.1.
        let card = json!({
            "name": "Example Agent", "description": "",
            "capabilities": {"streaming": false, "pushNotifications": false, "extensions": []}, "skills": []
        });
        let expected = json!({
            "name": "Example Agent", "description": "",
            "capabilities": {"streaming": false, "pushNotifications": false}, "skills": []
        });
        assert_eq!(project(&card), expected);
        let pruned = json!({
            "name": "Example Agent", "capabilities": {"streaming": false, "pushNotifications": false}
        });
        assert_eq!(prune(&project(&card)), pruned);
    }

    #[test]
    fn only_the_schema_of_1_0_is_signed() {
        let card = json!({
            "name": "A", "url": "https://a/", "protocolVersion": "0.3", "preferredTransport": "JSONRPC",
            "security": [{"bearer": []}], "signatures": [{"protected": "x", "signature": "y"}],
            "supported_interfaces": [{"url": "https://a/", "protocol_binding": "JSONRPC", "tenant": "", "x": 1}],
            "securitySchemes": {"bearer": {"type": "http", "scheme": "Bearer", "httpAuthSecurityScheme": {"scheme": "Bearer"}}},
            "capabilities": {"extensions": [{"uri": "u", "required": false, "params": {"required": false, "x": []}}]},
            "iconUrl": null
        });
        let expected = json!({
            "name": "A",
            "supportedInterfaces": [{"url": "https://a/", "protocolBinding": "JSONRPC"}],
            "capabilities": {"extensions": [{"uri": "u", "params": {"required": false, "x": []}}]},
            "securitySchemes": {"bearer": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}}
        });
        assert_eq!(project(&card), expected);
    }
}
