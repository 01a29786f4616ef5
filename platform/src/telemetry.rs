//! Logs: JSON lines on standard error, one shape for every process of the platform.

mod queue;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

pub use queue::Flush;

/// Which levels are logged, in the syntax of `tracing_subscriber::EnvFilter`.
pub const ENV_LOG: &str = "ASP_LOG";
const DEFAULT_LOG: &str = "info";

/// Starts logging. A second call in one process (tests) changes nothing.
pub fn start(filter: Option<&str>) {
    start_with(filter, std::io::stderr);
}

/// The same for a process whose threads must not wait for whoever reads its log. What is logged before the guard is
/// dropped is written; `None` where no thread could be started, and lines are written by whoever logs them.
pub fn start_queued(filter: Option<&str>) -> Option<Flush> {
    match queue::start(std::io::stderr()) {
        Ok((queue, flush)) => {
            start_with(filter, queue);
            Some(flush)
        }
        Err(error) => {
            start(filter);
            tracing::warn!(%error, "logging has no thread of its own: a slow reader of the log slows this process");
            None
        }
    }
}

fn start_with(filter: Option<&str>, writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static) {
    let filter =
        EnvFilter::try_new(filter.unwrap_or(DEFAULT_LOG)).unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG));
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(writer)
        .with_env_filter(filter)
        .finish();
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        tracing::debug!("logging was started before");
    }
}
