//! F46: a roll from the first version whose gateways apply a snapshot part by part to this one, process by process, with the
//! older processes started again in between. The newer control planes send a part of a kind, and a value of an enumeration, that
//! the older gateways do not know, and the tables have a migration that the older processes do not know. No call is refused, and
//! every revocation is in force at every gateway and at the edge.
//!
//! What is newer than this version, too, is not shipped: the migration is written by this row, the parts are added by a relay
//! ([`asp_e2e::relay`]). At the end the migration no longer names the older version, which must not start then.

mod load;

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::{Cluster, Cut, Layout};
use asp_e2e::http1;
use asp_e2e::message::{modern, revocation};
use asp_e2e::relay::UNKNOWN_PART;
use asp_e2e::stores::{Postgres, Redis};
use asp_e2e::tool::Build;
use asp_e2e::wait;
use serde_json::{Value, json};
use tokio::process::Command;
use tokio::time::{Instant, sleep};

use self::load::Load;
use crate::older;
use crate::sheet::Sheet;

/// The first commit that is known to build of those whose gateways name the parts that they refuse, and read rows one by one, and
/// whose stores have one baseline each.
const OLDEST: &str = "c6b57e73";
const GATEWAYS: usize = 2;
/// Longer than the row.
const TOKEN: &str = "2h";
/// Between two looks at what is not yet in force.
const PAUSE: Duration = Duration::from_millis(20);
/// Numbers of the additional migrations of the control plane's tables and of the gateways': the last of all.
const MIGRATIONS: [i64; 2] = [999, 99_999];

#[derive(Clone, Copy, Debug)]
pub(crate) enum Order {
    ControlFirst,
    GatewayFirst,
}

pub(crate) const ALL: [Order; 2] = [Order::ControlFirst, Order::GatewayFirst];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Control(usize),
    Gateway(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    Old,
    New,
}

impl Order {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Order::ControlFirst => "control plane first",
            Order::GatewayFirst => "gateways first",
        }
    }

    /// Processes that end, each with the version of the one that is started in its place. Every process of the old version is
    /// started again beside one of the new version.
    fn steps(self) -> [(Part, Version); 8] {
        use Part::{Control, Gateway};
        use Version::{New, Old};
        match self {
            Order::ControlFirst => [
                (Control(0), New),
                (Control(1), Old),
                (Gateway(0), Old),
                (Control(1), New),
                (Gateway(1), Old),
                (Gateway(0), New),
                (Gateway(1), Old),
                (Gateway(1), New),
            ],
            Order::GatewayFirst => [
                (Gateway(0), New),
                (Gateway(1), Old),
                (Control(0), Old),
                (Gateway(1), New),
                (Control(1), Old),
                (Control(0), New),
                (Control(1), Old),
                (Control(1), New),
            ],
        }
    }
}

pub(crate) async fn run(order: Order, sheet: &mut Sheet) -> Result<()> {
    let (old, new) = (older::build(OLDEST).await?, Build::own()?);
    let postgres = Postgres::start().await?;
    let redis = Redis::start().await?;
    let layout = Layout {
        has_second_control: true,
        cut: Cut::Relayed,
        environment: vec![("ASP_DATABASE_URL", postgres.url()), ("ASP_REDIS_URL", redis.url())],
        primitives: old.root.join("primitives"),
        build: old.clone(),
        ..Layout::of(GATEWAYS)?
    };
    let mut roll = Roll::start(Cluster::start_as(layout).await?, [old, new]).await?;
    let load = Load::start(roll.cluster.envoy.address, &roll.caller).await?;
    roll.migrate(&postgres).await?;
    for (part, version) in order.steps() {
        eprintln!("{part:?} becomes {version:?}");
        roll.step(part, version).await.with_context(|| format!("{part:?} becomes {version:?}"))?;
    }
    let counts = load.stop().await?;
    let length = roll.slowest.as_secs_f64() * 1_000.0;
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    {
        sheet.at_least("calls", counts.calls as f64, 1.0);
        sheet.at_most("refused calls", counts.refused as f64, 0.0);
        sheet.at_least("revocations", roll.revoked.len() as f64, order.steps().len() as f64);
        sheet.at_most("missed revocations", roll.missed.len() as f64, 0.0);
        sheet.note("slowest revocation, ms", length);
    }
    counts.shown.iter().chain(roll.missed.iter().take(3)).for_each(|fault| sheet.fault(fault.clone()));
    sheet.expect(
        "an older gateway on tables that do not allow it",
        roll.refuses_old(&postgres).await?,
        "refused",
    );
    Ok(())
}

struct Roll {
    cluster: Cluster,
    builds: [Build; 2],
    /// Versions of the control planes and of the gateways.
    controls: [Version; 2],
    gateways: [Version; GATEWAYS],
    root: String,
    caller: String,
    /// Tokens that were found revoked everywhere.
    revoked: Vec<String>,
    missed: Vec<String>,
    slowest: Duration,
}

impl Roll {
    async fn start(cluster: Cluster, builds: [Build; 2]) -> Result<Roll> {
        Ok(Roll {
            root: cluster.token(&["--admin", "--user", "root", "--ttl", TOKEN]).await?,
            caller: cluster.token(&["--org", "acme", "--user", "alice", "--ttl", TOKEN]).await?,
            cluster,
            builds,
            controls: [Version::Old; 2],
            gateways: [Version::Old; GATEWAYS],
            revoked: Vec::new(),
            missed: Vec::new(),
            slowest: Duration::ZERO,
        })
    }

    /// Applies the migrations of this version, and one more to the tables of the control plane and to those of the gateways.
    async fn migrate(&self, postgres: &Postgres) -> Result<()> {
        let [old, new] = &self.builds;
        let state = tempfile::tempdir()?;
        let mut command = Command::new(&new.asp);
        command.args(["db", "migrate"]).env("ASP_DATABASE_URL", postgres.url());
        let output = command.env("ASP_STATE_DIR", state.path()).kill_on_drop(true).output().await?;
        ensure!(output.status.success(), "asp db migrate: {}", String::from_utf8_lossy(&output.stderr));
        // As a migration it does not let others wait behind it for long, and is tried again.
        let tables = "SET lock_timeout = '1s'; ALTER TABLE revocations ADD COLUMN newer TEXT; \
                      ALTER TABLE call_records ADD COLUMN newer TEXT";
        let oldest = older::version(old)?;
        let [control, gateways] = MIGRATIONS.map(|number| history_row(number, &oldest));
        let migration = format!("{tables}; {control}; {gateways}");
        let migrated = || async { postgres.ask(&migration).await.ok() };
        wait::until("the additional migration is applied", wait::START, migrated).await.map(drop)
    }

    /// Ends a process in order and starts one of this version in its place. One token is revoked meanwhile, and one at each
    /// control plane afterwards.
    async fn step(&mut self, part: Part, version: Version) -> Result<()> {
        self.stop(part).await?;
        let other = match part {
            Part::Control(number) => self.admin(1 - number)?,
            Part::Gateway(_) => self.admin(0)?,
        };
        let (meanwhile, _) = self.revoke(other).await?;
        self.start_again(part, version).await?;
        self.hold_revocations().await?;
        self.wait_in_force(meanwhile).await?;
        for control in 0..self.controls.len() {
            let (token, acknowledged) = self.revoke(self.admin(control)?).await?;
            self.wait_in_force(token).await?;
            self.slowest = self.slowest.max(acknowledged.elapsed());
        }
        if self.controls == [Version::New; 2] {
            self.wait_named().await?;
        }
        Ok(())
    }

    async fn stop(&mut self, part: Part) -> Result<()> {
        let cluster = &mut self.cluster;
        let process = match part {
            Part::Control(0) => &mut cluster.control,
            Part::Control(_) => &mut cluster.second_control.as_mut().context("a second control plane")?.0,
            Part::Gateway(number) => {
                &mut cluster.gateways.get_mut(number).context("a gateway of this number")?.process
            }
        };
        process.stop().await.map(drop)
    }

    async fn start_again(&mut self, part: Part, version: Version) -> Result<()> {
        let [old, new] = &self.builds;
        self.cluster.use_build(if version == Version::Old { old.clone() } else { new.clone() });
        match part {
            Part::Control(number) => {
                let relay = self.cluster.relays.get(number).context("a relay")?;
                relay.set_newer(version == Version::New);
                match number {
                    0 => self.cluster.restart_control().await?,
                    _ => self.cluster.restart_second_control().await?,
                }
                *self.controls.get_mut(number).context("a control plane")? = version;
            }
            Part::Gateway(number) => {
                self.cluster.restart_gateway(number).await?;
                *self.gateways.get_mut(number).context("a gateway")? = version;
            }
        }
        self.cluster.wait_hosts(GATEWAYS).await?;
        for at in self.cluster.addresses() {
            let ready = || async { http1::get(at, "/readyz", &[]).await.ok().filter(|it| it.status == 200) };
            wait::until("a gateway is ready", wait::START, ready).await?;
        }
        Ok(())
    }

    /// The admin API of a control plane.
    fn admin(&self, control: usize) -> Result<SocketAddr> {
        let ports = self.cluster.controls();
        let ports = ports.get(control).context("a control plane of this number")?;
        Ok(SocketAddr::from(([127, 0, 0, 1], ports.admin)))
    }

    /// Revokes the token of another user, and returns it with the moment of the acknowledgement.
    async fn revoke(&self, admin: SocketAddr) -> Result<(String, Instant)> {
        let user = format!("leaver-{}", rand::random::<u64>());
        let token = self.cluster.token(&["--org", "acme", "--user", &user, "--ttl", TOKEN]).await?;
        let write = revocation(&self.root, &token);
        let stored = || async { http1::send(admin, &write).await.ok().filter(|answer| answer.status < 300) };
        wait::until("the revocation is stored", wait::CONVERGE, stored).await?;
        Ok((token, Instant::now()))
    }

    fn places(&self) -> Vec<SocketAddr> {
        let mut places = self.cluster.addresses();
        places.push(self.cluster.envoy.address);
        places
    }

    /// Waits until no place takes the token. One that still does after the hang guard has missed the revocation.
    async fn wait_in_force(&mut self, token: String) -> Result<()> {
        let began = Instant::now();
        for place in self.places() {
            while status(place, &token).await? != 401 {
                if began.elapsed() > wait::CONVERGE {
                    let after = wait::CONVERGE.as_secs();
                    self.missed
                        .push(format!("{place} does not refuse a token {after} s after its revocation"));
                    return Ok(());
                }
                sleep(PAUSE).await;
            }
        }
        self.revoked.push(token);
        Ok(())
    }

    /// Checks that no place takes a token again that was revoked before it started.
    async fn hold_revocations(&mut self) -> Result<()> {
        for place in self.places() {
            for token in &self.revoked {
                let status = status(place, token).await?;
                if status == 200 {
                    self.missed.push(format!("{place} takes a token that was revoked before"));
                }
            }
        }
        Ok(())
    }

    /// Waits until both control planes together have been told by every gateway that it did not apply the unknown part.
    async fn wait_named(&self) -> Result<()> {
        let is_named = || async {
            let mut gateways = 0;
            for control in self.cluster.controls() {
                let snapshot = self.cluster.admin_of(control, "/api/snapshot").await.ok()?;
                gateways += naming(&snapshot);
            }
            (gateways >= GATEWAYS).then_some(())
        };
        let named = wait::until("every gateway names the unknown part", wait::CONVERGE, is_named).await;
        named.with_context(|| format!("gateways of the versions {:?}", self.gateways))
    }

    /// Takes the older version out of what the migration allows, and starts an older gateway.
    async fn refuses_old(&mut self, postgres: &Postgres) -> Result<&'static str> {
        let [_, number] = MIGRATIONS;
        let statement = format!("DELETE FROM _sqlx_migrations WHERE version = {number}");
        let row = history_row(number, "999.0.0");
        postgres.ask(&format!("{statement}; {row}")).await?;
        self.stop(Part::Gateway(1)).await?;
        let [old, _] = &self.builds;
        self.cluster.use_build(old.clone());
        match self.cluster.restart_gateway(1).await {
            Ok(()) => Ok("started"),
            Err(error) if format!("{error:#}").contains("gateway ended with") => Ok("refused"),
            Err(error) => Err(error),
        }
    }
}

/// The statement that enters a migration in the history, which names the oldest version that works on its tables.
fn history_row(number: i64, oldest: &str) -> String {
    // The SHA-384 of the statements, which nobody has, and the version.
    let checksum = format!("decode(repeat('00', 48), 'hex') || convert_to('{oldest}', 'UTF8')");
    format!(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
         VALUES ({number}, 'newer', true, {checksum}, 0)"
    )
}

/// Number of gateways that name the unknown part among those that they refuse.
fn naming(snapshot: &Value) -> usize {
    let subscribers = snapshot.get("subscribers").and_then(Value::as_array);
    let names_it = |subscriber: &&Value| {
        let parts = subscriber.get("refusedParts").and_then(Value::as_array);
        parts.is_some_and(|parts| parts.iter().any(|part| part.get("name") == Some(&UNKNOWN_PART.into())))
    };
    subscribers.into_iter().flatten().filter(names_it).count()
}

async fn status(place: SocketAddr, token: &str) -> Result<u16> {
    Ok(http1::send(place, &modern(token, "tools/list", json!({}), &[])).await?.status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_roll_ends_with_the_new_version_and_has_every_old_process_beside_a_new_one() {
        for order in ALL {
            let steps = order.steps();
            for part in [Part::Control(0), Part::Control(1), Part::Gateway(0), Part::Gateway(1)] {
                let last = steps.iter().rev().find(|(of, _)| *of == part).map(|(_, version)| *version);
                assert_eq!(last, Some(Version::New), "{part:?}, {}", order.name());
            }
            let first_new = steps.iter().position(|(_, version)| *version == Version::New);
            assert_eq!(first_new, Some(0));
        }
    }

    #[test]
    fn a_gateway_names_the_unknown_part_or_is_not_counted() {
        let subscriber =
            |part: &str| json!({"kind": "gateway", "refusedParts": [{"name": part, "reason": "x"}]});
        let snapshot =
            json!({"subscribers": [subscriber(UNKNOWN_PART), subscriber("org/acme"), {"kind": "edge"}]});
        assert_eq!(naming(&snapshot), 1);
    }
}
