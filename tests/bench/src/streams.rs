//! Clients that only wait to be told of changes: what each costs the gateway and Envoy while nothing happens, and how
//! soon all of them are told of one change. Streams of both eras in turn, each over a connection of its own, as shipped.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use asp_e2e::http1::{self, Opened, Request};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool::{self, Build};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::admin::Admin;
use crate::goal::Goal;
use crate::plan::Plan;
use crate::progress::say;
use crate::session::Endpoint;
use crate::usage::Processes;

/// Orgs that share the streams: one alone has at most 5,000.
const ORGS: usize = 5;
/// How many of the streams are open before memory is read, so that what is made once is there.
const FIRST: usize = 100;
const TARGET: &str = "/demo/mcp";
const CHANGED: &str = "notifications/tools/list_changed";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const MODERN: &str = "2026-07-28";
/// Bytes that a stream may cost the gateway.
const MOST_BYTES: u64 = 16 * 1024;
/// Bound of the 99th percentile of telling, in milliseconds.
const MOST_MS: f64 = 1000.0;

/// What was found.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Streams {
    pub streams: usize,
    pub seconds: f64,
    /// Bytes of each: when all were open, and when they had waited.
    pub gateway_bytes: [u64; 2],
    pub envoy_bytes: [u64; 2],
    /// From the moment the change is sent to the admin API: of each stream, in milliseconds, sorted.
    pub told_ms: Vec<f64>,
}

pub(crate) async fn measure(plan: &Plan) -> Result<Streams> {
    let stack = Stack::start(Options::of(Build::own()?)).await?;
    let processes = Processes { envoy: stack.envoy.process.id(), gateway: stack.asp.id(), backend: None };
    let mut tokens = Vec::new();
    for org in 0..ORGS {
        tokens.push(stack.token(&["--org", &format!("waiting-{org}"), "--user", "carol"]).await?);
    }
    let mut open = open(&stack, &tokens, 0..FIRST).await?;
    let before = memory(&processes)?;
    say(&format!("{} idle streams", plan.streams));
    open.extend(self::open(&stack, &tokens, FIRST..plan.streams).await?);
    let opened = memory(&processes)?;
    let began = Instant::now();
    tokio::time::sleep(plan.waiting).await;
    let waited = memory(&processes)?;
    let seconds = began.elapsed().as_secs_f64();
    let told_ms = change(&stack, open).await?;
    let more = (plan.streams - FIRST) as u64;
    let each = |of: fn(&Memory) -> u64| {
        [&opened, &waited].map(|later| of(later).saturating_sub(of(&before)) * 1024 / more)
    };
    let found = Streams {
        streams: plan.streams,
        seconds,
        gateway_bytes: each(|memory| memory.gateway_kib),
        envoy_bytes: each(|memory| memory.envoy_kib),
        told_ms,
    };
    stack.stop(&[]).await?;
    Ok(found)
}

/// Resident memory of the two.
pub(crate) struct Memory {
    pub gateway_kib: u64,
    pub envoy_kib: u64,
}

pub(crate) fn memory(processes: &Processes) -> Result<Memory> {
    let usage = processes.read()?;
    Ok(Memory {
        gateway_kib: usage.gateway.context("the gateway runs")?.rss_kib,
        envoy_kib: usage.envoy.context("Envoy runs")?.rss_kib,
    })
}

async fn open(stack: &Stack, tokens: &[String], numbers: std::ops::Range<usize>) -> Result<Vec<Opened>> {
    let mut streams = Vec::new();
    for (number, token) in numbers.zip(tokens.iter().cycle()) {
        let stream = if (number / tokens.len()).is_multiple_of(2) {
            http1::open(stack.edge(), &get(stack, token).await?, "text/event-stream").await
        } else {
            http1::open(stack.edge(), &listen(token), ACKNOWLEDGED).await
        };
        streams.push(stream.with_context(|| format!("stream {number}"))?);
    }
    Ok(streams)
}

async fn get(stack: &Stack, token: &str) -> Result<Request> {
    let edge = stack.edge();
    let endpoint = Endpoint { address: edge, target: TARGET.into(), authority: edge.to_string() };
    let session = endpoint.open_session(token).await?;
    Ok(request("GET", token, &[("mcp-session-id", &session)], None))
}

fn listen(token: &str) -> Request {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": MODERN,
                      "io.modelcontextprotocol/clientCapabilities": {}});
    let params = json!({"notifications": {"toolsListChanged": true}, "_meta": meta});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "subscriptions/listen", "params": params});
    let headers = [("mcp-protocol-version", MODERN), ("mcp-method", "subscriptions/listen")];
    request("POST", token, &headers, Some(&body))
}

fn request(method: &str, token: &str, headers: &[(&str, &str)], body: Option<&Value>) -> Request {
    let bearer = format!("Bearer {token}");
    let usual = [
        ("authorization", bearer.as_str()),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
    ];
    let all = usual.iter().chain(headers);
    Request {
        method: method.into(),
        target: TARGET.into(),
        headers: all.map(|(name, value)| ((*name).into(), value.as_bytes().to_vec())).collect(),
        body: body.map(|body| body.to_string().into_bytes()).unwrap_or_default(),
    }
}

/// Changes a tool that everybody sees; when each was told.
async fn change(stack: &Stack, streams: Vec<Opened>) -> Result<Vec<f64>> {
    let admin = Admin::of(stack).await?;
    let mut files = Vec::new();
    for file in std::fs::read_dir(tool::root()?.join("primitives/demo"))? {
        let path = file?.path();
        let text = std::fs::read_to_string(&path)?;
        let changed = text.replace("summary: Returns", "summary: Gives back");
        // Another server lists it too, in the version that it has.
        let text = if changed == text { text } else { changed.replace("version: 1.0.0", "version: 1.0.1") };
        let name = path.file_name().and_then(|name| name.to_str()).context("a name")?;
        files.push(json!({"path": format!("demo/{name}"), "text": text}));
    }
    let began = Instant::now();
    let mut telling = JoinSet::new();
    for stream in streams {
        telling.spawn(async move {
            stream.until(CHANGED).await?;
            anyhow::Ok(began.elapsed())
        });
    }
    admin.put("/api/registry/servers/demo", &json!({"files": files})).await?;
    let mut told = Vec::new();
    while let Some(one) = telling.join_next().await {
        told.push(milliseconds(one?.context("a stream that was not told")?));
    }
    told.sort_by(f64::total_cmp);
    Ok(told)
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

impl Streams {
    /// The part of the streams that was told within this time.
    fn percentile(&self, part: f64) -> f64 {
        let last = self.told_ms.len().saturating_sub(1) as f64;
        self.told_ms.get((last * part).round() as usize).copied().unwrap_or_default()
    }

    pub(crate) fn judge(&self) -> Vec<Goal> {
        let most = self.gateway_bytes.into_iter().max().unwrap_or_default();
        let slow = self.percentile(0.99);
        vec![
            Goal {
                goal: format!("an idle stream costs the gateway at most {MOST_BYTES} bytes"),
                met: most <= MOST_BYTES,
                figures: format!("{most} bytes, of {} streams", self.streams),
            },
            Goal {
                goal: format!("all are told of a change, 99 of 100 within {MOST_MS} ms"),
                met: self.told_ms.len() == self.streams && slow <= MOST_MS,
                figures: format!("{} told, p99 {slow:.0} ms", self.told_ms.len()),
            },
        ]
    }

    /// The section.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## Idle streams\n")?;
        writeln!(
            text,
            "{} clients, each with a connection of its own to Envoy, half with the GET stream of a session and half with \
             `subscriptions/listen`, waited {:.0} s; then a tool of the server that all of them see changed. Memory is \
             `VmRSS` for each stream beyond the first {FIRST}; the gateway's process holds the control plane too. Time is \
             from sending the change to the admin API.\n",
            self.streams, self.seconds
        )?;
        writeln!(text, "| | all open | after waiting |\n|---|---|---|")?;
        for (name, [opened, waited]) in [("gateway", self.gateway_bytes), ("Envoy", self.envoy_bytes)] {
            writeln!(text, "| {name}, bytes for each | {opened} | {waited} |")?;
        }
        let [half, most, all] = [0.5, 0.99, 1.0].map(|part| self.percentile(part));
        writeln!(
            text,
            "\nTold: {} of {}; p50 {half:.0} ms, p99 {most:.0} ms, the last {all:.0} ms.",
            self.told_ms.len(),
            self.streams
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_met_by_little_memory_and_by_all_being_told_soon() {
        let met = |bytes: u64, told: usize, slow: f64| {
            let told_ms = (0..told).map(|number| if number >= 98 { slow } else { 5.0 }).collect();
            let found = Streams {
                streams: 100,
                seconds: 1.0,
                gateway_bytes: [1, bytes],
                envoy_bytes: [1, 1],
                told_ms,
            };
            found.judge().iter().map(|goal| goal.met).collect::<Vec<_>>()
        };
        assert_eq!(met(16_384, 100, 1000.0), [true, true]);
        assert_eq!(met(16_385, 99, 10.0), [false, false]);
        assert_eq!(met(1, 100, 1001.0), [true, false]);
    }
}
