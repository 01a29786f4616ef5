//! An agent as its card describes it, in either version.
//!
//! Owns: which fields of 1.0 and 0.3 say the same. Lenient: what cannot be read is left out, and everything is bounded.

use asp_json::Json;
use serde_json::{Map, Value, json};

use crate::bounds::{MAX_LISTED, MAX_NAME, MAX_URL};
use crate::version::Generation;

/// Maximum number of skills of one card.
const MAX_SKILLS: usize = 1000;

/// An agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentCard {
    pub name: String,
    pub description: String,
    /// Addresses, in the agent's order of preference.
    pub interfaces: Vec<AgentInterface>,
    pub skills: Vec<AgentSkill>,
    /// Whether it streams the changes of its tasks.
    pub has_streams: bool,
}

/// Binding of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AgentBinding {
    JsonRpc,
    Rest,
    Grpc,
}

/// An address at which an agent is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInterface {
    pub url: String,
    pub binding: AgentBinding,
    pub generation: Generation,
    pub tenant: Option<String>,
}

/// A skill of an agent.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentSkill {
    pub id: String,
    pub name: String,
    pub description: String,
    /// JSON Schema of its arguments, if the card has one: a member `inputSchema` of the skill, or of the entry with its id in the
    /// `params.skills` of an extension.
    pub input_schema: Option<Value>,
    /// Further members of the skill by which people and models choose it.
    details: Map<String, Value>,
}

/// Members that are kept as details.
const DETAILS: [&str; 4] = ["tags", "examples", "inputModes", "outputModes"];

impl AgentCard {
    /// Reads a card; `None` for a document that is none.
    pub fn read(card: &Json) -> Option<AgentCard> {
        let card = card.view().as_object()?;
        let listed = card.get("skills").and_then(Value::as_array)?;
        let capabilities = card.get("capabilities");
        let extensions = capabilities.and_then(|capabilities| capabilities.get("extensions"));
        let skill = |skill: &Value| AgentSkill::read(skill, extensions);
        Some(AgentCard {
            name: text(card.get("name"), MAX_NAME)?,
            description: text(card.get("description"), usize::MAX).unwrap_or_default(),
            interfaces: interfaces(card),
            skills: listed.iter().take(MAX_SKILLS).filter_map(skill).collect(),
            has_streams: capabilities
                .and_then(|capabilities| capabilities.get("streaming"))
                .is_some_and(|streaming| *streaming == Value::Bool(true)),
        })
    }
}

/// Returns the interfaces of 1.0, or else those of 0.3.
fn interfaces(card: &Map<String, Value>) -> Vec<AgentInterface> {
    let list = |name: &str| card.get(name).and_then(Value::as_array).into_iter().flatten().take(MAX_LISTED);
    let found: Vec<AgentInterface> = list("supportedInterfaces").filter_map(AgentInterface::of_v10).collect();
    if !found.is_empty() {
        return found;
    }
    let is_v03 = text(card.get("protocolVersion"), MAX_NAME)
        .is_none_or(|version| Generation::parse(&version) == Some(Generation::V03));
    if !is_v03 {
        return Vec::new();
    }
    let main = AgentInterface::of_v03(card.get("url"), card.get("preferredTransport"));
    let more = list("additionalInterfaces")
        .filter_map(|interface| AgentInterface::of_v03(interface.get("url"), interface.get("transport")));
    let mut found = Vec::new();
    for interface in main.into_iter().chain(more) {
        if !found.contains(&interface) {
            found.push(interface);
        }
    }
    found
}

impl AgentInterface {
    fn of_v10(interface: &Value) -> Option<AgentInterface> {
        let version = text(interface.get("protocolVersion"), MAX_NAME);
        Some(AgentInterface {
            url: text(interface.get("url"), MAX_URL)?,
            binding: AgentBinding::parse(&text(interface.get("protocolBinding"), MAX_NAME)?)?,
            generation: version.map_or(Some(Generation::V10), |version| Generation::parse(&version))?,
            tenant: text(interface.get("tenant"), MAX_NAME),
        })
    }

    /// Reads an address of 0.3, whose transport is JSON-RPC if none is stated.
    fn of_v03(url: Option<&Value>, transport: Option<&Value>) -> Option<AgentInterface> {
        let binding = match text(transport, MAX_NAME) {
            Some(name) => AgentBinding::parse(&name)?,
            None => AgentBinding::JsonRpc,
        };
        Some(AgentInterface { url: text(url, MAX_URL)?, binding, generation: Generation::V03, tenant: None })
    }
}

impl AgentBinding {
    /// Parses the name of a binding, which is the same in both versions.
    fn parse(name: &str) -> Option<AgentBinding> {
        match name.to_ascii_uppercase().as_str() {
            "JSONRPC" => Some(AgentBinding::JsonRpc),
            "HTTP+JSON" => Some(AgentBinding::Rest),
            "GRPC" => Some(AgentBinding::Grpc),
            _ => None,
        }
    }
}

impl AgentSkill {
    fn read(skill: &Value, extensions: Option<&Value>) -> Option<AgentSkill> {
        let id = text(skill.get("id"), MAX_NAME)?;
        let extended = || {
            let mut extensions = extensions.and_then(Value::as_array).into_iter().flatten().take(MAX_LISTED);
            extensions.find_map(|extension| extension.pointer("/params/skills")?.get(&id)?.get("inputSchema"))
        };
        let schema = skill.get("inputSchema").or_else(extended).filter(|schema| schema.is_object());
        let details = DETAILS.iter().filter_map(|name| Some(((*name).to_owned(), skill.get(*name)?.clone())));
        Some(AgentSkill {
            name: text(skill.get("name"), MAX_NAME).unwrap_or_else(|| id.clone()),
            description: text(skill.get("description"), usize::MAX).unwrap_or_default(),
            input_schema: schema.cloned(),
            details: details.collect(),
            id,
        })
    }

    /// Returns the schema of the arguments: of a skill without one, a text for the agent.
    pub fn arguments(&self) -> Value {
        self.input_schema.clone().unwrap_or_else(|| {
            json!({
                "type": "object",
                "properties": {TEXT_ARGUMENT: {"type": "string", "description": "Message to the agent"}},
                "required": [TEXT_ARGUMENT],
            })
        })
    }

    /// Returns the skill in the form of MCP's tools, in which accepted items of upstreams are compared.
    pub fn to_item(&self) -> Value {
        json!({
            "name": self.id,
            "title": self.name,
            "description": self.description,
            "inputSchema": self.arguments(),
            "annotations": self.details,
        })
    }
}

/// Argument for the text of a message, of a skill without a schema.
pub const TEXT_ARGUMENT: &str = "message";

/// Returns a text that is not empty and not too long.
fn text(value: Option<&Value>, most: usize) -> Option<String> {
    value?.as_str().filter(|text| !text.is_empty() && text.len() <= most).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(card: Value) -> Option<AgentCard> {
        AgentCard::read(&card.into())
    }

    fn interface(url: &str, binding: AgentBinding, generation: Generation) -> AgentInterface {
        AgentInterface { url: url.into(), binding, generation, tenant: None }
    }

    #[test]
    fn a_card_of_either_version_names_its_interfaces() {
        let old = json!({"name": "a", "url": "https://a/rpc", "protocolVersion": "0.3.0", "skills": [],
            "additionalInterfaces": [{"url": "https://a/rpc", "transport": "JSONRPC"},
                {"url": "https://a/rest", "transport": "HTTP+JSON"}, {"url": "a:1", "transport": "GRPC"},
                {"url": "https://a", "transport": "carrier pigeon"}]});
        let expected = [
            interface("https://a/rpc", AgentBinding::JsonRpc, Generation::V03),
            interface("https://a/rest", AgentBinding::Rest, Generation::V03),
            interface("a:1", AgentBinding::Grpc, Generation::V03),
        ];
        assert_eq!(read(old.clone()).unwrap().interfaces, expected);
        let mut both = old;
        both["supportedInterfaces"] = json!([
            {"url": "https://a/v1", "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0", "tenant": "t"},
            {"url": "https://a/v2", "protocolBinding": "JSONRPC", "protocolVersion": "2.0"},
        ]);
        both["capabilities"] = json!({"streaming": true});
        let card = read(both).unwrap();
        let mut first = interface("https://a/v1", AgentBinding::Rest, Generation::V10);
        first.tenant = Some("t".into());
        assert_eq!((card.interfaces, card.has_streams), (vec![first], true));
        for none in [json!({}), json!([]), json!({"name": "a"}), json!({"name": "", "skills": []})] {
            assert_eq!(read(none), None);
        }
        assert_eq!(
            read(json!({"name": "a", "url": "https://a", "protocolVersion": "9.0", "skills": []}))
                .unwrap()
                .interfaces,
            []
        );
    }

    #[test]
    fn a_skill_has_the_schema_that_its_card_states_or_takes_a_text() {
        let schema = json!({"type": "object", "properties": {"n": {"type": "integer"}}});
        let card = read(json!({"name": "a", "skills": [
                {"id": "plain", "name": "Plain", "description": "d", "tags": ["t"]},
                {"id": "own", "inputSchema": schema}, {"id": "extended"}, {"name": "nothing"}],
            "capabilities": {"extensions": [{"uri": "urn:x",
                "params": {"skills": {"extended": {"inputSchema": schema}}}}]}}))
        .unwrap();
        let [plain, own, extended] = card.skills.as_slice() else { panic!("{card:?}") };
        assert_eq!(plain.arguments()["required"], json!([TEXT_ARGUMENT]));
        assert_eq!((own.arguments(), extended.arguments()), (schema.clone(), schema));
        assert_eq!(
            (own.name.as_str(), plain.to_item()["annotations"].clone()),
            ("own", json!({"tags": ["t"]}))
        );
    }
}
