//! Completeness of the audit: a mixed load whose clients remember what they saw, gateways that are killed amid it, and the
//! judgement of the audit by that.
//!
//! Keeps true: a call is known by the trace that its client chose; what a client saw is compared with the audit's own words;
//! a call that was answered at most [`GATHERED`] before a kill may be missing in the audit, which is counted and bounded.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::http1::{self, Request, Response};
use crate::message::{modern, rest};
use crate::wait;

/// Time before a kill in which events that a gateway has gathered are not yet in the log.
const GATHERED: Duration = Duration::from_millis(500);
/// Time in which a lost gateway's calls get their last event, on a busy machine.
const COMPLETE: Duration = Duration::from_secs(90);
/// Number of events in a page.
const PAGE: usize = 1_000;

/// The platform under load.
pub struct Platform {
    pub gateways: Vec<SocketAddr>,
    pub admin: SocketAddr,
    pub admin_token: String,
    /// A user who may call everything.
    pub caller: String,
    /// A user to whom a binding denies `works.again`.
    pub denied: String,
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

/// Calls of a run, by trace, with the time at which each answer came, and the times of the kills.
#[derive(Default)]
pub struct Run {
    sent: usize,
    seen: HashMap<String, (Sight, Instant)>,
    kills: Vec<Instant>,
}

/// Calls that are under way.
pub struct Wave {
    calls: JoinSet<(String, Sight, Instant)>,
}

/// The judgement of an audit.
#[derive(Debug, Default)]
pub struct Verdict {
    pub calls: usize,
    /// Ends by outcome.
    pub outcomes: BTreeMap<String, usize>,
    /// Calls answered right before a kill that the audit lacks, or does not know the end of.
    pub gathered: usize,
    pub faults: Vec<String>,
}

impl Run {
    /// Sends `count` calls of every kind at once, spread over the gateways; returns once the first is answered, when the
    /// others can meet a kill.
    pub async fn begin(&mut self, platform: &Platform, count: usize) -> Result<Wave> {
        let mut calls = JoinSet::new();
        for (number, at) in (self.sent..self.sent + count).zip(platform.gateways.iter().copied().cycle()) {
            let trace = trace(number);
            let request = call(platform, number, &trace);
            calls.spawn(async move {
                let sight = http1::send(at, &request).await.map_or(Sight::Nothing, |answer| sight(&answer));
                (trace, sight, Instant::now())
            });
        }
        self.sent += count;
        let (trace, sight, at) = calls.join_next().await.context("a call")??;
        self.seen.insert(trace, (sight, at));
        Ok(Wave { calls })
    }

    /// Notes that a gateway is killed now.
    pub fn kill(&mut self) {
        self.kills.push(Instant::now());
    }

    /// Returns when every call of a wave has been answered, or its connection has ended.
    pub async fn end(&mut self, mut wave: Wave) -> Result<()> {
        while let Some(ended) = wave.calls.join_next().await {
            let (trace, sight, at) = ended?;
            self.seen.insert(trace, (sight, at));
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
        for (trace, (sight, at)) in &self.seen {
            let events = by_trace.get(trace.as_str()).map(Vec::as_slice).unwrap_or_default();
            let of = |kind: &str| events.iter().filter(|event| text(event, "event") == kind).count();
            let (starts, ends) = (of("call.start"), of("call.finish"));
            let end = events.iter().find(|event| text(event, "event") == "call.finish");
            if let Some(end) = end {
                *verdict.outcomes.entry(text(end, "outcome").to_owned()).or_default() += 1;
            }
            let is_complete = starts == 1 && ends == 1 && end.is_some_and(|end| agrees(sight, end));
            // It never reached a gateway.
            let is_nothing = *sight == Sight::Nothing && starts == 0 && ends == 0;
            let knows_less =
                starts == ends && starts <= 1 && end.is_none_or(|end| text(end, "outcome") == "unknown");
            if is_complete || is_nothing {
                continue;
            }
            if knows_less && self.is_before_a_kill(*at) {
                verdict.gathered += 1;
                continue;
            }
            verdict.faults.push(format!("{trace}: saw {sight:?}; {starts} starts, {ends} ends: {end:?}"));
        }
        verdict
    }

    fn is_before_a_kill(&self, at: Instant) -> bool {
        // The process ends a moment after its signal was sent.
        self.kills.iter().any(|kill| at + GATHERED >= *kill && at <= *kill + GATHERED)
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
        Sight::End(seen) => reason == seen,
    }
}

/// Returns what an answer says.
fn sight(answer: &Response) -> Sight {
    let Ok(body) = answer.json() else { return Sight::Nothing };
    if let Some(reason) = answer.reason() {
        return Sight::End(reason);
    }
    let in_result = body.pointer("/result/_meta/asp~1reason").and_then(Value::as_str);
    match (in_result, text(&body, "status")) {
        (Some(reason), _) => Sight::End(reason.to_owned()),
        (None, "" | "success") => Sight::End("ok".to_owned()),
        (None, _) => Sight::Begun,
    }
}

/// Returns the trace id of a call.
fn trace(number: usize) -> String {
    format!("a5d1{:028x}", number + 1)
}

/// Returns a call; each kind has its turn.
fn call(platform: &Platform, number: usize, trace: &str) -> Request {
    let thing = format!("thing {number}");
    let arguments = |pause: u64| json!({ "thing": thing, "isHeld": false, "pauseMs": pause });
    let plain = |token: &str, name: &str, arguments: Value, meta: Value| {
        let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
        let mut request = modern(token, "tools/call", params, &[("mcp-name", name)]);
        request.target = "/works/mcp".to_owned();
        request
    };
    let caller = platform.caller.as_str();
    let keyed = json!({ "asp/idempotencyKey": format!("key {number}") });
    let mut request = match number % 8 {
        0 => plain(caller, "look", arguments(0), json!({})),
        1 => plain(caller, "look", arguments(400), json!({})),
        2 => plain(caller, "once", arguments(0), json!({})),
        3 => plain(caller, "once", arguments(300), json!({})),
        4 => plain(caller, "again", arguments(200), keyed),
        5 => plain(caller, "look", json!({ "thing": 7 }), json!({})),
        6 => plain(&platform.denied, "again", arguments(0), json!({})),
        _ => rest("PUT", &format!("/works/rest/tools/look/calls/call-{number}"), caller, &arguments(100)),
    };
    request.headers.retain(|(name, _)| name != "traceparent");
    let parent = format!("00-{trace}-00f067aa0ba902b7-00");
    request.headers.push(("traceparent".to_owned(), parent.into_bytes()));
    request
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
        let seen = HashMap::from([(trace(0), (sight, Instant::now()))]);
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
        for (sight, events) in [
            (saw("ok"), vec![]),
            (saw("ok"), vec![start.clone()]),
            (Sight::Nothing, vec![start.clone()]),
            (saw("ok"), vec![start.clone(), end.clone(), unknown.clone()]),
            (saw("ok"), vec![start.clone(), unknown]),
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
