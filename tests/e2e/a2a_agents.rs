//! Remote agents of A2A, imported by their cards and called: one of each official SDK in each version over each binding, by an
//! official MCP client; another instance of the platform, over both protocols; and agents that delegate to each other in a
//! circle, or through too many.

mod world;

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::agent::Agent;
use asp_e2e::push_receiver::Receiver;
use asp_e2e::wait;
use libtest_mimic::Trial;
use serde_json::{Value, json};
use tokio::time::timeout;

pub(crate) use self::world::World;
use self::world::{CONFORMANCE, REMOTE, RING, imported, link};
use crate::a2a_clients::{self, HTTP_BINDINGS, REST, SDKS, Sdk, V03, V10};
use crate::clients::{self, Place, node_program};
use crate::trial::{Shared, trials};
use crate::upstreams::rpc;

/// Revisions of MCP, one with sessions.
const REVISIONS: [&str; 2] = ["2026-07-28", "2025-11-25"];
/// Hang guard of a call through several agents.
const CALL: Duration = Duration::from_secs(60);
/// Question of the conformance agent.
const QUESTION: &str = "Go on, please.";

trials! { a2a_agents:
    another_instance_asks_the_mcp_clients_of_this_one,
    another_instance_is_an_agent_here_for_official_clients_of_a2a,
    a_circle_of_two_instances_is_cut,
    a_chain_has_eight_agents_at_most;
    of_each_sdk_in_each_version_over_each_binding
}

fn of_each_sdk_in_each_version_over_each_binding(shared: &Shared) -> Vec<Trial> {
    let mut trials = Vec::new();
    for (sdk, client, versions) in SDKS {
        for &version in versions {
            for ((_, over), revision) in HTTP_BINDINGS.into_iter().zip(REVISIONS) {
                let name =
                    format!("a2a_agents::an_mcp_client_calls_an_agent_of_{client}_in_{version}_over_{over}");
                trials.push(shared.trial(&name, async move |shared: &Shared| {
                    let world = shared.agents().await?;
                    call_agent(world, &imported(client, version, over), revision, sdk).await
                }));
            }
        }
    }
    trials
}

/// Calls an agent's skills: one that answers at once, one with progress and artifacts, one that asks, and one that is cancelled.
async fn call_agent(world: &World, server: &str, revision: &str, sdk: Sdk) -> Result<()> {
    let endless = format!("wait for {server}");
    let calls = json!([
        {"name": "say", "arguments": {"message": "hello"}},
        {"name": "count", "arguments": {"message": "one two three"}},
        {"name": "ask", "arguments": {"message": "please"}, "answers": [{"message": "Monday"}]},
        {"name": "wait", "arguments": {"message": endless}, "giveUp": true},
    ]);
    let seen = call(world, server, revision, &calls).await?;
    let [said, counted, answered, cancelled] = seen.as_slice() else { anyhow::bail!("{seen:?}") };
    ensure!(said["result"]["content"] == json!([{"type": "text", "text": "said hello"}]), "{said}");
    ensure!(counted["result"]["content"][0]["text"] == "1:one 2:two 3:three ", "{counted}");
    ensure!(counted["result"]["structuredContent"] == json!({"words": 3}), "{counted}");
    ensure!(counted["progress"] == json!(["word 1", "word 2", "word 3"]), "{counted}");
    ensure!(answered["asked"] == json!(["Which day?"]), "{answered}");
    ensure!(answered["result"]["content"] == json!([{"type": "text", "text": "on Monday"}]), "{answered}");
    ensure!(cancelled["progress"][0] == json!(endless) && cancelled["error"].is_string(), "{cancelled}");
    world.agent(sdk)?.logged(&endless).await.context("the agent is not asked to cancel")
}

/// Calls tools of a server of the near instance with the official client; returns what it sees of each call.
async fn call(world: &World, server: &str, revision: &str, calls: &Value) -> Result<Vec<Value>> {
    let url = world.near.mcp_url(server);
    let mut program = node_program("node-v2/calls.mjs")?;
    program.args([url.as_str(), revision, &calls.to_string()]);
    let token = world.near.alice().await?;
    let place = Place { url: &url, token: &token, tools: &[], environment: &[] };
    let seen = clients::run(program, &place).await?;
    seen.as_array().cloned().with_context(|| format!("no list: {seen}"))
}

/// Two hops: the question of the far instance is asked of the near one's client, whose cancel arrives there.
async fn another_instance_asks_the_mcp_clients_of_this_one(shared: &Shared) -> Result<()> {
    let world = shared.agents().await?;
    let far = Agent::of(CONFORMANCE, world.far.alice().await?);
    for revision in REVISIONS {
        let long = format!("tck-long-running for a client of {revision}");
        let calls = json!([
            {"name": "tck", "arguments": {"message": "tck-complete-task"}},
            {"name": "tck", "arguments": {"message": "tck-multi-turn"}, "answers": [{"text": "more"}, {"text": "done"}]},
            {"name": "tck", "arguments": {"message": long}, "giveUp": true},
        ]);
        let seen = call(world, REMOTE, revision, &calls).await?;
        let [completed, answered, cancelled] = seen.as_slice() else { anyhow::bail!("{seen:?}") };
        ensure!(completed["result"]["content"][0]["text"] == "Hello from TCK", "{completed}");
        ensure!(answered["asked"] == json!([QUESTION, QUESTION]), "{answered}");
        ensure!(answered["result"]["content"][0]["text"] == "done after 2 answers", "{answered}");
        ensure!(cancelled["progress"][0] == "counted 1 of 6", "{cancelled}");
        let canceled = || async {
            let filter = json!({"status": "TASK_STATE_CANCELED", "historyLength": 1});
            let listed = far.call(world.far.edge(), "ListTasks", &filter).await.ok()?;
            listed.to_string().contains(&long).then_some(())
        };
        wait::until("the task of the far instance is cancelled", wait::CONVERGE, canceled).await?;
    }
    Ok(())
}

/// Two hops over A2A alone, by an SDK in each version.
async fn another_instance_is_an_agent_here_for_official_clients_of_a2a(shared: &Shared) -> Result<()> {
    let world = shared.agents().await?;
    let edge = format!("http://{}", world.near.edge());
    for (sdk, version, binding) in [(Sdk::Node, V10, "JSONRPC"), (Sdk::Python, V03, REST)] {
        let receiver = Receiver::start().await?;
        let mut program = sdk.program((&edge, REMOTE), version, binding)?;
        program.env("ASP_HOOK", &receiver.url);
        let steps = a2a_clients::read(&a2a_clients::output(program, &world.near).await?)?;
        let step = |name: &str| steps.get(name).with_context(|| format!("no step {name}: {steps:?}"));
        for (name, expected) in [
            ("signature", json!({"accepted": true, "changed": "refused"})),
            ("send", json!({"kind": "task", "state": "completed", "got": "completed", "same": true})),
            ("failure", json!({"state": "failed"})),
            ("cancel", json!({"state": "canceled", "same": true})),
        ] {
            ensure!(step(name)? == &expected, "{name} is not {expected}: {steps:?}");
        }
        let question = step("question")?;
        ensure!(question["asked"] == "input-required" && question["text"] == QUESTION, "{question}");
        ensure!(question["answered"] == "completed" && question["same"] == true, "{question}");
        for name in ["stream", "resubscribe"] {
            let states = step(name)?["states"].as_array();
            ensure!(states.and_then(|all| all.last()) == Some(&json!("completed")), "{name}: {steps:?}");
        }
        a2a_clients::check_push(&steps, &receiver, version).await?;
    }
    Ok(())
}

/// Passes a message on at a server of the near instance, over MCP and over A2A; returns the results as text.
async fn pass(world: &World, server: &str) -> Result<[String; 2]> {
    let arguments = json!({"message": "hello"});
    let params = json!({"name": "pass", "arguments": arguments});
    let called = timeout(CALL, rpc(&world.near, server, "tools/call", params)).await;
    let called = called.context("the call hangs")??;
    let agent = Agent::of(server, world.near.alice().await?);
    let task = timeout(CALL, agent.begin(world.near.edge(), &arguments, &json!({}))).await;
    let task = task.context("the task hangs")??;
    Ok([called["result"].to_string(), task.to_string()])
}

async fn a_circle_of_two_instances_is_cut(shared: &Shared) -> Result<()> {
    let [called, task] = pass(shared.agents().await?, RING).await?;
    let why = "agents delegate to each other in a circle";
    ensure!(called.contains(why) && called.contains("\"isError\":true"), "{called}");
    ensure!(task.contains(why) && task.contains("TASK_STATE_FAILED"), "{task}");
    Ok(())
}

/// A message to the second link goes through eight servers to an agent, one to the first link through ten.
async fn a_chain_has_eight_agents_at_most(shared: &Shared) -> Result<()> {
    let world = shared.agents().await?;
    let [called, task] = pass(world, &link(2)).await?;
    ensure!(called.contains("said hello") && called.contains("\"isError\":false"), "{called}");
    ensure!(task.contains("said hello") && task.contains("TASK_STATE_COMPLETED"), "{task}");
    let [called, task] = pass(world, &link(1)).await?;
    let why = "more than 8 agents would delegate this request to each other";
    ensure!(called.contains(why) && called.contains("\"isError\":true"), "{called}");
    ensure!(task.contains(why) && task.contains("TASK_STATE_FAILED"), "{task}");
    Ok(())
}
