//! The sweep of a service that hosts its calls over HTTP/JSON: the same task for a client of A2A.

use std::time::Duration;

use anyhow::{Result, ensure};
use asp_e2e::agent::{CANCELED, COMPLETED, state};
use asp_e2e::journal::Journal;
use asp_e2e::process::Process;
use asp_e2e::stack::Stack;
use asp_e2e::wait;
use serde_json::json;

use super::client::AgentClient;
use super::{answers, approve, steps};

/// Hang guard of a request of the gateway to the service.
const REACHED: Duration = Duration::from_secs(30);

/// Runs a sweep to its end, and cancels another one that the service has.
pub(crate) async fn sweep(stack: &Stack, service: &Process) -> Result<()> {
    let journal = Journal::default();
    stack.write_agents_to(&journal)?;
    let client = AgentClient::new(stack.edge(), "sweeper", stack.alice().await?);
    let arguments = json!({"query": "PII"});
    let mut events = client.start("hosted", &arguments, &json!({})).await?;
    for (question, id, fields) in answers() {
        events.until_asked(question).await?;
        client.answer(id, &events.task, &fields).await?;
    }
    let ended = events.end().await?;
    ensure!(state(&ended) == COMPLETED, "{ended}");
    steps::check(&journal.take(), steps::HOSTED)?;

    let mut events = client.start("cancelled", &arguments, &json!({})).await?;
    approve(&client, &mut events, "approve-cancelled").await?;
    events.until_asked("gather_missing_policy").await?;
    client.cancel("cancel", &events.task).await?;
    let ended = events.end().await?;
    ensure!(state(&ended) == CANCELED, "{ended}");
    // The service knows the call by the id of the task.
    let line = format!("{} canceled", events.task);
    wait::until("the service has the cancel", REACHED, || async {
        service.output().contains(&line).then_some(())
    })
    .await
}
