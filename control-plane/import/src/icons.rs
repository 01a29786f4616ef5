//! Icons of an upstream's items, in the form of specs.
//!
//! Refuses: icons with other than https URLs, and large embedded ones, which no spec may have.

use serde_json::{Map, Value, json};

/// Maximum length of an icon's source in bytes: the limit for a text in a spec, less some margin.
const MAX_SOURCE: usize = 60 * 1024;
/// Reason for which an icon is dropped.
pub(super) const WHY: &str = "a spec has icons at https, or in a data:image URI of at most 60 KiB";

/// Returns the icons of an item (MCP 2025-11-25, section "Icons") that a spec may have, and the number of the others.
pub(super) fn select_icons(item: &Value) -> (Vec<Value>, usize) {
    let Some(listed) = item.get("icons").and_then(Value::as_array) else { return (Vec::new(), 0) };
    let icons: Vec<Value> = listed.iter().filter_map(select_icon).collect();
    let dropped = listed.len() - icons.len();
    (icons, dropped)
}

fn select_icon(icon: &Value) -> Option<Value> {
    let text = |name: &str| icon.get(name).and_then(Value::as_str);
    let source = text("src")?;
    let is_kept = source.starts_with("https://") || source.starts_with("data:image/");
    let mut taken = Map::new();
    taken.insert("src".into(), source.into());
    if let Some(kind) = text("mimeType") {
        taken.insert("mimeType".into(), kind.into());
    }
    let sizes = icon.get("sizes").and_then(Value::as_array);
    if let Some(sizes) = sizes.filter(|sizes| sizes.iter().all(Value::is_string)) {
        taken.insert("sizes".into(), json!(sizes));
    }
    if let Some(theme) = text("theme").filter(|theme| ["light", "dark"].contains(theme)) {
        taken.insert("theme".into(), theme.into());
    }
    (is_kept && source.len() <= MAX_SOURCE).then_some(Value::Object(taken))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn icons_that_a_spec_may_have_are_taken_over_and_the_others_counted() {
        let kept = json!({"src": "https://a.example/i.png", "mimeType": "image/png", "sizes": ["48x48"], "theme": "dark"});
        let embedded =
            json!({"src": "data:image/png;base64,AA==", "sizes": "any", "theme": null, "other": 1});
        let large = format!("data:image/png;base64,{}", "A".repeat(MAX_SOURCE));
        let others = [json!({"src": "http://a.example/i.png"}), json!({"src": large}), json!({}), json!(7)];
        let mut icons = vec![kept.clone(), embedded];
        icons.extend(others);
        let (icons, dropped) = select_icons(&json!({"icons": icons}));
        assert_eq!(icons, [kept, json!({"src": "data:image/png;base64,AA=="})]);
        assert_eq!(dropped, 4);
        assert_eq!(select_icons(&json!({"icons": null})), (Vec::new(), 0));
    }
}
