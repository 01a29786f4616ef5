//! What plugins log during calls, for whoever listens besides the callers: the author of a plugin, at its own machine.
//!
//! Keeps true: what is heard is as bounded as what callers get, and as the plugin wrote it: whoever shows it escapes it.

use std::sync::Arc;

use asp_proto::plugin::{LogLine, log_line};

use crate::call::event::{LogLevel, cut_text};

/// Gets the plugin's id, how grave a line is, and its text. Called on the path of calls.
pub type LogListener = Arc<dyn Fn(&str, LogLevel, &str) + Send + Sync>;

/// A line as events have it; told to whoever listens.
pub(super) fn heard(line: LogLine, plugin: &str, listener: Option<&LogListener>) -> (LogLevel, String) {
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
