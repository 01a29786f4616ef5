//! Two control planes on one PostgreSQL: any of them takes a write, both publish it, each tells Envoy of all gateways, and
//! the loss of one costs no request. And what becomes of the fleet when their database is restored from a backup.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::{Cluster, Layout};
use asp_e2e::http1;
use asp_e2e::stack::Ports;
use asp_e2e::stores::Postgres;
use asp_e2e::{tool, wait};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::message::{modern, rest};
use crate::policy::sha256;
use crate::trial::{Shared, trials};

/// Requests that go on while something is lost.
const LOAD: usize = 4;

trials! { several_controls:
    any_takes_a_write_and_both_serve_it,
    the_loss_of_one_costs_no_request_and_no_change,
    one_without_its_database_is_left_and_delays_no_revocation,
    a_restored_database_is_taken_everywhere_by_one_command,
}

struct Controls {
    postgres: Postgres,
    cluster: Cluster,
    token: String,
    admin: String,
}

impl Controls {
    async fn start() -> Result<Controls> {
        Controls::start_with(false).await
    }

    /// The same; `over_cable` puts a cable between the first control plane and the database.
    async fn start_with(over_cable: bool) -> Result<Controls> {
        let postgres = Postgres::start().await?;
        let layout = Layout {
            has_second_control: true,
            environment: vec![("ASP_DATABASE_URL", postgres.url())],
            control_database: over_cable.then(|| postgres.socket()),
            ..Layout::of(2)?
        };
        let cluster = Cluster::start_as(layout).await?;
        let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
        let admin = cluster.token(&["--admin", "--user", "root"]).await?;
        Ok(Controls { postgres, cluster, token, admin })
    }

    fn first(&self) -> &Ports {
        &self.cluster.control_ports
    }

    fn second(&self) -> Result<&Ports> {
        Ok(&self.cluster.second_control.as_ref().context("a second control plane")?.1)
    }

    async fn write(&self, control: &Ports, (method, path): (&str, &str), body: &Value) -> Result<()> {
        let address = SocketAddr::from(([127, 0, 0, 1], control.admin));
        let answer = http1::send(address, &rest(method, path, &self.admin, body)).await?;
        ensure!(answer.status < 300, "{method} {path}: {} {}", answer.status, answer.text());
        Ok(())
    }

    /// Whether the `clock` of `demo` is for alice.
    async fn allow(&self, control: &Ports, allowed: bool) -> Result<()> {
        let body = json!({
            "target": {"type": "user", "idOrPattern": "alice"},
            "primitive": {"name": "clock", "protocol": "mcp"},
            "allowed": allowed,
        });
        self.write(control, ("PUT", "/api/policy/orgs/acme/bindings"), &body).await
    }

    /// Waits until both gateways say so.
    async fn is_allowed(&self, allowed: bool) -> Result<()> {
        for gateway in &self.cluster.gateways {
            wait::until("a binding is in force at each gateway", wait::CONVERGE, || async {
                let list = modern(&self.token, "tools/list", json!({}), &[]);
                let answer = http1::send(gateway.address, &list).await.ok()?;
                (answer.status == 200 && answer.text().contains("\"clock\"") == allowed).then_some(())
            })
            .await?;
        }
        Ok(())
    }

    /// The status at the edge of a request with this token.
    async fn status(&self, token: &str) -> Result<u16> {
        let list = modern(token, "tools/list", json!({}), &[]);
        Ok(http1::send(self.cluster.envoy.address, &list).await?.status)
    }

    async fn revoke(&self, control: &Ports, token: &str) -> Result<()> {
        let body = json!({"type": "token_hash", "id": sha256(token)});
        self.write(control, ("POST", "/api/revocations"), &body).await?;
        wait::until("a revocation is in force at the edge", wait::CONVERGE, || async {
            (self.status(token).await.ok()? == 401).then_some(())
        })
        .await
    }

    /// Waits until both gateways and Envoy subscribe at this control plane.
    async fn is_followed_by_all(&self, control: &Ports) -> Result<()> {
        wait::until("both gateways and Envoy follow a control plane", wait::CONVERGE, || async {
            let snapshot = self.cluster.admin_of(control, "/api/snapshot").await.ok()?;
            let subscribers = snapshot["subscribers"].as_array()?;
            let count = |kind: &str| subscribers.iter().filter(|one| one["kind"] == kind).count();
            let is_of_envoy = ["edge", "revocations", "endpoints"].into_iter().all(|kind| count(kind) > 0);
            (count("gateway") == 2 && is_of_envoy).then_some(())
        })
        .await
    }

    /// Waits until this control plane publishes what is stored, and tells Envoy of both gateways.
    async fn is_up_to_date(&self, control: &Ports) -> Result<u64> {
        wait::until(
            "a control plane publishes what is stored and knows every gateway",
            wait::CONVERGE,
            || async {
                let snapshot = self.cluster.admin_of(control, "/api/snapshot").await.ok()?;
                let gateways = snapshot["endpoints"]["gateway"].as_array().map_or(0, Vec::len);
                let covers = snapshot["coversRevision"].as_u64()?;
                (Some(covers) == snapshot["storeRevision"].as_u64() && gateways == 2).then_some(covers)
            },
        )
        .await
    }
}

async fn any_takes_a_write_and_both_serve_it(_: &Shared) -> Result<()> {
    let controls = Controls::start().await?;
    controls.allow(controls.second()?, false).await?;
    controls.is_allowed(false).await?;
    controls.allow(controls.first(), true).await?;
    controls.is_allowed(true).await?;
    for control in [controls.first(), controls.second()?] {
        let other = controls.cluster.token(&["--org", "acme", "--user", "bob"]).await?;
        ensure!(controls.status(&other).await? == 200, "it is good before it is revoked");
        controls.revoke(control, &other).await?;
        ensure!(controls.status(&controls.token).await? == 200, "only that one is");
    }
    let first = controls.is_up_to_date(controls.first()).await?;
    ensure!(controls.is_up_to_date(controls.second()?).await? == first, "both serve the same revision");
    Ok(())
}

/// Requests through Envoy until they are stopped; how many were answered, and the answers that are none.
struct Load {
    stop: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<(usize, Vec<String>)>>,
}

impl Load {
    fn start(controls: &Controls) -> Load {
        let stop = Arc::new(AtomicBool::new(false));
        let list = modern(&controls.token, "tools/list", json!({}), &[]);
        let edge = controls.cluster.envoy.address;
        let task = |_| {
            let (stop, list) = (Arc::clone(&stop), list.clone());
            tokio::spawn(async move {
                let (mut answered, mut faults) = (0, Vec::new());
                while !stop.load(Ordering::Relaxed) {
                    match http1::send(edge, &list).await {
                        Ok(answer) if answer.status == 200 => answered += 1,
                        Ok(answer) => faults.push(format!("{} {}", answer.status, answer.text())),
                        Err(error) => faults.push(format!("{error:#}")),
                    }
                }
                (answered, faults)
            })
        };
        Load { tasks: (0..LOAD).map(task).collect(), stop }
    }

    async fn stop(self) -> Result<()> {
        self.stop.store(true, Ordering::Relaxed);
        for task in self.tasks {
            let (answered, faults) = task.await?;
            ensure!(answered > 0 && faults.is_empty(), "{answered} answered, and {faults:?}");
        }
        Ok(())
    }
}

async fn the_loss_of_one_costs_no_request_and_no_change(_: &Shared) -> Result<()> {
    let mut controls = Controls::start().await?;
    controls.is_up_to_date(controls.first()).await?;
    let load = Load::start(&controls);
    controls.cluster.control.signal(Signal::KILL)?;
    controls.allow(controls.second()?, false).await?;
    controls.is_allowed(false).await?;
    let other = controls.cluster.token(&["--org", "acme", "--user", "bob"]).await?;
    controls.revoke(controls.second()?, &other).await?;
    controls.cluster.restart_control().await?;
    controls.is_up_to_date(controls.first()).await?;
    let (second, _) = controls.cluster.second_control.as_ref().context("a second control plane")?;
    second.signal(Signal::KILL)?;
    controls.allow(controls.first(), true).await?;
    controls.is_allowed(true).await?;
    let another = controls.cluster.token(&["--org", "acme", "--user", "carol"]).await?;
    controls.revoke(controls.first(), &another).await?;
    load.stop().await?;
    ensure!(controls.status(&other).await? == 401, "what was revoked before stays so");
    controls.cluster.wait_hosts(2).await
}

/// The database of one control plane is silent, as behind a broken route; nothing else is.
async fn one_without_its_database_is_left_and_delays_no_revocation(_: &Shared) -> Result<()> {
    let mut controls = Controls::start_with(true).await?;
    // All come to the one that will be cut off.
    let (second, _) = controls.cluster.second_control.as_mut().context("a second control plane")?;
    second.signal(Signal::KILL)?;
    controls.is_followed_by_all(controls.first()).await?;
    controls.cluster.restart_second_control().await?;
    controls.is_up_to_date(controls.second()?).await?;
    let other = controls.cluster.token(&["--org", "acme", "--user", "bob"]).await?;
    let list = modern(&other, "tools/list", json!({}), &[]);
    for gateway in &controls.cluster.gateways {
        ensure!(http1::send(gateway.address, &list).await?.status == 200, "it is good before it is revoked");
    }

    let cable = controls.cluster.database_cable.as_ref().context("a cable")?;
    cable.cut();
    let cut = Instant::now();
    let body = json!({"type": "token_hash", "id": sha256(&other)});
    controls.write(controls.second()?, ("POST", "/api/revocations"), &body).await?;
    for gateway in &controls.cluster.gateways {
        wait::until("a revocation is in force at each gateway", wait::CONVERGE, || async {
            let answer = http1::send(gateway.address, &list).await.ok()?;
            (answer.status == 401).then_some(())
        })
        .await?;
    }
    println!("revoked at every gateway {} ms after the cut", cut.elapsed().as_millis());
    controls.is_followed_by_all(controls.second()?).await?;
    println!("a control plane without its database is left {} ms after the cut", cut.elapsed().as_millis());
    controls.allow(controls.second()?, false).await?;
    controls.is_allowed(false).await?;

    cable.mend();
    controls.is_up_to_date(controls.first()).await?;
    ensure!(controls.status(&other).await? == 401, "what was revoked stays so");
    Ok(())
}

async fn a_restored_database_is_taken_everywhere_by_one_command(_: &Shared) -> Result<()> {
    let controls = Controls::start().await?;
    controls.allow(controls.first(), false).await?;
    controls.is_allowed(false).await?;
    let backup = controls.postgres.dump().await?;
    // Lost with the database: these changes are later than the backup.
    controls.allow(controls.first(), true).await?;
    controls.is_allowed(true).await?;
    controls.postgres.restore(&backup).await?;
    let raised = Command::new(tool::asp()?)
        .args(["db", "raise-revision", "--json"])
        .env("ASP_DATABASE_URL", controls.postgres.url())
        .output()
        .await?;
    ensure!(raised.status.success(), "{}", String::from_utf8_lossy(&raised.stderr));
    let began = Instant::now();
    let raised: Value = serde_json::from_slice(&raised.stdout)?;
    ensure!(raised["after"].as_u64() > raised["before"].as_u64(), "{raised}");
    controls.is_allowed(false).await?;
    for control in [controls.first(), controls.second()?] {
        let covers = controls.is_up_to_date(control).await?;
        ensure!(Some(covers) >= raised["after"].as_u64(), "{covers} of {raised}");
    }
    println!("the fleet is on the restored revision {} ms after the command", began.elapsed().as_millis());
    // It goes on from there.
    controls.allow(controls.second()?, true).await?;
    controls.is_allowed(true).await
}
