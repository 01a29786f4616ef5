//! Logs on standard error, in one format for every process of the platform: JSON lines for log collectors, text if
//! standard error is a terminal. Neither has the secrets that [`crate::redact`] finds.

mod children;
mod printable;
mod queue;
mod secret_filter;

use std::io::IsTerminal;

use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

pub use children::relay;
use printable::Printable;
pub use queue::Flush;
use secret_filter::SecretFilter;

/// Environment variable with the levels to log, in the syntax of `tracing_subscriber::EnvFilter`.
pub const ENV_LOG: &str = "ASP_LOG";
const DEFAULT_LOG: &str = "info";

/// Starts logging. A second call in one process (tests) has no effect.
pub fn start(filter: Option<&str>) {
    start_with(filter, std::io::stderr);
}

/// Starts logging in a process whose threads must not wait for the reader of its log. Lines logged before the guard is
/// dropped are written. `None` if no thread could be started; lines are then written by the threads that log them.
pub fn start_queued(filter: Option<&str>) -> Option<Flush> {
    match queue::start(std::io::stderr()) {
        Ok((queue, flush)) => {
            start_with(filter, queue);
            Some(flush)
        }
        Err(error) => {
            start(filter);
            tracing::warn!(%error, "log thread could not be started; a slow reader of the log slows this process");
            None
        }
    }
}

fn start_with(filter: Option<&str>, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let is_first = match std::io::stderr().is_terminal() {
        true => tracing::subscriber::set_global_default(text(filter, writer)),
        false => tracing::subscriber::set_global_default(json(filter, writer)),
    };
    if is_first.is_err() {
        tracing::debug!("logging had already been started");
    }
}

fn json(
    filter: Option<&str>,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(SecretFilter(writer))
        .with_env_filter(levels(filter))
        .finish()
}

fn text(
    filter: Option<&str>,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false)
        .with_writer(Printable(writer))
        .with_env_filter(levels(filter))
        .finish()
}

fn levels(filter: Option<&str>) -> EnvFilter {
    EnvFilter::try_new(filter.unwrap_or(DEFAULT_LOG)).unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Lines {
        fn of(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    /// Text that a plugin, for example, tries to write to an operator's terminal.
    const FORGED: &str = "x\n2026-11-22T00:00:00Z  INFO all is well \x1b[2J";

    #[test]
    fn a_terminal_gets_text_and_a_collector_gets_json_and_neither_can_be_forged() {
        let shown = Lines::default();
        let writer = shown.clone();
        tracing::subscriber::with_default(text(None, move || writer.clone()), || {
            tracing::warn!(plugin = FORGED, cause = %FORGED, "a worker crashed");
        });
        let shown = shown.of();
        assert!(shown.contains("WARN") && shown.contains("a worker crashed"), "{shown}");
        assert!(shown.lines().count() == 1 && !shown.contains('\u{1b}'), "{shown:?}");
        let collected = Lines::default();
        let writer = collected.clone();
        tracing::subscriber::with_default(json(None, move || writer.clone()), || {
            tracing::warn!(plugin = FORGED, cause = %FORGED, "a worker crashed");
        });
        let collected = collected.of();
        assert!(collected.contains(r#""message":"a worker crashed""#), "{collected}");
        assert!(collected.lines().count() == 1 && !collected.contains('\u{1b}'), "{collected:?}");
    }

    #[test]
    fn neither_a_terminal_nor_a_collector_gets_a_secret() {
        let log = || {
            let span = tracing::info_span!("call", input = r#"{"api_key": "from-a-span"}"#);
            let _entered = span.enter();
            tracing::info!(line = r#"{"OPENAI_API_KEY": "in-json", "n": 1}"#, "worker log");
            tracing::info!(line = "Authorization: Bearer as-a-header\n", stream = "stdout", "worker log");
        };
        let shown = Lines::default();
        let writer = shown.clone();
        tracing::subscriber::with_default(text(None, move || writer.clone()), log);
        let collected = Lines::default();
        let writer = collected.clone();
        tracing::subscriber::with_default(json(None, move || writer.clone()), log);
        for lines in [shown.of(), collected.of()] {
            assert_eq!((lines.lines().count(), lines.matches("***").count()), (2, 4), "{lines}");
            for secret in ["from-a-span", "in-json", "as-a-header"] {
                assert!(!lines.contains(secret), "{lines}");
            }
        }
        for line in collected.of().lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["message"], "worker log");
        }
    }
}
