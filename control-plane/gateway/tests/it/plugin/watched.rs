//! Resources that a plugin watches for those who subscribed: one stream for all of an org, what comes of it, and its end.

use std::sync::Arc;
use std::time::Duration;

use asp_proto::envelope::packed;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{Context, Failed, ResourceUpdated, SubscribeRequest};
use asp_proto::snapshot::GatewaySnapshot;
use asp_registry::Inputs;
use prost::Message;
use serde_json::json;
use tokio::sync::{Mutex, mpsc, oneshot};

use super::until;
use crate::runtime::{Runtime, Script, Worker, admitted, rejected};
use crate::subscriptions::{BOUND, Stream, UPDATED, at};
use crate::support::{Fixture, Legacy, Modern, claims, sign, token};

const PAGE: &str = "page://7";
/// Longer than the pause before a stream is opened anew.
const AFTER_A_PAUSE: Duration = Duration::from_millis(1500);

/// A stream of the plugin, which ends with this.
struct Watching {
    worker: Worker,
    request: SubscribeRequest,
    _end: oneshot::Sender<()>,
}

/// A runtime that hands out the streams it is asked for.
struct Watched {
    runtime: Runtime,
    streams: mpsc::UnboundedReceiver<Watching>,
}

impl Watched {
    fn start() -> Watched {
        Watched::admitting(|script| script)
    }

    fn admitting(change: impl FnOnce(Script) -> Script) -> Watched {
        let (sender, streams) = mpsc::unbounded_channel();
        let script = Script::of(move |_, mut worker: Worker| {
            let sender = sender.clone();
            async move {
                assert!(worker.any().await.unwrap().type_url.ends_with("ClientMessage"), "the init");
                let work = worker.any().await.unwrap();
                assert!(work.type_url.ends_with("SubscribeRequest"), "{work:?}");
                let request = SubscribeRequest::decode(work.value.as_slice()).unwrap();
                let (_end, ends) = oneshot::channel();
                // Err: the test is over.
                let _ = sender.send(Watching { worker, request, _end });
                let _ = ends.await;
            }
        });
        Watched { runtime: Runtime::start(change(script)), streams }
    }

    async fn next(&mut self) -> Watching {
        tokio::time::timeout(BOUND, self.streams.recv()).await.expect("a stream").unwrap()
    }

    fn fixture(&self) -> Fixture {
        Fixture::with(snapshot(1), 7, self.runtime.runtimes())
    }
}

impl Watching {
    async fn says(&self, uri: &str) {
        self.worker.say_packed(packed(&ResourceUpdated { uri: uri.into() })).await;
    }

    /// Waits until the gateway has closed it.
    async fn until_closed(mut self) {
        assert!(tokio::time::timeout(BOUND, self.worker.any()).await.expect("it is closed").is_none());
    }
}

/// The plugin behind `page://{id}` watches.
fn watches(inputs: &mut Inputs) {
    let primitives = inputs.servers.iter_mut().flat_map(|server| &mut server.primitives);
    primitives.filter(|primitive| primitive.id == "page").for_each(|page| page.watched_by_runtime = true);
}

fn snapshot(revision: u64) -> GatewaySnapshot {
    at(revision, watches)
}

async fn listen(fixture: &Fixture, token: &str, uris: &[&str]) -> Stream {
    let filter = json!({"notifications": {"resourceSubscriptions": uris}});
    let request = Modern::new("plugins", token, "subscriptions/listen", filter);
    let mut stream = Stream::of(request.open(fixture).await.into_body());
    assert_eq!(stream.method().await, "notifications/subscriptions/acknowledged");
    stream
}

async fn is_told(stream: &mut Stream, uri: &str) {
    let told = stream.next().await.unwrap();
    assert_eq!((&told["method"], &told["params"]["uri"]), (&json!(UPDATED), &json!(uri)), "{told}");
}

#[tokio::test]
async fn clients_of_both_eras_are_told_what_a_plugin_says_by_one_stream_that_the_last_of_them_ends() {
    let mut watched = Watched::start();
    let fixture = watched.fixture();
    let client = Legacy::connect(&fixture, "plugins", "alice", "2025-11-25", json!({})).await;
    let mut legacy = Stream::open(&client).await;
    let subscribed = client.request(2, "resources/subscribe", json!({"uri": PAGE})).await.json();
    assert_eq!(subscribed["result"], json!({}));
    let watching = watched.next().await;
    let mut modern = listen(&fixture, &token("bob"), &[PAGE]).await;
    watching.says("").await;
    is_told(&mut legacy, PAGE).await;
    is_told(&mut modern, PAGE).await;
    watching.says(PAGE).await;
    is_told(&mut legacy, PAGE).await;
    is_told(&mut modern, PAGE).await;
    assert_eq!(
        client.request(3, "resources/unsubscribe", json!({"uri": PAGE})).await.json()["result"],
        json!({})
    );
    watching.says("").await;
    is_told(&mut modern, PAGE).await;
    drop(modern);
    watching.until_closed().await;
    assert_eq!(watched.runtime.told.allocations.lock().len(), 1);
}

/// Invariant I-8.
#[tokio::test]
async fn a_plugin_that_watches_hears_the_orgs_name_alone() {
    let mut watched = Watched::start();
    let fixture = watched.fixture();
    let _stream = listen(&fixture, &token("alice"), &[PAGE]).await;
    let SubscribeRequest { ctx, primitive, uri, request_id } = watched.next().await.request;
    assert_eq!(ctx.unwrap(), Context { tenant_id: "acme".into(), ..Context::default() });
    assert_eq!((primitive.as_str(), uri.as_str()), ("page", PAGE));
    let asked = watched.runtime.told.allocations.lock()[0].clone();
    let context = asked.ctx.unwrap();
    assert!(asked.subscription && !asked.force_fresh_process);
    assert_eq!(
        (context.tenant_id.as_str(), context.user_id.as_str(), context.wcit_hash.as_str()),
        ("acme", "", "")
    );
    assert_eq!((&context.correlation_id, context.session_id.as_str()), (&request_id, ""));
}

#[tokio::test]
async fn what_a_plugin_says_in_the_stream_of_one_org_is_told_in_that_org_alone() {
    let mut watched = Watched::start();
    let fixture = watched.fixture();
    let mut ours = listen(&fixture, &token("alice"), &[PAGE]).await;
    let watching = watched.next().await;
    let mut elsewhere = claims("alice");
    elsewhere["org"] = "globex".into();
    let mut theirs = listen(&fixture, &sign(&elsewhere), &[PAGE]).await;
    let of_globex = watched.next().await;
    assert_eq!(of_globex.request.ctx.as_ref().unwrap().tenant_id, "globex");
    watching.says("").await;
    is_told(&mut ours, PAGE).await;
    assert!(futures::poll!(std::pin::pin!(theirs.next())).is_pending(), "nothing is told elsewhere");
    of_globex.says("").await;
    is_told(&mut theirs, PAGE).await;
    assert!(futures::poll!(std::pin::pin!(ours.next())).is_pending());
}

#[tokio::test]
async fn what_is_behind_the_same_template_may_be_told_too_and_nothing_else() {
    let mut watched = Watched::start();
    let fixture = watched.fixture();
    let mut seven = listen(&fixture, &token("alice"), &[PAGE]).await;
    let watching = watched.next().await;
    let mut eight = listen(&fixture, &token("alice"), &["page://8"]).await;
    let _of_eight = watched.next().await;
    let mut about = listen(&fixture, &token("alice"), &["demo://about"]).await;
    let too_long = format!("page://{}", "x".repeat(5000));
    for uri in ["demo://about", "nope", &too_long, "page://8"] {
        watching.says(uri).await;
    }
    is_told(&mut eight, "page://8").await;
    for stream in [&mut seven, &mut about] {
        assert!(futures::poll!(std::pin::pin!(stream.next())).is_pending(), "nothing else is told");
    }
}

#[tokio::test]
async fn a_stream_that_breaks_is_opened_anew_and_told_once() {
    let mut watched = Watched::start();
    let fixture = watched.fixture();
    let mut stream = listen(&fixture, &token("alice"), &[PAGE]).await;
    let watching = watched.next().await;
    watching.worker.crash(true).await;
    let again = watched.next().await;
    assert_ne!(again.request.request_id, watching.request.request_id);
    is_told(&mut stream, PAGE).await;
    assert!(futures::poll!(std::pin::pin!(stream.next())).is_pending(), "once");
    again.says("").await;
    is_told(&mut stream, PAGE).await;
}

#[tokio::test]
async fn a_plugin_that_watches_nothing_is_asked_again_with_the_next_snapshot_alone() {
    let mut watched = Watched::start();
    let fixture = watched.fixture();
    let _stream = listen(&fixture, &token("alice"), &[PAGE]).await;
    let watching = watched.next().await;
    let request_id = watching.request.request_id.clone();
    let failed = Failed { request_id, code: "UNSUPPORTED".into(), ..Failed::default() };
    watching.worker.say(Payload::Failed(failed)).await;
    watching.until_closed().await;
    assert!(tokio::time::timeout(AFTER_A_PAUSE, watched.streams.recv()).await.is_err(), "it is let alone");
    fixture.gateway.apply(snapshot(2)).unwrap();
    watched.next().await;
}

#[tokio::test]
async fn a_plugin_without_a_place_for_it_leaves_clients_subscribed_and_tells_them_when_it_has_one() {
    let full = "throttled: the plugin has as many subscriptions as it may";
    let mut watched = Watched::admitting(|script| {
        script.admitting(move |n| if n == 0 { rejected(full) } else { admitted(n) })
    });
    let fixture = watched.fixture();
    let mut stream = listen(&fixture, &token("alice"), &[PAGE]).await;
    let watching = watched.next().await;
    is_told(&mut stream, PAGE).await;
    watching.says("").await;
    is_told(&mut stream, PAGE).await;
}

#[tokio::test]
async fn a_new_version_of_the_plugin_is_who_watches_from_then_on_and_one_that_is_gone_watches_no_more() {
    let mut watched = Watched::start();
    let fixture = watched.fixture();
    let mut stream = listen(&fixture, &token("alice"), &[PAGE]).await;
    let first = watched.next().await;
    let newer = |inputs: &mut Inputs| {
        watches(inputs);
        let primitives = inputs.servers.iter_mut().flat_map(|server| &mut server.primitives);
        primitives.filter(|primitive| primitive.id == "page").for_each(|page| page.version = "1.1.0".into());
        let listings = inputs.servers.iter_mut().flat_map(|server| &mut server.server.listings);
        listings.filter(|listing| listing.id == "page").for_each(|page| page.version = "1.1.0".into());
    };
    fixture.gateway.apply(at(2, newer)).unwrap();
    first.until_closed().await;
    let second = watched.next().await;
    is_told(&mut stream, PAGE).await;
    let version = |n: usize| watched.runtime.told.allocations.lock()[n].plugin.clone().unwrap().version;
    assert_eq!((version(0), version(1)), ("1.0.0".to_owned(), "1.1.0".to_owned()));
    fixture.gateway.apply(at(3, |_| {})).unwrap();
    second.until_closed().await;
}

#[tokio::test]
async fn a_plugin_whose_spec_does_not_say_that_it_watches_is_not_asked() {
    let mut watched = Watched::start();
    let fixture = super::fixture(&watched.runtime);
    let _stream = listen(&fixture, &token("alice"), &[PAGE]).await;
    assert!(tokio::time::timeout(AFTER_A_PAUSE, watched.streams.recv()).await.is_err());
    assert_eq!(watched.runtime.told.allocations.lock().len(), 0);
}

#[tokio::test]
async fn one_user_follows_a_bounded_number_of_resources_and_another_one_still_can() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let taken = asked.clone();
    let runtime = Runtime::start(Script::of(move |_, worker: Worker| {
        let taken = taken.clone();
        async move {
            taken.lock().await.push(worker);
            std::future::pending().await
        }
    }));
    let fixture = Fixture::with(snapshot(1), 7, runtime.runtimes());
    let uris: Vec<String> = (0..300).map(|number| format!("page://{number}")).collect();
    let uris: Vec<&str> = uris.iter().map(String::as_str).collect();
    let _alices = listen(&fixture, &token("alice"), &uris).await;
    until("alice has her share", || runtime.told.allocations.lock().len() == 256).await;
    let _bobs = listen(&fixture, &token("bob"), &["page://bob"]).await;
    until("bob has his", || runtime.told.allocations.lock().len() == 257).await;
}
