//! Events on the way to a result. The size of an event is bounded, and a log message has no secrets.

use std::collections::BTreeMap;

use asp_json::Json;
use asp_json::held::{self, NODE};
use asp_platform::redact::{may_have_secret, redact_text, redact_value};
use serde::{Deserialize, Serialize};
use serde_json::Value;

mod amount;
pub mod log;
mod tool_use;

pub use amount::Amount;
pub use tool_use::{ToolStep, ToolUse};

/// Maximum length of a text in an event in bytes; longer ones are cut.
const MAX_TEXT: usize = 16 * 1024;
/// Maximum length in bytes of what is searched for secrets in a text that is cut.
const MAX_READ: usize = 4 * MAX_TEXT;
/// Maximum number of counters of a progress event; the others are dropped.
const MAX_GAUGES: usize = 32;

/// One event of a call (ADR 1). Other gateways read it: variants and members are only added.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    Progress {
        progress: Amount,
        total: Option<Amount>,
        message: Option<String>,
        /// The plugin's own counters, by name; at most 32.
        gauges: BTreeMap<String, f64>,
    },
    Log {
        level: LogLevel,
        logger: Option<String>,
        #[serde(serialize_with = "asp_json::raw_value")]
        data: Json,
    },
    /// A part of the result. MCP has no partial results, so the protocols join or stream it.
    Chunk {
        text: String,
    },
    Artifact {
        uri: String,
        content_type: Option<String>,
        description: Option<String>,
    },
    /// A phase of the plugin or of its admission, for observation only.
    Status {
        phase: String,
        message: Option<String>,
    },
    /// A question was opened; it may be closed by the time a reader sees this.
    Asked {
        id: String,
    },
    /// A question was answered, and another one is open. A gateway of an earlier version ignores it.
    Answered {
        id: String,
    },
    /// A question was withdrawn without an answer.
    TakenBack {
        id: String,
    },
    /// The user has completed the visit that a page asked for; `id` is the question's.
    Visited {
        id: String,
    },
    /// No question is open any more, and the call continues.
    Resumed,
    /// A tool that the call uses, for clients that want to know. A gateway of an earlier version ignores it.
    Tool(ToolUse),
}

impl Event {
    /// Returns the size in memory, in bytes.
    pub(in crate::call) fn held_bytes(&self) -> usize {
        let of = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        let texts = match self {
            Event::Progress { message, gauges, .. } => {
                of(message) + gauges.keys().map(|name| name.len() + NODE).sum::<usize>()
            }
            Event::Log { logger, data, .. } => of(logger) + held::of_json(data),
            Event::Chunk { text } => text.len(),
            Event::Artifact { uri, content_type, description } => {
                // The table of artifacts has a copy of the URI.
                2 * uri.len() + of(content_type) + of(description)
            }
            Event::Status { phase, message } => phase.len() + of(message),
            Event::Asked { id }
            | Event::Answered { id }
            | Event::TakenBack { id }
            | Event::Visited { id } => id.len(),
            Event::Resumed => 0,
            Event::Tool(tool_use) => tool_use.held_bytes(),
        };
        size_of::<Event>() + texts
    }
}

/// RFC 5424 severities, by MCP's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

impl LogLevel {
    pub const ALL: [LogLevel; 8] = [
        LogLevel::Debug,
        LogLevel::Info,
        LogLevel::Notice,
        LogLevel::Warning,
        LogLevel::Error,
        LogLevel::Critical,
        LogLevel::Alert,
        LogLevel::Emergency,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            LogLevel::Debug => "debug",
            LogLevel::Info => "info",
            LogLevel::Notice => "notice",
            LogLevel::Warning => "warning",
            LogLevel::Error => "error",
            LogLevel::Critical => "critical",
            LogLevel::Alert => "alert",
            LogLevel::Emergency => "emergency",
        }
    }

    pub fn parse(text: &str) -> Option<LogLevel> {
        LogLevel::ALL.into_iter().find(|level| level.as_str() == text)
    }
}

/// Cuts the parts of an event that are too long, and removes the secrets of a log message.
fn cut(event: Event) -> Event {
    match event {
        Event::Progress { progress, total, message, gauges } => Event::Progress {
            progress,
            total,
            message: message.map(cut_text),
            gauges: gauges.into_iter().take(MAX_GAUGES).collect(),
        },
        Event::Chunk { text } => Event::Chunk { text: cut_text(text) },
        Event::Status { phase, message } => {
            Event::Status { phase: cut_text(phase), message: message.map(cut_text) }
        }
        Event::Log { level, logger, data } => {
            let logger = logger.map(|logger| redact_text(&cut_text(logger)).into_owned());
            Event::Log { level, logger, data: cut_data(data) }
        }
        Event::Tool(tool_use) => Event::Tool(tool_use.bounded()),
        other => other,
    }
}

fn redact_data(data: Json) -> Json {
    if !may_have_secret(data.text()) {
        return data;
    }
    let mut view = data.view().clone();
    if redact_value(&mut view) { data.changed_to(view) } else { data }
}

/// Removes secrets, and replaces a value that is too large by its JSON text, cut.
fn cut_data(data: Json) -> Json {
    if data.text().len() <= MAX_TEXT {
        return redact_data(data);
    }
    let text = match data.view() {
        Value::String(text) => text.clone(),
        _ => data.text().to_owned(),
    };
    // Cut afterwards: a part of a secret is not known as one.
    let start = text.get(..text.floor_char_boundary(MAX_READ)).unwrap_or_default();
    Json::from(cut_text(redact_text(start).into_owned()))
}

/// Cuts a text to the maximum length in one event.
pub fn cut_text(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MAX_TEXT));
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_event_holds_no_more_than_a_text_may_have() {
        let long = "ü".repeat(MAX_TEXT);
        for data in [json!(long), json!({"a": [long]}), json!([[long], 1])] {
            let event = Event::Log { level: LogLevel::Info, logger: Some(long.clone()), data: data.into() };
            let Event::Log { logger: Some(logger), data, .. } = cut(event) else { panic!("no log") };
            let data = data.as_str().unwrap();
            assert!(logger.len() <= MAX_TEXT && data.len() <= MAX_TEXT);
        }
        let small = Event::Log { level: LogLevel::Info, logger: None, data: json!({"a": 1}).into() };
        assert_eq!(cut(small.clone()), small);
    }

    #[test]
    fn a_long_text_is_cut_at_a_character() {
        let Event::Chunk { text } = cut(Event::Chunk { text: "ü".repeat(MAX_TEXT) }) else {
            panic!("no chunk")
        };
        assert_eq!(text.len(), MAX_TEXT);
    }

    #[test]
    fn a_log_message_has_no_secrets_and_everything_else_keeps_its_text() {
        let data = r#"{"n":340282366920938463463374607431768211455,"env":{"OPENAI_API_KEY":"abc"},"d":1.50}"#;
        let sent = |data: &str, logger: &str| {
            let data = Json::parse(data.as_bytes()).unwrap();
            cut(Event::Log { level: LogLevel::Info, logger: Some(logger.into()), data })
        };
        let Event::Log { logger, data, .. } = sent(data, "Bearer 0123456789abcdef") else { panic!("no log") };
        let expected =
            r#"{"n":340282366920938463463374607431768211455,"env":{"OPENAI_API_KEY":"***"},"d":1.50}"#;
        assert_eq!((data.text(), logger.as_deref()), (expected, Some("Bearer ***")));
        let long = format!(r#""api_key='{}' and {}""#, "a".repeat(MAX_TEXT), "b".repeat(MAX_TEXT));
        let Event::Log { data, .. } = sent(&long, "l") else { panic!("no log") };
        assert!(data.as_str().unwrap().starts_with("api_key='***' and bbb"));
        let clean = r#"{"tokens": 3, "n": 1.50}"#;
        let Event::Log { data, .. } = sent(clean, "l") else { panic!("no log") };
        assert_eq!(data.text(), clean);
    }

    #[test]
    fn an_event_is_kept_as_it_was_written() {
        let json = |text: &str| Json::parse(text.as_bytes()).unwrap();
        let data = r#"{"n":340282366920938463463374607431768211455,"d":1.50,"s":"\ud83d"}"#;
        let progress = Event::Progress {
            progress: Amount::of(&json("9007199254740993")).unwrap(),
            total: Amount::of(&json("1e30")),
            message: None,
            gauges: BTreeMap::new(),
        };
        let log = Event::Log { level: LogLevel::Info, logger: None, data: json(data) };
        for (event, parts) in [(log, vec![data]), (progress, vec!["9007199254740993", "1e30"])] {
            let stored = serde_json::to_string(&event).unwrap();
            let read: Event = serde_json::from_str(&stored).unwrap();
            let again = serde_json::to_string(&read).unwrap();
            assert!(parts.iter().all(|part| again.contains(part)), "{again}");
        }
    }

    #[test]
    fn events_of_an_earlier_version_are_read() {
        let progress = r#"{"Progress":{"progress":3.0,"total":null,"message":null,"gauges":{}}}"#;
        let log = r#"{"Log":{"level":"Info","logger":null,"data":{"a":[1]}}}"#;
        let read = |text| serde_json::from_str::<Event>(text).unwrap();
        let (amount, data) = (Amount::from(3.0), json!({"a": [1]}).into());
        assert!(
            matches!(read(progress), Event::Progress { progress, .. } if progress.value() == amount.value())
        );
        assert_eq!(read(log), Event::Log { level: LogLevel::Info, logger: None, data });
    }
}
