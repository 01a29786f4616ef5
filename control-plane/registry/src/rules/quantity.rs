//! CPU, memory and rate quantities.
//!
//! They are written as in Kubernetes: `500m` or `0.5` cores; `512M` is 512 × 10^6, `512Mi` is 512 × 2^20.

use std::ops::RangeInclusive;

use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::spec::{Cpu, RateLimit, Resources, Spec};

/// Maximum CPU: 64 cores, more than one plugin process can use.
const MAX_CPU_MILLIS: u32 = 64_000;
/// Minimum memory in bytes; no language runtime starts with less.
const MIN_MEMORY: u64 = 16 * 1024 * 1024;
const MAX_MEMORY: u64 = 64 * 1024 * 1024 * 1024;
/// Minimum disk space in bytes: one page.
const MIN_DISK: u64 = 4096;
const MAX_DISK: u64 = 1 << 42;
const MIN_LOGS: u64 = 1024;
const MAX_LOGS: u64 = 1 << 30;
/// Maximum window of a rate limit: a month. Longer windows are quotas, not rate limits.
const MAX_WINDOW_SECONDS: u64 = 31 * 86_400;

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    if let Some(resources) = spec.runtime.as_ref().and_then(|runtime| runtime.resources.as_ref()) {
        if resources.cpu.is_some() && cpu_millis(resources).is_none() {
            let hint = "write cores as 1, 0.5 or 500m, at most 64";
            findings.add(FaultCode::BadQuantity, "/runtime/resources/cpu", "not a number of cores", hint);
        }
        let amounts = [
            ("memory", &resources.memory, memory_bytes(resources), "from 16Mi to 64Gi"),
            ("disk", &resources.disk, disk_bytes(resources), "from 4Ki to 4096Gi"),
            ("logs", &resources.logs, log_bytes(resources), "from 1Ki to 1Gi"),
        ];
        for (key, written, read, range) in amounts {
            if let (Some(text), None) = (written, read) {
                let message = format!("`{}` is not an amount of {key}", super::name::escape(text));
                let hint = format!("write a whole number with K, M, G, Ki, Mi or Gi, {range}");
                findings.add(FaultCode::BadQuantity, &format!("/runtime/resources/{key}"), message, hint);
            }
        }
    }
    check_pool(spec, findings);
    let Some(limit) = &spec.security.rate_limit_max else { return };
    let path = "/security/rateLimitMax";
    let zero = [
        ("invocationCount", limit.invocation_count == 0),
        ("timeUnitCount", limit.time_unit_count == 0),
        ("concurrentInvocations", limit.concurrent_invocations == Some(0)),
    ];
    for (key, is_zero) in zero {
        if is_zero {
            let message = format!("`{key}` is 0, so no call is ever allowed");
            findings.add(FaultCode::BadRateLimit, &format!("{path}/{key}"), message, "write 1 or more");
        }
    }
    if window_seconds(limit).is_none() {
        let hint = "shorten the window to 31 days";
        findings.add(
            FaultCode::BadRateLimit,
            &format!("{path}/timeUnitCount"),
            "the window is too long",
            hint,
        );
    }
}

fn check_pool(spec: &Spec, findings: &mut Findings<'_>) {
    let Some(pool) = spec.runtime.as_ref().and_then(|runtime| runtime.pool.as_ref()) else { return };
    if let (Some(min), Some(max)) = (pool.min, pool.max)
        && min > max
    {
        let message = format!("at least {min} processes, but at most {max}");
        findings.add(FaultCode::BadQuantity, "/runtime/pool/min", message, "make `max` the larger one");
    }
}

/// Returns the CPU in thousandths of a core.
pub(crate) fn cpu_millis(resources: &Resources) -> Option<u32> {
    let millis = match resources.cpu.as_ref()? {
        Cpu::Cores(cores) => cores * 1000.0,
        Cpu::Quantity(text) => match text.strip_suffix('m') {
            Some(millis) => f64::from(millis.parse::<u32>().ok()?),
            None => text.parse::<f64>().ok()? * 1000.0,
        },
    };
    let in_range = millis >= 1.0 && millis <= f64::from(MAX_CPU_MILLIS);
    in_range.then_some(millis.round() as u32)
}

/// Returns the memory in bytes.
pub(crate) fn memory_bytes(resources: &Resources) -> Option<u64> {
    bytes(resources.memory.as_deref()?, MIN_MEMORY..=MAX_MEMORY)
}

/// Returns the disk space in bytes.
pub(crate) fn disk_bytes(resources: &Resources) -> Option<u64> {
    bytes(resources.disk.as_deref()?, MIN_DISK..=MAX_DISK)
}

/// Returns the log rate in bytes per second.
pub(crate) fn log_bytes(resources: &Resources) -> Option<u64> {
    bytes(resources.logs.as_deref()?, MIN_LOGS..=MAX_LOGS)
}

fn bytes(text: &str, range: RangeInclusive<u64>) -> Option<u64> {
    const UNITS: [(&str, u64); 6] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("K", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
    ];
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|digits| (digits, *unit)))
        .unwrap_or((text, 1));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    range.contains(&bytes).then_some(bytes)
}

/// Returns the window of a rate limit in seconds.
pub(crate) fn window_seconds(limit: &RateLimit) -> Option<u32> {
    let seconds = u64::from(limit.time_unit_count).checked_mul(limit.time_unit.seconds())?;
    if seconds > MAX_WINDOW_SECONDS {
        return None;
    }
    u32::try_from(seconds).ok()
}
