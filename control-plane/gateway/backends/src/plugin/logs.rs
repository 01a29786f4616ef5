//! Log lines of plugins during calls, for a listener in addition to the callers: the author of a plugin, on a
//! developer machine.
//!
//! Keeps true: the listener gets the same bounded text as callers, as the plugin wrote it; a listener that displays
//! it escapes it.

use std::sync::Arc;

use asp_proto::plugin::{LogLine, log_line};

use asp_call::call::event::{LogLevel, cut_text};

/// Receives the plugin's id, the level of a line and its text. Called on the path of calls.
pub type LogListener = Arc<dyn Fn(&str, LogLevel, &str) + Send + Sync>;

/// Converts a line to the form of events, and passes it to the listener.
pub(super) fn convert(line: LogLine, plugin: &str, listener: Option<&LogListener>) -> (LogLevel, String) {
    let level = LogLevel::parse(&line.severity).unwrap_or_else(|| match line.level() {
        log_line::Level::Trace | log_line::Level::Debug => LogLevel::Debug,
        log_line::Level::Info => LogLevel::Info,
        log_line::Level::Warn => LogLevel::Warning,
        log_line::Level::Error => LogLevel::Error,
    });
    let text = cut_text(line.message);
    if let Some(listener) = listener {
        listener(plugin, level, &text);
    }
    (level, text)
}
