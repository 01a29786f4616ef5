//! The rows in their order, each repeated, one after the other: nothing else runs meanwhile.

mod absent_database;
mod agents;
mod approvals;
mod bombs;
mod complete_audit;
mod crash_loop;
mod cut_control;
mod death;
mod failover;
mod fairness;
mod fleet;
mod heavy_limits;
mod keyed_call;
mod lost_ends;
mod lost_gateways;
mod memory;
mod open_snapshot;
mod org_writers;
mod orphan_search;
mod orphans;
mod partition;
mod rejected_snapshot;
mod resumption;
mod revocations;
mod silent_database;
mod slow_receivers;
mod stepped_gateway;
mod stores;
mod toggles;
mod upgrade;
mod versions;
mod wedge;

use anyhow::Result;

use crate::hostile::Language;
use crate::plan::Plan;
use crate::report::{Report, Row};
use crate::sheet::Sheet;

/// A row's kind and what varies within it.
#[derive(Clone, Copy, Debug)]
enum Fault {
    Killed,
    Memory(Language),
    Wedge(wedge::Wedge),
    Bomb(bombs::Bomb),
    CrashLoop(crash_loop::Loop),
    Orphans,
    Noisy,
    Upgrade,
    Partition(std::time::Duration),
    Resumption,
    LostGateways,
    Stores,
    Fleet { loss: fleet::Loss, length: std::time::Duration, seed: Option<u64> },
    OrgWriters { setting: org_writers::Setting, revocations: usize },
    Toggles { is_bounded: bool },
    HeavyLimits,
    CutControl,
    SilentDatabase(silent_database::Connections),
    AbsentDatabase(absent_database::Disturbance),
    OrphanSearch,
    KeyedCall,
    LostEnds { calls: usize, seed: Option<u64> },
    OpenSnapshot(std::time::Duration),
    Versions(versions::Order),
    Agents { kills: usize, seed: Option<u64> },
    SlowReceivers,
    Revocations { has_redis: bool, samples: usize },
    SteppedGateway,
    CompleteAudit { topology: complete_audit::Topology, calls: usize },
    Failover,
    RejectedSnapshot,
    Approvals,
}

fn all(plan: &Plan) -> Vec<(String, Fault)> {
    let mut rows = vec![("F4 failover of Redis".to_owned(), Fault::Failover)];
    rows.push(("F7 worker killed mid-call".to_owned(), Fault::Killed));
    for language in [Language::Python, Language::Node, Language::Java] {
        rows.push((format!("F8 out of memory, {}", language.name()), Fault::Memory(language)));
    }
    for wedge in wedge::ALL {
        rows.push((format!("F9 wedge, {}", wedge.name()), Fault::Wedge(wedge)));
    }
    for bomb in bombs::ALL {
        rows.push((format!("F10 {}", bomb.name()), Fault::Bomb(bomb)));
    }
    for kind in [crash_loop::Loop::AtStart, crash_loop::Loop::AtCall] {
        rows.push((format!("F11 crash loop, {}", kind.name()), Fault::CrashLoop(kind)));
    }
    rows.push(("F12 runtime killed".to_owned(), Fault::Orphans));
    rows.push(("F19 a snapshot is rejected".to_owned(), Fault::RejectedSnapshot));
    rows.push(("F20 a gateway's clock is stepped".to_owned(), Fault::SteppedGateway));
    for (has_redis, name) in [(true, "with Redis"), (false, "Redis away")] {
        let fault = Fault::Revocations { has_redis, samples: plan.revoked_callers() };
        rows.push((format!("F21 callers lose their right amid calls, {name}"), fault));
    }
    rows.push(("F26 noisy tenant".to_owned(), Fault::Noisy));
    rows.push(("F27 upgrade under load".to_owned(), Fault::Upgrade));
    let length = std::time::Duration::from_secs(plan.partition_seconds());
    rows.push(("F30 gateways cut off from control".to_owned(), Fault::Partition(length)));
    rows.push(("F31 streams cut at random points".to_owned(), Fault::Resumption));
    rows.push(("F32 gateways killed amid calls".to_owned(), Fault::LostGateways));
    rows.push(("F33 Redis and PostgreSQL killed under load".to_owned(), Fault::Stores));
    let length = plan.fleet_length();
    for (name, loss) in [
        ("F34 processes of a fleet killed at random", fleet::Loss::Killed),
        ("F35 gateways of a fleet cut off at random", fleet::Loss::CutOff),
    ] {
        rows.push((name.to_owned(), Fault::Fleet { loss, length, seed: plan.seed }));
    }
    rows.extend(writers(plan));
    rows.extend(database());
    let ends = Fault::LostEnds { calls: plan.lost_calls(), seed: plan.seed };
    rows.push(("F44 gateways killed as calls end".to_owned(), ends));
    let length = std::time::Duration::from_secs(plan.snapshot_seconds());
    rows.push(("F45 a snapshot of all tables is open".to_owned(), Fault::OpenSnapshot(length)));
    for order in versions::ALL {
        rows.push((format!("F46 a roll from the oldest version, {}", order.name()), Fault::Versions(order)));
    }
    let agents = Fault::Agents { kills: plan.agent_kills(), seed: plan.seed };
    rows.push(("F47 gateways killed amid tasks of A2A".to_owned(), agents));
    rows.push(("F48 receivers of pushes do not answer".to_owned(), Fault::SlowReceivers));
    for topology in complete_audit::ALL {
        let fault = Fault::CompleteAudit { topology, calls: plan.audit_calls() };
        rows.push((format!("F60 the audit is complete, {}", topology.name()), fault));
    }
    rows.push(("F61 calls wait for approvals".to_owned(), Fault::Approvals));
    rows
}

/// The rows in which orgs burden the control plane and the counters that they share.
fn writers(plan: &Plan) -> Vec<(String, Fault)> {
    let mut rows = Vec::new();
    for setting in org_writers::ALL {
        let fault = Fault::OrgWriters { setting, revocations: plan.revocations };
        rows.push((format!("F36 org admins write without pause, {}", setting.name()), fault));
    }
    for is_bounded in [true, false] {
        let bound = org_writers::bound_name(is_bounded);
        rows.push((format!("F37 an org toggles its exposure, {bound}"), Fault::Toggles { is_bounded }));
    }
    rows.push(("F38 an org with all its limits calls steadily".to_owned(), Fault::HeavyLimits));
    rows
}

/// The rows of what becomes of a database that is away or hard to reach, and of what is asked of it.
fn database() -> Vec<(String, Fault)> {
    let mut rows = vec![("F39 control plane cut off from PostgreSQL".to_owned(), Fault::CutControl)];
    for connections in silent_database::ALL {
        let name = format!("F40 PostgreSQL silent for 60 s, {}", connections.name());
        rows.push((name, Fault::SilentDatabase(connections)));
    }
    for disturbance in absent_database::ALL {
        let name = format!("F41 calls and tasks run, {}", disturbance.name());
        rows.push((name, Fault::AbsentDatabase(disturbance)));
    }
    rows.push(("F42 orphan search among running calls".to_owned(), Fault::OrphanSearch));
    rows.push(("F43 statements of a keyed call".to_owned(), Fault::KeyedCall));
    rows
}

/// Runs every row the plan wants. A row that could not be run is a miss with its reason.
pub(crate) async fn run(plan: &Plan) -> Result<Report> {
    let mut report = Report::new(plan.repeats());
    for (name, fault) in all(plan) {
        if !plan.wants(&name) {
            continue;
        }
        let mut row = Row::new(name);
        for repeat in 1..=plan.repeats() {
            eprintln!("{} ({repeat} of {})", row.name, plan.repeats());
            let mut sheet = Sheet::default();
            if let Err(error) = once(fault, &mut sheet).await {
                sheet.fault(format!("{error:#}"));
            }
            row.repeats.push(sheet);
        }
        eprint!("{}", row.render());
        report.rows.push(row);
    }
    Ok(report)
}

async fn once(fault: Fault, sheet: &mut Sheet) -> Result<()> {
    match fault {
        Fault::Killed => Box::pin(death::run(sheet)).await,
        Fault::Memory(language) => Box::pin(memory::run(language, sheet)).await,
        Fault::Wedge(wedge) => Box::pin(wedge::run(wedge, sheet)).await,
        Fault::Bomb(bomb) => Box::pin(bombs::run(bomb, sheet)).await,
        Fault::CrashLoop(kind) => Box::pin(crash_loop::run(kind, sheet)).await,
        Fault::Orphans => Box::pin(orphans::run(sheet)).await,
        Fault::Noisy => Box::pin(fairness::run(sheet)).await,
        Fault::Upgrade => Box::pin(upgrade::run(sheet)).await,
        Fault::Partition(length) => partition::run(length, sheet).await,
        Fault::Resumption => resumption::run(sheet).await,
        Fault::LostGateways => lost_gateways::run(sheet).await,
        Fault::Stores => stores::run(sheet).await,
        Fault::Fleet { loss, length, seed } => Box::pin(fleet::run(loss, length, seed, sheet)).await,
        Fault::OrgWriters { setting, revocations } => {
            Box::pin(org_writers::run(setting, revocations, sheet)).await
        }
        Fault::Toggles { is_bounded } => Box::pin(toggles::run(is_bounded, sheet)).await,
        Fault::HeavyLimits => Box::pin(heavy_limits::run(sheet)).await,
        Fault::CutControl => Box::pin(cut_control::run(sheet)).await,
        Fault::SilentDatabase(connections) => Box::pin(silent_database::run(connections, sheet)).await,
        Fault::AbsentDatabase(disturbance) => Box::pin(absent_database::run(disturbance, sheet)).await,
        Fault::OrphanSearch => Box::pin(orphan_search::run(sheet)).await,
        Fault::KeyedCall => Box::pin(keyed_call::run(sheet)).await,
        Fault::Versions(order) => Box::pin(versions::run(order, sheet)).await,
        Fault::OpenSnapshot(length) => Box::pin(open_snapshot::run(length, sheet)).await,
        Fault::LostEnds { calls, seed } => Box::pin(lost_ends::run(calls, seed, sheet)).await,
        Fault::Agents { kills, seed } => Box::pin(agents::run(kills, seed, sheet)).await,
        Fault::SlowReceivers => Box::pin(slow_receivers::run(sheet)).await,
        Fault::SteppedGateway => Box::pin(stepped_gateway::run(sheet)).await,
        Fault::Revocations { has_redis, samples } => {
            Box::pin(revocations::run(has_redis, samples, sheet)).await
        }
        Fault::CompleteAudit { topology, calls } => {
            Box::pin(complete_audit::run(topology, calls, sheet)).await
        }
        Fault::Failover => Box::pin(failover::run(sheet)).await,
        Fault::RejectedSnapshot => Box::pin(rejected_snapshot::run(sheet)).await,
        Fault::Approvals => Box::pin(approvals::run(sheet)).await,
    }
}
