//! The command that calls a server for the first time, for the end of other commands.

use asp_platform::shell;
use asp_proto::snapshot::{Kind, Listing, Primitive};
use asp_registry::CompiledServer;
use serde_json::Value;

/// Returns `asp call` with the first tool, or with the first skill of a server without tools, and its required arguments;
/// `None` if the server lists neither.
pub(super) fn command(server: &CompiledServer) -> Option<String> {
    let of = |listing: &Listing| {
        let is_it =
            |primitive: &&Primitive| primitive.id == listing.id && primitive.version == listing.version;
        server.primitives.iter().find(is_it)
    };
    let is_called = |primitive: &Primitive| matches!(primitive.kind(), Kind::Tool | Kind::Task);
    let listings = &server.server.listings;
    let over_mcp = listings.iter().filter(|listing| !listing.mcp_name.is_empty());
    let over_mcp = over_mcp.map(|listing| (of(listing), &listing.mcp_name, ""));
    let over_a2a = listings.iter().filter(|listing| !listing.a2a_skill.is_empty());
    let over_a2a = over_a2a.map(|listing| (of(listing), &listing.a2a_skill, " --a2a"));
    over_mcp.chain(over_a2a).find_map(|(primitive, name, option)| {
        let primitive = primitive.filter(|primitive| is_called(primitive))?;
        let schema = serde_json::from_str(&primitive.input_schema).unwrap_or_default();
        Some(line(&server.server.name, name, option, &schema))
    })
}

/// Returns the command that calls a tool with its required arguments.
pub(super) fn line(server: &str, name: &str, option: &str, schema: &Value) -> String {
    format!("asp call {} {}{option}{}", shell::word(server), shell::word(name), arguments(schema))
}

/// Returns options for the required arguments of a schema, with the type of each as its value.
fn arguments(schema: &Value) -> String {
    let required = schema.get("required").and_then(Value::as_array).into_iter().flatten();
    let option = |name: &Value| {
        let name = name.as_str()?;
        let kind = schema.get("properties").and_then(|all| all.get(name)?.get("type")?.as_str());
        Some(shell::option("arg", &format!("{name}={}", kind.unwrap_or("value").to_uppercase())))
    };
    required.filter_map(option).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn required_arguments_are_named_with_their_types() {
        let properties = json!({"n": {"type": "integer"}, "it's": {}, "o": {}});
        let schema = json!({"properties": properties, "required": ["n", "it's"]});
        assert_eq!(arguments(&schema), r" --arg 'n=INTEGER' --arg 'it'\''s=VALUE'");
        assert_eq!((arguments(&Value::Null), arguments(&json!({}))), (String::new(), String::new()));
    }

    #[test]
    fn the_first_tool_is_called_and_nothing_else() {
        let listing = |id: &str, tool: &str, skill: &str| Listing {
            id: id.into(),
            mcp_name: tool.into(),
            a2a_skill: skill.into(),
            ..Listing::default()
        };
        let primitive =
            |id: &str, kind: Kind| Primitive { id: id.into(), kind: kind.into(), ..Primitive::default() };
        let of = |listings: Vec<Listing>| {
            let mut server = empty();
            server.server.name = "demo".into();
            server.server.listings = listings;
            server.primitives = vec![primitive("r", Kind::Resource), primitive("t", Kind::Tool)];
            command(&server)
        };
        assert_eq!(
            of(vec![listing("r", "demo://r", ""), listing("t", "t", "t")]).as_deref(),
            Some("asp call demo t")
        );
        assert_eq!(of(vec![listing("t", "", "t")]).as_deref(), Some("asp call demo t --a2a"));
        assert_eq!(of(vec![listing("r", "demo://r", "")]), None);
    }

    fn empty() -> CompiledServer {
        CompiledServer {
            edge: asp_proto::snapshot::EdgeServer::default(),
            server: asp_proto::snapshot::Server::default(),
            primitives: Vec::new(),
            offered_to: Vec::new(),
            agent_card: String::new(),
            content_hash: String::new(),
            files: Vec::new(),
        }
    }
}
