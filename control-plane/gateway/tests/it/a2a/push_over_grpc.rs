//! Push notifications of tasks over gRPC, through the clients of both definitions: the configurations of the other bindings, and
//! notifications in the form of the version of the registration.

use asp_a2a::A2aError;
use asp_a2a::grpc::generated::{a2a::v1 as v03, lf::a2a::v1 as v10};
use asp_registry::{Inputs, assemble};
use asp_runtime_client::runtimes::Runtimes;
use serde_json::json;
use tempfile::TempDir;
use tonic::Code;

use super::grpc::{HOST, by, client, client_v03, message, message_v03, refused, sent};
use super::push::{Receiver, sending_by};
use super::{Client, speaking};
use crate::support::Fixture;

/// A gateway that sends, with an agent at any host.
async fn sending() -> (Fixture, TempDir) {
    sending_by(assemble(Inputs { default_agent: "demo".into(), ..speaking() }), Runtimes::none()).await
}

fn config(task: &str, url: &str) -> v10::TaskPushNotificationConfig {
    v10::TaskPushNotificationConfig {
        task_id: task.into(),
        id: "a".into(),
        url: url.into(),
        ..Default::default()
    }
}

fn config_v03(task: &str, url: &str) -> v03::TaskPushNotificationConfig {
    let inner = v03::PushNotificationConfig { id: "b".into(), url: url.into(), ..Default::default() };
    v03::TaskPushNotificationConfig {
        name: format!("tasks/{task}/pushNotificationConfigs/b"),
        push_notification_config: Some(inner),
    }
}

fn get(task: &str) -> v10::GetTaskPushNotificationConfigRequest {
    v10::GetTaskPushNotificationConfigRequest { task_id: task.into(), id: "a".into(), ..Default::default() }
}

fn list(task: &str) -> v10::ListTaskPushNotificationConfigsRequest {
    v10::ListTaskPushNotificationConfigsRequest { task_id: task.into(), ..Default::default() }
}

fn delete(task: &str) -> v10::DeleteTaskPushNotificationConfigRequest {
    v10::DeleteTaskPushNotificationConfigRequest {
        task_id: task.into(),
        id: "a".into(),
        ..Default::default()
    }
}

#[tokio::test]
async fn configurations_of_1_0_are_those_of_the_other_bindings() {
    let (fixture, _directory) = sending().await;
    let receiver = Receiver::start(&[]).await;
    let mut client = client(&fixture, HOST);
    let task = sent(&mut client, message("echo", "hi")).await.id;
    let bearer = |credentials: &str| {
        Some(v10::AuthenticationInfo { scheme: "Bearer".into(), credentials: credentials.into() })
    };
    let expected = v10::TaskPushNotificationConfig {
        token: "t".into(),
        authentication: bearer(""),
        ..config(&task, &receiver.url)
    };
    let create = v10::TaskPushNotificationConfig { authentication: bearer("secret"), ..expected.clone() };
    let created = client.create_task_push_notification_config(by("alice", create)).await.unwrap();
    assert_eq!(created.into_inner(), expected, "and no credentials");
    let got = client.get_task_push_notification_config(by("alice", get(&task))).await.unwrap();
    assert_eq!(got.into_inner(), expected);
    let over_jsonrpc = Client::of(&fixture, "demo");
    let got = over_jsonrpc.result("GetTaskPushNotificationConfig", json!({"taskId": task, "id": "a"})).await;
    assert_eq!((&got["url"], &got["token"]), (&json!(receiver.url), &json!("t")), "{got}");
    let page = client.list_task_push_notification_configs(by("alice", list(&task))).await.unwrap();
    assert_eq!(page.into_inner().configs, [expected]);
    for _ in 0..2 {
        client.delete_task_push_notification_config(by("alice", delete(&task))).await.unwrap();
    }
    let (code, gone) = refused(client.get_task_push_notification_config(by("alice", get(&task))).await);
    assert_eq!((code, gone.error), (Code::NotFound, A2aError::TaskNotFound));
}

#[tokio::test]
async fn configurations_of_0_3_have_the_names_of_resources() {
    let (fixture, _directory) = sending().await;
    let receiver = Receiver::start(&[]).await;
    let task = sent(&mut client(&fixture, HOST), message("echo", "hi")).await.id;
    let mut client = client_v03(&fixture);
    let expected = config_v03(&task, &receiver.url);
    let parent = format!("tasks/{task}");
    let name = expected.name.clone();
    let create = v03::CreateTaskPushNotificationConfigRequest {
        parent: parent.clone(),
        config_id: "b".into(),
        config: Some(expected.clone()),
    };
    let created = client.create_task_push_notification_config(by("alice", create)).await.unwrap();
    assert_eq!(created.into_inner(), expected);
    let get = v03::GetTaskPushNotificationConfigRequest { name: name.clone() };
    let got = client.get_task_push_notification_config(by("alice", get.clone())).await.unwrap();
    assert_eq!(got.into_inner(), expected);
    let list = v03::ListTaskPushNotificationConfigRequest { parent, ..Default::default() };
    let page = client.list_task_push_notification_config(by("alice", list)).await.unwrap();
    assert_eq!(page.into_inner().configs, [expected]);
    let delete = v03::DeleteTaskPushNotificationConfigRequest { name };
    client.delete_task_push_notification_config(by("alice", delete)).await.unwrap();
    let (code, gone) = refused(client.get_task_push_notification_config(by("alice", get)).await);
    assert_eq!((code, gone.error), (Code::NotFound, A2aError::TaskNotFound));
}

/// Interop bug 5.
#[tokio::test]
async fn a_receiver_of_a_message_gets_the_form_of_the_service() {
    let (fixture, _directory) = sending().await;
    let new = Receiver::start(&[]).await;
    let old = Receiver::start(&[]).await;
    let configuration = v10::SendMessageConfiguration {
        task_push_notification_config: Some(config("", &new.url)),
        ..Default::default()
    };
    let request = v10::SendMessageRequest { configuration: Some(configuration), ..message("echo", "hi") };
    let task = sent(&mut client(&fixture, HOST), request).await.id;
    let is_end = |task: &serde_json::Value, state: &str| task["status"]["state"] == state;
    let seen = new.received_until(|one| is_end(&one.json()["task"], "TASK_STATE_COMPLETED")).await;
    assert_eq!(seen.last().unwrap().json()["task"]["id"], task);

    let mut request = message_v03("echo", "hi");
    let configuration = request.configuration.as_mut().unwrap();
    configuration.push_notification = config_v03("", &old.url).push_notification_config;
    client_v03(&fixture).send_message(by("alice", request)).await.unwrap();
    let seen = old.received_until(|one| is_end(&one.json(), "completed")).await;
    assert_eq!(seen.last().unwrap().json()["kind"], "task");
}

/// Invariant I-10.
#[tokio::test]
async fn the_task_of_another_caller_is_unknown_and_a_bad_receiver_is_refused() {
    let (fixture, _directory) = sending().await;
    let receiver = Receiver::start(&[]).await;
    let mut client = client(&fixture, HOST);
    let task = sent(&mut client, message("echo", "hi")).await.id;
    client.create_task_push_notification_config(by("alice", config(&task, &receiver.url))).await.unwrap();
    for task in [task.as_str(), "0190f7c8-1111-7000-8000-000000000000"] {
        let config = config(task, &receiver.url);
        for (code, failure) in [
            refused(client.create_task_push_notification_config(by("bob", config)).await),
            refused(client.get_task_push_notification_config(by("bob", get(task))).await),
            refused(client.list_task_push_notification_configs(by("bob", list(task))).await),
            refused(client.delete_task_push_notification_config(by("bob", delete(task))).await),
        ] {
            assert_eq!((code, failure.error), (Code::NotFound, A2aError::TaskNotFound), "{task}");
        }
    }
    let of_token =
        v10::TaskPushNotificationConfig { token: "a\r\nx: y".into(), ..config(&task, &receiver.url) };
    let of_id = v10::TaskPushNotificationConfig { id: "a/b".into(), ..config(&task, &receiver.url) };
    let of_url = config(&task, "ftp://8.8.8.8/");
    for (bad, field) in [(of_token, "config.token"), (of_id, "id"), (of_url, "url")] {
        let (code, failure) = refused(client.create_task_push_notification_config(by("alice", bad)).await);
        assert_eq!((code, failure.violations[0].field.as_str()), (Code::InvalidArgument, field));
    }
}
