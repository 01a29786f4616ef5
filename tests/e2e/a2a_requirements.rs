//! The requirements of A2A's official suites, the TCKs of 1.0 and 0.3 and ACTS, and faults that other implementations had,
//! as tests of ours: one trial for each id in `tests/vectors/a2a`, through Envoy with a token, over JSON-RPC, REST and gRPC,
//! against `primitives/a2a-conformance`.
//!
//! Keeps true: an id without a test is printed as ignored with its reason, and is never a success; the tables have every id
//! once.

mod checks;
mod client;
mod matching;
mod table;

use std::collections::BTreeSet;

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;

use self::client::Conversation;
use self::table::{Binding, Row, SUITES, Suite};
use crate::trial::Shared;

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    let of_suite = |suite: &'static Suite| {
        suite.rows().into_iter().map(move |row| trial(shared, suite, row)).collect::<Vec<Trial>>()
    };
    let tables =
        shared.trial("a2a_requirements::every_id_of_the_suites_is_in_the_tables_once", are_tables_whole);
    SUITES.iter().flat_map(of_suite).chain([tables]).collect()
}

fn trial(shared: &Shared, suite: &'static Suite, row: Row) -> Trial {
    let name = format!("a2a_requirements::our_test_of_{}_{}", suite.name, row.id);
    let Some(reason) = row.untested.clone() else {
        return shared.trial(&name, async move |shared: &Shared| hold(shared, suite, &row).await);
    };
    let untested = async |_: &Shared| -> Result<()> { bail!("there is no test of this id") };
    shared.trial(&format!("{name} (not tested: {reason})"), untested).with_ignored_flag(true)
}

/// Runs what the row says, over each of its bindings.
async fn hold(shared: &Shared, suite: &Suite, row: &Row) -> Result<()> {
    for binding in &row.on {
        let known = row.issue.as_deref().map_or(String::new(), |issue| format!(", {issue}"));
        let about =
            format!("our test of {} {} ({:?}{known}) over {binding:?}", suite.name, row.id, row.level);
        run(shared, row, *binding).await.context(about)?;
    }
    Ok(())
}

async fn run(shared: &Shared, row: &Row, binding: Binding) -> Result<()> {
    let mut conversation = Conversation::begin(shared.stack().await?, binding).await?;
    if let Some(check) = &row.check {
        checks::run(check, &conversation).await?;
    }
    for (number, step) in row.steps.iter().enumerate() {
        let about = || format!("step {}, {:?}", number + 1, step.operation);
        conversation.take(step).await.with_context(about)?;
    }
    Ok(())
}

async fn are_tables_whole(_: &Shared) -> Result<()> {
    for suite in &SUITES {
        let rows = suite.rows();
        let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        ensure!(rows.len() == suite.ids && ids.len() == suite.ids, "{}: {} rows", suite.name, rows.len());
        for row in &rows {
            let is_tested = !row.steps.is_empty() || row.check.is_some();
            ensure!(is_tested || row.untested.is_some(), "{} {} tests nothing", suite.name, row.id);
            let is_known = row.check.as_deref().is_none_or(|check| checks::NAMES.contains(&check));
            ensure!(is_known && !row.on.is_empty(), "{} {}: {:?}", suite.name, row.id, row.check);
            for step in &row.steps {
                ensure!(step.is_checked(), "{} {}: {:?} checks nothing", suite.name, row.id, step.operation);
            }
        }
    }
    Ok(())
}
