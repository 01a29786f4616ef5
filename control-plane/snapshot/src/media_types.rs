//! Media types that a skill of A2A takes and gives.
//!
//! Keeps true: without media types of its own, a skill has those of its agent's card.

use serde_json::Value;

/// Media types in lower case and without parameters; none if neither the skill nor the card names any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaTypes {
    pub input: Vec<String>,
    pub output: Vec<String>,
}

impl MediaTypes {
    /// Reads those of a skill, which is a JSON text, with the defaults of a card.
    pub fn of(skill: &str, card: &Value) -> MediaTypes {
        let skill: Value = serde_json::from_str(skill).unwrap_or_default();
        let named = |own: &str, default: &str| {
            let own = read(&skill, own);
            if own.is_empty() { read(card, default) } else { own }
        };
        MediaTypes {
            input: named("inputModes", "defaultInputModes"),
            output: named("outputModes", "defaultOutputModes"),
        }
    }
}

fn read(value: &Value, name: &str) -> Vec<String> {
    let types = value.get(name).and_then(Value::as_array).into_iter().flatten();
    types.filter_map(Value::as_str).map(essence).collect()
}

/// Returns a media type in lower case and without its parameters. Samples of SDKs write `text` for any text.
pub fn essence(media_type: &str) -> String {
    let essence = media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    if essence == "text" { "text/*".to_owned() } else { essence }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_skill_has_the_media_types_of_its_card_unless_it_has_its_own() {
        let card =
            json!({"defaultInputModes": ["Text/Plain; charset=utf-8"], "defaultOutputModes": ["text"]});
        let of = |skill: &str, card: &Value| {
            let MediaTypes { input, output } = MediaTypes::of(skill, card);
            (input.join(" "), output.join(" "))
        };
        assert_eq!(of("", &card), ("text/plain".into(), "text/*".into()));
        let own = r#"{"inputModes": ["image/png", "*/*"]}"#;
        assert_eq!(of(own, &card), ("image/png */*".into(), "text/*".into()));
        assert_eq!(of("{}", &Value::Null), (String::new(), String::new()));
    }
}
