//! The lists of an upstream: tools, prompts, resources and templates.
//!
//! Keeps true: items that this gateway decodes differently from how they were written are reported, within bounds.

use asp_json::{Json, losses};
use serde_json::Value;

/// Maximum number of parts in [`Lists::losses`], and of the characters of each.
const MAX_LOSSES: usize = 100;
const MAX_PART: usize = 100;

/// Lists of one server.
#[derive(Default)]
pub struct Lists {
    pub tools: Vec<Value>,
    pub prompts: Vec<Value>,
    pub resources: Vec<Value>,
    pub templates: Vec<Value>,
    /// Whether the server offers values for arguments of prompts and templates.
    pub completions: bool,
    /// Instructions for models to read before they use the server.
    pub instructions: Option<String>,
    /// First parts of items that are decoded differently from how they were written, such as numbers that are
    /// rounded.
    pub losses: Vec<String>,
}

/// Adds the parts of a list that are decoded differently from how they were written, with the items that contain
/// them.
pub fn note_losses(noted: &mut Vec<String>, member: &str, list: &Json) {
    if losses(list.text()).is_empty() {
        return;
    }
    for item in list.elements().unwrap_or_default() {
        let names = ["name", "uri", "uriTemplate"];
        let name = names.iter().find_map(|name| item.get(*name)?.as_str()).unwrap_or_default();
        let left = MAX_LOSSES.saturating_sub(noted.len());
        noted.extend(losses(item.text()).into_iter().take(left).map(|part| {
            let part: String = part.chars().take(MAX_PART).collect();
            format!("{part} in {name:?} of {member}")
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_are_decoded_otherwise_are_named_with_their_items() {
        let list = |text: &str| Json::parse(text.as_bytes()).unwrap();
        let mut noted = Vec::new();
        note_losses(
            &mut noted,
            "tools",
            &list(r#"[{"name":"a","inputSchema":{"maximum":18446744073709551615}}]"#),
        );
        assert!(noted.is_empty(), "{noted:?}");
        let tools = r#"[{"name":"a"},{"name":"b","inputSchema":{"maximum":18446744073709551616}}]"#;
        note_losses(&mut noted, "tools", &list(tools));
        assert_eq!(noted, [r#"18446744073709551616 in "b" of tools"#]);
        let many = format!(r#"[{{"uri":"a://b","size":[{}1e400]}}]"#, "1e400,".repeat(MAX_LOSSES));
        note_losses(&mut noted, "resources", &list(&many));
        assert_eq!(noted.len(), MAX_LOSSES);
        assert_eq!(noted.last().unwrap(), r#"1e400 in "a://b" of resources"#);
    }
}
