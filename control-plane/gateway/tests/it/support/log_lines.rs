//! The lines that this thread logs, as fields.

use std::fmt;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::DefaultGuard;
use tracing::{Event, Level, Metadata, Subscriber};

/// The lines of INFO and above, with their level.
#[derive(Clone, Default)]
pub(crate) struct LogLines(Arc<Mutex<Vec<Value>>>);

impl LogLines {
    /// Collects the lines of this thread until the guard is dropped.
    pub(crate) fn listen() -> (LogLines, DefaultGuard) {
        let lines = LogLines::default();
        let guard = tracing::subscriber::set_default(lines.clone());
        (lines, guard)
    }

    /// Returns the lines whose field has this value.
    pub(crate) fn with(&self, field: &str, value: &str) -> Vec<Value> {
        self.0.lock().iter().filter(|line| line[field] == value).cloned().collect()
    }
}

impl Subscriber for LogLines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("asp_") && *metadata.level() <= Level::INFO
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = LineFields::default();
        event.record(&mut fields);
        fields.0.insert("level".into(), event.metadata().level().as_str().into());
        self.0.lock().push(fields.0.into());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[derive(Default)]
struct LineFields(Map<String, Value>);

impl Visit for LineFields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().into(), value.into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().into(), format!("{value:?}").into());
    }
}
