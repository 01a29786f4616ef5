//! A runtime that is not root: its workers have its own user, so what keeps them from it must be something else.

use std::os::unix::process::CommandExt;
use std::process::Command;

use serde_json::json;

use super::death::descendants;
use super::harness::{Stack, interpreter, output, start, start_as};

/// A user that owns nothing here.
const USER: u32 = 65534;

async fn rootless() -> Stack {
    assert!(rustix::process::geteuid().is_root(), "only root can start it as somebody else");
    start_as(USER, &[("echo", json!({"isolation": {"minLevel": 1}}))], &["--min-level", "1"]).await
}

/// The users of the workers' processes, as the machine has them.
fn users(stack: &Stack) -> Vec<u32> {
    let status = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let user = |text: String| {
        text.lines().find_map(|line| line.strip_prefix("Uid:")?.split('\t').nth(1)?.parse().ok())
    };
    let workers = descendants(stack.child.id());
    workers.into_iter().filter_map(|pid| user(status(pid))).collect()
}

#[tokio::test]
async fn a_worker_of_the_same_user_is_refused_at_the_api_and_any_other_process_is_not() {
    let stack = rootless().await;
    let level = stack.health().await["isolation_level"].as_f64().unwrap();
    assert!((2.0..3.0).contains(&level), "at level 3 the worker does not find the socket: {level}");
    let path = stack.socket.to_str().unwrap();
    let control =
        Command::new(interpreter()).args(["--call-api", path]).uid(USER).gid(USER).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&control.stdout), "answered", "the control is refused: {control:?}");
    let said = stack.call("echo", "one", &json!({"mode": "call_api", "path": path})).await;
    let answer = output(&said).unwrap_or_else(|| panic!("{said:?}"))["answer"].to_string();
    assert!(answer.contains("refused: "), "a worker uses the runtime's API: {answer}");
    stack.log_line("a worker connected to the runtime's own API").await;
}

#[tokio::test]
async fn whether_workers_have_users_of_their_own_is_told_as_it_is() {
    let stack = rootless().await;
    assert!(output(&stack.call("echo", "one", &json!({})).await).is_some());
    let workers = users(&stack);
    assert!(!workers.is_empty() && workers.iter().all(|user| *user == USER), "{workers:?}");
    assert_eq!(stack.health().await["own_user"], false);
    stack.log_line("workers have the runtime's own user").await;

    let stack = start(&[("echo", json!({}))]).await;
    assert!(output(&stack.call("echo", "one", &json!({})).await).is_some());
    assert!(users(&stack).iter().any(|user| *user != 0), "{:?}", users(&stack));
    assert_eq!(stack.health().await["own_user"], true);
}
