//! Calls that a service of its own hosts over HTTP/JSON, called by the official Python client through Envoy, in
//! both eras of MCP, and as tasks of A2A.

use anyhow::{Context, Result, ensure};
use asp_e2e::model::Model;
use asp_e2e::process::Process;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::{http1, tool, wait};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::a2a_sweep::hosted;
use crate::plugins::{Answer, Client, MODES};
use crate::trial::{Shared, trials};

const SERVER: &str = "scanner";
const SCAN: &str = "scan";

trials! { hosted_calls: a_service_asks_reports_progress_and_is_cancelled }

async fn a_service_asks_reports_progress_and_is_cancelled(_: &Shared) -> Result<()> {
    let model = Model::start("national-id").await?;
    let (service, stack) = start(&model).await?;
    for (mode, protocol) in MODES {
        let client = Client { stack: &stack, mode, protocol };
        whole(&client).await.with_context(|| format!("{mode}: whole"))?;
        declined(&client).await.with_context(|| format!("{mode}: declined"))?;
        cancelled(&client, &service).await.with_context(|| format!("{mode}: cancelled"))?;
    }
    ensure!(model.take().is_empty(), "the client's model is asked first");
    reads(&stack).await.context("reads")?;
    hosted::sweep(&stack, &service).await.context("over A2A")?;
    ensure!(!model.take().is_empty(), "a client of A2A has no model");
    drop(service);
    stack.stop(&[]).await
}

/// The example service, and a stack whose operator lets the gateway reach it, and has a model for its delegates.
async fn start(model: &Model) -> Result<(Process, Stack)> {
    let mut command = Command::new(tool::python()?);
    command.arg("-B").arg(tool::root()?.join("tests/services/calls.py"));
    let service = Process::start("calls.py", command)?;
    let port = wait::until("the service listens", wait::START, || async {
        let lines = service.output().lines();
        serde_json::from_str::<Value>(lines.first()?).ok()?["port"].as_u64()
    })
    .await?;
    let upstream = format!("scanner.internal=http://127.0.0.1:{port}");
    let stack = Stack::start(Options {
        primitives: tool::root()?.join("tests/fixtures/hosted"),
        environment: vec![
            ("ASP_UPSTREAMS", upstream),
            ("ASP_DELEGATE_URL", model.url()),
            ("ASP_DELEGATE_MODEL", "test".to_owned()),
        ],
        ..Options::repository()?
    })
    .await?;
    Ok((service, stack))
}

fn texts() -> Value {
    json!({"texts": ["a secret", "nothing", "internal use", "nothing again"]})
}

fn result(answer: &Answer) -> Result<&Value> {
    answer.result.as_ref().with_context(|| format!("no result: {:?}", answer.error))
}

async fn whole(client: &Client<'_>) -> Result<()> {
    let script = json!({"answers": {"policy": {"policy": "strict"}}, "sampled": "leak"});
    // The gateway looks again soon after it saw something new: at each text once, if these are slow enough.
    let mut texts = texts();
    texts["pauseMs"] = json!(1000);
    let answer = client.call(SERVER, SCAN, &texts, &script).await?;
    let result = result(&answer)?;
    ensure!(result["structuredContent"] == json!({"found": 2, "label": "leak"}), "{result}");
    ensure!(
        answer.asked == [json!({"message": "Which policy?", "properties": ["policy"]})],
        "{:?}",
        answer.asked
    );
    let [sampled] = answer.sampled.as_slice() else { anyhow::bail!("{:?}", answer.sampled) };
    // The spec's own words and amount, the service's message.
    ensure!(
        sampled["systemPrompt"] == "Label the text with one word." && sampled["maxTokens"] == 16,
        "{sampled}"
    );
    ensure!(sampled["messages"][0]["content"]["text"] == "a secret", "{sampled}");
    let rising = answer.progress.windows(2).all(|pair| pair[0].progress < pair[1].progress);
    ensure!(rising && answer.progress.len() >= 3, "{:?}", answer.progress);
    ensure!(answer.progress.iter().any(|step| step.message.as_deref() == Some("4 of 4 texts")));
    Ok(())
}

async fn declined(client: &Client<'_>) -> Result<()> {
    let script = json!({"answers": {"policy": "decline"}, "sampled": "leak"});
    let answer = client.call(SERVER, SCAN, &texts(), &script).await?;
    let result = result(&answer)?;
    ensure!(result["isError"] == json!(true), "{result}");
    ensure!(result["content"][0]["text"] == "no policy was chosen", "{result}");
    Ok(())
}

async fn cancelled(client: &Client<'_>, service: &Process) -> Result<()> {
    let ended = |what: &str| service.log().lines().iter().filter(|line| line.ends_with(what)).count();
    let before = ended(" canceled");
    let slow = json!({"texts": vec!["nothing"; 100], "pauseMs": 1000});
    let script = json!({"answers": {"policy": {"policy": "mild"}}, "sampled": "", "cancel": 1});
    let answer = client.call(SERVER, SCAN, &slow, &script).await?;
    ensure!(answer.cancelled && answer.result.is_none(), "{answer:?}");
    wait::until("the service is told", wait::CONVERGE, || async {
        (ended(" canceled") > before).then_some(())
    })
    .await
}

async fn reads(stack: &Stack) -> Result<()> {
    let token = stack.alice().await?;
    let authorization = format!("Bearer {token}");
    let ask = async |method: &str, params: Value| -> Result<Value> {
        let body = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string();
        let headers = [
            ("authorization", authorization.as_str()),
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
        ];
        let answer = http1::post(stack.edge(), "/scanner/mcp", &headers, &body).await?;
        serde_json::from_slice(&answer.body).with_context(|| format!("{method}: {}", answer.status))
    };
    let read = ask("resources/read", json!({"uri": "scanner://policies"})).await?;
    ensure!(read["result"]["contents"][0]["text"] == "strict, mild", "{read}");
    let prompt = ask("prompts/get", json!({"name": "review", "arguments": {"what": "this"}})).await?;
    ensure!(prompt["result"]["messages"][0]["content"]["text"] == "Review this.", "{prompt}");
    Ok(())
}
