//! Several runtimes of one language: who gets a call, what is listed (I-10), and what becomes of a call when one of them refuses it, drains,
//! is sick or dies.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use asp_proto::supervisor::{MetricsEvent, PluginRef};
use asp_runtime_client::runtimes::{Resolve, RuntimeTarget, Runtimes};
use async_trait::async_trait;
use parking_lot::Mutex;
use prost_types::value::Kind;
use serde_json::{Value, json};
use tokio::sync::Notify;
use tonic::Status;

use super::availability::{all, heard, listed};
use super::figures::sample;
use super::resume::save;
use super::takeover::{request, row, send, take_over};
use super::{call, last_result, until, until_async};
use crate::runtime::{Authority, PYTHON, Runtime, Script, Told, Worker, rejected, start_with_tls_at};
use crate::support::{Fixture, snapshot};

fn answering(who: &'static str) -> Script {
    Script::of(move |_, mut worker: Worker| async move {
        let invoke = worker.begin(&[]).await;
        worker.complete(&invoke, &json!({"ok": true, "who": who})).await;
    })
}

fn refusing(reason: &'static str) -> Script {
    Script::of(|_, _| async {}).admitting(move |_| rejected(reason))
}

/// Answers nothing until it is killed.
fn holding() -> Script {
    Script::of(|_, mut worker: Worker| async move {
        worker.begin(&[]).await;
        while worker.any().await.is_some() {}
    })
}

async fn beside(runtimes: &[&Runtime]) -> Fixture {
    let targets = runtimes.iter().map(|runtime| runtime.target()).collect();
    let fixture = Fixture::with(snapshot(), 7, Runtimes::new(targets).unwrap());
    until("each was asked for every plugin", || {
        let plugins = runtimes[0].told.ensured.lock().len();
        plugins > 0 && runtimes.iter().all(|runtime| runtime.told.ensured.lock().len() >= 7)
    })
    .await;
    heard(&fixture).await;
    fixture
}

async fn result(fixture: &Fixture, name: &str) -> Value {
    last_result(&call(fixture, name, json!({})).await)
}

fn calls(told: &Told) -> usize {
    told.allocations.lock().len()
}

#[tokio::test]
async fn calls_that_run_are_spread_over_the_runtimes_of_a_language() {
    let both = [Runtime::start(holding()), Runtime::start(holding())];
    let fixture = beside(&[&both[0], &both[1]]).await;
    let running = (0..10).map(|_| {
        tokio::spawn({
            let fixture = fixture.clone();
            async move { result(&fixture, "sweep").await }
        })
    });
    let running: Vec<_> = running.collect();
    until("all run", || both.iter().map(|runtime| calls(&runtime.told)).sum::<usize>() == 10).await;
    assert!(both.iter().all(|runtime| (4..=6).contains(&calls(&runtime.told))), "{}", calls(&both[0].told));
    running.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn what_one_refuses_another_takes_also_what_must_not_run_twice() {
    for reason in
        ["draining", "quarantined: it crashes", "breaker_open", "throttled", "overload", "host_trouble: disk"]
    {
        let sick = Runtime::start(refusing(reason));
        let well = Runtime::start(answering("well"));
        let fixture = beside(&[&sick, &well]).await;
        for name in ["order", "sweep", "order", "sweep"] {
            let result = result(&fixture, name).await;
            assert_eq!(result["structuredContent"]["ok"], true, "{reason}: {result}");
        }
        assert_eq!(calls(&well.told), 4, "{reason}: each call ran once");
    }
    // Whose calls crash its workers is not sent on to the next ones.
    let sick = Runtime::start(refusing("tenant_quarantined: next try in 30 s"));
    let fixture = beside(&[&sick, &Runtime::start(refusing("tenant_quarantined: next try in 30 s"))]).await;
    let result = result(&fixture, "sweep").await;
    assert!(result["content"][0]["text"].as_str().unwrap().contains("next try"), "{result}");
}

#[tokio::test]
async fn one_that_drains_is_asked_no_more_for_a_while() {
    let old = Runtime::start(refusing("draining"));
    let new = Runtime::start(answering("new"));
    let fixture = beside(&[&old, &new]).await;
    for _ in 0..12 {
        assert_eq!(result(&fixture, "order").await["structuredContent"]["ok"], true);
    }
    // Once it may be asked first, and once more where a second has passed on a slow machine.
    assert!(calls(&old.told) <= 3, "{}", calls(&old.told));
}

#[tokio::test]
async fn a_call_that_all_refuse_is_told_the_most_hopeful_of_it() {
    let sick = Runtime::start(refusing("quarantined: it crashes"));
    let full = Runtime::start(refusing("overload"));
    let fixture = beside(&[&sick, &full]).await;
    let refused = result(&fixture, "sweep").await;
    assert_eq!(refused["_meta"]["asp/reason"], "rate_limited", "{refused}");
    assert_eq!((calls(&sick.told), calls(&full.told)), (1, 1), "each is asked once");
}

#[tokio::test]
async fn what_a_runtime_says_of_itself_keeps_calls_from_it() {
    let sick = Runtime::start(answering("sick"));
    let quarantined = || sample("sweep@1.0.0", PYTHON, &[("quarantined_s", Kind::NumberValue(200.0))]);
    *sick.told.events.lock() = vec![quarantined()];
    let well = Runtime::start(answering("well"));
    *well.told.events.lock() = vec![MetricsEvent { name: "nothing".into(), ..quarantined() }];
    let fixture = beside(&[&sick, &well]).await;
    let told = || async { fixture.send(http::Method::GET, "/metrics", &[], "").await.text };
    until_async("it is heard", async || told().await.contains("asp_worker_quarantined{")).await;
    for _ in 0..8 {
        assert_eq!(result(&fixture, "sweep").await["structuredContent"]["who"], "well");
    }
    // It says nothing of the others.
    until_async("others go there too", async || {
        result(&fixture, "order").await["structuredContent"]["who"] == "sick"
    })
    .await;
}

#[tokio::test]
async fn a_primitive_is_listed_as_long_as_one_runtime_can_run_it() {
    let lacks = Arc::new(Mutex::new(vec!["sweep"]));
    let lacking = |lacks: &Arc<Mutex<Vec<&'static str>>>| {
        let lacks = lacks.clone();
        move |plugin: PluginRef| {
            let lacks = lacks.lock().contains(&plugin.id.as_str());
            async move { if lacks { Err(Status::failed_precondition("not_installed: it")) } else { Ok(()) } }
        }
    };
    let without = Runtime::start(answering("without").ensuring(lacking(&lacks)));
    let with = Arc::new(Mutex::new(Vec::new()));
    let other = Runtime::start(answering("with").ensuring(lacking(&with)));
    let fixture = beside(&[&without, &other]).await;
    until_async("one is enough", async || listed(&fixture).await == all()).await;
    until_async("the one that has it is known", async || {
        result(&fixture, "sweep").await["structuredContent"]["who"] == "with"
    })
    .await;
    for _ in 0..8 {
        assert_eq!(result(&fixture, "sweep").await["structuredContent"]["who"], "with");
    }
    // It goes from there too, and whoever calls it finds out.
    let none = [Runtime::start(refusing("not_installed: it")), Runtime::start(refusing("not_installed: it"))];
    let fixture = beside(&[&none[0], &none[1]]).await;
    let refused = result(&fixture, "sweep").await;
    assert_eq!(refused["content"][0]["text"], "the plugin is not installed on its runtime");
    let mut others = all();
    others.remove("sweep");
    assert_eq!(listed(&fixture).await, others, "both have said so");
}

#[tokio::test]
async fn the_death_of_one_costs_no_call_that_may_be_repeated_and_runs_no_other_twice() {
    for (name, expected) in [("sweep", "well"), ("order", "")] {
        let mut dying = Runtime::start_apart(holding());
        let well = Runtime::start(answering("well"));
        let fixture = beside(&[&dying, &well]).await;
        // Until one is where it is to be lost.
        let (running, lost) = loop {
            let (fixture, before) = (fixture.clone(), calls(&dying.told));
            let running = tokio::spawn(async move { result(&fixture, name).await });
            let ended = calls(&well.told);
            until("it is somewhere", || calls(&dying.told) > before || calls(&well.told) > ended).await;
            if calls(&dying.told) > before {
                break (running, calls(&well.told));
            }
            running.await.unwrap();
        };
        until("it has its work", || dying.told.frames.lock().to_owned() > 0).await;
        dying.kill();
        let result = running.await.unwrap();
        match expected {
            "" => {
                assert_eq!(result["_meta"]["asp/reason"], "outcome_unknown", "{result}");
                assert_eq!(calls(&well.told), lost, "nobody else was given it");
            }
            who => assert_eq!(result["structuredContent"]["who"], who, "{result}"),
        }
        for _ in 0..4 {
            assert_eq!(self::result(&fixture, "order").await["structuredContent"]["who"], "well");
        }
    }
}

#[tokio::test]
async fn a_call_with_checkpoints_keeps_to_its_runtime_and_goes_on_at_another_after_its_death() {
    let executions: Arc<Mutex<Vec<(&'static str, u64)>>> = Arc::default();
    let waits = Arc::new(Notify::new());
    let saving = |who: &'static str| {
        let (executions, waits) = (executions.clone(), waits.clone());
        Script::of(move |_, mut worker: Worker| {
            let (executions, waits) = (executions.clone(), waits.clone());
            async move {
                let invoke = worker.begin(&[("checkpoint", "true")]).await;
                let seq = invoke.resume.as_ref().map_or(0, |resume| resume.seq);
                executions.lock().push((who, seq));
                match seq {
                    0 => {
                        assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
                        worker.crash(true).await;
                    }
                    1 => {
                        assert_eq!(save(&mut worker, &invoke.request_id, 2, b"two").await, "");
                        waits.notify_one();
                        while worker.any().await.is_some() {}
                    }
                    _ => worker.complete(&invoke, &json!({"ok": true, "who": who})).await,
                }
            }
        })
    };
    let mut both = [Runtime::start_apart(saving("one")), Runtime::start_apart(saving("two"))];
    let fixture = beside(&[&both[0], &both[1]]).await;
    let running = tokio::spawn(async move { result(&fixture, "order").await });
    waits.notified().await;
    let first = executions.lock()[0].0;
    assert_eq!(*executions.lock(), [(first, 0), (first, 1)], "it goes on where its worker crashed");
    let (dead, left) = if first == "one" { (0, "two") } else { (1, "one") };
    both[dead].kill();
    let result = running.await.unwrap();
    assert_eq!(result["structuredContent"]["who"], left, "{result}");
    assert_eq!(*executions.lock(), [(first, 0), (first, 1), (left, 2)]);
}

#[tokio::test]
async fn what_goes_on_at_another_runtime_begins_there_when_the_lost_execution_has_ended() {
    let begun: Arc<Mutex<Vec<(&'static str, String)>>> = Arc::default();
    let (asked, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let cutting = |who: &'static str| {
        let begun = begun.clone();
        let (asked, ended, refused) = (asked.clone(), ended.clone(), Arc::new(Mutex::new(false)));
        let script = Script::of(move |_, mut worker: Worker| {
            let begun = begun.clone();
            async move {
                let invoke = worker.begin(&[]).await;
                let before = begun.lock().len();
                begun.lock().push((who, invoke.request_id.clone()));
                match before {
                    0 => worker.cut(Status::unavailable("the connection is lost")).await,
                    _ => worker.complete(&invoke, &json!({"ok": true, "who": who})).await,
                }
            }
        });
        script.ending(move || {
            let (asked, ended, refused) = (asked.clone(), ended.clone(), refused.clone());
            async move {
                if !std::mem::replace(&mut *refused.lock(), true) {
                    return Err(Status::already_exists("it does not end in time"));
                }
                asked.notify_one();
                ended.notified().await;
                Ok(())
            }
        })
    };
    let both = [Runtime::start(cutting("one")), Runtime::start(cutting("two"))];
    let fixture = beside(&[&both[0], &both[1]]).await;
    let running = tokio::spawn(async move { result(&fixture, "sweep").await });
    asked.notified().await;
    let (first, id) = begun.lock()[0].clone();
    assert_eq!(begun.lock().len(), 1, "it has not ended where it was lost");
    ended.notify_one();
    let result = running.await.unwrap();
    let (lost, other) = if first == "one" { (&both[0], "two") } else { (&both[1], "one") };
    assert_eq!(result["structuredContent"]["who"], other, "{result}");
    assert_eq!(*lost.told.to_end.lock(), [id.clone(), id], "it was asked again");
}

#[tokio::test]
async fn a_call_that_is_taken_over_is_ended_at_all_other_runtimes_first() {
    let script = || {
        Script::of(|_, mut worker: Worker| async move {
            let invoke = worker.begin(&[("checkpoint", "true")]).await;
            if invoke.resume.is_some() {
                return worker.complete(&invoke, &json!({"ok": true})).await;
            }
            assert_eq!(save(&mut worker, &invoke.request_id, 1, b"one").await, "");
            while worker.any().await.is_some() {}
        })
    };
    let both = [Runtime::start(script()), Runtime::start(script())];
    let first = beside(&[&both[0], &both[1]]).await;
    let _waiting = send(request("order", Some("k")), &first);
    until("it has begun", || both.iter().any(|runtime| calls(&runtime.told) > 0)).await;
    let at_first = both.iter().find(|runtime| calls(&runtime.told) > 0).unwrap();
    row(&first, at_first, |row| row.seq == 1).await;
    let second = first.beside(Runtimes::new(both.iter().map(Runtime::target).collect()).unwrap());
    take_over(&second).await;
    let result = last_result(&request("order", Some("k")).send(&second).await);
    assert_eq!(result["structuredContent"]["ok"], true, "{result}");
    let id = at_first.told.allocations.lock()[0].ctx.clone().unwrap().correlation_id;
    for runtime in &both {
        let allocations = runtime.told.allocations.lock().len();
        let went_on_here = allocations == if std::ptr::eq(runtime, at_first) { 2 } else { 1 };
        let asked = runtime.told.to_end.lock().clone();
        assert_eq!(asked, if went_on_here { vec![] } else { vec![id.clone()] });
    }
}

/// A resolver that a test tells what to say.
#[derive(Default)]
struct Names {
    addresses: Mutex<Vec<SocketAddr>>,
    changed: Notify,
}

impl Names {
    fn say(&self, addresses: &[SocketAddr]) {
        *self.addresses.lock() = addresses.to_vec();
        self.changed.notify_one();
    }
}

#[async_trait]
impl Resolve for Names {
    async fn resolve(&self, host: &str, _: u16) -> io::Result<Vec<SocketAddr>> {
        assert_eq!(host, "localhost", "the name of the certificates");
        match self.addresses.lock().clone() {
            none if none.is_empty() => Err(io::Error::other("no such name")),
            addresses => Ok(addresses),
        }
    }

    async fn due(&self) {
        self.changed.notified().await;
    }
}

#[tokio::test]
async fn each_address_of_a_name_is_a_runtime_that_proves_the_name_and_one_that_goes_drains() {
    let ours = Authority::new();
    let (hold, held) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let until_told = hold.clone();
    let begun = held.clone();
    let first = Script::of(move |n, mut worker: Worker| {
        let (hold, held) = (until_told.clone(), begun.clone());
        async move {
            let invoke = worker.begin(&[]).await;
            if n == 0 {
                held.notify_one();
                hold.notified().await;
            }
            worker.complete(&invoke, &json!({"ok": true, "who": "first"})).await;
        }
    });
    let (first, first_told) = start_with_tls_at("127.0.0.1:0", first, &ours, "runtime").await;
    let (second, _) = start_with_tls_at("127.0.0.2:0", answering("second"), &ours, "runtime").await;
    // Whoever is no runtime gets nothing, whatever address it has.
    let (stolen, stolen_told) = start_with_tls_at("127.0.0.3:0", answering("stolen"), &ours, "envoy").await;
    let names = Arc::new(Names::default());
    names.say(&[first]);
    let peer = Some(ours.peer("gateway", &ours));
    let target = RuntimeTarget { languages: vec![PYTHON.into()], url: "https://localhost:1".into(), peer };
    let runtimes = Runtimes::resolved_by(vec![target], names.clone()).unwrap();
    let fixture = Fixture::with(snapshot(), 7, runtimes);
    heard(&fixture).await;
    let beginning = fixture.clone();
    let running = tokio::spawn(async move { result(&beginning, "order").await });
    held.notified().await;
    names.say(&[first, second, stolen]);
    until_async("the new one is used", async || {
        result(&fixture, "order").await["structuredContent"]["who"] == "second"
    })
    .await;
    for _ in 0..4 {
        assert_eq!(result(&fixture, "order").await["structuredContent"]["who"], "second", "it is less busy");
    }
    let shown = fixture.gateway.runtimes().await;
    let addresses: Vec<String> = shown.iter().map(|one| one.address.unwrap().to_string()).collect();
    assert_eq!(addresses, ["127.0.0.1", "127.0.0.2", "127.0.0.3"], "each is shown by its name");
    names.say(&[second]);
    until_async("the first one is gone", async || fixture.gateway.runtimes().await.len() == 1).await;
    let before = calls(&first_told);
    for _ in 0..8 {
        assert_eq!(result(&fixture, "order").await["structuredContent"]["who"], "second");
    }
    assert_eq!(calls(&first_told), before, "it gets no new call");
    names.say(&[]);
    hold.notify_one();
    assert_eq!(running.await.unwrap()["structuredContent"]["who"], "first", "it keeps the one that it has");
    assert_eq!(result(&fixture, "order").await["structuredContent"]["who"], "second", "what is known stays");
    assert_eq!(calls(&stolen_told), 0);
}
