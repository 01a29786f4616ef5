//! F43: statements that PostgreSQL runs for a short call under a key, of a tool that may be repeated and of one that may not, in a
//! fleet of three gateways and two control planes. Nothing is asserted of the number, but that it is counted.
//!
//! `pg_stat_statements` counts what the platform sends, `BEGIN` and `COMMIT` too; what it sends in the same time without calls is
//! taken off.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Result, ensure};
use asp_e2e::caller::{Caller, Came, Tool, Work};
use asp_e2e::fleet::Fleet;
use asp_e2e::stores::Postgres;
use asp_e2e::wait;
use rustix::process::Signal;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use crate::sheet::Sheet;

const CLIENTS: usize = 4;
const CALLS_OF_CLIENT: usize = 250;
const CALLS: usize = CLIENTS * CALLS_OF_CLIENT;
/// Calls of each client before anything is counted.
const WARM_UP: usize = 20;
/// Time in which everything is written that the platform writes after an answer.
const REST: Duration = Duration::from_secs(3);

const LOAD: &str = "ALTER SYSTEM SET shared_preload_libraries = 'pg_stat_statements'";
const MAKE: &str = "CREATE EXTENSION pg_stat_statements";
const RESET: &str = "SELECT pg_stat_statements_reset()";
const COUNT: &str = "SELECT COALESCE(SUM(s.calls), 0) FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid \
                     WHERE r.rolname = 'asp'";

pub(crate) async fn run(sheet: &mut Sheet) -> Result<()> {
    let mut fleet = Fleet::start().await?;
    fleet.postgres.ask(LOAD).await?;
    fleet.postgres.process.signal(Signal::INT)?;
    fleet.postgres.process.wait(wait::CONVERGE).await?;
    fleet.postgres.start_again().await?;
    fleet.postgres.ask(MAKE).await?;
    fleet.is_well().await?;
    // Every gateway has renewed its lease by then.
    sleep(REST).await;
    for tool in [Tool::Again, Tool::Once] {
        of_tool(&fleet, tool, sheet).await?;
    }
    Ok(())
}

async fn of_tool(fleet: &Fleet, tool: Tool, sheet: &mut Sheet) -> Result<()> {
    calls(fleet, tool, "warm-up", WARM_UP).await?;
    sleep(REST).await;
    fleet.postgres.ask(RESET).await?;
    let began = Instant::now();
    calls(fleet, tool, "counted", CALLS_OF_CLIENT).await?;
    let took = began.elapsed();
    sleep(REST).await;
    let length = began.elapsed();
    let during = count(&fleet.postgres).await?;
    show(&fleet.postgres, tool).await?;
    fleet.postgres.ask(RESET).await?;
    sleep(length).await;
    let quiet = count(&fleet.postgres).await?;
    let name = tool.name();
    sheet.note(&format!("calls of {name} a second"), CALLS as f64 / took.as_secs_f64());
    sheet.note(&format!("statements in the same time without calls, {name}"), quiet);
    // One at least makes the call's key known.
    sheet.at_least(&format!("statements for a call of {name}"), (during - quiet) / CALLS as f64, 1.0);
    Ok(())
}

/// Calls under a key of its own each, at every gateway in turn, all of which must be done.
async fn calls(fleet: &Fleet, tool: Tool, what: &str, of_client: usize) -> Result<()> {
    let mut clients = JoinSet::new();
    for client in 0..CLIENTS {
        let caller = fleet.caller_named(&format!("client-{client}")).await?;
        let name = format!("{what} {} {client}", tool.name());
        clients.spawn(call(caller, tool, name, fleet.cluster.addresses(), of_client));
    }
    while let Some(ended) = clients.join_next().await {
        ended??;
    }
    Ok(())
}

async fn call(
    caller: Caller,
    tool: Tool,
    name: String,
    gateways: Vec<SocketAddr>,
    count: usize,
) -> Result<()> {
    for (number, at) in (0..count).zip(gateways.iter().cycle()) {
        let work = Work::lasting(tool, format!("{name}-{number}"), 0);
        let came = caller.call(*at, &work).await;
        ensure!(matches!(came, Came::Told(_)), "{} at {at}: {came:?}", work.thing);
    }
    Ok(())
}

async fn count(postgres: &Postgres) -> Result<f64> {
    Ok(postgres.ask(COUNT).await?.parse()?)
}

/// Prints the statements that most calls had, with how often each ran for a call.
async fn show(postgres: &Postgres, tool: Tool) -> Result<()> {
    let statement = format!(
        "SELECT round(s.calls / {CALLS}.0, 2), left(regexp_replace(s.query, '\\s+', ' ', 'g'), 150) \
         FROM pg_stat_statements s JOIN pg_roles r ON r.oid = s.userid \
         WHERE r.rolname = 'asp' AND s.calls > {CALLS} / 10 ORDER BY s.calls DESC"
    );
    eprintln!("statements for a call of {}:\n{}", tool.name(), postgres.ask(&statement).await?);
    Ok(())
}
