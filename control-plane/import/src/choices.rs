//! The operator's choices for single items of an upstream: their names here, and which of them only read.
//!
//! Keeps true: an item is named as its upstream or its lists name it, or by its id; a choice that fits no item is reported; a new
//! name never replaces another item.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;
use asp_command::failure::Failure;
use serde_json::{Value, json};

use crate::args::{ImportArgs, check_rename};
use crate::files::{ImportResult, spec_path};

/// Places of an item's names in a spec, as JSON pointers: at its upstream, in lists, and its id.
const NAMES: [&str; 6] = [
    "/runtime/mcp/tool",
    "/runtime/tool",
    "/runtime/a2a/skill",
    "/exposure/mcp/tool/name",
    "/exposure/mcp/prompt/name",
    "/id",
];

/// Reads a file of new names, an object in YAML or JSON with the old names as keys.
pub(crate) fn read_names(file: &Path) -> Result<Vec<(String, String)>, Failure> {
    let text = std::fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    let bad = |fault: String| Failure::bad("--names", format!("{}: {fault}", file.display()));
    let names: BTreeMap<String, String> =
        serde_saphyr::from_str(&text).map_err(|error| bad(error.to_string()))?;
    for (old, new) in &names {
        check_rename(old, new).map_err(bad)?;
    }
    Ok(names.into_iter().collect())
}

/// Gives tools, tasks and prompts their new names: as ids, files and in lists.
pub(super) fn rename(imported: &mut ImportResult, args: &ImportArgs) -> Result<(), Failure> {
    for (old, new) in &args.renames {
        let found = imported.files.iter().find_map(|(path, text)| {
            let spec = read(text)?;
            let kind = spec.get("type").and_then(Value::as_str).unwrap_or_default();
            let is_named = ["tool", "task", "prompt"].contains(&kind);
            (is_named && names(&spec).contains(&old.as_str())).then(|| (path.clone(), spec))
        });
        let Some((path, mut spec)) = found else {
            imported.renamed.push(format!("note: --rename {old}: no tool or prompt has this name"));
            continue;
        };
        let id = format!("{}.{new}", args.server);
        let place = spec_path(&args.server, &id);
        if place != path && imported.files.contains_key(&place) {
            return Err(Failure::bad("--rename", format!("{old}={new}: another item has this name already")));
        }
        let former = spec.get("id").and_then(Value::as_str).unwrap_or_default().to_owned();
        let is_prompt = spec.get("type").is_some_and(|kind| kind == "prompt");
        let list = if is_prompt { "prompt" } else { "tool" };
        if let Some(members) = spec.as_object_mut() {
            members.insert("id".to_owned(), id.clone().into());
            let exposure = members.entry("exposure").or_insert_with(|| json!({}));
            set_name(exposure, list, new);
        }
        imported.files.remove(&path);
        imported.files.insert(place, text_of(&spec));
        imported.ids.iter_mut().filter(|known| **known == former).for_each(|known| known.clone_from(&id));
        imported.renamed.push(format!("renamed: {old} is served as {new}"));
    }
    Ok(())
}

/// Sets the name of a primitive in a list of MCP.
fn set_name(exposure: &mut Value, list: &str, name: &str) {
    let lists = exposure.as_object_mut().map(|protocols| protocols.entry("mcp").or_insert_with(|| json!({})));
    let Some(lists) = lists.and_then(Value::as_object_mut) else { return };
    let shown = lists.entry(list).or_insert_with(|| json!({ "enabled": true }));
    if let Some(shown) = shown.as_object_mut() {
        shown.insert("name".to_owned(), name.into());
    }
}

/// Marks the tools that the operator knows to read only.
pub(super) fn mark_read_only(imported: &mut ImportResult, args: &ImportArgs) {
    let mut unused: BTreeSet<&String> = args.read_only.iter().collect();
    for text in imported.files.values_mut() {
        let Some(mut spec) = read(text) else { continue };
        let names = names(&spec);
        let fitting: Vec<&String> =
            args.read_only.iter().filter(|pattern| names.iter().any(|name| fits(pattern, name))).collect();
        if fitting.is_empty() || spec.get("mutation").is_none() {
            continue;
        }
        for pattern in fitting {
            unused.remove(pattern);
        }
        if let Some(members) = spec.as_object_mut() {
            members.insert("mutation".to_owned(), "read_only".into());
        }
        *text = text_of(&spec);
    }
    imported
        .renamed
        .extend(unused.iter().map(|name| format!("note: --read-only {name}: no tool has this name")));
}

/// Whether a pattern, a name or `prefix*`, covers a name.
fn fits(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

fn names(spec: &Value) -> Vec<&str> {
    NAMES.iter().filter_map(|pointer| spec.pointer(pointer)?.as_str()).collect()
}

/// Parses a spec; the server's file, which is YAML, is not one.
fn read(text: &str) -> Option<Value> {
    serde_json::from_str(text).ok()
}

fn text_of(spec: &Value) -> String {
    serde_json::to_string_pretty(spec).unwrap_or_default() + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::parse_rename;
    use crate::specs::tests::args;

    fn imported(tools: &[&str]) -> ImportResult {
        let spec = |name: &&str| {
            let id = format!("up.{name}");
            let spec = json!({
                "id": id, "type": "tool", "mutation": "destructive",
                "exposure": {"mcp": {"tool": {"enabled": true, "name": name}}},
                "runtime": {"mode": "proxy", "mcp": {"tool": name}},
            });
            (spec_path("up", &id), text_of(&spec))
        };
        ImportResult {
            files: tools.iter().map(spec).collect(),
            ids: tools.iter().map(|name| format!("up.{name}")).collect(),
            said: String::new(),
            dropped: Vec::new(),
            renamed: Vec::new(),
            requirements: Vec::new(),
        }
    }

    #[test]
    fn an_item_gets_its_new_name_everywhere_but_at_its_upstream() {
        let renames =
            vec![("get_order_get".to_owned(), "order".to_owned()), ("none".to_owned(), "x".to_owned())];
        let args = ImportArgs { renames, ..args() };
        let mut result = imported(&["get_order_get", "list"]);
        rename(&mut result, &args).unwrap();
        assert_eq!(result.ids, ["up.order", "up.list"]);
        assert_eq!(result.files.keys().collect::<Vec<_>>(), ["up/list.json", "up/order.json"]);
        let spec = read(&result.files["up/order.json"]).unwrap();
        assert_eq!(
            (&spec["id"], &spec["exposure"]["mcp"]["tool"]["name"]),
            (&json!("up.order"), &json!("order"))
        );
        assert_eq!(spec["runtime"]["mcp"]["tool"], "get_order_get");
        assert_eq!(
            result.renamed,
            [
                "renamed: get_order_get is served as order",
                "note: --rename none: no tool or prompt has this name"
            ]
        );
        let taken = ImportArgs { renames: vec![("list".to_owned(), "order".to_owned())], ..args };
        assert!(matches!(rename(&mut result, &taken), Err(Failure::Configuration(_))));
    }

    #[test]
    fn tools_that_only_read_are_marked_by_name_or_prefix() {
        let read_only = ["list_*", "up.get", "none"].map(str::to_owned).to_vec();
        let mut result = imported(&["list_a", "list_b", "get", "delete"]);
        mark_read_only(&mut result, &ImportArgs { read_only, ..args() });
        let of = |name: &str| read(&result.files[&format!("up/{name}.json")]).unwrap()["mutation"].clone();
        assert_eq!(
            ["list_a", "list_b", "get", "delete"].map(of),
            ["read_only", "read_only", "read_only", "destructive"]
        );
        assert_eq!(result.renamed, ["note: --read-only none: no tool has this name"]);
    }

    #[test]
    fn names_come_from_options_and_a_file() {
        assert_eq!(parse_rename("a b=c").unwrap(), ("a b".to_owned(), "c".to_owned()));
        for bad in ["a", "=b", "a=", "a=b c", "a=.b"] {
            assert!(parse_rename(bad).is_err(), "{bad}");
        }
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("names.yaml");
        std::fs::write(&file, "# of the team\nget_order_get: order\nlist: orders\n").unwrap();
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(read_names(&file).unwrap(), [pair("get_order_get", "order"), pair("list", "orders")]);
        std::fs::write(&file, "a: b c\n").unwrap();
        assert!(matches!(read_names(&file), Err(Failure::Configuration(_))));
    }
}
