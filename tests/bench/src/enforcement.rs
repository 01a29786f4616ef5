//! How long after the admin API's answer a change is enforced, in a running stack with two Envoy workers.
//!
//! Each poll takes a connection of its own, so that it may meet either worker. `first` is the moment of the
//! first refused request (for a list: of the first without the entry), `last` that of the last answer of the
//! old kind before [`STREAK`] of the new kind in a row: then it holds everywhere.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use asp_e2e::http1::{self, Request, Response};
use serde::Serialize;
use serde_json::{Value, json};

use crate::admin::Admin;
use crate::path::Path;

/// Answers in a row that show that both workers have changed: by chance one in a million.
const STREAK: u32 = 20;
/// Hang guard: ten times the goal.
const BOUND: Duration = Duration::from_secs(10);
/// Nobody else's calls belong to it.
const ORG: &str = "bench-flip";

/// A kind of change, and the times it took, in milliseconds.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Enforcement {
    pub change: &'static str,
    pub seen: &'static str,
    pub first_ms: Vec<f64>,
    pub last_ms: Vec<f64>,
}

struct Flip<'a> {
    change: &'static str,
    seen: &'static str,
    path: &'a str,
    off: Value,
    on: Value,
    address: SocketAddr,
    probe: &'a Request,
    /// Whether an answer is of the kind that `off` brings.
    is_off: fn(&Response) -> bool,
}

/// Times `flips` changes of each kind.
pub(crate) async fn measure(path: &Path, flips: u32) -> Result<Vec<Enforcement>> {
    let stack = &path.stack;
    let token = stack.token(&["--org", ORG, "--user", "carol"]).await?;
    let admin = Admin::of(stack).await?;
    let call = modern(&token, "tools/call", Some("clock"), json!({"name": "clock", "arguments": {}}));
    let list = modern(&token, "tools/list", None, json!({}));
    let exposure = format!("/api/policy/orgs/{ORG}/exposure?force=true");
    let bindings = format!("/api/policy/orgs/{ORG}/bindings?force=true");
    let switch = |enabled| json!({"server": "demo", "protocol": "mcp", "enabled": enabled});
    let binding = |allowed| {
        json!({
            "target": {"type": "user", "idOrPattern": "*"},
            "primitive": {"name": "clock", "protocol": "mcp"},
            "allowed": allowed,
        })
    };
    let refused: fn(&Response) -> bool = |answer| answer.status == 404;
    let vanished: fn(&Response) -> bool =
        |answer| answer.status == 200 && !answer.text().contains("\"clock\"");
    let of_exposure = |seen, address, probe| Flip {
        change: "exposure off",
        seen,
        path: &exposure,
        off: switch(false),
        on: switch(true),
        address,
        probe,
        is_off: refused,
    };
    let entry = Flip {
        change: "binding denied",
        seen: "entry gone from tools/list",
        path: &bindings,
        off: binding(false),
        on: binding(true),
        address: stack.edge(),
        probe: &list,
        is_off: vanished,
    };
    let at_edge = of_exposure("list refused at the edge", stack.edge(), &list);
    let mut measured = vec![
        of_exposure("call refused at the edge", stack.edge(), &call).time(&admin, flips).await?,
        at_edge.time(&admin, flips).await?,
        of_exposure("call refused at the gateway", stack.gateway(), &call).time(&admin, flips).await?,
    ];
    // The switches of the last one were awaited at the gateway alone, and the edge may hear of them later: here it is asked
    // until it has heard of one more.
    for (switched, off) in [(&at_edge.off, true), (&at_edge.on, false)] {
        admin.put(at_edge.path, switched).await?;
        at_edge.until_settled(off, Instant::now()).await?;
    }
    measured.push(entry.time(&admin, flips).await?);
    Ok(measured)
}

impl Flip<'_> {
    async fn time(&self, admin: &Admin, flips: u32) -> Result<Enforcement> {
        let mut enforcement =
            Enforcement { change: self.change, seen: self.seen, first_ms: Vec::new(), last_ms: Vec::new() };
        self.until_settled(false, Instant::now()).await?;
        for _ in 0..flips {
            admin.put(self.path, &self.off).await?;
            let (first, last) = self.until_settled(true, Instant::now()).await?;
            enforcement.first_ms.push(first);
            enforcement.last_ms.push(last);
            admin.put(self.path, &self.on).await?;
            self.until_settled(false, Instant::now()).await?;
        }
        Ok(enforcement)
    }

    /// Polls until every answer is of the wanted kind; milliseconds to the first of it and to the last other.
    async fn until_settled(&self, off: bool, since: Instant) -> Result<(f64, f64)> {
        let mut first = None;
        let mut last = 0.0;
        let mut streak = 0;
        while streak < STREAK {
            let answer = http1::send(self.address, self.probe).await?;
            let now = since.elapsed().as_secs_f64() * 1000.0;
            ensure!(answer.status == 200 || (self.is_off)(&answer), "{}: {}", answer.status, answer.text());
            if (self.is_off)(&answer) == off {
                first.get_or_insert(now);
                streak += 1;
            } else {
                (last, streak) = (now, 0);
            }
            if since.elapsed() > BOUND {
                bail!("{}, {}: not within {} s", self.change, self.seen, BOUND.as_secs());
            }
        }
        Ok((first.unwrap_or(last), last))
    }
}

/// A request of 2026-07-28: it needs no session.
fn modern(token: &str, method: &str, name: Option<&str>, mut params: Value) -> Request {
    if let Some(params) = params.as_object_mut() {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        params.insert("_meta".into(), meta);
    }
    let message = json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params});
    let mut headers = vec![
        ("authorization", format!("Bearer {token}")),
        ("content-type", "application/json".into()),
        ("accept", "application/json, text/event-stream".into()),
        ("mcp-protocol-version", "2026-07-28".into()),
        ("mcp-method", method.to_string()),
    ];
    headers.extend(name.map(|name| ("mcp-name", name.to_string())));
    Request {
        method: "POST".into(),
        target: "/demo/mcp".into(),
        headers: headers.into_iter().map(|(name, value)| (name.to_string(), value.into_bytes())).collect(),
        body: message.to_string().into_bytes(),
    }
}
