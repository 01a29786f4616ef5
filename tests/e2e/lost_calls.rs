//! Calls whose gateway is lost, or cut off from the stores, amid them, in a fleet of three gateways and two control planes: what
//! is called again under its key has its effect as its spec promises, and tasks are anybody's (I-3). What was asked, told and done
//! is judged as one history.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::caller::{Came, Tool, Work, agreed};
use asp_e2e::fleet::ends::Ends;
use asp_e2e::fleet::{Fleet, Part};
use asp_e2e::history::What;
use asp_e2e::message::{legacy, modern, rest};
use asp_e2e::{http1, wait};
use futures::future::join_all;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

use crate::policy::sha256;
use crate::trial::{Shared, trials};

trials! { lost_calls:
    tasks_are_anybodys_and_a_call_issued_again_has_its_effect_as_promised,
    a_gateway_cut_off_does_nothing_twice_and_others_serve_what_it_cannot,
}

async fn tasks_are_anybodys_and_a_call_issued_again_has_its_effect_as_promised(_: &Shared) -> Result<()> {
    let mut fleet = Fleet::start().await?;
    let played = play_killed(&mut fleet).await;
    fleet.judged(played)
}

async fn play_killed(fleet: &mut Fleet) -> Result<()> {
    let at = fleet.cluster.addresses();
    tasks(fleet, &at).await.context("tasks")?;
    answered(fleet, &at).await.context("answers")?;
    let (asking, asked) = asked(fleet, at[0], "left asking").await?;
    let task = Work::held(Tool::Hosted, "left task");
    let id = begun(fleet, at[0], &task).await?;
    fleet.works.was_asked(&task.thing, 1).await?;
    let left = left(fleet, at[0]).await?;
    fleet.kill(Part::Gateway(0)).await?;
    for (work, asked) in left {
        let came = asked.await?;
        ensure!(matches!(came, Came::Unanswered(_)), "{}: {came:?}", work.thing);
    }
    issued_again(fleet, &at[1..]).await?;
    agreed_elsewhere(fleet, at[1], &asking, asked).await.context("the answer to what was left")?;
    for gateway in &at[1..] {
        let came = fleet.caller.ended_task(*gateway, &task, &id).await?;
        ensure!(matches!(came, Came::Told(_)), "{came:?}");
    }
    // F44 of `make chaos`, in short.
    fleet.start_again(Part::Gateway(0)).await?;
    fleet.is_well().await?;
    let mut ends = Ends::start(fleet, 1, SEED).await?;
    ends.lose(fleet, 2).await.context("calls that end as their gateway is killed")
}

async fn begun(fleet: &Fleet, at: SocketAddr, work: &Work) -> Result<String> {
    match fleet.caller.begin(at, work).await {
        Came::Runs(Some(task)) => Ok(task),
        other => bail!("{} became no task: {other:?}", work.thing),
    }
}

/// One that is done, and one that is cancelled where it does not run.
async fn tasks(fleet: &Fleet, at: &[SocketAddr]) -> Result<()> {
    let work = Work::lasting(Tool::Hosted, "task", 300);
    let id = begun(fleet, at[0], &work).await?;
    for gateway in at {
        let came = fleet.caller.ended_task(*gateway, &work, &id).await?;
        ensure!(matches!(came, Came::Told(_)), "{came:?}");
    }
    let work = Work::held(Tool::Hosted, "cancelled task");
    let id = begun(fleet, at[0], &work).await?;
    fleet.works.was_asked(&work.thing, 1).await?;
    let came = fleet.caller.task(at[1], &work, "tasks/get", &id).await;
    ensure!(came == Came::Runs(Some(id.clone())), "{came:?}");
    let came = fleet.caller.task(at[2], &work, "tasks/cancel", &id).await;
    ensure!(came == Came::Runs(None), "{came:?}");
    for gateway in at {
        let came = fleet.caller.ended_task(*gateway, &work, &id).await?;
        ensure!(came == Came::Cancelled, "{came:?}");
    }
    let is_told = || async { fleet.works.is_cancelled(&work.thing).then_some(()) };
    wait::until("the service is told", wait::CONVERGE, is_told).await
}

/// A call that asks a person at this gateway, and what it asks.
async fn asked(fleet: &Fleet, at: SocketAddr, thing: &str) -> Result<(Work, Value)> {
    let work = Work::lasting(Tool::Asking, thing, 0);
    match fleet.caller.agree(at, &work, None).await {
        Came::Asks(asked) => Ok((work, asked)),
        other => bail!("{thing} does not ask: {other:?}"),
    }
}

/// One who goes on at another gateway may be asked again there, under another id.
async fn agreed_elsewhere(fleet: &Fleet, at: SocketAddr, work: &Work, mut asked: Value) -> Result<()> {
    for _ in 0..3 {
        match fleet.caller.agree(at, work, Some(&asked)).await {
            Came::Told(_) => return Ok(()),
            Came::Asks(again) => asked = again,
            other => bail!("{}: {other:?}", work.thing),
        }
    }
    bail!("{} asks again and again", work.thing)
}

/// What the service asks is answered at another gateway, in either era.
async fn answered(fleet: &Fleet, at: &[SocketAddr]) -> Result<()> {
    let (work, question) = asked(fleet, at[0], "asked of a modern client").await?;
    agreed_elsewhere(fleet, at[1], &work, question).await?;

    let token = &fleet.caller.token;
    let hello = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "wire", "version": "1"},
    });
    let to_works = |mut request: http1::Request| {
        request.target = "/works/mcp".into();
        request
    };
    let hello = http1::send(at[0], &to_works(legacy(token, "initialize", hello, &[]))).await?;
    let session = hello.header("mcp-session-id").with_context(|| hello.text())?;
    let headers = [("mcp-session-id", session), ("mcp-protocol-version", "2025-11-25")];
    let thing = "asked of a legacy client";
    let ask = fleet.history.ask(thing, Tool::Asking.promise(), at[0]);
    let call = json!({"name": "asking", "arguments": {"thing": thing}});
    let call = to_works(legacy(token, "tools/call", call, &headers));
    let open = http1::open(at[0], &call, "elicitation/create").await?;
    let (open, question) = open.event_with("elicitation/create").await?;
    let question: Value = serde_json::from_str(&question)?;
    let mut answer = to_works(legacy(token, "", Value::Null, &headers));
    answer.body =
        json!({"jsonrpc": "2.0", "id": question["id"], "result": agreed()}).to_string().into_bytes();
    let said = http1::send(at[1], &answer).await?;
    ensure!(said.status == 202, "{} {}", said.status, said.text());
    let (_, result) = open.event_with("structuredContent").await?;
    let result: Value = serde_json::from_str(&result)?;
    ask.told(result["result"]["structuredContent"].to_string());
    Ok(())
}

/// The order of kills and the lengths of calls.
const SEED: u64 = 39;
/// What the gateways leave, or cannot say the end of.
const LEFT: [(Tool, &str); 3] =
    [(Tool::Once, "left once"), (Tool::Again, "left again"), (Tool::Hosted, "left hosted")];

/// Calls that are at the service, which holds them.
async fn left(fleet: &Fleet, at: SocketAddr) -> Result<Vec<(Work, JoinHandle<Came>)>> {
    let calls = LEFT.map(|(tool, thing)| {
        let work = Work::held(tool, thing);
        let caller = fleet.caller.clone();
        let called = work.clone();
        (work, tokio::spawn(async move { caller.call(at, &called).await }))
    });
    for (work, _) in &calls {
        fleet.works.was_asked(&work.thing, 1).await?;
    }
    Ok(calls.into())
}

/// Calls the same at the other gateways, at both at once; the service lets all go once it was asked again by them.
async fn issued_again(fleet: &Fleet, others: &[SocketAddr]) -> Result<()> {
    let works = LEFT.map(|(tool, thing)| Work::held(tool, thing));
    let again = works.iter().flat_map(|work| others.iter().map(move |at| fleet.caller.call(*at, work)));
    let let_go = async {
        for work in works.iter().filter(|work| work.tool != Tool::Once) {
            fleet.works.was_asked(&work.thing, 2).await?;
        }
        fleet.works.let_go();
        anyhow::Ok(())
    };
    let (came, let_go) = tokio::join!(join_all(again), let_go);
    let_go.with_context(|| format!("{came:?}"))?;
    for work in &works {
        let came = fleet.caller.settle(others, work).await?;
        let is_right = matches!((work.tool, &came), (Tool::Once, Came::Unknown) | (_, Came::Told(_)));
        ensure!(is_right, "{}: {came:?}", work.thing);
    }
    Ok(())
}

async fn a_gateway_cut_off_does_nothing_twice_and_others_serve_what_it_cannot(_: &Shared) -> Result<()> {
    let fleet = Fleet::start_over_cables().await?;
    let played = play_cut_off(&fleet).await;
    fleet.judged(played)
}

async fn play_cut_off(fleet: &Fleet) -> Result<()> {
    let at = fleet.cluster.addresses();
    let left = left(fleet, at[0]).await?;
    fleet.history.add("gateway 0", What::Lost);
    fleet.cables(0)?.cut_stores();
    let (again, meanwhile) = tokio::join!(issued_again(fleet, &at[1..]), meanwhile(fleet));
    again?;
    meanwhile?;
    fleet.cables(0)?.mend();
    for (_, asked) in left {
        asked.await?;
    }
    // It says the same as the others, as soon as it has the stores again.
    let work = Work::lasting(Tool::Once, "afterwards", 0);
    let serves = || async { Some(fleet.caller.call(at[0], &work).await).filter(|came| !came.is_open()) };
    wait::until("it serves again", wait::START, serves).await?;
    fleet.history.add("gateway 0", What::Well);
    for (tool, thing) in LEFT {
        fleet.caller.settle(&at[..1], &Work::held(tool, thing)).await?;
    }
    cut_off_from_control(fleet, &at).await.context("control")
}

/// What Envoy leads to the gateway that is cut off is served by another one, at the latest when it is asked again.
async fn meanwhile(fleet: &Fleet) -> Result<()> {
    let edge = [fleet.cluster.envoy.address];
    let works = (0..CALLS).flat_map(|number| {
        [Tool::Once, Tool::Hosted].map(|tool| Work::lasting(tool, format!("{} {number}", tool.name()), 0))
    });
    let works: Vec<Work> = works.collect();
    let came = join_all(works.iter().map(|work| fleet.caller.settle(&edge, work))).await;
    for (work, came) in works.iter().zip(came) {
        let came = came?;
        ensure!(matches!(came, Came::Told(_)), "{}: {came:?}", work.thing);
    }
    // Also what leads there again and again, because its id does.
    for number in 0..CALLS {
        let work = Work::lasting(Tool::Once, format!("rest-{number}"), 0);
        let last = Mutex::new(None);
        let put = || async {
            let came = fleet.caller.rest(edge[0], &work, "PUT", "").await;
            *last.lock() = Some(came.clone());
            Some(came).filter(|came| !came.is_open())
        };
        let came = wait::until("another one serves it", wait::START, put).await;
        let came = came.with_context(|| format!("{}: {:?}", work.thing, last.lock()))?;
        ensure!(matches!(came, Came::Told(_)), "{}: {came:?}", work.thing);
    }
    // It says so to Envoy alone.
    let path = "/works/rest/tools/once/calls/straight";
    let body = json!({"thing": "straight"});
    let put = rest("PUT", path, &fleet.caller.token, &body);
    let is_said = |answer: &http1::Response| answer.header("x-asp-unserved").is_some();
    let cut_off = fleet.cluster.addresses()[0];
    let refused = || async { http1::send(cut_off, &put).await.ok().filter(is_said) };
    let refused = wait::until("it says that it does not serve it", wait::CONVERGE, refused).await?;
    ensure!(refused.status == 503, "{}", refused.text());
    fleet.history.ask("straight", Tool::Once.promise(), "REST").unanswered("not looked at");
    let served = http1::send(edge[0], &put).await?;
    ensure!(served.status < 300 && !is_said(&served), "{} {:?}", served.text(), served.headers);
    // What needs no store is served by it all the while.
    let echo = json!({"name": "echo", "arguments": {"message": "meanwhile"}});
    let echo = modern(&fleet.caller.token, "tools/call", echo, &[("mcp-name", "echo")]);
    for gateway in fleet.cluster.addresses() {
        let answer = http1::send(gateway, &echo).await?;
        ensure!(answer.status == 200 && answer.text().contains("meanwhile"), "{}", answer.text());
    }
    Ok(())
}

/// It serves by what it knows, and has what it missed in force as soon as it hears of it again.
async fn cut_off_from_control(fleet: &Fleet, at: &[SocketAddr]) -> Result<()> {
    let admin = fleet.cluster.token(&["--admin", "--user", "root"]).await?;
    let bob = fleet.cluster.token(&["--org", "acme", "--user", "bob"]).await?;
    let list = modern(&bob, "tools/list", json!({}), &[]);
    fleet.cables(0)?.cut_controls();
    let write = fleet.history.write("bob's token", "401");
    let revocation = json!({"type": "token_hash", "id": sha256(&bob)});
    let written =
        http1::send(fleet.admins()[1], &rest("POST", "/api/revocations", &admin, &revocation)).await?;
    ensure!(written.status < 300, "{}", written.text());
    write.stored();
    let is_refused = |gateway| {
        let list = &list;
        async move { http1::send(gateway, list).await.ok().filter(|answer| answer.status == 401).map(drop) }
    };
    for gateway in [at[1], at[2], fleet.cluster.envoy.address] {
        wait::until("the token is revoked", wait::CONVERGE, || is_refused(gateway)).await?;
    }
    let answer = http1::send(at[0], &list).await?;
    ensure!(answer.status == 200, "it is cut off, and says {} {}", answer.status, answer.text());
    fleet.cables(0)?.mend();
    wait::until("it has heard of it", wait::START, || is_refused(at[0])).await?;
    for gateway in at {
        let value = http1::send(*gateway, &list).await?.status.to_string();
        fleet.history.add("bob's token", What::InForce { place: gateway.to_string(), value });
    }
    Ok(())
}

/// Of each tool, while a gateway is cut off.
const CALLS: usize = 10;
