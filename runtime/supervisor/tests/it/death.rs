//! Tests of workers and runtimes that die.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use asp_proto::supervisor::MetricsStreamRequest;
use prost_types::value::Kind;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::json;

use super::harness::{Stack, crash, eventually, output, start};

/// Returns the processes below the runtime, deepest last. Determined by each process's parent:
/// `/proc/<pid>/task/<tid>/children` may omit some while others end (proc_pid_tid_children(5)).
pub(super) fn descendants(of: u32) -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut children: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (pid, parent) in pids.filter_map(|pid| Some((pid, parent(pid)?))) {
        children.entry(parent).or_default().push(pid);
    }
    let mut all = Vec::new();
    let mut open = vec![of];
    while let Some(parent) = open.pop() {
        let found = children.remove(&parent).unwrap_or_default();
        open.extend(&found);
        all.extend(found);
    }
    all
}

/// Returns the parent; `None` if the process no longer exists.
fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name is in parentheses and may contain anything; the state and the parent follow it.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn send(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap(), signal).unwrap();
}

fn worker_of(stack: &Stack) -> u32 {
    *descendants(stack.child.id()).last().expect("a worker runs")
}

#[tokio::test]
async fn a_killed_worker_is_told_to_its_calls_and_to_nobody_else() {
    let stack = start(&[("echo", json!({"pool": {"max": 1}})), ("good", json!({}))]).await;
    let mut first = stack.tunnel("echo").await;
    first.invoke("first", &json!({"mode": "slow", "ms": 60_000})).await;
    first.until_message().await;
    let mut second = stack.tunnel("echo").await;
    second.invoke("second", &json!({"mode": "slow", "ms": 60_000})).await;
    second.until_message().await;
    let worker = worker_of(&stack);
    let mut good = stack.tunnel("good").await;
    good.invoke("good", &json!({"mode": "slow", "ms": 500})).await;
    good.until_message().await;

    send(worker, Signal::KILL);
    for tunnel in [&mut first, &mut second] {
        assert_eq!(crash(&tunnel.rest().await), Some(("signal".to_owned(), true)));
    }
    // The order matters: both were notified while the other plugin's call was still running.
    assert!(output(&good.rest().await).is_some());
    let said = stack.call("echo", "third", &json!({"text": "back"})).await;
    assert_eq!(output(&said).unwrap()["text"], "back", "it is replaced");
}

#[tokio::test]
async fn how_a_worker_ended_is_told_apart() {
    let stack = start(&[("echo", json!({}))]).await;
    let ends = [
        (json!({"mode": "exit", "code": 3}), "exit"),
        (json!({"mode": "crash"}), "signal"),
        (json!({"mode": "memory"}), "oom"),
    ];
    for (crashes, (arguments, cause)) in (1..).zip(ends) {
        let said = stack.call("echo", "one", &arguments).await;
        assert_eq!(crash(&said), Some((cause.to_owned(), true)), "{arguments}: {said:?}");
        assert_eq!(
            stack.figure("echo@1.0.0", "crashes").await,
            crashes,
            "it is counted before its call hears of it"
        );
    }
    eventually("what dead workers had is gone", || async { stack.homes() == 0 }).await;
}

#[tokio::test]
async fn a_stopped_worker_is_a_wedge_and_is_killed() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("one", &json!({"mode": "slow", "ms": 60_000})).await;
    tunnel.until_message().await;
    send(worker_of(&stack), Signal::STOP);
    assert_eq!(crash(&tunnel.rest().await), Some(("wedged".to_owned(), true)));
    let mut tunnel = stack.tunnel("echo").await;
    tunnel.invoke("two", &json!({"mode": "wedge"})).await;
    assert_eq!(crash(&tunnel.rest().await), Some(("wedged".to_owned(), true)));
}

#[tokio::test]
async fn no_worker_outlives_a_killed_runtime() {
    let mut stack = start(&[("echo", json!({"pool": {"concurrency": 1}}))]).await;
    let mut tunnels = Vec::new();
    for number in 0..2 {
        let mut tunnel = stack.tunnel("echo").await;
        tunnel.invoke(&format!("call-{number}"), &json!({"mode": "slow", "ms": 60_000})).await;
        tunnel.until_message().await;
        tunnels.push(tunnel);
    }
    let workers = descendants(stack.child.id());
    assert!(workers.len() >= 2, "{workers:?}");
    stack.child.kill().unwrap();
    stack.child.wait().unwrap();
    let alive = |pid: u32| test_kill_process(Pid::from_raw(i32::try_from(pid).unwrap()).unwrap()).is_ok();
    let began = std::time::Instant::now();
    while workers.iter().any(|pid| alive(*pid)) {
        assert!(began.elapsed() < Duration::from_secs(30), "orphans: {workers:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test]
async fn sigterm_is_told_at_once_lets_running_calls_finish_and_exits_cleanly() {
    let mut stack = start(&[("echo", json!({}))]).await;
    let mut tunnel = stack.tunnel("echo").await;
    let filter = [("name".to_owned(), "plugin_sample".to_owned())].into();
    let samples = stack.client.clone().metrics_stream(MetricsStreamRequest { filter }).await;
    let mut samples = samples.unwrap().into_inner();
    tunnel.invoke("one", &json!({"mode": "slow", "ms": 400})).await;
    tunnel.until_message().await;
    send(stack.child.id(), Signal::TERM);
    // The next periodic sample would come after the end.
    let draining = Some(Kind::BoolValue(true));
    while samples.message().await.unwrap().unwrap().fields.unwrap().fields["draining"].kind != draining {}
    assert!(output(&tunnel.rest().await).is_some(), "the call finishes");
    let status = tokio::task::spawn_blocking(move || {
        let status = stack.child.wait().unwrap();
        (status, stack)
    });
    let (status, stack) = status.await.unwrap();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    assert!(!stack.socket.exists() && stack.homes() == 0);
}
