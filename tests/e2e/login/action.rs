//! The action that a team's CI runs (`action.yml`), as a runner does it: its inputs become the step's environment, the step
//! runs in `bash` and leaves the file of findings that it names.

use std::path::{Path, PathBuf};
use std::process::Output;

use anyhow::{Context, Result, ensure};
use asp_e2e::tool;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use super::Company;

/// One finding, and where it is shown.
#[derive(Debug)]
pub(super) struct Finding {
    pub level: String,
    pub file: String,
    pub line: u64,
}

/// What came of one run.
pub(super) struct Checked {
    pub output: Output,
    /// Of the first tool.
    pub findings: Vec<Finding>,
}

/// Runs the action in `checkout` on its directory `primitives`, compared with what the company serves.
pub(super) async fn run(company: &Company, checkout: &Path, token: &str) -> Result<Checked> {
    let action = std::fs::read_to_string(tool::root()?.join("action.yml"))?;
    let action: Value = serde_saphyr::from_str(&action)?;
    let temporary = tempfile::tempdir()?;
    let said = temporary.path().join("output");
    let asp = tool::asp()?.display().to_string();
    let url = format!("http://{}", company.stack.admin());
    let given = [("asp", asp.as_str()), ("admin-url", &url), ("admin-token", token)];
    let steps = action["runs"]["steps"].as_array().context("steps")?;
    let step = steps.iter().find(|step| step["id"] == "check").context("the step that checks")?;
    ensure!(step["shell"] == "bash" && action["runs"]["using"] == "composite", "{action}");
    let script = temporary.path().join("step.sh");
    std::fs::write(&script, step["run"].as_str().context("the step's script")?)?;
    // As the runner calls `shell: bash`.
    let mut command = Command::new("bash");
    command.args(["--noprofile", "--norc", "-e", "-o", "pipefail"]).arg(&script).current_dir(checkout);
    command.env("RUNNER_TEMP", temporary.path()).env("GITHUB_OUTPUT", &said).env_remove("ASP_ADMIN_TOKEN");
    for (name, value) in step["env"].as_object().context("the step's environment")? {
        command.env(name, resolved(&action, &given, value)?);
    }
    let output = command.kill_on_drop(true).output().await?;
    let findings = findings(&said, &temporary).with_context(|| format!("{output:?}"))?;
    Ok(Checked { output, findings })
}

/// The value of an expression `${{ inputs.NAME }}`.
fn resolved(action: &Value, given: &[(&str, &str)], value: &Value) -> Result<String> {
    let expression = value.as_str().context("an expression")?;
    let name = expression.strip_prefix("${{ inputs.").and_then(|rest| rest.strip_suffix(" }}"));
    let name = name.with_context(|| format!("{expression}: only inputs are known here"))?;
    if let Some((_, value)) = given.iter().find(|(given, _)| *given == name) {
        return Ok((*value).to_owned());
    }
    let default = action["inputs"][name]["default"].as_str();
    Ok(default.with_context(|| format!("no input {name}"))?.to_owned())
}

/// What the file holds that the step names as its output `sarif`.
fn findings(said: &Path, temporary: &TempDir) -> Result<Vec<Finding>> {
    let said = std::fs::read_to_string(said)?;
    let file: PathBuf = said.trim().strip_prefix("sarif=").with_context(|| said.clone())?.into();
    ensure!(file.starts_with(temporary.path()), "{}", file.display());
    let log: Value = serde_json::from_slice(&std::fs::read(file)?)?;
    ensure!(log["version"] == "2.1.0", "{log}");
    let results = log["runs"][0]["results"].as_array().context("results")?;
    let finding = |result: &Value| {
        let place = &result["locations"][0]["physicalLocation"];
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Finding {
            level: text(&result["level"]),
            file: text(&place["artifactLocation"]["uri"]),
            line: place["region"]["startLine"].as_u64().unwrap_or_default(),
        }
    };
    Ok(results.iter().map(finding).collect())
}
