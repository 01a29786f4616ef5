//! Adds a primitive to the list of an existing `server.yaml`, whose other text stays as it is.

use serde::Deserialize;

const LIST: &str = "primitives:";

#[derive(Deserialize)]
struct ServerList {
    #[serde(default)]
    primitives: Vec<ListEntry>,
}

#[derive(Deserialize)]
struct ListEntry {
    #[serde(rename = "ref")]
    reference: String,
}

/// Returns the file's text with one more reference in its list; `None` if the list is written in a way that is not recognized.
pub(super) fn with_reference(text: &str, reference: &str) -> Option<String> {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let place = lines.iter().position(|line| line.starts_with(LIST))?;
    let rest = lines.get(place)?.strip_prefix(LIST)?.trim().to_owned();
    if rest.is_empty() {
        add_to_block(&mut lines, place, reference)?;
    } else {
        let inner = rest.strip_prefix('[')?.strip_suffix(']')?.trim();
        let before = if inner.is_empty() { String::new() } else { format!("{inner}, ") };
        *lines.get_mut(place)? = format!("{LIST} [{before}{{ref: {reference}}}]");
    }
    let text = lines.join("\n") + "\n";
    let list: ServerList = serde_saphyr::from_str(&text).ok()?;
    list.primitives.iter().any(|entry| entry.reference == reference).then_some(text)
}

/// Adds an item after the last one of a list with one item on each line.
fn add_to_block(lines: &mut Vec<String>, place: usize, reference: &str) -> Option<()> {
    let is_part = |line: &&String| line.is_empty() || line.starts_with([' ', '-', '#']);
    let block: Vec<&String> = lines.iter().skip(place + 1).take_while(is_part).collect();
    let is_item = |line: &&&String| line.trim_start().starts_with("- ");
    let indent = block.iter().find(is_item).map(|line| line.len() - line.trim_start().len())?;
    let last = block.iter().rposition(|line| !line.is_empty() && !line.starts_with('#'))?;
    lines.insert(place + last + 2, format!("{}- ref: {reference}", " ".repeat(indent)));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_is_added_to_a_list_in_either_style() {
        let flow = "name: s\nprimitives: [{ref: s/a}]\ntitle: S\n";
        let added = with_reference(flow, "s/b").unwrap();
        assert_eq!(added, "name: s\nprimitives: [{ref: s/a}, {ref: s/b}]\ntitle: S\n");
        assert_eq!(with_reference("primitives: []\n", "s/b").unwrap(), "primitives: [{ref: s/b}]\n");
        let block = "primitives:\n  - ref: s/a  # first\n    as: one\n\ntitle: S\n";
        let added = with_reference(block, "s/b").unwrap();
        assert_eq!(added, "primitives:\n  - ref: s/a  # first\n    as: one\n  - ref: s/b\n\ntitle: S\n");
        assert_eq!(
            with_reference("primitives:\n- ref: s/a", "s/b").unwrap(),
            "primitives:\n- ref: s/a\n- ref: s/b\n"
        );
    }

    #[test]
    fn a_list_that_is_not_recognized_is_left_alone() {
        for text in
            ["name: s\n", "primitives: [{ref: s/a},\n  {ref: s/c}]\n", "primitives: *a\n", "primitives:\n"]
        {
            assert_eq!(with_reference(text, "s/b"), None, "{text}");
        }
    }
}
