//! Configurations of push notifications of A2A: each method and its result, in both versions over each binding that the recorder
//! reads, so that it holds them against the official definitions.

use anyhow::{Context, Result, ensure};
use asp_e2e::http1;
use asp_e2e::stack::Stack;
use serde_json::{Value, json};

use crate::message::rest;
use crate::trial::{Shared, trials};

const AGENT: &str = "/a2a-conformance/a2a";
/// Nobody listens there.
const HOOK: &str = "http://127.0.0.1:9/hook";
/// `TaskNotFoundError` of A2A, of a configuration that does not exist.
const NOT_FOUND: i64 = -32001;

trials! { a2a_push:
    each_method_over_json_rpc_has_its_result,
    each_method_over_rest_has_its_result,
}

async fn each_method_over_json_rpc_has_its_result(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let task = waiting_task(stack).await?;
    let config = json!({"taskId": task, "id": "c", "url": HOOK});
    let (one, all) = (json!({"taskId": task, "id": "c"}), json!({"taskId": task}));
    for (method, params, result) in [
        ("CreateTaskPushNotificationConfig", &config, config.clone()),
        ("GetTaskPushNotificationConfig", &one, config.clone()),
        ("ListTaskPushNotificationConfigs", &all, json!({"configs": [config]})),
        ("DeleteTaskPushNotificationConfig", &one, json!({})),
    ] {
        let answer = rpc(stack, "1.0", method, params).await?;
        ensure!(answer["result"] == result, "{method}: {answer}");
    }
    let config = json!({"taskId": task, "pushNotificationConfig": {"id": "c", "url": HOOK}});
    let (one, all) = (json!({"id": task, "pushNotificationConfigId": "c"}), json!({"id": task}));
    for (method, params, result) in [
        ("tasks/pushNotificationConfig/set", &config, config.clone()),
        ("tasks/pushNotificationConfig/get", &one, config.clone()),
        ("tasks/pushNotificationConfig/list", &all, json!([config])),
        ("tasks/pushNotificationConfig/delete", &one, Value::Null),
    ] {
        let answer = rpc(stack, "0.3", method, params).await?;
        ensure!(answer.get("result") == Some(&result), "{method}: {answer}");
    }
    let gone = rpc(stack, "0.3", "tasks/pushNotificationConfig/get", &one).await?;
    ensure!(gone["error"]["code"] == NOT_FOUND, "{gone}");
    Ok(())
}

async fn each_method_over_rest_has_its_result(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let task = waiting_task(stack).await?;
    let config = json!({"id": "c", "url": HOOK});
    let stored = json!({"taskId": task, "id": "c", "url": HOOK});
    let name = format!("tasks/{task}/pushNotificationConfigs/c");
    let of_03 = json!({"name": name, "pushNotificationConfig": config});
    for (version, prefix, query, sent, stored) in
        [("1.0", "", "", &config, &stored), ("0.3", "/v1", "?configId=c", &of_03, &of_03)]
    {
        let configs = format!("{AGENT}{prefix}/tasks/{task}/pushNotificationConfigs");
        let one = format!("{configs}/c");
        for (method, target, body, result) in [
            ("POST", format!("{configs}{query}"), sent, stored.clone()),
            ("GET", one.clone(), &Value::Null, stored.clone()),
            ("GET", configs, &Value::Null, json!({"configs": [stored]})),
            ("DELETE", one.clone(), &Value::Null, json!({})),
        ] {
            let (status, answer) = send(stack, version, (method, target.as_str()), body).await?;
            ensure!(status == 200 && answer == result, "{method} {target}: {status} {answer}");
        }
        let (status, answer) = send(stack, version, ("GET", one.as_str()), &Value::Null).await?;
        ensure!(status == 404, "{one}: {status} {answer}");
    }
    Ok(())
}

/// Starts a task that asks something; returns its id.
async fn waiting_task(stack: &Stack) -> Result<String> {
    let message = json!({"messageId": format!("{:032x}", rand::random::<u128>()), "role": "ROLE_USER",
        "parts": [{"text": "tck-input-required"}]});
    let answer = rpc(stack, "1.0", "SendMessage", &json!({"message": message})).await?;
    let id = answer["result"]["task"]["id"].as_str();
    Ok(id.with_context(|| format!("no task: {answer}"))?.to_owned())
}

async fn rpc(stack: &Stack, version: &str, method: &str, params: &Value) -> Result<Value> {
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let (status, answer) = send(stack, version, ("POST", AGENT), &message).await?;
    ensure!(status == 200, "{method}: {status} {answer}");
    Ok(answer)
}

async fn send(
    stack: &Stack,
    version: &str,
    (method, target): (&str, &str),
    body: &Value,
) -> Result<(u16, Value)> {
    let mut request = rest(method, target, &stack.alice().await?, body);
    request.headers.push(("a2a-version".into(), version.as_bytes().to_vec()));
    let response = http1::send(stack.edge(), &request).await?;
    Ok((response.status, response.json()?))
}
