//! Cpu, memory and rate quantities.
//!
//! The forms are those of Kubernetes: `500m` or `0.5` cores; `512M` is 512 × 10^6, `512Mi` is 512 × 2^20.

use crate::fault::{FaultCode, Findings};
use crate::spec::{Cpu, RateLimit, Resources, Spec};

/// 64 cores: more than one plugin process can use.
const MAX_CPU_MILLIS: u32 = 64_000;
/// No language runtime starts in less.
const MIN_MEMORY: u64 = 16 * 1024 * 1024;
const MAX_MEMORY: u64 = 64 * 1024 * 1024 * 1024;
/// A month: longer windows are quotas, not rate limits.
const MAX_WINDOW_SECONDS: u64 = 31 * 86_400;

pub(super) fn check(spec: &Spec, findings: &mut Findings<'_>) {
    if let Some(resources) = spec.runtime.as_ref().and_then(|runtime| runtime.resources.as_ref()) {
        if resources.cpu.is_some() && cpu_millis(resources).is_none() {
            let hint = "write cores as 1, 0.5 or 500m, at most 64";
            findings.add(
                FaultCode::BadQuantity,
                "/runtime/resources/cpu",
                "this is no quantity of cores",
                hint,
            );
        }
        if let Some(memory) = &resources.memory
            && memory_bytes(resources).is_none()
        {
            let message = format!("`{}` is no quantity of memory", super::name::shown(memory));
            let hint = "write a whole number with K, M, G, Ki, Mi or Gi, from 16Mi to 64Gi";
            findings.add(FaultCode::BadQuantity, "/runtime/resources/memory", message, hint);
        }
    }
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

/// Thousandths of a core.
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

/// Bytes.
pub(crate) fn memory_bytes(resources: &Resources) -> Option<u64> {
    const UNITS: [(&str, u64); 6] = [
        ("Ki", 1 << 10),
        ("Mi", 1 << 20),
        ("Gi", 1 << 30),
        ("K", 1_000),
        ("M", 1_000_000),
        ("G", 1_000_000_000),
    ];
    let text = resources.memory.as_deref()?;
    let (digits, unit) = UNITS
        .iter()
        .find_map(|(suffix, unit)| text.strip_suffix(suffix).map(|digits| (digits, *unit)))
        .unwrap_or((text, 1));
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let bytes = digits.parse::<u64>().ok()?.checked_mul(unit)?;
    (MIN_MEMORY..=MAX_MEMORY).contains(&bytes).then_some(bytes)
}

/// The window of a rate limit in seconds.
pub(crate) fn window_seconds(limit: &RateLimit) -> Option<u32> {
    let seconds = u64::from(limit.time_unit_count).checked_mul(limit.time_unit.seconds())?;
    if seconds > MAX_WINDOW_SECONDS {
        return None;
    }
    u32::try_from(seconds).ok()
}
