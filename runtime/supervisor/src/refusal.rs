//! Reasons for rejecting a call: the closed set of `Admission.reason` (`proto/supervisor.proto`).

use std::time::Duration;

/// Reason for rejecting a call. Displays as `<word>: <sentence>`, as the contract requires.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("not_installed: {0}")]
    NotInstalled(String),
    #[error("digest_mismatch: the installed package is not the one that the request pins")]
    DigestMismatch,
    #[error("language_absent: this runtime has no {0}")]
    LanguageAbsent(&'static str),
    #[error("isolation: the plugin requires sandbox level {wanted}, this machine provides {given}: {why}")]
    Isolation { wanted: u32, given: u32, why: String },
    #[error("quarantined: the plugin's workers crash too often; next try in {} s", rest.as_secs().max(1))]
    Quarantined { rest: Duration },
    /// Quarantine after a failed start, in development.
    #[error("not_loaded: the plugin's code does not load; its output has the reason")]
    FailedStart,
    #[error(
        "tenant_quarantined: calls of this tenant crash the plugin's workers; its next try is in {} s",
        rest.as_secs().max(1)
    )]
    TenantQuarantined { rest: Duration },
    #[error("host_trouble: the runtime's machine cannot start a worker: {0}")]
    HostTrouble(String),
    #[error("breaker_open: too many of the plugin's calls failed lately")]
    BreakerOpen,
    #[error("throttled: the tenant has too many calls waiting for this plugin")]
    Throttled,
    #[error("overload: too many calls are waiting for this plugin")]
    Overload,
    #[error(
        "throttled: the plugin has its maximum of {most} subscriptions, or one tenant has half of them; further \
         subscribers are not notified of changes"
    )]
    Subscriptions { most: usize },
    #[error("overload: the call's deadline passed while it waited")]
    Late,
    #[error("overload: too many tunnels are open")]
    Tunnels,
    #[error("draining: the plugin accepts no new calls")]
    Draining,
    #[error("outdated: for stdio servers, this runtime needs gateways of version 0.3.0 or later")]
    Outdated,
}
