//! Tests of what people and machines see of the runtime and of a sandbox's network access.

use std::process::Stdio;

use asp_proto::supervisor::{HealthRequest, MetricsStreamRequest, health_response};
use serde_json::json;
use tokio::time::timeout;

use super::account::{PIVOT_ROOT, start_stand_ins};
use super::harness::{PATIENCE, crash, eventually, output, reason, runtime, start, wanted};

#[tokio::test]
async fn metrics_tell_of_workers_and_calls_as_they_happen() {
    let stack = start(&[("echo", json!({})), ("other", json!({}))]).await;
    let filter = [("plugin".to_owned(), "echo@1.0.0".to_owned())].into();
    let mut client = stack.client.clone();
    let mut events = client.metrics_stream(MetricsStreamRequest { filter }).await.unwrap().into_inner();
    stack.call("other", "zero", &json!({})).await;
    stack.call("echo", "one", &json!({})).await;
    stack.call("echo", "two", &json!({"mode": "exit"})).await;
    let mut names = Vec::new();
    while names.len() < 4 {
        let event = timeout(PATIENCE, events.message()).await.unwrap().unwrap().unwrap();
        assert_eq!(event.labels["plugin"], "echo@1.0.0");
        if !event.name.ends_with("_sample") {
            names.push(event.name);
        }
    }
    names.sort();
    assert_eq!(names, ["call", "call", "worker_crashed", "worker_started"]);
}

#[tokio::test]
async fn health_is_degraded_while_a_plugin_is_quarantined() {
    let stack = start(&[("broken", json!({"entrypoint": "broken.py"}))]).await;
    let status = async || stack.client.clone().health(HealthRequest {}).await.unwrap().into_inner().status();
    assert_eq!(status().await, health_response::Status::Ok);
    stack.tunnel("broken").await.rest().await;
    assert_eq!(status().await, health_response::Status::Degraded);
    stack.log_line("a plugin is quarantined").await;
}

#[tokio::test]
async fn a_worker_reaches_its_proxy_and_nothing_that_is_not_listed() {
    let listed = json!({"allowedDomains": ["localhost"]});
    let stack = start(&[("listed", listed), ("closed", json!({}))]).await;
    for (request, answer) in [
        ("CONNECT evil.example.com:443 HTTP/1.1\r\n\r\n", "name not allowed"),
        ("GET http://localhost/ HTTP/1.1\r\n\r\n", "address not allowed"),
        ("GET / HTTP/1.1\r\n\r\n", "malformed"),
    ] {
        let said = stack.call("listed", "one", &json!({"mode": "egress", "request": request})).await;
        let told = output(&said).unwrap()["answer"].as_str().unwrap().to_owned();
        assert!(told.ends_with(answer), "{request}: {told}");
    }
    eventually("the audit lines", || async { stack.logged("\"audit\":true").len() == 2 }).await;
    assert!(stack.log_line("name_denied").await.contains("evil.example.com"));
    let said = stack.call("closed", "two", &json!({"mode": "egress"})).await;
    assert!(
        output(&said).unwrap()["answer"].as_str().unwrap().contains("not found"),
        "it has no proxy at all"
    );
}

#[tokio::test]
async fn a_runtime_that_is_not_root_runs_what_its_level_allows() {
    let low = json!({"isolation": {"minLevel": 1}});
    let plugins = [("low", low), ("high", json!({"isolation": {"minLevel": 3}}))];
    let stack = start_stand_ins(&plugins, &[PIVOT_ROOT], &["--min-level", "1"]).await;
    let level = stack.health().await["isolation_level"].as_f64().unwrap();
    assert!(output(&stack.call("low", "one", &json!({"text": "x"})).await).is_some());
    assert_eq!(crash(&stack.call("low", "two", &json!({"mode": "exit"})).await), Some(("exit".into(), true)));
    let high = stack.allocate(wanted("high", "t")).await;
    if level < 3.0 {
        assert!(reason(&high).starts_with("isolation: "), "never weaker than demanded: {}", reason(&high));
        assert!(!stack.health().await["missing"]["level3"].as_str().unwrap().is_empty(), "and it says why");
    } else {
        assert_eq!(reason(&high), "");
    }
}

#[tokio::test]
async fn two_runtimes_do_not_share_a_state_directory() {
    let stack = start(&[("echo", json!({}))]).await;
    let second = runtime()
        .arg("--plugins")
        .arg(stack.plugins())
        .arg("--state")
        .arg(&stack.state)
        .args(["--socket", "/nonexistent/socket"])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(second.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&second.stderr).contains("another runtime uses"));
    assert!(output(&stack.call("echo", "one", &json!({})).await).is_some(), "the first goes on");
}

#[tokio::test]
async fn a_file_where_the_socket_should_be_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("precious");
    std::fs::write(&path, "keep").unwrap();
    let ended = runtime()
        .args(["--plugins", dir.path().to_str().unwrap(), "--socket", path.to_str().unwrap()])
        .arg("--state")
        .arg(dir.path().join("state"))
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "keep");
}

#[tokio::test]
async fn bad_settings_are_listed_and_exit_64() {
    let ended = runtime()
        .args(["--plugins", "/nonexistent", "--state", "/proc/none", "--min-level", "9"])
        .stderr(Stdio::piped())
        .output()
        .unwrap();
    assert_eq!(ended.status.code(), Some(64));
    let text = String::from_utf8_lossy(&ended.stderr);
    for fault in ["--plugins", "--state", "--min-level", "--socket or --listen"] {
        assert!(text.contains(fault), "{fault}: {text}");
    }
    let help = runtime().arg("--help").output().unwrap();
    assert!(help.status.success() && String::from_utf8_lossy(&help.stdout).contains("ASP_PLUGIN_PYTHON"));
}
