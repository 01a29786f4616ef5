//! Media types: those that a skill takes and gives, and those of results that a client accepts.
//!
//! Keeps true: a client that names none accepts any.

use asp_a2a::{A2aError, A2aFailure, Part, PartContent};
use asp_snapshot::media_types::{MediaTypes, essence};

/// Media types of results where neither skill nor card names any.
const RESULTS: [&str; 2] = ["text/plain", "application/json"];

/// Forms of a value that a client accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutputForms {
    text: bool,
    data: bool,
}

impl OutputForms {
    pub(super) const ANY: OutputForms = OutputForms { text: true, data: true };

    /// Returns the forms of accepted media types.
    pub(super) fn of(accepted: &[String]) -> OutputForms {
        if accepted.is_empty() {
            return OutputForms::ANY;
        }
        let accepted: Vec<String> = accepted.iter().map(|mode| essence(mode)).collect();
        OutputForms {
            text: accepted.iter().any(|mode| mode == "*/*" || mode.starts_with("text/")),
            data: accepted.iter().any(|mode| is_json(mode)),
        }
    }

    pub(super) const fn is_text_only(self) -> bool {
        self.text && !self.data
    }

    pub(super) const fn is_data_only(self) -> bool {
        self.data && !self.text
    }
}

/// Refuses parts that a skill does not take. A text may be the arguments as JSON.
pub(super) fn check_parts(skill: &MediaTypes, parts: &[Part]) -> Result<(), A2aFailure> {
    let taken = &skill.input;
    let takes = |is_fit: fn(&str) -> bool| taken.is_empty() || taken.iter().any(|mode| is_fit(mode));
    let is_taken = |part: &Part| match part.content {
        PartContent::Text(_) => takes(|mode| mode.starts_with("text/") || is_json(mode)),
        PartContent::Data(_) => takes(is_json),
        PartContent::Raw(_) | PartContent::Url(_) => false,
    };
    if parts.iter().all(is_taken) {
        return Ok(());
    }
    let message = format!("this skill takes {}", taken.join(", "));
    Err(A2aFailure::new(A2aError::ContentTypeNotSupported, message))
}

/// Refuses a client that accepts none of the media types that a skill gives.
pub(super) fn check_accepted(skill: &MediaTypes, accepted: &[String]) -> Result<(), A2aFailure> {
    if accepted.is_empty() {
        return Ok(());
    }
    let given: Vec<&str> = match skill.output.as_slice() {
        [] => RESULTS.to_vec(),
        output => output.iter().map(String::as_str).collect(),
    };
    let is_accepted = |given: &&str| accepted.iter().any(|mode| overlap(&essence(mode), given));
    if given.iter().any(is_accepted) {
        return Ok(());
    }
    let message = format!("this skill gives {}", given.join(", "));
    Err(A2aFailure::new(A2aError::ContentTypeNotSupported, message))
}

/// Whether two media types, each of which may be a range, have one in common.
fn overlap(one: &str, other: &str) -> bool {
    let covers = |range: &str, mode: &str| {
        range == "*/*"
            || range.strip_suffix('*').is_some_and(|kind| kind.ends_with('/') && mode.starts_with(kind))
    };
    one == other || covers(one, other) || covers(other, one)
}

fn is_json(mode: &str) -> bool {
    matches!(mode, "application/json" | "application/*" | "*/*") || mode.ends_with("+json")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn types(skill: &str, card: &str) -> MediaTypes {
        let card: Value = serde_json::from_str(card).unwrap_or_default();
        MediaTypes::of(skill, &card)
    }

    #[test]
    fn a_part_that_the_skill_does_not_take_is_refused() {
        let parts = |content: PartContent| [Part::from(content)];
        let (hi, object) =
            (parts(PartContent::Text("hi".into())), parts(PartContent::Data(json!({}).into())));
        let check = |skill: &str, card: &str, parts: &[Part]| {
            check_parts(&types(skill, card), parts).map_err(|failure| failure.error)
        };
        let refused = Err(A2aError::ContentTypeNotSupported);
        let plain = r#"{"inputModes": ["text/plain"]}"#;
        assert_eq!((check(plain, "", &hi), check(plain, "", &object)), (Ok(()), refused));
        let of_card = r#"{"defaultInputModes": ["Text/Plain"]}"#;
        assert_eq!((check("{}", of_card, &hi), check("{}", of_card, &object)), (Ok(()), refused));
        for both in [r#"{"inputModes": ["application/vnd.a+json"]}"#, r#"{"inputModes": ["*/*"]}"#, "{}"] {
            assert_eq!((check(both, "", &hi), check(both, "", &object)), (Ok(()), Ok(())), "{both}");
        }
        let picture = r#"{"inputModes": ["image/png"]}"#;
        assert_eq!((check(picture, "", &hi), check(picture, "", &object)), (refused, refused));
    }

    #[test]
    fn a_client_that_accepts_nothing_of_the_skill_is_refused() {
        let check = |skill: &str, accepted: &[&str]| {
            let accepted: Vec<String> = accepted.iter().map(|mode| (*mode).to_owned()).collect();
            let card = r#"{"defaultOutputModes": ["application/json", "text/plain"]}"#;
            check_accepted(&types(skill, card), &accepted).map_err(|failure| failure.error)
        };
        let refused = Err(A2aError::ContentTypeNotSupported);
        for accepted in [
            vec![],
            vec!["application/json"],
            vec!["image/png", "Text/Plain; charset=utf-8"],
            vec!["text/*"],
            vec!["text"],
            vec!["*/*"],
        ] {
            assert_eq!(check("{}", &accepted), Ok(()), "{accepted:?}");
        }
        for accepted in [["image/png"], ["text/html"], ["image/*"], [""], ["*"]] {
            assert_eq!(check("{}", &accepted), refused, "{accepted:?}");
        }
        let picture = r#"{"outputModes": ["image/*"]}"#;
        assert_eq!((check(picture, &["image/png"]), check(picture, &["text/plain"])), (Ok(()), refused));
    }

    #[test]
    fn accepted_media_types_name_the_forms_of_a_value() {
        let forms = |accepted: &[&str]| {
            let accepted: Vec<String> = accepted.iter().map(|mode| (*mode).to_owned()).collect();
            OutputForms::of(&accepted)
        };
        assert_eq!(forms(&[]), OutputForms::ANY);
        assert_eq!(forms(&["*/*"]), OutputForms::ANY);
        assert_eq!(forms(&["text/plain", "application/json"]), OutputForms::ANY);
        assert!(
            forms(&["text/markdown"]).is_text_only() && forms(&["application/vnd.a+json"]).is_data_only()
        );
        let neither = forms(&["image/png"]);
        assert!(!neither.is_text_only() && !neither.is_data_only());
    }
}
