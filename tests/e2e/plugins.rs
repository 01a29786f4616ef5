//! Plugins in their sandboxes, called by the official Python client through Envoy, in both eras of MCP.

use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::stack::Stack;
use asp_e2e::tool;
use libtest_mimic::Trial;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::timeout;

use crate::clients::{LEGACY, MODERN};
use crate::trial::Shared;

/// Hang guard of one client program.
const CLIENT: Duration = Duration::from_secs(120);
/// The client's modes, and the protocol each must end with.
pub(crate) const MODES: [(&str, &str); 2] = [("legacy", LEGACY), ("auto", MODERN)];

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    macro_rules! in_each_mode {
        ($($behaviour:ident),+ $(,)?) => {
            MODES.into_iter().flat_map(|mode| [$(in_mode(shared, mode, stringify!($behaviour), $behaviour)),+])
        };
    }
    let trials = in_each_mode! {
        node_asks_reports_progress_and_sends_an_artifact,
        node_bad_arguments_never_reach_the_plugin,
        node_a_declined_question_ends_as_the_plugin_says,
        node_a_call_is_given_up_and_the_worker_lives,
        java_asks_reports_progress_and_sends_an_artifact,
        java_a_call_is_given_up_and_the_worker_lives,
        python_sweeps_with_approval_questions_and_delegations,
        python_sends_a_user_to_a_page,
        python_lets_the_clients_model_use_its_tool,
        python_sweeps_by_rules_for_a_client_that_cannot_sample,
    };
    trials.collect()
}

fn in_mode<T>(shared: &Shared, mode: (&'static str, &'static str), behaviour: &str, test: T) -> Trial
where
    T: AsyncFnOnce(Client<'_>) -> Result<()> + Send + 'static,
{
    let (mode, protocol) = mode;
    shared.trial(&format!("plugins::{mode}_{behaviour}"), async move |shared: &Shared| {
        let stack = shared.plugin_stack().await?;
        test(Client { stack, mode, protocol }).await
    })
}

/// Alice, with the scopes of the compliance sweep.
pub(crate) const TOKEN: &[&str] = &[
    "--org",
    "acme",
    "--user",
    "alice",
    "--scope",
    "compliance:read",
    "--scope",
    "compliance:write",
    "--scope",
    "meetings:read",
    "--scope",
    "contact_center:read",
    "--scope",
    "admin:read",
];

/// The official client in one mode.
pub(crate) struct Client<'a> {
    pub(crate) stack: &'a Stack,
    pub(crate) mode: &'static str,
    pub(crate) protocol: &'static str,
}

/// What `interactive.py` prints.
#[derive(Debug, Deserialize)]
pub(crate) struct Answer {
    protocol: String,
    pub(crate) progress: Vec<Progress>,
    pub(crate) asked: Vec<Value>,
    pub(crate) sampled: Vec<Value>,
    pub(crate) cancelled: bool,
    pub(crate) result: Option<Value>,
    pub(crate) error: Option<Value>,
    pub(crate) linked: Vec<Value>,
    pub(crate) logs: Vec<Value>,
    #[serde(default)]
    pub(crate) read: Value,
    #[serde(default)]
    pub(crate) prompted: Value,
    #[serde(default)]
    pub(crate) listed: Value,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Progress {
    pub(crate) progress: f64,
    pub(crate) message: Option<String>,
}

impl Client<'_> {
    /// Calls a tool of a server; `script` says how the client answers.
    pub(crate) async fn call(
        &self,
        server: &str,
        tool_name: &str,
        arguments: &Value,
        script: &Value,
    ) -> Result<Answer> {
        let mut command = self.command(server, tool_name, arguments, script).await?;
        let output = timeout(CLIENT, command.output()).await.context("the client hangs")??;
        self.read(&output)
    }

    /// Calls a tool and gives the call up when `until` is there; then returns both.
    pub(crate) async fn hold<T>(
        &self,
        server: &str,
        tool_name: &str,
        arguments: &Value,
        until: impl Future<Output = Result<T>>,
    ) -> Result<(Answer, T)> {
        let mut command = self.command(server, tool_name, arguments, &json!({"held": true})).await?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("start the client")?;
        let stdin = child.stdin.take();
        let reached = until.await;
        drop(stdin);
        let output = timeout(CLIENT, child.wait_with_output()).await.context("the client hangs")??;
        let answer = self.read(&output)?;
        Ok((answer, reached?))
    }

    pub(crate) async fn command(
        &self,
        server: &str,
        tool_name: &str,
        arguments: &Value,
        script: &Value,
    ) -> Result<Command> {
        let mut command = Command::new(tool::python()?);
        command.arg(tool::root()?.join("tests/clients/python/interactive.py"));
        command.args([&self.stack.mcp_url(server), self.mode, tool_name]);
        command.args([arguments.to_string(), script.to_string()]);
        command.env("ASP_TOKEN", self.stack.token(TOKEN).await?).stdin(Stdio::null()).kill_on_drop(true);
        Ok(command)
    }

    pub(crate) fn read(&self, output: &Output) -> Result<Answer> {
        if !output.status.success() {
            bail!("the client failed: {}", String::from_utf8_lossy(&output.stderr));
        }
        let answer: Answer =
            serde_json::from_slice(&output.stdout).context("read what the client printed")?;
        ensure!(answer.protocol == self.protocol, "protocol {}", answer.protocol);
        Ok(answer)
    }
}

const ASKING: &str = "samples-asking";

async fn python_sends_a_user_to_a_page(client: Client<'_>) -> Result<()> {
    for visits in [true, false] {
        let arguments = json!({"plan": "large"});
        let answer = client.call(ASKING, "subscribe", &arguments, &json!({"visits": visits})).await?;
        let result = answer.result.with_context(|| format!("no result: {:?}", answer.error))?;
        ensure!(result["structuredContent"] == json!({"subscribed": visits}), "{result}");
        let url = "https://shop.example.com/checkout/large";
        let message = "Pay for the plan on the page of the shop.";
        ensure!(answer.asked == [json!({"message": message, "url": url})], "{:?}", answer.asked);
    }
    Ok(())
}

async fn python_lets_the_clients_model_use_its_tool(client: Client<'_>) -> Result<()> {
    let arguments = json!({"question": "What is 20 and 22?"});
    let script = json!({"sampled": "It is 42.", "uses": {"a": 20, "b": 22}});
    let answer = client.call(ASKING, "sums", &arguments, &script).await?;
    let result = answer.result.with_context(|| format!("no result: {:?}", answer.error))?;
    ensure!(result["structuredContent"] == json!({"answer": "It is 42.", "added": 1}), "{result}");
    ensure!(answer.sampled.len() == 2, "{:?}", answer.sampled);
    let told = answer.sampled.get(1).and_then(|asked| asked.pointer("/messages/2/content/0/content/0/text"));
    ensure!(told == Some(&json!("42")), "{:?}", answer.sampled);
    // Without tools the model is not asked at all: a delegate of the client's alone has nobody else.
    let plain = client.call(ASKING, "sums", &arguments, &json!({"sampled": "I cannot add."})).await?;
    let failed = plain.result.is_none_or(|result| result["isError"] == json!(true));
    ensure!(failed && plain.sampled.is_empty(), "{:?}", plain.sampled);
    Ok(())
}

pub(crate) const CSV: &str = "samples-node";
pub(crate) const SUMMARY: &str = "csv_summary";

/// Two numeric columns, one row far from the others.
fn table() -> String {
    let rows: String =
        (0..300).map(|n| format!("{n},{}\n", if n == 7 { 5000 } else { 10 + n % 3 })).collect();
    format!("id,amount\n{rows}")
}

async fn node_asks_reports_progress_and_sends_an_artifact(client: Client<'_>) -> Result<()> {
    let script = json!({"answers": {"column": {"column": "amount"}}});
    let answer = client.call(CSV, SUMMARY, &json!({"csv": table()}), &script).await?;
    let result = answer.result.with_context(|| format!("no result: {:?}", answer.error))?;
    ensure!(result["isError"] != json!(true), "{result}");
    ensure!(result["structuredContent"]["column"] == "amount", "{result}");
    ensure!(result["structuredContent"]["unusual"] == 1, "{result}");
    ensure!(
        answer.asked.len() == 1 && answer.asked[0]["properties"] == json!(["column"]),
        "{:?}",
        answer.asked
    );
    let rising = answer.progress.windows(2).all(|pair| pair[0].progress <= pair[1].progress);
    ensure!(rising && answer.progress.len() >= 3, "{:?}", answer.progress);
    ensure!(answer.progress.iter().any(|step| step.message.as_deref() == Some("100 of 300 rows")));
    ensure!(answer.linked.len() == 1, "{:?}", answer.linked);
    ensure!(answer.linked[0]["text"] == "id,amount\r\n7,5000\r\n", "{:?}", answer.linked);
    ensure!(answer.linked[0]["mimeType"] == "text/csv", "{:?}", answer.linked);
    Ok(())
}

async fn node_bad_arguments_never_reach_the_plugin(client: Client<'_>) -> Result<()> {
    let answer = client.call(CSV, SUMMARY, &json!({"csv": 7}), &json!({})).await?;
    let said = answer.result.or(answer.error).context("nothing came back")?.to_string();
    ensure!(said.contains("csv"), "the field is not named: {said}");
    ensure!(answer.progress.is_empty() && answer.asked.is_empty(), "the plugin ran");
    Ok(())
}

async fn node_a_declined_question_ends_as_the_plugin_says(client: Client<'_>) -> Result<()> {
    let script = json!({"answers": {"column": "decline"}});
    let answer = client.call(CSV, SUMMARY, &json!({"csv": table()}), &script).await?;
    let result = answer.result.with_context(|| format!("no result: {:?}", answer.error))?;
    ensure!(result["isError"] == json!(true), "{result}");
    ensure!(
        result["content"][0]["text"].as_str().is_some_and(|text| text.contains("no column was chosen")),
        "{result}"
    );
    Ok(())
}

async fn node_a_call_is_given_up_and_the_worker_lives(client: Client<'_>) -> Result<()> {
    let slow = json!({"csv": table().repeat(4), "column": "amount", "pauseMs": 1000});
    let answer = client.call(CSV, SUMMARY, &slow, &json!({"cancel": 1})).await?;
    ensure!(answer.cancelled && answer.result.is_none(), "{answer:?}");
    // The same worker serves the next call.
    let next = json!({"csv": "n\n1\n3\n"});
    let answer = client.call(CSV, SUMMARY, &next, &json!({})).await?;
    ensure!(answer.result.context("no result")?["structuredContent"]["mean"] == 2, "wrong mean");
    Ok(())
}

pub(crate) const PRIMES: &str = "samples-java";
pub(crate) const FACTORIZE: &str = "factorize";

async fn java_asks_reports_progress_and_sends_an_artifact(client: Client<'_>) -> Result<()> {
    let script = json!({"answers": {"include": {"include": false}}});
    let arguments = json!({"numbers": [12, 97, 1_000_000_000_039_u64]});
    let answer = client.call(PRIMES, FACTORIZE, &arguments, &script).await?;
    let result = answer.result.with_context(|| format!("no result: {:?}", answer.error))?;
    let output = &result["structuredContent"];
    ensure!(output["numbers"][0]["factors"] == json!([2, 2, 3]), "{result}");
    ensure!(output["skipped"] == json!([1_000_000_000_039_u64]) && output["primes"] == 1, "{result}");
    ensure!(
        answer.asked.len() == 1 && !answer.progress.is_empty(),
        "{:?} {:?}",
        answer.asked,
        answer.progress
    );
    ensure!(answer.linked.len() == 1, "{:?}", answer.linked);
    Ok(())
}

async fn java_a_call_is_given_up_and_the_worker_lives(client: Client<'_>) -> Result<()> {
    let slow = json!({"numbers": vec![12; 100], "pauseMs": 1000});
    let answer = client.call(PRIMES, FACTORIZE, &slow, &json!({"cancel": 1})).await?;
    ensure!(answer.cancelled && answer.result.is_none(), "{answer:?}");
    let answer = client.call(PRIMES, FACTORIZE, &json!({"numbers": [6]}), &json!({})).await?;
    ensure!(
        answer.result.context("no result")?["structuredContent"]["numbers"][0]["factors"] == json!([2, 3])
    );
    Ok(())
}

pub(crate) const COMPLIANCE: &str = "webex-compliance";
pub(crate) const SWEEP: &str = "cdcsr_sweep";

pub(crate) fn sweep_arguments() -> Value {
    json!({
        "tenantId": "acme",
        "query": "PII OR restricted phrase",
        "dateRange": {"from": "2025-09-01T00:00:00Z", "to": "2025-09-30T23:59:59Z"},
        "actions": {"redact": true, "quarantine": true},
    })
}

/// The platform asks for approval (the sweep is destructive), then the plugin asks its two questions.
pub(crate) fn sweep_answers() -> Value {
    json!({
        "approve": {"approve": true},
        "legalHoldPolicyId": {"legalHoldPolicyId": "LHP-42"},
        "approveRedaction": {"approveRedaction": true, "approveQuarantine": true},
    })
}

async fn python_sweeps_with_approval_questions_and_delegations(client: Client<'_>) -> Result<()> {
    let script = json!({"answers": sweep_answers(), "sampled": "[\"national-id\"]"});
    let answer = client.call(COMPLIANCE, SWEEP, &sweep_arguments(), &script).await?;
    let result = swept(&answer)?;
    ensure!(!answer.sampled.is_empty(), "nothing was delegated");
    let asked: Vec<&Value> = answer.asked.iter().map(|question| &question["properties"][0]).collect();
    ensure!(asked == ["approve", "legalHoldPolicyId", "approveRedaction"], "{asked:?}");
    ensure!(result["summary"]["remediation"]["redacted"].as_u64() > Some(0), "{result}");
    Ok(())
}

async fn python_sweeps_by_rules_for_a_client_that_cannot_sample(client: Client<'_>) -> Result<()> {
    let script = json!({"answers": sweep_answers()});
    let answer = client.call(COMPLIANCE, SWEEP, &sweep_arguments(), &script).await?;
    swept(&answer)?;
    ensure!(answer.sampled.is_empty(), "the client cannot sample");
    Ok(())
}

/// The output of a sweep that was completed, with its three artifacts.
fn swept(answer: &Answer) -> Result<Value> {
    let result = answer.result.as_ref().with_context(|| format!("no result: {:?}", answer.error))?;
    let output = &result["structuredContent"];
    ensure!(output["status"] == "completed", "{result}");
    ensure!(output["summary"]["flaggedItems"].as_u64() > Some(0), "{result}");
    let rising = answer.progress.windows(2).all(|pair| pair[0].progress <= pair[1].progress);
    ensure!(rising && answer.progress.len() >= 3, "{:?}", answer.progress);
    ensure!(answer.linked.len() == 3, "{:?}", answer.linked);
    ensure!(
        answer
            .linked
            .iter()
            .any(|entry| entry["text"].as_str().is_some_and(|text| text.contains("signature")))
    );
    Ok(output.clone())
}
