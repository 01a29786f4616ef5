//! The list of primitives in a `server.yaml`, edited as text so that comments and the operator's own words stay.
//!
//! Keeps true: entries of other servers, and `as` and `pool` of an imported primitive, stay as they are; an entry in any
//! spelling that YAML has is recognized.

use std::collections::BTreeSet;

use serde_json::Value;

const KEY: &str = "primitives:";
/// Indentation of the entries of an empty list.
const INDENT: &str = "  ";

/// The lines of the list, each with the number of its entry; comments and empty lines have none.
struct PrimitiveList {
    lines: Vec<(Option<usize>, String)>,
    /// The primitive that each entry refers to, if it can be read.
    references: Vec<Option<String>>,
    indent: String,
}

/// Returns a `server.yaml` that lists the imported primitives: dropped ones are removed, new ones are added at the end.
pub(super) fn list_primitives(text: &str, server: &str, ids: &[String]) -> String {
    let wanted: Vec<String> = ids.iter().map(|id| format!("{server}/{id}")).collect();
    let ours = format!("{server}/");
    let lines: Vec<&str> = text.lines().collect();
    let start = lines.iter().position(|line| line.starts_with(KEY)).unwrap_or(lines.len());
    let end = start + lines.get(start..).map_or(0, length);
    let value = lines.get(start).and_then(|line| line.strip_prefix(KEY)).unwrap_or_default().trim();
    let list = match value.is_empty() || value.starts_with('#') {
        true => in_lines(lines.get(start + 1..end).unwrap_or_default()),
        false => in_brackets(text),
    };
    let is_dropped = |entry: usize| {
        let reference = list.references.get(entry).and_then(Option::as_ref);
        reference.is_some_and(|reference| reference.starts_with(&ours) && !wanted.contains(reference))
    };
    let mut kept: Vec<(Option<usize>, String)> = list.lines;
    kept.retain(|(entry, _)| !entry.is_some_and(is_dropped));
    let listed: BTreeSet<&String> = list.references.iter().flatten().collect();
    let new = wanted.iter().filter(|reference| !listed.contains(reference));
    let new: Vec<_> =
        new.map(|reference| (Some(usize::MAX), format!("{}- ref: {reference}", list.indent))).collect();
    let last = kept.iter().rposition(|(entry, _)| entry.is_some()).map_or(0, |last| last + 1);
    kept.splice(last..last, new);
    let is_empty = kept.iter().all(|(entry, _)| entry.is_none());
    let key = match value {
        _ if is_empty => format!("{KEY} []"),
        comment if comment.starts_with('#') => format!("{KEY} {comment}"),
        _ => KEY.to_owned(),
    };
    let head = lines.iter().take(start).map(|line| (*line).to_owned());
    let tail = lines.iter().skip(end).map(|line| (*line).to_owned());
    let all: Vec<String> =
        head.chain([key]).chain(kept.into_iter().map(|(_, line)| line)).chain(tail).collect();
    all.join("\n") + "\n"
}

/// Returns the number of lines of the list at the start of `lines`, without the comments before the next key.
fn length(lines: &[&str]) -> usize {
    let is_part = |line: &&&str| line.is_empty() || line.starts_with([' ', '\t', '#', '-', ']', '}']);
    let inside = lines.iter().skip(1).take_while(is_part).count();
    let is_text = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let own = lines.get(1..=inside).unwrap_or_default();
    own.iter().rposition(is_text).map_or(0, |last| last + 1) + usize::from(!lines.is_empty())
}

/// Reads a list with one entry after the other.
fn in_lines(lines: &[&str]) -> PrimitiveList {
    let mut list = PrimitiveList { lines: Vec::new(), references: Vec::new(), indent: INDENT.to_owned() };
    let mut texts: Vec<String> = Vec::new();
    for line in lines {
        let rest = line.trim_start();
        let indent = line.strip_suffix(rest).unwrap_or_default();
        let is_entry = rest == "-" || rest.starts_with("- ");
        if is_entry && (texts.is_empty() || indent == list.indent) {
            indent.clone_into(&mut list.indent);
            texts.push(String::new());
        }
        let is_comment = rest.is_empty() || rest.starts_with('#');
        let entry = texts.len().checked_sub(1).filter(|_| !is_comment);
        if let Some(text) = texts.last_mut().filter(|_| !is_comment) {
            text.push_str(line);
            text.push('\n');
        }
        list.lines.push((entry, (*line).to_owned()));
    }
    list.references = texts.iter().map(|text| reference(text)).collect();
    list
}

/// Returns the primitive that an entry refers to.
fn reference(entry: &str) -> Option<String> {
    let entries: Vec<Value> = serde_saphyr::from_str(entry).ok()?;
    Some(entries.first()?.get("ref")?.as_str()?.to_owned())
}

/// Reads a list in brackets, which becomes one with an entry a line.
fn in_brackets(text: &str) -> PrimitiveList {
    let file: Value = serde_saphyr::from_str(text).unwrap_or_default();
    let entries = file.get("primitives").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let named = |entry: &Value| Some(entry.get("ref")?.as_str()?.to_owned());
    // JSON is YAML in brackets.
    let lines = entries.iter().enumerate().map(|(at, entry)| (Some(at), format!("{INDENT}- {entry}")));
    PrimitiveList {
        lines: lines.collect(),
        references: entries.iter().map(named).collect(),
        indent: INDENT.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids() -> [String; 2] {
        ["up.a".to_owned(), "up.b".to_owned()]
    }

    #[test]
    fn a_kept_server_file_lists_what_was_imported_and_keeps_the_rest() {
        let text = "name: up\n# ours\nprimitives:\n  - ref: up/up.a\n  - ref: other/x\n  - ref: up/up.gone\nlimits: {}\n";
        let listed = list_primitives(text, "up", &ids());
        assert_eq!(
            listed,
            "name: up\n# ours\nprimitives:\n  - ref: up/up.a\n  - ref: other/x\n  - ref: up/up.b\nlimits: {}\n"
        );
        assert_eq!(list_primitives(&listed, "up", &ids()), listed);
    }

    #[test]
    fn an_entry_is_known_in_each_spelling_of_yaml() {
        for (list, expected) in [
            (" []\n", "\n  - ref: up/up.a\n  - ref: up/up.b\n"),
            (" # none yet\n", " # none yet\n  - ref: up/up.a\n  - ref: up/up.b\n"),
            ("\n", "\n  - ref: up/up.a\n  - ref: up/up.b\n"),
            (
                "\n  - ref: \"up/up.b\"\n  - ref: 'up/up.gone'\n  - {ref: up/up.a}\n",
                "\n  - ref: \"up/up.b\"\n  - {ref: up/up.a}\n",
            ),
            ("\n- ref: up/up.b  # first\n", "\n- ref: up/up.b  # first\n- ref: up/up.a\n"),
            (
                "\n    - as: b\n      ref: up/up.b\n    # gone\n    - ref: up/up.gone\n      pool: big\n    # a\n    - pool: big\n      ref: up/up.a\n",
                "\n    - as: b\n      ref: up/up.b\n    # gone\n    # a\n    - pool: big\n      ref: up/up.a\n",
            ),
            (
                " [{ref: up/up.b, as: b},\n  {ref: up/up.gone}]\n",
                "\n  - {\"ref\":\"up/up.b\",\"as\":\"b\"}\n  - ref: up/up.a\n",
            ),
        ] {
            for tail in ["", "\n# limits\nlimits: {}\n"] {
                let text = format!("name: up\nprimitives:{list}{tail}");
                let listed = list_primitives(&text, "up", &ids());
                assert_eq!(listed, format!("name: up\nprimitives:{expected}{tail}"), "{text}");
            }
        }
        assert_eq!(
            list_primitives("name: up\n", "up", &ids()[..1]),
            "name: up\nprimitives:\n  - ref: up/up.a\n"
        );
        let none = list_primitives("name: up\nprimitives:\n  - ref: up/up.gone\n", "up", &[]);
        assert_eq!(none, "name: up\nprimitives: []\n");
    }
}
