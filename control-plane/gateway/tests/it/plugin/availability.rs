//! I-10 where a plugin cannot run: what no runtime can ever run is hidden and unknown, what is in trouble is listed
//! and says so.

use std::collections::BTreeSet;
use std::sync::Arc;

use asp_call::execution::Availability;
use asp_proto::snapshot::{GatewaySnapshot, McpStdio, runtime::Mode};
use asp_proto::supervisor::PluginRef;
use asp_runtime_client::runtimes::{RuntimeTarget, Runtimes};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tonic::Status;

use super::{call, fixture, sweep, until, until_async};
use crate::runtime::{PYTHON, Runtime, Script, Worker, admitted, rejected};
use crate::subscriptions::{Stream, TOOLS};
use crate::support::{Fixture, Legacy, Modern, snapshot, token};

/// Every list of the server `plugins`, by what clients call the entries.
pub(super) async fn listed(fixture: &Fixture) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for (list, member) in [
        ("tools/list", "tools"),
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let answer = Modern::new("plugins", &token("alice"), list, json!({})).send(fixture).await.json();
        let entries = answer["result"][member].as_array().unwrap_or_else(|| panic!("{answer}")).clone();
        let name = |entry: &Value| entry["name"].as_str().unwrap().to_owned();
        names.extend(entries.iter().map(name));
    }
    names
}

/// Waits until the runtime has answered for every plugin.
pub(super) async fn heard(fixture: &Fixture) {
    until("every plugin was answered for", || {
        let servers = fixture.gateway.standing("acme");
        let mut plugins = servers.iter().flat_map(|server| &server.plugins);
        plugins.all(|plugin| plugin.availability != Availability::Unheard)
    })
    .await;
}

pub(super) fn all() -> BTreeSet<String> {
    ["sweep", "order", "book", "purge", "fetch", "page", "advice"].map(str::to_owned).into()
}

/// A runtime that refuses some plugins by EnsurePlugin, for as long as the reason stands.
struct Picky {
    runtime: Runtime,
    refuses: Arc<Mutex<Option<Status>>>,
}

impl Picky {
    fn start(plugins: &'static [&'static str], refusal: Status) -> Picky {
        let refuses = Arc::new(Mutex::new(Some(refusal)));
        let asked = Arc::clone(&refuses);
        let script = Script::of(|_, mut worker: Worker| async move {
            let invoke = worker.begin(&[]).await;
            worker.complete(&invoke, &json!({"ok": true})).await;
        });
        let script = script.ensuring(move |plugin: PluginRef| {
            let refusal = asked.lock().clone().filter(|_| plugins.contains(&plugin.id.as_str()));
            async move { refusal.map_or(Ok(()), Err) }
        });
        Picky { runtime: Runtime::start(script), refuses }
    }

    fn mend(&self) {
        *self.refuses.lock() = None;
    }
}

/// The answers to a request that names `name`, and to the same one with a name nobody has, must be the same bytes but
/// for the name.
async fn same_as_unknown(fixture: &Fixture, method: &str, member: &str, (name, nobody): (&str, &str)) {
    let modern = async |name: &str, arguments: Value| {
        let params = json!({member: name, "arguments": arguments});
        let answer = Modern::new("plugins", &token("alice"), method, params).send(fixture).await;
        (answer.status, answer.text)
    };
    // What is wrong with the request must not tell either.
    for arguments in [json!({}), json!([])] {
        let (status, text) = modern(nobody, arguments.clone()).await;
        assert!(text.contains("unknown_primitive"), "{text}");
        assert_eq!(modern(name, arguments).await, (status, text.replace(nobody, name)));
    }
    let client = Legacy::connect(fixture, "plugins", "alice", "2025-11-25", json!({})).await;
    let known = client.request(2, method, json!({member: name})).await;
    let unknown = client.request(2, method, json!({member: nobody})).await;
    assert_eq!((known.status, known.text), (unknown.status, unknown.text.replace(nobody, name)));
}

#[tokio::test]
async fn who_listens_is_told_when_what_could_not_run_can() {
    let picky = Picky::start(&["sweep"], Status::failed_precondition("language_absent: no python"));
    let fixture = fixture(&picky.runtime);
    until_async("it is hidden", async || !listed(&fixture).await.contains("sweep")).await;
    let filter = json!({"notifications": {"toolsListChanged": true, "promptsListChanged": true}});
    let request = Modern::new("plugins", &token("alice"), "subscriptions/listen", filter);
    let mut stream = Stream::of(request.open(&fixture).await.into_body());
    assert_eq!(stream.method().await, "notifications/subscriptions/acknowledged");
    picky.mend();
    until_async("it is there again", async || listed(&fixture).await.contains("sweep")).await;
    fixture.gateway.subscriptions.reevaluate();
    assert_eq!(stream.method().await, TOOLS);
}

/// Returns why Python plugins cannot run. The other languages have no runtime here.
fn python_plugins_off(fixture: &Fixture) -> Vec<String> {
    let off = fixture.gateway.unavailable_plugins();
    off.iter().filter(|plugin| plugin.language == "python").map(|plugin| plugin.reason.clone()).collect()
}

#[tokio::test]
async fn what_no_runtime_can_run_is_neither_listed_nor_known_until_it_can() {
    for reason in [
        "not_installed: sweep@1.0.0",
        "digest_mismatch: another",
        "language_absent: no python",
        "isolation: 3",
    ] {
        let hidden: &[&str] = &["sweep", "page", "advice", "fetch"];
        let picky = Picky::start(hidden, Status::failed_precondition(reason));
        let fixture = fixture(&picky.runtime);
        let left: BTreeSet<String> =
            all().into_iter().filter(|name| !hidden.contains(&name.as_str())).collect();
        until_async("what cannot run is hidden", async || listed(&fixture).await == left).await;
        let off = python_plugins_off(&fixture);
        assert!(off.len() == hidden.len() && off.iter().all(|plugin| plugin == reason), "{off:?}");
        same_as_unknown(&fixture, "tools/call", "name", ("sweep", "sweeq")).await;
        // A missing scope would be a challenge.
        same_as_unknown(&fixture, "tools/call", "name", ("fetch", "fetck")).await;
        same_as_unknown(&fixture, "prompts/get", "name", ("advice", "advicf")).await;
        same_as_unknown(&fixture, "resources/read", "uri", ("page://7", "pagf://7")).await;
        let other = call(&fixture, "order", json!({})).await.json();
        assert_eq!(other["result"]["structuredContent"], json!({"ok": true}), "{other}");
        assert!(picky.runtime.told.allocations.lock().len() == 1, "only what can run was asked for");
        picky.mend();
        until_async("it is asked again and appears", async || listed(&fixture).await == all()).await;
        assert_eq!(python_plugins_off(&fixture), [""; 0]);
        let result = sweep(&fixture).await.json()["result"].clone();
        assert_eq!(result["structuredContent"], json!({"ok": true}), "{result}");
    }
}

#[tokio::test]
async fn a_language_without_a_runtime_is_hidden_from_the_first_moment() {
    let fixture = Fixture::with(snapshot(), 7, Runtimes::none());
    assert_eq!(listed(&fixture).await, BTreeSet::new());
    same_as_unknown(&fixture, "tools/call", "name", ("sweep", "sweeq")).await;
    let target = RuntimeTarget { languages: vec!["node".into()], url: "unix:/nowhere".into(), peer: None };
    let fixture = Fixture::with(snapshot(), 7, Runtimes::new(vec![target]).unwrap());
    assert_eq!(listed(&fixture).await, BTreeSet::new());
}

#[tokio::test]
async fn what_is_in_trouble_stays_listed_and_its_calls_say_so() {
    let statuses = [
        Status::failed_precondition("draining: the plugin takes no new calls"),
        Status::failed_precondition("a_word_of_tomorrow: with its sentence"),
        Status::internal("not_installed: no word of the contract"),
        Status::unimplemented("an older runtime"),
    ];
    for status in statuses {
        let script = Script::of(|_, _| async {}).admitting(|_| rejected("quarantined: it crashes"));
        let refusal = status.clone();
        let runtime = Runtime::start(script.ensuring(move |_| {
            let refusal = refusal.clone();
            async move { Err(refusal) }
        }));
        let fixture = fixture(&runtime);
        heard(&fixture).await;
        assert_eq!(listed(&fixture).await, all(), "{status}");
        let result = sweep(&fixture).await.json()["result"].clone();
        assert_eq!(
            (&result["isError"], &result["_meta"]["asp/reason"]),
            (&json!(true), &json!("upstream_unavailable"))
        );
        assert!(result["content"][0]["text"].as_str().unwrap().contains("fails too often"), "{result}");
    }
}

#[tokio::test]
async fn a_runtime_that_was_not_heard_of_yet_hides_nothing() {
    let target = RuntimeTarget { languages: vec![PYTHON.into()], url: "unix:/nowhere".into(), peer: None };
    let fixture = Fixture::with(snapshot(), 7, Runtimes::new(vec![target]).unwrap());
    assert_eq!(listed(&fixture).await, all());
    let result = sweep(&fixture).await.json()["result"].clone();
    assert_eq!(result["_meta"]["asp/reason"], "upstream_unavailable", "{result}");
    // A prompt has no result that carries an error.
    let params = json!({"name": "advice", "arguments": {"topic": "x"}});
    let prompt = Modern::new("plugins", &token("alice"), "prompts/get", params).send(&fixture).await;
    assert_eq!(
        (prompt.reason().as_str(), &prompt.json()["error"]["code"]),
        ("upstream_unavailable", &json!(-32000))
    );
}

#[tokio::test]
async fn a_call_that_finds_its_plugin_gone_is_the_last_to_be_told_so() {
    let gone = Arc::new(Mutex::new(false));
    let is_gone = Arc::clone(&gone);
    let script = Script::of(|_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true})).await;
    });
    let admits = Arc::clone(&gone);
    let script = script.admitting(move |n| match *admits.lock() {
        true => rejected("not_installed: sweep@1.0.0"),
        false => admitted(n),
    });
    let runtime = Runtime::start(script.ensuring(move |_| {
        let gone = *is_gone.lock();
        async move { if gone { Err(Status::failed_precondition("not_installed: x")) } else { Ok(()) } }
    }));
    let fixture = fixture(&runtime);
    heard(&fixture).await;
    *gone.lock() = true;
    let result = sweep(&fixture).await.json()["result"].clone();
    assert_eq!(
        (&result["isError"], &result["content"][0]["text"]),
        (&json!(true), &json!("the plugin is not installed on its runtime"))
    );
    same_as_unknown(&fixture, "tools/call", "name", ("sweep", "sweeq")).await;
    let mut others = all();
    others.remove("sweep");
    assert_eq!(listed(&fixture).await, others, "only of this one it is known");
    *gone.lock() = false;
    until_async("it is asked again and appears", async || listed(&fixture).await == all()).await;
}

#[tokio::test]
async fn a_runtime_that_hangs_keeps_no_other_from_being_asked() {
    let hanging = Runtime::start(Script::of(|_, _| async {}).ensuring(|_| std::future::pending()));
    let refusing = Runtime::start(
        Script::of(|_, _| async {})
            .ensuring(|_| async { Err(Status::failed_precondition("not_installed: it")) }),
    );
    let target = |runtime: &Runtime, language: &str| RuntimeTarget {
        languages: vec![language.into()],
        url: format!("unix:{}", runtime.socket.display()),
        peer: None,
    };
    let targets = vec![target(&hanging, "node"), target(&hanging, "java"), target(&refusing, PYTHON)];
    let fixture = Fixture::with(snapshot(), 7, Runtimes::new(targets).unwrap());
    until_async("what cannot run is hidden", async || listed(&fixture).await.is_empty()).await;
}

#[tokio::test]
async fn a_snapshot_that_says_something_else_of_a_plugin_asks_anew() {
    let pinned = "b".repeat(64);
    let wanted = pinned.clone();
    let runtime = Runtime::start(Script::of(|_, _| async {}).ensuring(move |plugin: PluginRef| {
        let other = !plugin.artifact_sha256.is_empty() && plugin.artifact_sha256 != wanted;
        async move { if other { Err(Status::failed_precondition("digest_mismatch: it")) } else { Ok(()) } }
    }));
    let fixture = fixture(&runtime);
    assert_eq!(listed(&fixture).await, all());
    let pin = |revision: u64, digest: &str| {
        let mut next = snapshot();
        next.revision += revision;
        for primitive in next.primitives.iter_mut().filter(|primitive| primitive.id == "sweep") {
            let mode = primitive.runtime.as_mut().and_then(|runtime| runtime.mode.as_mut());
            if let Some(Mode::Plugin(plugin)) = mode {
                plugin.artifact_sha256 = digest.to_owned();
            }
        }
        next
    };
    fixture.gateway.apply(pin(1, &"a".repeat(64))).unwrap();
    until_async("the other package is hidden", async || !listed(&fixture).await.contains("sweep")).await;
    fixture.gateway.apply(pin(2, &pinned)).unwrap();
    assert!(
        listed(&fixture).await.contains("sweep"),
        "what was said of the other pin says nothing of this one"
    );
}

/// Two tools by one package of one version, each with the digest that its spec pins.
fn pinned(digests: [(&str, &str); 2]) -> GatewaySnapshot {
    let mut snapshot = snapshot();
    for primitive in &mut snapshot.primitives {
        let Some((_, digest)) = digests.iter().find(|(id, _)| *id == primitive.id) else { continue };
        primitive.runtime.as_mut().unwrap().mode = Some(Mode::McpStdio(McpStdio {
            package: "everything@1.0.0".into(),
            tool: primitive.id.clone(),
            artifact_sha256: (*digest).to_owned(),
            ..McpStdio::default()
        }));
    }
    snapshot
}

#[tokio::test]
async fn a_spec_that_pins_another_package_hides_its_own_tool_and_nobody_elses() {
    let installed = "a".repeat(64);
    let other = "b".repeat(64);
    // Whichever of the two is read first.
    for (hidden, shown) in [("order", "purge"), ("purge", "order")] {
        let wanted = other.clone();
        let runtime =
            Runtime::start(Script::of(|_, _| async {}).ensuring(move |plugin: PluginRef| {
                let mismatch = plugin.artifact_sha256 == wanted;
                async move {
                    if mismatch { Err(Status::failed_precondition("digest_mismatch: it")) } else { Ok(()) }
                }
            }));
        let target = RuntimeTarget {
            languages: vec![PYTHON.into(), "mcp-stdio".into()],
            url: format!("unix:{}", runtime.socket.display()),
            peer: None,
        };
        let snapshot = pinned([(hidden, &other), (shown, &installed)]);
        let fixture = Fixture::with(snapshot, 7, Runtimes::new(vec![target]).unwrap());
        heard(&fixture).await;
        let mut left = all();
        left.remove(hidden);
        assert_eq!(listed(&fixture).await, left, "only the tool of the spec with the other pin is hidden");
    }
}
