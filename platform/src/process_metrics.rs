//! Standard metrics of a process (`process_*`) and of its build (`asp_build_info`), for everything that serves `/metrics`.
//!
//! Names and meanings are those of Prometheus' client libraries ("Writing client libraries", process metrics). Read from
//! /proc at each scrape; a figure that the kernel does not show is left out.

use std::fmt;
use std::fs;
use std::sync::LazyLock;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;

/// USER_HZ: 100 on every Linux whose programs this runs (proc_pid_stat(5)).
const TICKS_PER_SECOND: f64 = 100.0;
const KIBIBYTE: f64 = 1024.0;

/// Start of the process, in seconds since 1970.
static START: LazyLock<Option<f64>> = LazyLock::new(|| started(&read("self/stat")?, &read("stat")?));

#[derive(Debug)]
struct ProcessCollector;

/// Adds the metrics of this process to a registry.
pub fn register(registry: &mut Registry) {
    registry.register_collector(Box::new(ProcessCollector));
}

impl Collector for ProcessCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        build_info(encoder)?;
        cpu_seconds(encoder)?;
        let status = read("self/status").unwrap_or_default();
        let resident = value_of(&status, "VmRSS:").map(|kibibytes| kibibytes * KIBIBYTE);
        gauge(encoder, "process_resident_memory_bytes", "Resident memory in bytes", resident)?;
        gauge(encoder, "process_open_fds", "Open file descriptors", open_files())?;
        let most = value_of(&read("self/limits").unwrap_or_default(), "Max open files");
        gauge(encoder, "process_max_fds", "Limit of open file descriptors", most)?;
        let help = "Start of the process, in seconds since 1970";
        gauge(encoder, "process_start_time_seconds", help, *START)
    }
}

fn build_info(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Version of the process; the value is 1";
    let mut metric = encoder.encode_descriptor("asp_build_info", help, None, MetricType::Gauge)?;
    ConstGauge::new(1_i64).encode(metric.encode_family(&[("version", env!("CARGO_PKG_VERSION"))])?)
}

fn cpu_seconds(encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let Some(seconds) = read("self/stat").and_then(|stat| cpu_time(&stat)) else { return Ok(()) };
    let help = "User and system CPU time in seconds";
    let metric = encoder.encode_descriptor("process_cpu_seconds", help, None, MetricType::Counter)?;
    ConstCounter::new(seconds).encode(metric)
}

fn gauge(encoder: &mut DescriptorEncoder<'_>, name: &str, help: &str, value: Option<f64>) -> fmt::Result {
    let Some(value) = value else { return Ok(()) };
    ConstGauge::new(value).encode(encoder.encode_descriptor(name, help, None, MetricType::Gauge)?)
}

/// Reads a file of /proc that contains the process's name, which may be any bytes.
fn read(file: &str) -> Option<String> {
    Some(String::from_utf8_lossy(&fs::read(format!("/proc/{file}")).ok()?).into_owned())
}

/// Returns the number after `name` at the start of a line.
fn value_of(text: &str, name: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_whitespace().next()?.parse().ok())
}

fn open_files() -> Option<f64> {
    // One is that of the directory itself.
    let count = fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1);
    Some(count as f64)
}

/// Returns a field of /proc/self/stat in seconds, by its index after the process's name (proc_pid_stat(5)).
fn seconds(stat: &str, index: usize) -> Option<f64> {
    // The name is in parentheses and may contain anything.
    let field = stat.rsplit_once(')')?.1.split_whitespace().nth(index)?;
    Some(field.parse::<f64>().ok()? / TICKS_PER_SECOND)
}

fn cpu_time(stat: &str) -> Option<f64> {
    let user = seconds(stat, 11)?;
    let system = seconds(stat, 12)?;
    Some(user + system)
}

/// Returns the start of the process: the machine's, plus the time since then.
fn started(stat: &str, machine: &str) -> Option<f64> {
    Some(value_of(machine, "btime")? + seconds(stat, 19)?)
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn the_names_and_units_are_the_standard_ones() {
        let mut registry = Registry::default();
        register(&mut registry);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert!(
            text.contains(&format!("asp_build_info{{version=\"{}\"}} 1\n", env!("CARGO_PKG_VERSION"))),
            "{text}"
        );
        let figure = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name}: {text}")).parse::<f64>().unwrap()
        };
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
        let age = now - figure("process_start_time_seconds");
        // The machine's start is in whole seconds.
        assert!((-2.0..24.0 * 3600.0).contains(&age), "{age}");
        assert!((0.0..=(age + 2.0) * 1024.0).contains(&figure("process_cpu_seconds_total")), "{text}");
        assert!((1e5..1e12).contains(&figure("process_resident_memory_bytes")), "{text}");
        assert!((3.0..1e6).contains(&figure("process_open_fds")), "{text}");
    }

    #[test]
    fn the_name_of_the_process_may_look_like_fields() {
        let stat = "7 (a) b 1) S 1 7 7 0 -1 4194304 100 0 0 0 250 50 0 0 20 0 5 0 12350 0 0\n";
        assert_eq!(cpu_time(stat), Some(3.0));
        assert_eq!(started(stat, "cpu 1 2\nbtime 1000\nprocesses 5\n"), Some(1123.5));
        assert_eq!((cpu_time(""), started(stat, "")), (None, None));
    }

    #[test]
    fn an_unlimited_or_missing_value_is_left_out() {
        let limits =
            |soft: &str| value_of(&format!("Max open files   {soft}   4096   files\n"), "Max open files");
        assert_eq!((limits("1024"), limits("unlimited")), (Some(1024.0), None));
        assert_eq!(value_of("VmPeak:\t 9 kB\nVmRSS:\t    12 kB\n", "VmRSS:"), Some(12.0));
    }
}
