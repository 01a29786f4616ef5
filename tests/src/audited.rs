//! Completeness of the audit: a mixed load whose clients remember what they saw, gateways that are killed amid it, and the
//! judgement of the audit by that.
//!
//! Keeps true: a call is known by the trace that its client chose; what a client saw is compared with the audit's own words,
//! without any tolerance for calls that were answered right before a kill.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::agent;
use crate::fleet::copy;
use crate::http1::{self, Request, Response};
use crate::message::{legacy, modern, rest};
use crate::{tool, wait};

/// Time in which a lost gateway's calls get their last event, on a busy machine.
const COMPLETE: Duration = Duration::from_secs(90);
/// Number of events in a page.
const PAGE: usize = 1_000;
/// Number of kinds of calls.
const KINDS: usize = 14;
/// Milliseconds that a call lasts of which a client sees the begin.
const LASTS_MS: u64 = 5_000;
/// Calls that the limited user may make at once.
const LIMIT: u32 = 3;
/// Each kind of end that a run must have had, as its clients saw it.
pub const ENDS: [&str; 5] = ["ok", "invalid_params", "unknown_primitive", "rate_limited", CANCELLED];
/// Each protocol that a run must have used.
pub const PROTOCOLS: [&str; 3] = ["a2a", "mcp", "rest"];
const CANCELLED: &str = "cancelled";

/// The platform under load, with the specs of [`specs`].
pub struct Platform {
    pub gateways: Vec<SocketAddr>,
    pub admin: SocketAddr,
    pub admin_token: String,
    /// A user who may call everything.
    pub caller: String,
    /// A user to whom a binding denies `works.again`.
    pub denied: String,
    /// A user with a limit.
    pub limited: String,
}

impl Platform {
    /// Returns when every gateway serves calls with the plugin, and hides from the denied user what it denies.
    pub async fn serves(&self) -> Result<()> {
        let shown = |path: &str, token: &str| rest("GET", path, token, &Value::Null);
        let works = &shown("/works/rest/openapi.json", &self.denied);
        let saving = &shown("/saving/rest/openapi.json", &self.caller);
        for at in &self.gateways {
            let serving = || async move {
                let works = http1::send(*at, works).await.ok()?;
                let saving = http1::send(*at, saving).await.ok()?;
                let is_hidden = works.status == 200 && !works.text().contains("tools/again");
                (is_hidden && saving.text().contains("tools/saving")).then_some(())
            };
            wait::until("a gateway serves", wait::START, serving).await?;
        }
        Ok(())
    }
}

/// Returns a directory of the specs that the load needs: services, built-in primitives, which are skills too, and the plugin
/// of [`PLUGINS`].
pub fn specs() -> Result<TempDir> {
    let root = tool::root()?;
    let directory = tempfile::tempdir()?;
    for (from, name, protocols, more) in [
        ("tests/fixtures/works/works", "works", "[mcp, rest]", "[mcp, rest]"),
        ("primitives/demo", "demo", "[mcp, rest]", "[mcp, rest, a2a]"),
        ("tests/fixtures/saving/saving", "saving", "[mcp]", "[mcp, rest]"),
    ] {
        let to = directory.path().join(name);
        copy(&root.join(from), &to)?;
        let server = to.join("server.yaml");
        let text = std::fs::read_to_string(&server)?;
        let had = format!("protocols: {protocols}");
        ensure!(text.contains(&had), "{name} has other protocols");
        std::fs::write(&server, text.replace(&had, &format!("protocols: {more}")))?;
    }
    Ok(directory)
}

/// Below the repository's root: what a runtime for [`specs`] installs.
pub const PLUGINS: &str = "tests/fixtures/saving";

/// Path and body of the limit of [`Platform::limited`], who is `carol`.
pub fn limit() -> (&'static str, Value) {
    let limits = json!([{"selector": {"user": "carol"}, "policy": {"capacity": LIMIT, "refill": "0.5/h"}}]);
    ("/api/ratelimits/orgs/acme?force=true", limits)
}

/// Path and body of the binding that [`Platform::denied`] needs: it denies `works.again` to `bob`.
pub fn denial() -> (&'static str, Value) {
    let binding = json!({
        "target": {"type": "user", "idOrPattern": "bob"},
        "primitive": {"name": "works.again", "protocol": "*"},
        "allowed": false,
    });
    ("/api/policy/orgs/acme/bindings?force=true", binding)
}

/// The end of a call as its client saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sight {
    /// A result, or a refusal with this reason; `ok` for a result.
    End(String),
    /// A call that has begun, without its end.
    Begun,
    /// No answer.
    Nothing,
}

/// Calls of a run, by trace.
#[derive(Default)]
pub struct Run {
    sent: usize,
    seen: HashMap<String, Sight>,
}

/// Calls that are under way.
pub struct Wave {
    calls: JoinSet<(String, Sight)>,
}

/// The judgement of an audit.
#[derive(Debug, Default)]
pub struct Verdict {
    pub calls: usize,
    /// Ends by outcome.
    pub outcomes: BTreeMap<String, usize>,
    /// Protocols of the calls that have an end.
    pub protocols: BTreeSet<String>,
    /// Ends by what the clients saw.
    pub seen: BTreeMap<String, usize>,
    pub faults: Vec<String>,
}

impl Verdict {
    /// Returns the ends and protocols that the run should have had and had not.
    pub fn missing(&self) -> Vec<&'static str> {
        let ends = ENDS.into_iter().filter(|end| !self.seen.contains_key(*end));
        ends.chain(PROTOCOLS.into_iter().filter(|name| !self.protocols.contains(*name))).collect()
    }
}

impl Run {
    /// Sends `count` calls of every kind at once, spread over the gateways; returns once the first is answered, when the
    /// others can meet a kill.
    pub async fn begin(&mut self, platform: &Platform, count: usize) -> Result<Wave> {
        let mut calls = JoinSet::new();
        for (number, at) in (self.sent..self.sent + count).zip(platform.gateways.iter().copied().cycle()) {
            let trace = trace(number);
            let errand = errand(platform, number, &trace);
            calls.spawn(async move { (trace, errand.run(at).await.unwrap_or(Sight::Nothing)) });
        }
        self.sent += count;
        let (trace, sight) = calls.join_next().await.context("a call")??;
        self.seen.insert(trace, sight);
        Ok(Wave { calls })
    }

    /// Sends a call that lasts, and returns once it has begun: no other gateway continues it, although the store tells of it.
    pub async fn leave(&mut self, platform: &Platform, at: SocketAddr) -> Result<()> {
        let trace = trace(self.sent);
        let arguments =
            json!({ "thing": format!("thing {}", self.sent), "isHeld": false, "pauseMs": LASTS_MS });
        let request = over_rest(&platform.caller, self.sent, &arguments);
        self.sent += 1;
        let sight = Errand::of(traced(request, &trace)).run(at).await?;
        ensure!(sight == Sight::Begun, "the call was to last: {sight:?}");
        self.seen.insert(trace, sight);
        Ok(())
    }

    /// Returns when every call of a wave has been answered, or its connection has ended.
    pub async fn end(&mut self, mut wave: Wave) -> Result<()> {
        while let Some(ended) = wave.calls.join_next().await {
            let (trace, sight) = ended?;
            self.seen.insert(trace, sight);
        }
        Ok(())
    }

    /// Waits until the audit is complete, or for [`COMPLETE`]; returns its judgement.
    pub async fn judged(&self, platform: &Platform) -> Result<Verdict> {
        let mut last = None;
        let complete = async {
            loop {
                let verdict = self.judge(&events(platform).await?);
                let is_complete = verdict.faults.is_empty();
                last = Some(verdict);
                if is_complete {
                    return Ok::<(), anyhow::Error>(());
                }
                tokio::time::sleep(wait::POLL * 20).await;
            }
        };
        if let Ok(judged) = tokio::time::timeout(COMPLETE, complete).await {
            judged?;
        }
        last.context("the audit was read")
    }

    /// Judges the events of the audit by what the clients saw.
    fn judge(&self, events: &[Value]) -> Verdict {
        let mut by_trace: HashMap<&str, Vec<&Value>> = HashMap::new();
        for event in events {
            let trace = event.get("trace").and_then(Value::as_str).unwrap_or_default();
            by_trace.entry(trace).or_default().push(event);
        }
        let mut verdict = Verdict { calls: self.seen.len(), ..Verdict::default() };
        for (trace, sight) in &self.seen {
            let events = by_trace.get(trace.as_str()).map(Vec::as_slice).unwrap_or_default();
            let of = |kind: &str| events.iter().filter(|event| text(event, "event") == kind).count();
            let starts = of("call.start");
            let ends = of("call.finish");
            let end = events.iter().find(|event| text(event, "event") == "call.finish");
            if let Some(end) = end {
                *verdict.outcomes.entry(text(end, "outcome").to_owned()).or_default() += 1;
                verdict.protocols.insert(text(end, "protocol").to_owned());
            }
            if let Sight::End(seen) = sight {
                *verdict.seen.entry(seen.clone()).or_default() += 1;
            }
            let is_complete = starts == 1 && ends == 1 && end.is_some_and(|end| agrees(sight, end));
            // It never reached a gateway.
            let is_nothing = *sight == Sight::Nothing && starts == 0 && ends == 0;
            if is_complete || is_nothing {
                continue;
            }
            verdict.faults.push(format!("{trace}: saw {sight:?}; {starts} starts, {ends} ends: {end:?}"));
        }
        verdict
    }
}

fn text<'v>(event: &'v Value, member: &str) -> &'v str {
    event.get(member).and_then(Value::as_str).unwrap_or_default()
}

/// Whether the end of a call in the audit is what its client saw.
fn agrees(sight: &Sight, end: &Value) -> bool {
    let reason = text(end, "reason");
    match sight {
        // Nobody saw another end.
        Sight::Nothing | Sight::Begun => true,
        // The caller of what a binding hides must not know more than that it is unknown.
        Sight::End(seen) if seen == "unknown_primitive" => reason == "denied",
        Sight::End(seen) if seen == CANCELLED => text(end, "outcome") == CANCELLED,
        Sight::End(seen) => reason == seen,
    }
}

/// Returns what an answer says.
fn sight(answer: &Response) -> Sight {
    let Ok(body) = answer.json() else { return Sight::Nothing };
    if let Some(reason) = answer.reason() {
        return Sight::End(reason);
    }
    let text_at = |pointer: &str| body.pointer(pointer).and_then(Value::as_str);
    let reasons = ["/result/_meta/asp~1reason", "/result/task/metadata/asp~1reason"];
    if let Some(reason) = reasons.into_iter().find_map(text_at) {
        return Sight::End(reason.to_owned());
    }
    match (text_at("/result/task/status/state"), text(&body, "status")) {
        (Some(agent::COMPLETED), _) | (None, "success") => Sight::End("ok".to_owned()),
        (None, "canceled") => Sight::End(CANCELLED.to_owned()),
        (None, "failed") => Sight::End(text_at("/error/code").unwrap_or_default().to_owned()),
        (None, "") if body.get("error").is_none() => Sight::End("ok".to_owned()),
        (None, "") => Sight::End("an error without a reason".to_owned()),
        (Some(_), _) | (None, _) => Sight::Begun,
    }
}

/// Returns the trace id of a call.
fn trace(number: usize) -> String {
    format!("a5d1{:028x}", number + 1)
}

/// A call with what its client sends before and after it.
struct Errand {
    /// The request that opens the session.
    hello: Option<Request>,
    request: Request,
    cancel: Option<Request>,
}

impl Errand {
    fn of(request: Request) -> Errand {
        Errand { hello: None, request, cancel: None }
    }

    async fn run(mut self, at: SocketAddr) -> Result<Sight> {
        if let Some(hello) = &self.hello {
            let opened = http1::send(at, hello).await?;
            let session = opened.header("mcp-session-id").context("a session")?;
            self.request.headers.push(("mcp-session-id".to_owned(), session.as_bytes().to_vec()));
        }
        let answer = http1::send(at, &self.request).await?;
        if self.hello.is_some() && answer.status != 200 {
            // A gateway that was started again since does not have the session.
            return Ok(Sight::Nothing);
        }
        let seen = sight(&answer);
        let Some(cancel) = &self.cancel else { return Ok(seen) };
        match http1::send(at, cancel).await {
            Ok(answer) if answer.status == 200 => Ok(sight(&answer)),
            Ok(_) | Err(_) => Ok(seen),
        }
    }
}

/// Returns a call; each kind has its turn.
fn errand(platform: &Platform, number: usize, trace: &str) -> Errand {
    let thing = format!("thing {number}");
    let arguments = |pause: u64| json!({ "thing": thing, "isHeld": false, "pauseMs": pause });
    let keyed = json!({ "asp/idempotencyKey": format!("key {number}") });
    let caller = platform.caller.as_str();
    let works = |name: &str, arguments: Value, meta: Value| {
        Errand::of(over_mcp(caller, "works", name, arguments, meta))
    };
    let mut errand = match number % KINDS {
        0 => works("look", arguments(0), json!({})),
        1 => works("look", arguments(400), json!({})),
        2 => works("once", arguments(0), json!({})),
        3 => works("once", arguments(300), json!({})),
        4 => works("again", arguments(200), keyed),
        5 => works("look", json!({ "thing": 7 }), json!({})),
        6 => Errand::of(over_mcp(&platform.denied, "works", "again", arguments(0), json!({}))),
        7 => Errand::of(over_rest(caller, number, &arguments(100))),
        8 => in_a_session(caller, "look", &arguments(50)),
        9 => Errand::of(over_a2a(caller, &thing)),
        10 => Errand::of(over_mcp(caller, "demo", "echo", json!({ "message": thing }), json!({}))),
        11 => Errand::of(over_mcp(caller, "saving", "saving", arguments(50), keyed)),
        12 => Errand::of(over_mcp(&platform.limited, "works", "look", arguments(0), json!({}))),
        _ => cancelled(caller, number, &arguments(LASTS_MS)),
    };
    errand.request = traced(errand.request, trace);
    errand
}

/// Returns a request that belongs to a trace.
fn traced(mut request: Request, trace: &str) -> Request {
    request.headers.retain(|(name, _)| name != "traceparent");
    let parent = format!("00-{trace}-00f067aa0ba902b7-00");
    request.headers.push(("traceparent".to_owned(), parent.into_bytes()));
    request
}

fn over_mcp(token: &str, server: &str, name: &str, arguments: Value, meta: Value) -> Request {
    let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
    let mut request = modern(token, "tools/call", params, &[("mcp-name", name)]);
    request.target = format!("/{server}/mcp");
    request
}

/// Returns a call in a session of its own.
fn in_a_session(token: &str, name: &str, arguments: &Value) -> Errand {
    let client = json!({ "name": "audited", "version": "1" });
    let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client });
    let mut hello = legacy(token, "initialize", hello, &[]);
    let params = json!({ "name": name, "arguments": arguments });
    let mut request = legacy(token, "tools/call", params, &[("mcp-protocol-version", "2025-11-25")]);
    for request in [&mut hello, &mut request] {
        request.target = "/works/mcp".to_owned();
    }
    Errand { hello: Some(hello), request, cancel: None }
}

fn over_rest(token: &str, number: usize, arguments: &Value) -> Request {
    rest("PUT", &format!("/works/rest/tools/look/calls/call-{number}"), token, arguments)
}

fn over_a2a(token: &str, thing: &str) -> Request {
    let skill = json!({ "skill": "echo", "arguments": { "message": thing } });
    let message = agent::message(json!([{ "data": skill }]), None);
    let params = json!({ "message": message });
    let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": params });
    let mut request = rest("POST", "/demo/a2a", token, &body);
    request.headers.push(("a2a-version".to_owned(), b"1.0".to_vec()));
    request
}

/// Returns a call that its client cancels once it has begun.
fn cancelled(token: &str, number: usize, arguments: &Value) -> Errand {
    let cancel = format!("/works/rest/tools/look/calls/call-{number}/cancel");
    let cancel = Some(rest("POST", &cancel, token, &Value::Null));
    Errand { hello: None, request: over_rest(token, number, arguments), cancel }
}

/// Reads all events of calls.
async fn events(platform: &Platform) -> Result<Vec<Value>> {
    let bearer = format!("Bearer {}", platform.admin_token);
    let mut events = Vec::new();
    let mut path = Some(format!("/api/audit/calls?org=acme&limit={PAGE}"));
    while let Some(from) = path {
        let answer = http1::get(platform.admin, &from, &[("authorization", &bearer)]).await?;
        ensure!(answer.status == 200, "{from}: {}", answer.text());
        let link = answer.header("link").and_then(|link| link.strip_prefix('<')?.split_once('>'));
        path = link.map(|(next, _)| next.to_owned());
        for record in answer.json()?.as_array().context("a list")? {
            events.push(record.get("event").cloned().unwrap_or_default());
        }
    }
    Ok(events)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, reason: &str, outcome: &str) -> Value {
        json!({ "event": kind, "trace": trace(0), "reason": reason, "outcome": outcome })
    }

    fn faults(sight: Sight, events: &[Value]) -> usize {
        let seen = HashMap::from([(trace(0), sight)]);
        Run { seen, ..Run::default() }.judge(events).faults.len()
    }

    #[test]
    fn a_call_without_its_events_with_two_ends_or_with_another_end_is_a_fault() {
        let start = event("call.start", "", "");
        let end = event("call.finish", "ok", "completed");
        let unknown = event("call.finish", "gateway_lost", "unknown");
        let saw = |reason: &str| Sight::End(reason.to_owned());
        assert_eq!(faults(saw("ok"), &[start.clone(), end.clone()]), 0);
        assert_eq!(faults(Sight::Nothing, &[start.clone(), unknown.clone()]), 0);
        assert_eq!(faults(Sight::Nothing, &[]), 0);
        assert_eq!(faults(Sight::Begun, &[start.clone(), end.clone()]), 0);
        let denied = event("call.finish", "denied", "rejected");
        assert_eq!(faults(saw("unknown_primitive"), &[start.clone(), denied]), 0);
        let cancelled = event("call.finish", "deadline", CANCELLED);
        assert_eq!(faults(saw(CANCELLED), &[start.clone(), cancelled]), 0);
        for (sight, events) in [
            (saw("ok"), vec![]),
            (saw("ok"), vec![start.clone()]),
            (Sight::Nothing, vec![start.clone()]),
            (saw("ok"), vec![start.clone(), end.clone(), unknown.clone()]),
            (saw("ok"), vec![start.clone(), unknown]),
            (saw("ok"), vec![end.clone()]),
            (saw(CANCELLED), vec![start.clone(), end.clone()]),
            (saw("deadline"), vec![start.clone(), end.clone()]),
            (
                saw("unknown_primitive"),
                vec![start.clone(), event("call.finish", "unknown_primitive", "rejected")],
            ),
            (saw("ok"), vec![start.clone(), start, end]),
        ] {
            assert_eq!(faults(sight.clone(), &events), 1, "{sight:?} {events:?}");
        }
    }
}
