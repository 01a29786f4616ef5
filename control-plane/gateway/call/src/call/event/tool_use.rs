//! Use of a tool by a call, such as another primitive that an agent calls.
//!
//! Keeps true: its texts are bounded, and what it shows of arguments, result and failure has no secrets.

use asp_platform::redact::redact_text;
use serde::{Deserialize, Serialize};

/// Maximum length of an id or a name, in bytes.
const MAX_NAME: usize = 256;
/// Maximum length of a preview, in characters.
const MAX_PREVIEW: usize = 800;
/// Maximum length of what is searched for secrets, in bytes: a preview may be shorter than the text that it shows.
const MAX_READ: usize = 16 * 1024;

/// Start or end of one use.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ToolUse {
    /// Id of the use in its call.
    pub id: String,
    /// Name of the tool.
    pub name: String,
    pub step: ToolStep,
}

/// Step of a use, with a preview of what it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum ToolStep {
    Started { args: String },
    Completed { result: String },
    Failed { error: String },
}

impl ToolUse {
    pub(super) fn held_bytes(&self) -> usize {
        let (ToolStep::Started { args: shown }
        | ToolStep::Completed { result: shown }
        | ToolStep::Failed { error: shown }) = &self.step;
        self.id.len() + self.name.len() + shown.len()
    }

    /// Cuts what is too long.
    pub(super) fn bounded(self) -> ToolUse {
        ToolUse {
            id: start(&self.id, MAX_NAME).to_owned(),
            name: start(&self.name, MAX_NAME).to_owned(),
            step: match self.step {
                ToolStep::Started { args } => ToolStep::Started { args: preview(&args) },
                ToolStep::Completed { result } => ToolStep::Completed { result: preview(&result) },
                ToolStep::Failed { error } => ToolStep::Failed { error: preview(&error) },
            },
        }
    }
}

fn start(text: &str, most: usize) -> &str {
    text.get(..text.floor_char_boundary(most)).unwrap_or_default()
}

fn preview(text: &str) -> String {
    redact_text(start(text, MAX_READ)).chars().take(MAX_PREVIEW).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_bounded_and_shows_no_secret() {
        let long = "ü".repeat(MAX_READ);
        let used = |step| ToolUse { id: long.clone(), name: "n".into(), step }.bounded();
        let started = used(ToolStep::Started { args: format!(r#"{{"api_key": "abc", "x": "{long}"}}"#) });
        assert_eq!((started.id.len(), started.name.as_str()), (MAX_NAME, "n"));
        let ToolStep::Started { args } = &started.step else { panic!("{started:?}") };
        assert_eq!(args.chars().count(), MAX_PREVIEW);
        assert!(args.starts_with(r#"{"api_key": "***", "x": "üü"#), "{args}");
        assert_eq!(started.held_bytes(), MAX_NAME + 1 + args.len());
        let failed = used(ToolStep::Failed { error: "sk-proj-Abc123Def456Ghi789 is wrong".into() });
        assert_eq!(failed.step, ToolStep::Failed { error: "*** is wrong".into() });
        let completed = used(ToolStep::Completed { result: "fine".into() });
        assert_eq!(completed.step, ToolStep::Completed { result: "fine".into() });
    }
}
