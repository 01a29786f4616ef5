//! What one call took of its worker, as the runtime says.

/// What a call cost its worker.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    pub cpu_ms: f64,
    /// Bytes.
    pub rss_max: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
    pub duration_ms: f64,
}
