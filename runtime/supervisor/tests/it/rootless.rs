//! Tests of a runtime that is not root: its workers run as its own user, so something else must protect it from them.

use serde_json::{Value, json};

use super::account::{PIVOT_ROOT, UNSHARE, USER, outside, start_stand_ins};
use super::death::descendants;
use super::harness::{Stack, output, reason, start, wanted};

/// Starts a runtime at level 2, the highest one without the `refused` calls.
async fn at_level_2(refused: u32) -> Stack {
    let plugins =
        [("echo", json!({"isolation": {"minLevel": 1}})), ("high", json!({"isolation": {"minLevel": 3}}))];
    let stack = start_stand_ins(&plugins, &[refused], &["--min-level", "1"]).await;
    assert_eq!(stack.health().await["isolation_level"], json!(2), "{}", stack.health().await["missing"]);
    stack
}

/// Returns the users of the workers' processes, as the machine sees them.
fn users(stack: &Stack) -> Vec<u32> {
    let status = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let user = |text: String| {
        text.lines().find_map(|line| line.strip_prefix("Uid:")?.split('\t').nth(1)?.parse().ok())
    };
    let workers = descendants(stack.child.id());
    workers.into_iter().filter_map(|pid| user(status(pid))).collect()
}

/// With a user namespace for each worker, and without.
#[tokio::test]
async fn a_worker_below_level_3_cannot_connect_to_the_runtimes_own_socket_and_any_other_process_can() {
    for refused in [PIVOT_ROOT, UNSHARE] {
        let stack = at_level_2(refused).await;
        let path = stack.socket.to_str().unwrap();
        let control = outside(&[]).args(["--call-api", path]).output().unwrap();
        assert_eq!(
            String::from_utf8_lossy(&control.stdout),
            "answered",
            "the control is refused: {control:?}"
        );
        let said = stack.call("echo", "one", &json!({"mode": "call_api", "path": path})).await;
        let answer = output(&said).unwrap_or_else(|| panic!("{said:?}"))["answer"].to_string();
        assert!(
            answer.contains("refused: ") && answer.contains("Permission denied"),
            "a worker uses the runtime's API: {answer}"
        );
    }
}

#[tokio::test]
async fn who_connects_from_a_user_namespace_of_its_own_is_refused_too() {
    let stack = start_stand_ins(&[("echo", json!({}))], &[], &[]).await;
    let path = stack.socket.to_str().unwrap();
    let of_sandbox = outside(&["unshare", "--user"]).args(["--call-api", path]).output().unwrap();
    assert!(String::from_utf8_lossy(&of_sandbox.stdout).contains("refused: "), "{of_sandbox:?}");
    let refused = stack.log_line("a connection to the runtime's API was refused").await;
    assert!(refused.contains("the peer is a worker"), "{refused}");
}

#[tokio::test]
async fn without_user_namespaces_the_refusal_names_what_forbids_them() {
    let stack = at_level_2(UNSHARE).await;
    let missing = stack.health().await["missing"]["level3"].as_str().unwrap().to_owned();
    for part in ["user namespace", "EPERM", "seccomp filter", "unshare"] {
        assert!(missing.contains(part), "{part}: {missing}");
    }
    let refused = reason(&stack.allocate(wanted("high", "t")).await);
    assert!(refused.starts_with("isolation: ") && refused.contains("user namespace"), "{refused}");
    assert!(output(&stack.call("echo", "one", &json!({})).await).is_some());
}

#[tokio::test]
async fn a_lower_level_is_given_only_where_spec_and_operator_name_it() {
    let plugins = [("echo", json!({"isolation": {"minLevel": 2}}))];
    let stack = start_stand_ins(&plugins, &[UNSHARE], &[]).await;
    let refused = reason(&stack.allocate(wanted("echo", "t")).await);
    assert!(refused.contains("requires sandbox level 3, this machine provides 2"), "{refused}");
    let stack = start_stand_ins(&plugins, &[UNSHARE], &["--min-level", "2"]).await;
    assert!(output(&stack.call("echo", "one", &json!({})).await).is_some());
}

#[tokio::test]
async fn whether_workers_have_users_of_their_own_is_told_as_it_is() {
    let stack = start_stand_ins(&[("echo", json!({}))], &[], &[]).await;
    assert!(output(&stack.call("echo", "one", &json!({})).await).is_some());
    let workers = users(&stack);
    assert!(!workers.is_empty() && workers.iter().all(|user| *user == USER), "{workers:?}");
    assert_eq!(stack.health().await["own_user"], Value::Bool(false));
    stack.log_line("workers have the runtime's own user").await;

    let stack = start(&[("echo", json!({}))]).await;
    assert!(output(&stack.call("echo", "one", &json!({})).await).is_some());
    assert!(users(&stack).iter().any(|user| *user != 0), "{:?}", users(&stack));
    assert_eq!(stack.health().await["own_user"], true);
}
