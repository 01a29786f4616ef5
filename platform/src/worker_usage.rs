//! Resources that one call used at its worker, as reported by the runtime.

/// Usage of a worker by one call.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Stats {
    pub cpu_ms: f64,
    /// Largest resident memory, in bytes.
    pub rss_max: f64,
    pub bytes_in: f64,
    pub bytes_out: f64,
    pub duration_ms: f64,
}
