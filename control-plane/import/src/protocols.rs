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

/// Gives the tools of the new specs their REST names, if the server is to be served over REST. `before` are the server's
/// current specs.
pub(super) fn expose<'a>(
    files: &mut BTreeMap<String, String>,
    args: &ImportArgs,
    mut before: impl Iterator<Item = &'a Source>,
) {
    let is_served = match args.protocols.as_slice() {
        [] => before.any(|source| read(&source.text).is_some_and(|spec| spec.pointer(REST).is_some())),
        chosen => chosen.iter().any(|protocol| protocol == "rest"),
    };
    if !is_served {
        return;
    }
    for text in files.values_mut() {
        let Some(mut spec) = read(text) else { continue };
        let Some(name) = spec.pointer(MCP).cloned() else { continue };
        if let Some(Value::Object(exposure)) = spec.get_mut("exposure") {
            exposure.insert("rest".into(), json!({"operation": {"enabled": true, "name": name}}));
            *text = serde_json::to_string_pretty(&spec).unwrap_or_default() + "\n";
        }
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
        for (protocols, before, expected) in [
            (&["mcp", "rest"][..], None, &named),
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
