//! Storage of plugins: whose keys a plugin sees, at which gateway, and what it is told when there is no result.

use std::sync::Arc;

use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::storage_requested::Operation;
use asp_proto::plugin::{
    DeliverStorageAnswer, StorageDelete, StorageGet, StorageList, StoragePut, StorageRequested,
    client_message,
};
use asp_proto::snapshot::{GatewaySnapshot, runtime::Mode};
use asp_proto::storage::{MAX_OPEN, MAX_REQUESTS, MAX_VALUE};
use asp_store::plugin_storage::{
    NewValue, PluginStorage, PluginStorageError, PutValue, StorageBounds, StorageSpace, StoredValue,
};
use asp_store::sqlite::SqliteCalls;
use async_trait::async_trait;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{call, last_result};
use crate::runtime::{Runtime, Script, Worker, json_of};
use crate::support::{Fixture, Modern, snapshot, token};

/// A plugin that sends requests which the test gives, and the answers that it got.
struct Plugin {
    runtime: Runtime,
    requests: Arc<Mutex<Vec<StorageRequested>>>,
    answers: Arc<Mutex<Vec<DeliverStorageAnswer>>>,
}

impl Plugin {
    fn start() -> Plugin {
        let requests = Arc::<Mutex<Vec<StorageRequested>>>::default();
        let answers = Arc::<Mutex<Vec<DeliverStorageAnswer>>>::default();
        let asks = requests.clone();
        let hears = answers.clone();
        let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| {
            let asks = asks.clone();
            let hears = hears.clone();
            async move {
                let invoke = worker.begin(&[]).await;
                let requests = std::mem::take(&mut *asks.lock());
                for (number, asked) in requests.into_iter().enumerate() {
                    let request_id = invoke.request_id.clone();
                    let correlation_id = number.to_string();
                    let asked = StorageRequested { request_id, correlation_id, ..asked };
                    worker.say(Payload::StorageRequested(asked)).await;
                    let Some(client_message::Payload::StorageAnswer(answer)) = worker.next().await else {
                        panic!("no answer")
                    };
                    assert_eq!(answer.request_id, invoke.request_id);
                    assert_eq!(answer.correlation_id, number.to_string());
                    hears.lock().push(answer);
                }
                worker.complete(&invoke, &json!({"ok": true})).await;
            }
        }));
        Plugin { runtime, requests, answers }
    }

    /// A gateway with this store whose specs grant storage.
    fn gateway(&self, store: Option<Arc<dyn PluginStorage>>) -> Fixture {
        let runtimes = self.runtime.runtimes();
        Fixture::with_snapshot_and(granting(), runtimes, |stores| stores.storage = store)
    }

    /// Returns the answers to these requests, sent one after the other in one call.
    async fn answers(
        &self,
        fixture: &Fixture,
        (tool, user): (&str, &str),
        requests: Vec<StorageRequested>,
    ) -> Vec<DeliverStorageAnswer> {
        *self.requests.lock() = requests;
        let params = json!({"name": tool, "arguments": {}});
        let answer = Modern::new("plugins", &token(user), "tools/call", params).send(fixture).await;
        assert_eq!(last_result(&answer)["structuredContent"]["ok"], true, "{}", answer.text);
        std::mem::take(&mut *self.answers.lock())
    }

    /// The same for as many requests as the test names.
    async fn ask<const N: usize>(
        &self,
        fixture: &Fixture,
        call: (&str, &str),
        requests: [StorageRequested; N],
    ) -> [DeliverStorageAnswer; N] {
        self.answers(fixture, call, requests.into()).await.try_into().unwrap()
    }
}

fn granting() -> GatewaySnapshot {
    let mut snapshot = snapshot();
    for primitive in &mut snapshot.primitives {
        if let Some(Mode::Plugin(plugin)) =
            primitive.runtime.as_mut().and_then(|runtime| runtime.mode.as_mut())
        {
            plugin.storage = true;
        }
    }
    snapshot
}

async fn store() -> (Arc<SqliteCalls>, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let calls = SqliteCalls::open(&directory.path().join("calls.db")).await.unwrap();
    (Arc::new(calls), directory)
}

fn asked(operation: Operation) -> StorageRequested {
    StorageRequested { operation: Some(operation), ..StorageRequested::default() }
}

fn get(key: &str) -> StorageRequested {
    asked(Operation::Get(StorageGet { key: key.into() }))
}

fn put(key: &str, value: &Value) -> StorageRequested {
    put_if(key, value, None)
}

fn put_if(key: &str, value: &Value, if_version: Option<u64>) -> StorageRequested {
    asked(Operation::Put(StoragePut { key: key.into(), value: json_of(value), ttl: None, if_version }))
}

fn list(prefix: &str, after: &str) -> StorageRequested {
    asked(Operation::List(StorageList { prefix: prefix.into(), after: after.into() }))
}

fn delete(key: &str) -> StorageRequested {
    asked(Operation::Delete(StorageDelete { key: key.into() }))
}

fn of_user(asked: StorageRequested) -> StorageRequested {
    StorageRequested { of_user: true, ..asked }
}

fn value(answer: &DeliverStorageAnswer) -> Option<Value> {
    assert_eq!(answer.error, "");
    answer.value.as_ref().map(|json| serde_json::from_slice(&json.value).unwrap())
}

/// Invariant I-3.
#[tokio::test]
async fn what_a_plugin_stores_is_there_at_any_gateway_for_its_org_or_its_user() {
    let (calls, directory) = store().await;
    let plugin = Plugin::start();
    let [first, second] = [(); 2].map(|()| plugin.gateway(Some(calls.clone())));
    let requests = [put("k", &json!({"secret": "of-the-org"})), of_user(put("k", &json!("of-alice")))];
    let [of_org, of_alice] = plugin.ask(&first, ("sweep", "alice"), requests).await;
    assert!(of_org.version > 0 && of_alice.version > 0 && of_org.version != of_alice.version);

    let requests = [get("k"), of_user(get("k"))];
    let [found, own] = plugin.ask(&second, ("sweep", "alice"), requests.clone()).await;
    assert_eq!((value(&found), found.version), (Some(json!({"secret": "of-the-org"})), of_org.version));
    assert_eq!(value(&own), Some(json!("of-alice")));
    let [found, own] = plugin.ask(&second, ("sweep", "bob"), requests.clone()).await;
    assert_eq!((value(&found), value(&own)), (Some(json!({"secret": "of-the-org"})), None));
    let [found, own] = plugin.ask(&second, ("order", "alice"), requests).await;
    assert_eq!((value(&found), value(&own)), (None, None), "another plugin");

    for file in std::fs::read_dir(directory.path()).unwrap() {
        let content = std::fs::read(file.unwrap().path()).unwrap();
        for secret in ["of-the-org", "of-alice"] {
            let is_there = content.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!is_there, "{secret}");
        }
    }
}

#[tokio::test]
async fn a_value_is_replaced_under_a_condition_listed_and_deleted() {
    let (calls, _directory) = store().await;
    let plugin = Plugin::start();
    let gateway = plugin.gateway(Some(calls));
    let call = ("sweep", "alice");
    let requests = [put_if("n/1", &json!(1), Some(0)), put_if("n/1", &json!(2), Some(0))];
    let [first, again] = plugin.ask(&gateway, call, requests).await;
    assert_eq!((first.error.as_str(), again.error.as_str()), ("", "conflict"));
    let next = put_if("n/1", &json!(2), Some(first.version));
    let [second, late] = plugin.ask(&gateway, call, [next.clone(), next]).await;
    assert_eq!((second.error.as_str(), late.error.as_str()), ("", "conflict"));
    assert_ne!(second.version, first.version);
    let requests = [get("n/1"), delete("n/1"), delete("n/1"), get("n/1")];
    let [found, deleted, again, gone] = plugin.ask(&gateway, call, requests).await;
    assert_eq!((value(&found), found.version), (Some(json!(2)), second.version));
    assert_eq!((deleted.deleted, again.deleted, value(&gone)), (true, false, None));

    let keys: Vec<String> = (0..101).map(|number| format!("p/{number:03}")).collect();
    plugin.answers(&gateway, call, keys.iter().map(|key| put(key, &json!(null))).collect()).await;
    let [page, rest] = plugin.ask(&gateway, call, [list("p/", ""), list("p/", "p/099")]).await;
    assert_eq!((&page.keys[..], page.has_more), (&keys[..100], true));
    assert_eq!((&rest.keys[..], rest.has_more), (&keys[100..], false));
}

#[tokio::test]
async fn a_request_beyond_its_bounds_is_refused_with_a_word() {
    let (calls, _directory) = store().await;
    let plugin = Plugin::start();
    let gateway = plugin.gateway(Some(calls.clone()));
    let long = "x".repeat(MAX_VALUE);
    let no_json = asked(Operation::Put(StoragePut { key: "k".into(), ..StoragePut::default() }));
    let requests = [get(""), put("k", &json!(long)), no_json, StorageRequested::default()];
    let answers = plugin.ask(&gateway, ("sweep", "alice"), requests).await;
    let words = answers.each_ref().map(|answer| answer.error.as_str());
    assert_eq!(words, ["bad_key", "too_large", "bad_value", "unavailable"]);
    // 4 MiB are full with 65 values of almost 64 KiB.
    let large = json!("x".repeat(MAX_VALUE - 2));
    let requests = (0..65).map(|number: u32| put(&number.to_string(), &large)).collect();
    let answers = plugin.answers(&gateway, ("sweep", "alice"), requests).await;
    assert_eq!(answers.iter().position(|answer| answer.error == "storage_full"), Some(63));

    let ungranted = Fixture::with_snapshot_and(snapshot(), plugin.runtime.runtimes(), |stores| {
        stores.storage = Some(calls);
    });
    let [refused] = plugin.ask(&ungranted, ("sweep", "alice"), [get("k")]).await;
    assert_eq!(refused.error, "not_granted");
}

#[tokio::test]
async fn a_call_has_so_many_requests_and_no_more() {
    let plugin = Plugin::start();
    let requests = vec![get("k"); MAX_REQUESTS as usize + 1];
    let answers = plugin.answers(&plugin.gateway(None), ("sweep", "alice"), requests).await;
    let (last, others) = answers.split_last().unwrap();
    assert!(others.iter().all(|answer| answer.error == "unavailable"), "it has no store");
    assert_eq!(last.error, "too_many");
}

/// A store that fails, or does not answer at all.
struct Broken {
    answers: bool,
}

impl Broken {
    async fn fail<T>(&self) -> Result<T, PluginStorageError> {
        if !self.answers {
            std::future::pending::<()>().await;
        }
        Err(PluginStorageError::Unavailable("it is down".into()))
    }
}

#[async_trait]
impl PluginStorage for Broken {
    async fn get_value(&self, _: &StorageSpace, _: &str) -> Result<Option<StoredValue>, PluginStorageError> {
        self.fail().await
    }

    async fn put_value(
        &self,
        _: &StorageSpace,
        _: &str,
        _: &NewValue,
        _: StorageBounds,
    ) -> Result<PutValue, PluginStorageError> {
        self.fail().await
    }

    async fn list_keys(
        &self,
        _: &StorageSpace,
        _: &str,
        _: &str,
        _: u32,
    ) -> Result<Vec<String>, PluginStorageError> {
        self.fail().await
    }

    async fn delete_value(&self, _: &StorageSpace, _: &str) -> Result<bool, PluginStorageError> {
        self.fail().await
    }
}

#[tokio::test]
async fn a_plugin_is_told_of_an_outage_of_the_store() {
    let plugin = Plugin::start();
    for answers in [true, false] {
        let gateway = plugin.gateway(Some(Arc::new(Broken { answers })));
        let [answer] = plugin.ask(&gateway, ("sweep", "alice"), [put("k", &json!(1))]).await;
        assert_eq!(answer.error, "unavailable");
    }
}

/// I-7: a worker's requests take no more of the gateway than they may.
#[tokio::test]
async fn a_plugin_that_sends_too_many_requests_at_once_is_as_good_as_dead() {
    let runtime = Runtime::start(Script::of(move |_, mut worker: Worker| async move {
        let request_id = worker.begin(&[]).await.request_id;
        for number in 0..=MAX_OPEN {
            let request_id = request_id.clone();
            let correlation_id = number.to_string();
            let asked = StorageRequested { request_id, correlation_id, ..get("k") };
            worker.say(Payload::StorageRequested(asked)).await;
        }
        while worker.next().await.is_some() {}
    }));
    let fixture = Fixture::with_snapshot_and(granting(), runtime.runtimes(), |stores| {
        stores.storage = Some(Arc::new(Broken { answers: false }));
    });
    let result = call(&fixture, "order", json!({})).await.json()["result"].clone();
    assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{result}");
}
