//! The official conformance suites, through Envoy, against the server `conformance`.
//!
//! Keeps true: what is listed here passes by name, the suite itself ends well, and what a revision's requirements score is
//! listed. The lists grow; there is no list of what may fail.

use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::tool;
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;

use crate::trial::{Shared, trials};

/// Hang guard of one run: each scenario has its own bound, in which a loaded machine takes its time.
const RUN: Duration = Duration::from_secs(900);
/// The suite's bound of one scenario, in milliseconds.
const SCENARIO: &str = "60000";

/// What a suite says of a revision.
#[derive(Deserialize)]
struct Requirements {
    /// The scenarios of servers that count.
    server: Vec<String>,
}

/// One run of a suite.
struct Suite {
    /// Below `tests/clients`.
    package: &'static str,
    arguments: &'static [&'static str],
    passes: &'static [&'static [&'static str]],
}

/// Of every revision.
const EVERY: &[&str] = &[
    "completion-complete",
    "prompts-get-embedded-resource",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-with-image",
    "prompts-list",
    "resources-list",
    "resources-read-binary",
    "resources-read-text",
    "resources-templates-read",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-error",
    "tools-call-image",
    "tools-call-mixed-content",
    "tools-call-simple-text",
    "tools-call-with-progress",
    "tools-list",
];

/// Of every revision with a handshake.
const LEGACY: &[&str] = &[
    "logging-set-level",
    "ping",
    "resources-subscribe",
    "resources-unsubscribe",
    "server-initialize",
    "tools-call-elicitation",
    "tools-call-sampling",
    "tools-call-with-logging",
];

/// From 2025-11-25 on.
const SINCE_2025_11_25: &[&str] = &["dns-rebinding-protection", "server-sse-multiple-streams"];

const ELICITATION: &[&str] = &["elicitation-sep1034-defaults", "elicitation-sep1330-enums"];

/// Not of the revision's own requirements, or added to the suite later.
const LEGACY_MORE: &[&str] = &["json-schema-2020-12", "server-session-lifecycle", "server-sse-polling"];

const MODERN: &[&str] = &[
    "caching",
    "input-required-result-basic-elicitation",
    "input-required-result-basic-list-roots",
    "input-required-result-basic-sampling",
    "input-required-result-capability-check",
    "input-required-result-ignore-extra-params",
    "input-required-result-missing-input-response",
    "input-required-result-multi-round",
    "input-required-result-multiple-input-requests",
    "input-required-result-non-tool-request",
    "input-required-result-request-state",
    "input-required-result-result-type",
    "input-required-result-tampered-state",
    "input-required-result-unsupported-methods",
    "input-required-result-validate-input",
    "sep-2164-resource-not-found",
    "server-stateless",
];

/// The tasks extension.
const TASKS: &[&str] = &[
    "tasks-capability-negotiation",
    "tasks-dispatch-and-envelope",
    "tasks-lifecycle",
    "tasks-mrtr-composition",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-request-state-removal",
    "tasks-required-task-error",
    "tasks-wire-fields",
];

/// Likewise, of 2026-07-28.
const MODERN_MORE: &[&str] =
    &["http-custom-header-server-validation", "http-header-validation", "json-schema-2020-12"];

trials! { suites:
    release_0_1_of_the_official_suite_passes_its_active_scenarios,
    release_0_1_of_the_official_suite_passes_what_2025_06_18_has,
    release_0_2_of_the_official_suite_passes_what_2025_11_25_requires,
    release_0_2_of_the_official_suite_passes_what_2026_07_28_requires,
}

async fn release_0_1_of_the_official_suite_passes_its_active_scenarios(shared: &Shared) -> Result<()> {
    let suite = Suite {
        package: "conformance-1",
        arguments: &[],
        passes: &[EVERY, LEGACY, SINCE_2025_11_25, ELICITATION],
    };
    run(shared, &suite).await
}

async fn release_0_1_of_the_official_suite_passes_what_2025_06_18_has(shared: &Shared) -> Result<()> {
    let suite = Suite {
        package: "conformance-1",
        arguments: &["--spec-version", "2025-06-18"],
        passes: &[EVERY, LEGACY],
    };
    run(shared, &suite).await
}

async fn release_0_2_of_the_official_suite_passes_what_2025_11_25_requires(shared: &Shared) -> Result<()> {
    let suite = Suite {
        package: "conformance-2",
        arguments: &["--requirements", "2025-11-25", "--timeout", SCENARIO],
        passes: &[EVERY, LEGACY, SINCE_2025_11_25, ELICITATION, LEGACY_MORE],
    };
    run(shared, &suite).await
}

async fn release_0_2_of_the_official_suite_passes_what_2026_07_28_requires(shared: &Shared) -> Result<()> {
    let suite = Suite {
        package: "conformance-2",
        arguments: &["--requirements", "2026-07-28", "--timeout", SCENARIO],
        passes: &[EVERY, SINCE_2025_11_25, MODERN, MODERN_MORE, TASKS],
    };
    run(shared, &suite).await
}

async fn run(shared: &Shared, suite: &Suite) -> Result<()> {
    let package = tool::clients()?.join(suite.package).join("node_modules/@modelcontextprotocol/conformance");
    let program = package.join("dist/index.js");
    ensure!(program.exists(), "{} is missing; `scripts/setup test` installs it", program.display());
    let listed: Vec<&str> = suite.passes.iter().copied().flatten().copied().collect();
    if let ["--requirements", revision, ..] = suite.arguments {
        let file = package.join(format!("requirements/{revision}.yaml"));
        let required: Requirements = serde_saphyr::from_str(&std::fs::read_to_string(&file)?)?;
        ensure!(!required.server.is_empty(), "{} requires nothing", file.display());
        let missing: Vec<_> =
            required.server.iter().filter(|name| !listed.contains(&name.as_str())).collect();
        ensure!(missing.is_empty(), "{revision} requires {missing:?}, which are not listed here");
    }
    let stack = shared.plugin_stack().await?;
    let results = tempfile::tempdir()?;
    let mut command = Command::new(tool::node()?);
    command.arg(program).args(["server", "--url", &stack.mcp_url("conformance")]);
    command.args(suite.arguments).current_dir(results.path()).kill_on_drop(true);
    let output = timeout(RUN, command.output()).await.context("the suite hangs")??;
    let said = String::from_utf8_lossy(&output.stdout);
    let Some((before, summary)) = said.split_once("=== SUMMARY ===") else {
        bail!("the suite came to no summary:\n{said}{}", String::from_utf8_lossy(&output.stderr));
    };
    let passed: Vec<&str> = summary.lines().filter_map(passed).collect();
    let more: Vec<&str> = passed.iter().copied().filter(|name| !listed.contains(name)).collect();
    if !more.is_empty() {
        eprintln!("{} {:?}: {more:?} pass too and are not listed", suite.package, suite.arguments);
    }
    let missing: Vec<&str> = listed.into_iter().filter(|name| !passed.contains(name)).collect();
    // First what is wrong: a long message is cut.
    let wrong: Vec<&str> =
        said.lines().filter(|line| line.contains('✗') || line.contains("FAILURE")).collect();
    ensure!(missing.is_empty(), "{missing:?} do not pass: {}\n{summary}\n{before}", wrong.join("\n"));
    ensure!(output.status.success(), "the suite ended with {}:\n{summary}\n{before}", output.status);
    Ok(())
}

/// The scenario of a line `✓ ping: 2 passed, 0 failed`; one that only skipped or warned proves nothing.
fn passed(line: &str) -> Option<&str> {
    let (name, counts) = line.trim().strip_prefix("✓ ")?.split_once(": ")?;
    let (count, _) = counts.split_once(" passed, 0 failed")?;
    (count.parse::<u32>().ok()? > 0).then_some(name)
}
