//! Configurations of push notifications of A2A: each method and its result, in both versions over each binding, so that the
//! recorder holds them against the official definitions. Over gRPC those of 1.0 are rows of `tests/vectors/a2a`.

use anyhow::{Context, Result, ensure};
use asp_e2e::stack::Stack;
use asp_e2e::{http1, http2};
use asp_proto::a2a::a2a::v1::{
    CreateTaskPushNotificationConfigRequest, DeleteTaskPushNotificationConfigRequest,
    GetTaskPushNotificationConfigRequest, ListTaskPushNotificationConfigRequest,
    ListTaskPushNotificationConfigResponse, PushNotificationConfig, TaskPushNotificationConfig,
};
use prost::Message;
use serde_json::{Value, json};

use crate::message::rest;
use crate::trial::{Shared, trials};

const AGENT: &str = "/a2a-conformance/a2a";
/// Nobody listens there.
const HOOK: &str = "http://127.0.0.1:9/hook";
/// `TaskNotFoundError` of A2A, of a configuration that does not exist.
const NOT_FOUND: i64 = -32001;
/// Length of the flag and the length before a message of gRPC, in bytes.
const PREFIX: usize = 5;

trials! { a2a_push:
    each_method_over_json_rpc_has_its_result,
    each_method_over_rest_has_its_result,
    each_method_of_0_3_over_grpc_has_its_result,
}

async fn each_method_over_json_rpc_has_its_result(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let task = waiting_task(stack).await?;
    let config = json!({"taskId": task, "id": "c", "url": HOOK});
    let one = json!({"taskId": task, "id": "c"});
    let all = json!({"taskId": task});
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
    let one = json!({"id": task, "pushNotificationConfigId": "c"});
    let all = json!({"id": task});
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

async fn each_method_of_0_3_over_grpc_has_its_result(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let parent = format!("tasks/{}", waiting_task(stack).await?);
    let name = format!("{parent}/pushNotificationConfigs/c");
    let config =
        PushNotificationConfig { id: "c".into(), url: HOOK.into(), ..PushNotificationConfig::default() };
    let stored = TaskPushNotificationConfig { name: name.clone(), push_notification_config: Some(config) };
    let create = CreateTaskPushNotificationConfigRequest {
        parent: parent.clone(),
        config_id: "c".into(),
        config: Some(stored.clone()),
    };
    let created: TaskPushNotificationConfig =
        call(stack, "CreateTaskPushNotificationConfig", &create).await?;
    ensure!(created == stored, "{created:?}");
    let get = GetTaskPushNotificationConfigRequest { name: name.clone() };
    let got: TaskPushNotificationConfig = call(stack, "GetTaskPushNotificationConfig", &get).await?;
    ensure!(got == stored, "{got:?}");
    let list = ListTaskPushNotificationConfigRequest { parent, ..Default::default() };
    let listed: ListTaskPushNotificationConfigResponse =
        call(stack, "ListTaskPushNotificationConfig", &list).await?;
    ensure!(listed.configs == [stored], "{listed:?}");
    let delete = DeleteTaskPushNotificationConfigRequest { name };
    call::<()>(stack, "DeleteTaskPushNotificationConfig", &delete).await?;
    let gone = call::<TaskPushNotificationConfig>(stack, "GetTaskPushNotificationConfig", &get).await;
    ensure!(gone.is_err(), "{gone:?}");
    Ok(())
}

/// Calls a method of 0.3 over gRPC.
async fn call<R: Message + Default>(stack: &Stack, method: &str, request: &impl Message) -> Result<R> {
    let message = request.encode_to_vec();
    let mut body = vec![0];
    body.extend(u32::try_from(message.len())?.to_be_bytes());
    body.extend(message);
    let request = http::Request::post(format!("http://{}/a2a.v1.A2AService/{method}", stack.edge()))
        .header("authorization", format!("Bearer {}", stack.alice().await?))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)?;
    let response = http2::send(stack.edge(), request, &[]).await?;
    ensure!(response.header("grpc-status") == Some("0"), "{method}: {:?}", response.headers);
    Ok(R::decode(response.body.get(PREFIX..).context("no message")?)?)
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
