//! Protocols that an imported server is served over.
//!
//! Keeps true: a tool has the same name over all of them; without `--protocols` a server and its tools keep their current ones.

use std::collections::BTreeMap;

use asp_registry::Source;
use serde_json::{Value, json};

use crate::args::ImportArgs;

/// Names of a tool in a spec, by protocol.
const MCP: &str = "/exposure/mcp/tool/name";
const REST: &str = "/exposure/rest/operation/name";
const A2A: &str = "/exposure/a2a/skill/id";

/// Gives the tools of the new specs their names over REST and A2A, if the server is to be served over these. `before` are the
/// server's current specs.
pub(super) fn expose<'a>(
    files: &mut BTreeMap<String, String>,
    args: &ImportArgs,
    before: impl Iterator<Item = &'a Source>,
) {
    let before: Vec<Value> = before.filter_map(|source| read(&source.text)).collect();
    let is_served = |protocol: &str, name: &str| match args.protocols.as_slice() {
        [] => before.iter().any(|spec| spec.pointer(name).is_some()),
        chosen => chosen.iter().any(|chosen| chosen == protocol),
    };
    let (has_rest, has_a2a) = (is_served("rest", REST), is_served("a2a", A2A));
    if !has_rest && !has_a2a {
        return;
    }
    for text in files.values_mut() {
        let Some(mut spec) = read(text) else { continue };
        let Some(name) = spec.pointer(MCP).cloned() else { continue };
        let Some(Value::Object(exposure)) = spec.get_mut("exposure") else { continue };
        if has_rest {
            exposure.insert("rest".into(), json!({"operation": {"enabled": true, "name": name}}));
        }
        if has_a2a {
            let a2a = exposure.entry("a2a").or_insert_with(|| json!({"skill": {}}));
            if let Some(Value::Object(skill)) = a2a.get_mut("skill") {
                skill.insert("id".into(), name);
            }
        }
        *text = serde_json::to_string_pretty(&spec).unwrap_or_default() + "\n";
    }
}

/// Parses a spec; the server's file, which is YAML, is not one.
fn read(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

/// Sets the chosen protocols in a `server.yaml`, if any are chosen.
pub(super) fn listed(text: &str, args: &ImportArgs) -> String {
    if args.protocols.is_empty() {
        return text.to_owned();
    }
    let chosen = format!("protocols: [{}]", args.protocols.join(", "));
    let mut lines = Vec::new();
    let mut is_replaced = false;
    for line in text.lines() {
        // The rest of a list that spans several lines.
        if is_replaced && line.starts_with([' ', '\t', '-', ']']) {
            continue;
        }
        is_replaced = line.starts_with("protocols:");
        lines.push(if is_replaced { chosen.as_str() } else { line });
    }
    lines.join("\n") + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(protocols: &[&str]) -> ImportArgs {
        let protocols = protocols.iter().map(|protocol| (*protocol).to_owned()).collect();
        ImportArgs { protocols, ..super::super::specs::tests::args() }
    }

    #[test]
    fn a_servers_file_names_the_chosen_protocols_and_keeps_the_rest() {
        for (protocols, text, expected) in [
            (
                &["mcp", "rest"][..],
                "name: a\nprotocols: [mcp]\npool: b\n",
                "name: a\nprotocols: [mcp, rest]\npool: b\n",
            ),
            (
                &["rest"],
                "protocols:\n  - mcp\n  - rest\nprimitives:\n  - ref: a/b\n",
                "protocols: [rest]\nprimitives:\n  - ref: a/b\n",
            ),
            (&["rest"], "protocols: [\n  mcp,\n  rest\n]\npool: b\n", "protocols: [rest]\npool: b\n"),
            (&[], "protocols: [rest] # ours\n", "protocols: [rest] # ours\n"),
        ] {
            assert_eq!(listed(text, &args(protocols)), expected);
        }
    }

    #[test]
    fn a_tool_has_one_name_over_all_protocols() {
        let tool = json!({"id": "up.t", "exposure": {"mcp": {"tool": {"enabled": true, "name": "t"}}}});
        let prompt = json!({"id": "up.p", "exposure": {"mcp": {"prompt": {"enabled": true, "name": "p"}}}});
        let mut named = tool.clone();
        named["exposure"]["rest"] = json!({"operation": {"enabled": true, "name": "t"}});
        let source = |spec: &Value| Source { path: "up/t.json".into(), text: spec.to_string() };
        let mut skill = tool.clone();
        skill["exposure"]["a2a"] = json!({"skill": {"id": "t"}});
        let mut both = named.clone();
        both["exposure"]["a2a"] = json!({"skill": {"id": "t"}});
        for (protocols, before, expected) in [
            (&["mcp", "rest"][..], None, &named),
            (&["mcp", "a2a"], Some(source(&named)), &skill),
            (&["mcp", "rest", "a2a"], None, &both),
            (&[], Some(source(&both)), &both),
            (&["mcp"], Some(source(&named)), &tool),
            (&[], Some(source(&named)), &named),
            (&[], Some(source(&tool)), &tool),
        ] {
            let mut files = BTreeMap::from([
                ("up/t.json".to_owned(), tool.to_string()),
                ("up/p.json".to_owned(), prompt.to_string()),
                ("up/server.yaml".to_owned(), "name: up\n".to_owned()),
            ]);
            expose(&mut files, &args(protocols), before.iter());
            assert_eq!(read(&files["up/t.json"]).as_ref(), Some(expected), "{protocols:?}");
            assert_eq!(read(&files["up/p.json"]).as_ref(), Some(&prompt));
            assert_eq!(files["up/server.yaml"], "name: up\n");
        }
    }
}
