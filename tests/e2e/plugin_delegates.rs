//! Delegations that the platform answers: a client without a model gets what one with a model gets.

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use asp_e2e::model::Model;
use asp_e2e::stack::{Options, Stack};
use serde_json::{Value, json};

use crate::plugin_loss::report;
use crate::plugins::{Answer, COMPLIANCE, Client, MODES, SWEEP, sweep_answers, sweep_arguments};
use crate::policy;
use crate::trial::{Shared, trials};

/// What the model says, the client's and the platform's.
const SAYS: &str = "[\"national-id\"]";
const KEY: &str = "sk-of-the-operator";
const SAMPLES: &str = "samples-delegates";
const TRIAGE: &str = "triage";

trials! { plugin_delegates:
    a_client_without_a_model_gets_the_same_report,
    a_tool_asks_a_model_and_another_tool,
}

async fn a_client_without_a_model_gets_the_same_report(_: &Shared) -> Result<()> {
    let model = Model::start(SAYS).await?;
    let environment = vec![
        ("ASP_DELEGATE_URL", model.url()),
        ("ASP_DELEGATE_MODEL", "test".to_owned()),
        ("ASP_DELEGATE_API_KEY", KEY.to_owned()),
    ];
    let stack = Stack::start(Options { plugins: true, environment, ..Options::repository()? }).await?;
    policy::expose(&stack, "acme", COMPLIANCE).await?;
    for (mode, protocol) in MODES {
        let client = Client { stack: &stack, mode, protocol };
        let asked = sweep(&client, json!({"answers": sweep_answers(), "sampled": SAYS})).await?;
        ensure!(
            !asked.sampled.is_empty() && model.take().is_empty(),
            "{mode}: the client's model is asked first"
        );
        let alone = sweep(&client, json!({"answers": sweep_answers()})).await?;
        let questions = model.take();
        ensure!(alone.sampled.is_empty() && !questions.is_empty(), "{mode}: the platform asks its model");
        let wanted = report(&asked)?;
        let found = report(&alone)?;
        ensure!(found == wanted, "{mode}: another report:\n{found}\n{wanted}");
        ensure!(questions.len() == asked.sampled.len(), "{mode}: {} questions", questions.len());
        for question in questions {
            ensure!(question.authorization == format!("Bearer {KEY}"), "{mode}: not the endpoint's key");
            let messages = question.body["messages"].as_array().context("messages")?;
            ensure!(messages.len() == 2 && messages[0]["role"] == "system", "{mode}: {}", question.body);
        }
    }
    let metrics = http1::get(stack.gateway(), "/metrics", &[]).await?.text();
    for by in ["client", "model"] {
        let counted = format!("asp_delegations_total{{by=\"{by}\",outcome=\"ok\"}}");
        ensure!(metrics.contains(&counted), "no {counted}");
    }
    stack.stop(&[]).await
}

/// Where nobody has a model, the other tool answers still.
async fn a_tool_asks_a_model_and_another_tool(shared: &Shared) -> Result<()> {
    let stack = shared.plugin_stack().await?;
    let arguments = json!({"text": "I was locked out, and it is payday!"});
    for (mode, protocol) in MODES {
        let client = Client { stack, mode, protocol };
        let rows = [
            (json!({"sampled": "\"high\""}), json!({"topic": "access", "urgency": "high", "model": "test"})),
            (json!({"sampled": "very"}), json!({"topic": "access", "urgency": "unknown"})),
            (json!({}), json!({"topic": "access", "urgency": "unknown"})),
        ];
        for (script, wanted) in rows {
            let answer = client.call(SAMPLES, TRIAGE, &arguments, &script).await?;
            let result = answer.result.with_context(|| format!("no result: {:?}", answer.error))?;
            ensure!(result["structuredContent"] == wanted, "{mode} {script}: {result}");
        }
    }
    Ok(())
}

async fn sweep(client: &Client<'_>, script: Value) -> Result<Answer> {
    client.call(COMPLIANCE, SWEEP, &sweep_arguments(), &script).await
}
