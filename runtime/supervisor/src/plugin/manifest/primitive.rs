//! A primitive of a package that serves several: what `plugin.json` says of its calls. What concerns the processes, as their
//! memory, hosts and pool, is the whole package's.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{Kind, Limits, check_bounds, check_entrypoint, check_names, check_secrets};

/// Part of a package's primitive in its `plugin.json`: what concerns its calls alone.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Primitive {
    #[serde(rename = "version", default)]
    _version: String,
    pub kind: Kind,
    pub entrypoint: String,
    #[serde(rename = "inputSchema")]
    _input_schema: Option<Box<RawValue>>,
    #[serde(rename = "outputSchema")]
    _output_schema: Option<Box<RawValue>>,
    #[serde(rename = "artifactSchema")]
    _artifact_schema: Option<Box<RawValue>>,
    #[serde(default)]
    pub limits: CallLimits,
    #[serde(rename = "mutation", default)]
    _mutation: String,
    #[serde(rename = "riskClass", default)]
    _risk_class: String,
    #[serde(rename = "supportsProgress", default)]
    _supports_progress: bool,
    #[serde(rename = "supportsCancellation", default)]
    _supports_cancellation: bool,
    #[serde(default)]
    pub elicitations: Vec<String>,
    #[serde(default)]
    pub delegations: Vec<String>,
    /// Names of the operator's secrets that its code asks for.
    #[serde(default)]
    pub secrets: Vec<String>,
}

/// Limits of one primitive's calls.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CallLimits {
    pub max_runtime_seconds: u64,
    pub input_timeout_seconds: u64,
    pub heartbeat_seconds: u64,
    /// Enforced by the gateway's limiter.
    pub concurrent_invocations: u64,
}

impl Default for CallLimits {
    fn default() -> Self {
        Limits::default().of_calls()
    }
}

impl Primitive {
    pub(super) fn check(&self) -> Result<(), String> {
        check_entrypoint(&self.entrypoint)?;
        self.limits.check()?;
        check_secrets(&self.secrets)?;
        check_names(&self.elicitations, &self.delegations)
    }
}

impl CallLimits {
    /// Checks the bounds.
    pub(super) fn check(&self) -> Result<(), String> {
        check_bounds(&[
            ("maxRuntimeSeconds", self.max_runtime_seconds, 1, 7 * 86_400),
            ("inputTimeoutSeconds", self.input_timeout_seconds, 1, 86_400),
            ("heartbeatSeconds", self.heartbeat_seconds, 1, 3600),
            ("concurrentInvocations", self.concurrent_invocations, 0, 100_000),
        ])
    }
}
