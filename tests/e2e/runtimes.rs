//! What operators see of the language runtimes, after a plugin of each was really called.

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use asp_e2e::stack::Stack;
use asp_e2e::wait;
use serde_json::{Value, json};

use crate::clients::MODERN;
use crate::plugins::{CSV, Client, SUMMARY};
use crate::trial::{Shared, trials};

trials! { runtimes:
    workers_are_seen_by_admins_and_by_prometheus,
}

async fn workers_are_seen_by_admins_and_by_prometheus(shared: &Shared) -> Result<()> {
    let stack = shared.plugin_stack().await?;
    let client = Client { stack, mode: "auto", protocol: MODERN };
    let script = json!({"answers": {"column": {"column": "amount"}}});
    let answer = client.call(CSV, SUMMARY, &json!({"csv": "id,amount\n1,5\n2,7\n"}), &script).await?;
    answer.result.with_context(|| format!("no result: {:?}", answer.error))?;

    // Interpreters are asked every five seconds, and again then when one was too busy. Other tests call the plugin
    // too: some of its workers may have just begun.
    let (runtime, worker) = wait::until("a worker that served tells of its heap", wait::START, || async {
        let runtime = listed(stack).await.ok()?;
        let workers = plugin(&runtime)?["workerList"].as_array()?;
        let tells =
            |worker: &&Value| worker.get("heapUsedBytes").is_some() && worker["calls"].as_u64() >= Some(1);
        let worker = workers.iter().find(tells)?.clone();
        Some((runtime, worker))
    })
    .await?;
    ensure!(runtime["state"] == "ready" && runtime["report"]["languages"]["java"] == "present", "{runtime}");
    ensure!(runtime["report"]["isolationLevel"] == 3, "{runtime}");
    let summary = plugin(&runtime).context("the plugin is listed")?;
    ensure!(summary["language"] == "node" && summary["starts"].as_u64() >= Some(1), "{summary}");
    ensure!(worker["rssBytes"].as_u64() > Some(0), "{worker}");
    ensure!(worker["heapUsedBytes"].as_u64() < worker["heapLimitBytes"].as_u64(), "{worker}");

    let wanted = [
        format!("asp_worker_processes{{plugin=\"{SUMMARY}@"),
        format!("asp_worker_heap_used_bytes{{plugin=\"{SUMMARY}@"),
        format!("asp_worker_gc_seconds_total{{plugin=\"{SUMMARY}@"),
        format!("asp_worker_call_duration_seconds_count{{plugin=\"{SUMMARY}@"),
    ];
    wait::until("the gateway's metrics have it", wait::START, || async {
        let metrics = http1::get(stack.gateway(), "/metrics", &[]).await.ok()?.text();
        let up = "asp_runtime_up{languages=\"python+node+java+mcp-stdio\",runtime=\"unix:/";
        let is_up = metrics.lines().any(|line| line.starts_with(up) && line.ends_with("} 1.0"));
        (is_up && wanted.iter().all(|line| metrics.contains(line))).then_some(())
    })
    .await
}

/// The one runtime of this stack.
pub(crate) async fn listed(stack: &Stack) -> Result<Value> {
    let bearer = format!("Bearer {}", stack.token(&["--admin", "--user", "root"]).await?);
    let answer = http1::get(stack.admin(), "/api/runtimes", &[("authorization", &bearer)]).await?;
    ensure!(answer.status == 200, "{} {}", answer.status, answer.text());
    let runtimes: Value = serde_json::from_str(&answer.text())?;
    runtimes.get(0).cloned().context("a runtime")
}

fn plugin(runtime: &Value) -> Option<&Value> {
    let plugins = runtime["report"]["plugins"].as_object()?;
    plugins.iter().find(|(name, _)| name.starts_with(&format!("{SUMMARY}@"))).map(|(_, plugin)| plugin)
}
