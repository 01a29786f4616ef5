//! Samples of revocations: a call streams, of a builtin tool or in a plugin's worker, its caller is revoked, blocked or denied,
//! and the time is taken until the stream has ended, until the call has ended in its worker, and until the edge and every
//! gateway refuse the caller's next call.

use std::net::SocketAddr;
use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::cluster::{Cluster, Layout};
use crate::http1::{self, Request, Response};
use crate::message::{modern, rest, revocation};
use crate::runtime::{self, Runtime, World};
use crate::wait::ErrorDetails;
use crate::{tool, wait};

const ORG: &str = "acme";
/// Reason of each revocation, which a refusal repeats.
pub const REASON: &str = "a sample";
/// Longer than the longest row.
const TOKEN: &str = "2h";
/// Between two probes of one place, so that they leave the processors to what is measured.
const PAUSE: Duration = Duration::from_millis(25);
/// Tokens that are minted at once; each is a process.
const MINTED_AT_ONCE: usize = 4;
/// Progress of a call that runs. A call that waits for a worker reports progress too, and would end without having begun.
const COUNTED: &str = "counted ";
/// First digits of the traces of the calls that are sampled: probes have another trace.
pub const TRACES: &str = "5a3e";

/// Loss of the right to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The token is revoked by its hash.
    Token,
    /// All tokens of the user that were issued before are revoked.
    User,
    /// The user is blocked.
    Block,
    /// The primitive is denied to the user.
    Denial,
}

/// Measurement of one loss.
#[derive(Debug)]
pub struct Sample {
    pub loss: Loss,
    pub work: Work,
    /// Last message of the call's stream.
    pub ended: Value,
    /// Answers to the next call, of the edge and each gateway.
    pub refused: Vec<Value>,
    /// Time from the admin's request to the end of the stream.
    pub until_ended: Duration,
    /// Time from the admin's request to the first refusal at the last place.
    pub until_refused: Duration,
    /// Time from the admin's request until the worker has printed that the call ended; `None` without a worker.
    pub until_worker: Option<Duration>,
}

/// Backend of the call that is sampled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    Builtin,
    /// A worker of a plugin, which is not denied: probes of a plugin would end with their caller, too.
    Plugin,
}

/// A cluster with a runtime, whose workers have calls among the samples.
pub struct Site {
    pub cluster: Cluster,
    runtime: Runtime,
    _primitives: TempDir,
}

impl Site {
    /// Starts a cluster with these gateways, and `demo` and the plugin of `tests/fixtures/lasting`.
    pub async fn start(mut environment: Vec<(&'static str, String)>, gateways: usize) -> Result<Site> {
        let root = tool::root()?;
        let fixture = root.join("tests/fixtures/lasting");
        let runtime = Runtime::start(&fixture, World::default()).await?;
        environment.push(("ASP_RUNTIMES", runtime::address(&runtime.socket)));
        let primitives = tempfile::tempdir()?;
        for (name, from) in [("demo", root.join("primitives/demo")), ("lasting", fixture.join("lasting"))] {
            copy(&from, &primitives.path().join(name))?;
        }
        let layout =
            Layout { environment, primitives: primitives.path().to_owned(), ..Layout::of(gateways)? };
        let cluster = Box::pin(Cluster::start_as(layout)).await?;
        let site = Site { cluster, runtime, _primitives: primitives };
        site.serves_plugins().await?;
        Ok(site)
    }

    /// Waits until every gateway calls the plugin.
    async fn serves_plugins(&self) -> Result<()> {
        let token = self.cluster.token(&["--org", ORG, "--user", "ready"]).await?;
        let call = &Work::Plugin.call(&token, "ready", (1, 0));
        for gateway in self.cluster.addresses() {
            wait::until("a gateway calls the plugin", wait::START, || async move {
                let answer = http1::send(gateway, call).await.ok()?;
                answer.text().contains("\"counted\":1").then_some(())
            })
            .await
            .with_details(|| self.runtime.process.tail())?;
        }
        Ok(())
    }

    /// Takes `count` samples of all losses and backends in turn, `at_once` at a time.
    pub async fn samples(&self, first: usize, count: usize, at_once: usize) -> Result<Vec<Sample>> {
        taken(&self.cluster, Some(&self.runtime), first..first + count, at_once).await
    }
}

/// Copies a directory.
fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::create_dir(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.file_type()?.is_dir() {
            true => copy(&entry.path(), &target)?,
            false => std::fs::copy(entry.path(), &target).map(drop)?,
        }
    }
    Ok(())
}

impl Work {
    /// Returns a call that counts, with the pause in milliseconds after each number.
    fn call(self, token: &str, name: &str, (to, delay_ms): (u64, u64)) -> Request {
        let Work::Plugin = self else { return count(token, to, delay_ms) };
        let arguments = json!({"name": name, "to": to, "delayMs": delay_ms});
        let params = json!({"name": "lasting", "arguments": arguments, "_meta": {"progressToken": 1}});
        let mut call = modern(token, "tools/call", params, &[("mcp-name", "lasting")]);
        call.target = "/lasting/mcp".into();
        call
    }
}

impl Loss {
    pub const ALL: [Loss; 4] = [Loss::Token, Loss::User, Loss::Block, Loss::Denial];

    /// Name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Loss::Token => "revocation of a token",
            Loss::User => "revocation of a user's tokens",
            Loss::Block => "block of a user",
            Loss::Denial => "denial of a tool",
        }
    }

    /// Stable reason of the refusals.
    pub fn reason(self) -> &'static str {
        match self {
            Loss::Token | Loss::User => "token_revoked",
            Loss::Block => "blocked",
            Loss::Denial => "unknown_primitive",
        }
    }

    fn write(self, root: &str, token: &str, user: &str) -> Request {
        let of_user = json!({"type": "user", "org": ORG, "id": user, "reason": REASON});
        match self {
            Loss::Token => revocation(root, token),
            Loss::User => rest("POST", "/api/revocations", root, &of_user),
            Loss::Block => rest("POST", "/api/blocks", root, &of_user),
            Loss::Denial => {
                let deny = json!({
                    "target": {"type": "user", "idOrPattern": user},
                    "primitive": {"name": "count", "protocol": "*"},
                    "allowed": false,
                });
                rest("PUT", &format!("/api/policy/orgs/{ORG}/bindings?force=true"), root, &deny)
            }
        }
    }
}

impl Sample {
    /// Checks what was answered: the reason, and for a user the time and the admin's words.
    pub fn judge(&self) -> Result<()> {
        let reason = self.loss.reason();
        for answer in self.refused.iter().chain([&self.ended]) {
            let data = answer.pointer("/error/data").with_context(|| format!("no refusal: {answer}"))?;
            ensure!(data.get("reason") == Some(&json!(reason)), "{:?}: {answer}", self.loss);
            let is_explained = data.get("revokedSince").is_some_and(Value::is_string);
            ensure!(is_explained == (self.loss != Loss::Denial), "{:?}: {answer}", self.loss);
            if matches!(self.loss, Loss::User | Loss::Block) {
                ensure!(data.get("revokedReason") == Some(&json!(REASON)), "{:?}: {answer}", self.loss);
            }
        }
        ensure!(!self.ended.to_string().contains("\"counted\":100"), "a result: {}", self.ended);
        Ok(())
    }
}

/// Takes `count` samples of all losses in turn, `at_once` at a time, without a plugin.
pub async fn samples(cluster: &Cluster, first: usize, count: usize, at_once: usize) -> Result<Vec<Sample>> {
    taken(cluster, None, first..first + count, at_once).await
}

/// A sample to take: its number, the user's name and token.
struct Planned {
    number: usize,
    user: String,
    token: String,
}

async fn taken(
    cluster: &Cluster,
    runtime: Option<&Runtime>,
    numbers: Range<usize>,
    at_once: usize,
) -> Result<Vec<Sample>> {
    let root = cluster.token(&["--admin", "--user", "root", "--ttl", TOKEN]).await?;
    let minted = stream::iter(numbers).map(|number| async move {
        let user = format!("sample-{number}");
        let token = cluster.token(&["--org", ORG, "--user", &user, "--ttl", TOKEN]).await?;
        anyhow::Ok(Planned { number, user, token })
    });
    let minted: Vec<Planned> = minted.buffer_unordered(MINTED_AT_ONCE).try_collect().await?;
    let root = root.as_str();
    let taken =
        stream::iter(minted).map(|planned| async move { sample(cluster, runtime, root, &planned).await });
    taken.buffer_unordered(at_once).try_collect().await
}

/// Takes one sample. Losses come in turn, then the places of their calls, then the backends.
async fn sample(
    cluster: &Cluster,
    runtime: Option<&Runtime>,
    root: &str,
    planned: &Planned,
) -> Result<Sample> {
    let Planned { number, user, token } = planned;
    let mut places = cluster.addresses();
    places.push(cluster.envoy.address);
    let loss = Loss::ALL.into_iter().cycle().nth(number % Loss::ALL.len()).context("a loss")?;
    let round = number / Loss::ALL.len();
    let place = places.iter().cycle().nth(round % places.len()).context("a gateway")?;
    let is_of_plugin = (round / places.len()) % 2 == 1 && loss != Loss::Denial;
    let runtime = runtime.filter(|_| is_of_plugin);
    let work = if runtime.is_some() { Work::Plugin } else { Work::Builtin };
    // A minute, so that only its loss ends it in time.
    let call = traced(work.call(token, user, (100, 600)), *number);
    let opened = http1::open(*place, &call, COUNTED).await?;
    let api = SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin));
    let write = loss.write(root, token, user);
    let requested = Instant::now();
    let written = async {
        let answer = http1::send(api, &write).await?;
        ensure!(answer.status < 300, "{}: {} {}", write.target, answer.status, answer.text());
        anyhow::Ok(())
    };
    let ended = async { anyhow::Ok((opened.finish().await?.json()?, requested.elapsed())) };
    let in_worker = async {
        let Some(runtime) = runtime else { return anyhow::Ok(None) };
        ended_in_worker(runtime, user).await?;
        Ok(Some(requested.elapsed()))
    };
    let probe = count(token, 1, 0);
    let refused = try_join_all(places.iter().map(|place| refused(*place, &probe, loss)));
    let ((), (ended, until_ended), until_worker, refused) =
        tokio::try_join!(written, ended, in_worker, refused)?;
    let until_refused = refused.iter().map(|(_, at)| at.saturating_duration_since(requested)).max();
    Ok(Sample {
        loss,
        work,
        ended,
        until_ended,
        until_refused: until_refused.unwrap_or_default(),
        until_worker,
        refused: refused.into_iter().map(|(answer, _)| answer).collect(),
    })
}

/// Waits until the worker has printed that the call of a user ended.
async fn ended_in_worker(runtime: &Runtime, user: &str) -> Result<()> {
    let began = Instant::now();
    let line = format!("ended {user};");
    while !runtime.process.log().contains(&line) {
        let late = || format!("the call of {user} does not end in its worker: {}", runtime.process.tail());
        ensure!(began.elapsed() < wait::CONVERGE, late());
        sleep(PAUSE).await;
    }
    Ok(())
}

/// Probes a place until it refuses; the answer and its time.
async fn refused(place: SocketAddr, probe: &Request, loss: Loss) -> Result<(Value, Instant)> {
    let began = Instant::now();
    loop {
        let answer: Response = http1::send(place, probe).await?;
        if answer.reason().as_deref() == Some(loss.reason()) {
            return Ok((answer.json()?, Instant::now()));
        }
        let is_in_time = began.elapsed() < wait::CONVERGE;
        ensure!(is_in_time, "{place} does not refuse: {} {}", answer.status, answer.text());
        sleep(PAUSE).await;
    }
}

/// Gives the call of a sample a trace of its own.
fn traced(mut call: Request, number: usize) -> Request {
    call.headers.retain(|(name, _)| name != "traceparent");
    let parent = format!("00-{TRACES}{:028x}-b7ad6b7169203331-01", number + 1);
    call.headers.push(("traceparent".to_owned(), parent.into_bytes()));
    call
}

fn count(token: &str, to: u64, delay_ms: u64) -> Request {
    let arguments = json!({"to": to, "delayMs": delay_ms});
    let params = json!({"name": "count", "arguments": arguments, "_meta": {"progressToken": 1}});
    modern(token, "tools/call", params, &[("mcp-name", "count")])
}
