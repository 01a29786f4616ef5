//! Push notifications of A2A, which are refused until they are served: each method, in both versions over each binding, by a
//! request that fits the official definitions.

use anyhow::{Result, ensure};
use asp_e2e::http1;
use asp_e2e::stack::Stack;
use serde_json::{Value, json};

use crate::message::rest;
use crate::trial::{Shared, trials};

const AGENT: &str = "/a2a-conformance/a2a";
const TASK: &str = "00000000-0000-0000-0000-000000000000";
const HOOK: &str = "https://example.com/hook";
/// `PushNotificationNotSupportedError` of A2A.
const NOT_SUPPORTED: i64 = -32003;

trials! { a2a_push:
    each_method_over_json_rpc_is_refused_as_not_supported,
    each_method_over_rest_is_refused_as_not_supported,
}

async fn each_method_over_json_rpc_is_refused_as_not_supported(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let config = json!({"id": "c", "url": HOOK});
    let (one, all) = (json!({"taskId": TASK, "id": "c"}), json!({"taskId": TASK}));
    let one_03 = json!({"id": TASK, "pushNotificationConfigId": "c"});
    for (version, method, params) in [
        ("1.0", "CreateTaskPushNotificationConfig", json!({"taskId": TASK, "id": "c", "url": HOOK})),
        ("1.0", "GetTaskPushNotificationConfig", one.clone()),
        ("1.0", "ListTaskPushNotificationConfigs", all),
        ("1.0", "DeleteTaskPushNotificationConfig", one),
        (
            "0.3",
            "tasks/pushNotificationConfig/set",
            json!({"taskId": TASK, "pushNotificationConfig": config}),
        ),
        ("0.3", "tasks/pushNotificationConfig/get", one_03.clone()),
        ("0.3", "tasks/pushNotificationConfig/list", json!({"id": TASK})),
        ("0.3", "tasks/pushNotificationConfig/delete", one_03),
    ] {
        let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
        let (status, answer) = send(stack, version, ("POST", AGENT), &message).await?;
        ensure!(status == 200 && answer["error"]["code"] == NOT_SUPPORTED, "{method}: {status} {answer}");
    }
    Ok(())
}

async fn each_method_over_rest_is_refused_as_not_supported(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let config = json!({"id": "c", "url": HOOK});
    let name = format!("tasks/{TASK}/pushNotificationConfigs/c");
    let config_03 = json!({"name": name, "pushNotificationConfig": config});
    for (version, prefix, query, config) in
        [("1.0", "", "", config), ("0.3", "/v1", "?configId=c", config_03)]
    {
        let configs = format!("{AGENT}{prefix}/tasks/{TASK}/pushNotificationConfigs");
        let one = format!("{configs}/c");
        for (method, target, body) in [
            ("POST", format!("{configs}{query}"), &config),
            ("GET", configs, &Value::Null),
            ("GET", one.clone(), &Value::Null),
            ("DELETE", one, &Value::Null),
        ] {
            let (status, answer) = send(stack, version, (method, target.as_str()), body).await?;
            let is_refused = match version {
                "1.0" => answer["error"]["details"][0]["reason"] == "PUSH_NOTIFICATION_NOT_SUPPORTED",
                _ => answer["code"] == NOT_SUPPORTED,
            };
            ensure!(status == 400 && is_refused, "{method} {target}: {status} {answer}");
        }
    }
    Ok(())
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
