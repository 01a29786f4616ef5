//! Policy of many orgs beside many servers and revocations: what one change costs the control plane, how much of it goes
//! to whom, how soon it is in force, and what all of it takes in memory.
//!
//! A control plane, a gateway and an Envoy as processes of their own, and subscribers that are gateways to the control
//! plane: they acknowledge and keep nothing. What is stored was written by `asp db import`.

mod seed;
mod stub;

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{self, Request};
use asp_e2e::spread::percentile;
use serde::Serialize;
use serde_json::{Value, json};

use crate::admin::Admin;
use crate::goal::Goal;
use crate::plan::Plan;
use crate::progress::say;
use crate::usage::{Reading, reading};

use seed::Size;
use stub::Stubs;

/// Control CPU that one change may cost, in milliseconds.
const MOST_CPU_MS: f64 = 50.0;
/// Bytes of one change that a subscriber may get.
const MOST_BYTES: f64 = 64.0 * 1024.0;
/// Bound of the 99th percentile of enforcement, in milliseconds.
const MOST_ENFORCED_MS: f64 = 1_000.0;
/// Bound of the first sync, in milliseconds.
const MOST_SYNC_MS: f64 = 10_000.0;
/// Between two changes, so that what one starts is not counted to the next.
const QUIET: Duration = Duration::from_millis(700);
/// Hang guard: ten times the goal, and what a large sync may take.
const BOUND: Duration = Duration::from_secs(100);

/// What one size came to.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Step {
    pub size: Size,
    pub subscribers: usize,
    /// From connecting to having all of it: the slowest of the subscribers, which come at once, in milliseconds.
    pub sync_ms: f64,
    /// Bytes of it, to each.
    pub sync_bytes: u64,
    pub changes: Vec<Change>,
    pub control_mib: f64,
    pub gateway_mib: f64,
    /// Of the whole process, with its workers.
    pub envoy_mib: f64,
    pub edge_bytes: u64,
}

/// One kind of change, made again and again.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change {
    pub kind: &'static str,
    /// Of the control plane, in milliseconds.
    pub cpu_ms: Vec<f64>,
    /// To each subscriber.
    pub bytes: Vec<f64>,
    /// From sending it to the admin API until the last subscriber had it, in milliseconds.
    pub told_ms: Vec<f64>,
    /// Until a client saw it through Envoy, in milliseconds.
    pub enforced_ms: Vec<f64>,
}

pub(crate) async fn measure(plan: &Plan) -> Result<Vec<Step>> {
    let mut steps = Vec::new();
    for size in Size::steps(plan.quick) {
        say(&format!("{} orgs, {} servers, {} revocations", size.orgs, size.servers, size.revocations));
        steps.push(Box::pin(step(plan, size)).await?);
    }
    Ok(steps)
}

async fn step(plan: &Plan, size: Size) -> Result<Step> {
    let directory = tempfile::tempdir()?;
    seed::write(&directory.path().join("control"), size).await?;
    let cluster = Cluster::start_on(directory, 1).await?;
    let mut stubs = Stubs::connect(cluster.control_ports.xds, plan.stubs).await?;
    let sync_ms = stubs.synced(BOUND).await?;
    let sync_bytes = stubs.most_bytes();
    let admin = Admin::at(cluster.token(&["--admin", "--user", "root"]).await?, cluster.control_ports.admin);
    let mut run = Run { cluster: &cluster, stubs: &mut stubs, admin: &admin };
    let changes = vec![
        run.bindings(plan.flips).await?,
        run.specs(plan.flips).await?,
        run.revocations(plan.flips).await?,
    ];
    let memory = |process: Option<u32>| -> Result<f64> {
        Ok(reading(process.context("the process runs")?)?.rss_kib as f64 / 1024.0)
    };
    let status = cluster.admin("/api/snapshot").await?;
    let gateway = cluster.gateways.first().context("a gateway")?;
    Ok(Step {
        size,
        subscribers: plan.stubs,
        sync_ms,
        sync_bytes,
        changes,
        control_mib: memory(cluster.control.id())?,
        gateway_mib: memory(gateway.process.id())?,
        envoy_mib: memory(cluster.envoy.process.id())?,
        edge_bytes: status.get("edgeBytes").and_then(Value::as_u64).context("edgeBytes")?,
    })
}

/// Whether an answer shows that a change is in force.
type Seen<'a> = dyn Fn(&http1::Response) -> bool + 'a;

/// Changes that are made one after the other.
struct Run<'a> {
    cluster: &'a Cluster,
    stubs: &'a mut Stubs,
    admin: &'a Admin,
}

impl Run<'_> {
    /// One binding of one org is allowed and denied in turns.
    async fn bindings(&mut self, times: u32) -> Result<Change> {
        let path = format!("/api/policy/orgs/{}/bindings", seed::org(0));
        let mut change = Change::new("one binding");
        let token = self.cluster.token(&["--org", &seed::org(0), "--user", "alice"]).await?;
        let list = modern_list(&token, 0);
        for number in 0..times {
            let allowed = number % 2 == 1;
            let target = json!({"type": "user", "idOrPattern": "alice"});
            let primitive = json!({"name": seed::primitive(0, 0), "protocol": "mcp"});
            let body = json!({"target": target, "primitive": primitive, "allowed": allowed});
            let name = seed::primitive(0, 0);
            let seen = |answer: &http1::Response| {
                answer.status == 200 && answer.text().contains(&format!("\"{name}\"")) == allowed
            };
            self.change(&mut change, ("PUT", &path, &body), (&list, &seen)).await?;
        }
        Ok(change)
    }

    /// The text of one tool of one server.
    async fn specs(&mut self, times: u32) -> Result<Change> {
        let path = format!("/api/registry/servers/{}", seed::server(0));
        let mut change = Change::new("one spec");
        let token = self.cluster.token(&["--org", &seed::org(0), "--user", "bob"]).await?;
        let list = modern_list(&token, 0);
        for number in 0..times {
            let version = format!("1.0.{}", number + 1);
            let files = json!({"files": seed::files(0, &version)});
            let seen = |answer: &http1::Response| answer.status == 200 && answer.text().contains(&version);
            self.change(&mut change, ("PUT", &path, &files), (&list, &seen)).await?;
        }
        Ok(change)
    }

    /// One token each.
    async fn revocations(&mut self, times: u32) -> Result<Change> {
        let mut change = Change::new("one revocation");
        for number in 0..times {
            let user = format!("user-{number}");
            let token = self.cluster.token(&["--org", &seed::org(1), "--user", &user]).await?;
            let body = json!({"type": "token_hash", "id": seed::token_hash(&token)});
            let list = modern_list(&token, 0);
            let before = http1::send(self.cluster.envoy.address, &list).await?;
            ensure!(before.status == 200, "before it is revoked: {} {}", before.status, before.text());
            let seen = |answer: &http1::Response| answer.status == 401;
            self.change(&mut change, ("POST", "/api/revocations", &body), (&list, &seen)).await?;
        }
        Ok(change)
    }

    async fn change(
        &mut self,
        change: &mut Change,
        (method, path, body): (&str, &str, &Value),
        (request, seen): (&Request, &Seen<'_>),
    ) -> Result<()> {
        tokio::time::sleep(QUIET).await;
        let before = self.control()?;
        let bytes = self.stubs.bytes();
        let known = self.stubs.version();
        let began = Instant::now();
        self.admin.send(method, path, body).await?;
        change.enforced_ms.push(self.enforced(request, seen, began).await?);
        let told = self.stubs.beyond(&known, BOUND).await?;
        change.told_ms.push(milliseconds(told.saturating_duration_since(began)));
        tokio::time::sleep(QUIET).await;
        change.cpu_ms.push(self.control()?.cpu_nanos_since(&before) as f64 / 1e6);
        let each = self.stubs.bytes().into_iter().zip(bytes).map(|(after, before)| after - before);
        change.bytes.push(each.max().unwrap_or_default() as f64);
        Ok(())
    }

    async fn enforced(&self, request: &Request, seen: &Seen<'_>, began: Instant) -> Result<f64> {
        let mut last = String::new();
        while began.elapsed() < BOUND {
            let answer = http1::send(self.cluster.envoy.address, request).await?;
            if seen(&answer) {
                return Ok(milliseconds(began.elapsed()));
            }
            last = format!("{} {}", answer.status, answer.text());
        }
        bail!("not enforced: {last}")
    }

    fn control(&self) -> Result<Reading> {
        reading(self.cluster.control.id().context("the control plane runs")?)
    }
}

impl Change {
    fn new(kind: &'static str) -> Change {
        Change { kind, cpu_ms: Vec::new(), bytes: Vec::new(), told_ms: Vec::new(), enforced_ms: Vec::new() }
    }
}

/// `tools/list` at a server of the seed.
fn modern_list(token: &str, server: usize) -> Request {
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
                      "io.modelcontextprotocol/clientCapabilities": {}});
    let body = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": meta}});
    let bearer = format!("Bearer {token}");
    let headers = [
        ("authorization", bearer.as_str()),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/list"),
    ];
    Request {
        method: "POST".into(),
        target: format!("/{}/mcp", seed::server(server)),
        headers: headers.map(|(name, value)| (name.into(), value.as_bytes().to_vec())).to_vec(),
        body: body.to_string().into_bytes(),
    }
}

fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

fn at(values: &[f64], part: f64) -> f64 {
    percentile(values, part).unwrap_or_default()
}

/// Of the largest size.
pub(crate) fn judge(steps: &[Step]) -> Vec<Goal> {
    let Some(step) = steps.last() else { return Vec::new() };
    let mut goals = vec![Goal {
        goal: format!("{} subscribers have everything within {} s", step.subscribers, MOST_SYNC_MS / 1e3),
        met: step.sync_ms <= MOST_SYNC_MS,
        figures: format!("{:.1} s, {:.1} MB each", step.sync_ms / 1e3, step.sync_bytes as f64 / 1e6),
    }];
    for change in &step.changes {
        let (cpu, bytes) = (at(&change.cpu_ms, 0.5), at(&change.bytes, 0.5));
        goals.push(Goal {
            goal: format!(
                "{} costs the control plane {MOST_CPU_MS} ms of CPU and 64 KiB a subscriber",
                change.kind
            ),
            met: cpu <= MOST_CPU_MS && bytes <= MOST_BYTES,
            figures: format!("{cpu:.1} ms, {bytes:.0} bytes (medians)"),
        });
        let slow = at(&change.enforced_ms, 0.99).max(at(&change.told_ms, 0.99));
        goals.push(Goal {
            goal: format!("{}: in force everywhere within 1 s (p99)", change.kind),
            met: slow <= MOST_ENFORCED_MS,
            figures: format!(
                "through Envoy p99 {:.0} ms, the last subscriber p99 {:.0} ms",
                at(&change.enforced_ms, 0.99),
                at(&change.told_ms, 0.99)
            ),
        });
    }
    goals
}

/// The section.
pub(crate) fn render(steps: &[Step], text: &mut String) -> std::fmt::Result {
    writeln!(text, "\n## Scale\n")?;
    writeln!(
        text,
        "One gateway, one Envoy and further subscribers that acknowledge and keep nothing. CPU is the control plane's, from \
         before a change is sent until {} ms after the last subscriber had it; medians.\n",
        QUIET.as_millis()
    )?;
    writeln!(
        text,
        "| orgs × bindings, servers × primitives, revocations | first sync | {} | control, gateway, Envoy MiB | edge bytes |",
        ["binding", "spec", "revocation"].map(|kind| format!("{kind}: CPU ms, bytes, p99 ms")).join(" | ")
    )?;
    writeln!(text, "|---|---|---|---|---|---|---|")?;
    for step in steps {
        let Size { orgs, bindings, servers, primitives, revocations } = step.size;
        write!(
            text,
            "| {orgs} × {bindings}, {servers} × {primitives}, {revocations} | {:.2} s, {:.1} MB |",
            step.sync_ms / 1e3,
            step.sync_bytes as f64 / 1e6
        )?;
        for change in &step.changes {
            let slow = at(&change.enforced_ms, 0.99).max(at(&change.told_ms, 0.99));
            write!(text, " {:.1}, {:.0}, {slow:.0} |", at(&change.cpu_ms, 0.5), at(&change.bytes, 0.5))?;
        }
        writeln!(
            text,
            " {:.0}, {:.0}, {:.0} | {} |",
            step.control_mib, step.gateway_mib, step.envoy_mib, step.edge_bytes
        )?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn goals_are_of_the_largest_size_and_of_the_slowest_changes() {
        let step = |cpu: f64, bytes: f64, slow: f64| Step {
            size: Size::steps(true)[0],
            subscribers: 1,
            sync_ms: 1.0,
            sync_bytes: 1,
            changes: vec![Change {
                kind: "one binding",
                cpu_ms: vec![cpu],
                bytes: vec![bytes],
                told_ms: vec![1.0, slow],
                enforced_ms: vec![2.0],
            }],
            control_mib: 1.0,
            gateway_mib: 1.0,
            envoy_mib: 1.0,
            edge_bytes: 1,
        };
        let met = |steps: &[Step]| judge(steps).iter().map(|goal| goal.met).collect::<Vec<_>>();
        assert_eq!(met(&[step(99.0, 1e9, 9e9), step(50.0, 65_536.0, 1000.0)]), [true, true, true]);
        assert_eq!(met(&[step(50.1, 1.0, 1001.0)]), [true, false, false]);
        assert_eq!(met(&[step(1.0, 65_537.0, 1.0)]), [true, false, true]);
        assert!(met(&[]).is_empty());
    }
}
