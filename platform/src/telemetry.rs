//! Logs: JSON lines on standard error, one shape for every process of the platform.

use tracing_subscriber::EnvFilter;

/// Which levels are logged, in the syntax of `tracing_subscriber::EnvFilter`.
pub const ENV_LOG: &str = "ASP_LOG";
const DEFAULT_LOG: &str = "info";

/// Starts logging. A second call in one process (tests) changes nothing.
pub fn start(filter: Option<&str>) {
    let filter =
        EnvFilter::try_new(filter.unwrap_or(DEFAULT_LOG)).unwrap_or_else(|_| EnvFilter::new(DEFAULT_LOG));
    let subscriber = tracing_subscriber::fmt()
        .json()
        .flatten_event(true)
        .with_current_span(true)
        .with_span_list(false)
        .with_writer(std::io::stderr)
        .with_env_filter(filter)
        .finish();
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        tracing::debug!("logging was started before");
    }
}
