//! Agents that take a request and never begin to answer it.

use super::super::modern_changes::later;
use super::*;

/// A gateway whose tool `echo` is the agent's skill `talk`, and whose calls may last an hour.
fn patient(address: SocketAddr) -> Fixture {
    let mut snapshot = agent_snapshot(address, |_| ());
    for primitive in snapshot.primitives.iter_mut().filter(|primitive| primitive.id == "echo") {
        primitive.max_runtime_seconds = 3600;
    }
    Fixture::of(snapshot)
}

/// Passes this time in steps in which leases are renewed.
async fn pass(time: Duration) {
    for _ in 0..time.as_secs() {
        later(1).await;
    }
}

/// Calls the tool; returns its answer, alone or at the end of a stream that was kept alive.
async fn late(fixture: &Fixture) -> Value {
    let params = json!({"name": "echo", "arguments": {"message": "m"}});
    Modern::new("demo", &token("alice"), "tools/call", params).send(fixture).await.last()
}

/// The task ends at the agent, and nothing but the lost subscription would say so.
#[tokio::test]
async fn a_stream_whose_answer_never_begins_is_given_up_and_its_task_read() {
    let (address, agent) = agent(|asked, _| match asked {
        Operation::Stream(_) => Reply::Events(vec![StreamEvent::Task(task(TaskState::Working, None))]),
        Operation::Subscribe { .. } => Reply::Never,
        _ => whole(A2aAnswer::Task(done("kept"))),
    })
    .await;
    let fixture = patient(address);
    let passing = async {
        heard(&agent, |asked| matches!(asked, Operation::Subscribe { .. })).await;
        pass(Duration::from_secs(31)).await;
    };
    let (answer, ()) = tokio::join!(late(&fixture), passing);
    assert_eq!(texts(&answer), ["kept"]);
}

#[tokio::test]
async fn a_message_whose_answer_never_begins_has_an_unknown_outcome() {
    let (address, agent) = agent(|_, _| Reply::Never).await;
    let fixture = patient(address);
    let passing = async {
        heard(&agent, |asked| matches!(asked, Operation::Stream(_))).await;
        pass(Duration::from_secs(301)).await;
    };
    let (answer, ()) = tokio::join!(late(&fixture), passing);
    assert_eq!(texts(&answer), ["the call may or may not have taken effect"]);
}
