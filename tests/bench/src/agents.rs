//! A2A beside MCP: calls of the same builtin tools over both, streams of tasks that run, and push notifications.

mod pushes;
mod tasks;

use std::fmt::Write;

use anyhow::{Context, Result};
use asp_e2e::spread::cell;
use asp_e2e::tool::Build;
use asp_e2e::{http1, wait};
use serde::Serialize;
use serde_json::{Value, json};

use crate::admin::Admin;
use crate::agents::pushes::Pushes;
use crate::agents::tasks::Tasks;
use crate::goal::Goal;
use crate::loops::{self, Cell, FEW, Figure, Lane, MANY, gateway_cpu, rate};
use crate::measurement::Measurement;
use crate::path::Path;
use crate::plan::Plan;
use crate::progress::say;
use crate::traffic::{Caller, Shape};

const SERVER: &str = "skills";
/// A tool that is a skill as well, and its rows.
struct Skill {
    id: &'static str,
    mutation: &'static str,
    /// Rows over MCP with their requests: plain calls first, and calls that store what a message stores.
    mcp: &'static [(&'static str, Shape)],
    a2a: &'static str,
}

const SKILLS: [Skill; 2] = [
    Skill {
        id: "look",
        mutation: "read_only",
        mcp: &[("mcp, read-only", Shape::Modern)],
        a2a: "a2a, read-only",
    },
    Skill {
        id: "note",
        mutation: "idempotent",
        mcp: &[("mcp, mutating", Shape::Modern), ("mcp, mutating, with a key", Shape::Keyed)],
        a2a: "a2a, mutating",
    },
];
/// Gateway CPU of a message, in parts of that of the call over MCP.
const COST: f64 = 1.2;

/// Measurements.
#[derive(Serialize)]
pub(crate) struct Agents {
    /// Raw figures, in the order they were taken.
    pub measurements: Vec<Measurement>,
    pub tasks: Tasks,
    pub pushes: Pushes,
}

pub(crate) async fn measure(plan: &Plan) -> Result<Agents> {
    let mut measurements = Vec::new();
    for run in 1..=plan.runs {
        let path = Path::start(Build::own()?).await.context("start the stack")?;
        add_skills(&path).await?;
        knows_to_be_alone(&path).await?;
        let callers = path.callers(&path.issuer, plan.tokens)?;
        for lane in lanes(&path, &callers) {
            say(&format!("run {run}/{}: {}", plan.runs, lane.place.row));
            measurements.extend(loops::turn(plan, run, &lane).await?);
        }
    }
    say(&format!("{} streams of tasks", plan.tasks));
    let tasks = Box::pin(tasks::measure(plan)).await.context("streams of tasks")?;
    say("push notifications");
    let pushes = Box::pin(pushes::measure(plan)).await.context("push notifications")?;
    Ok(Agents { measurements, tasks, pushes })
}

/// Adds a server whose tools are skills as well, and waits until Envoy and the gateway serve it.
async fn add_skills(path: &Path) -> Result<()> {
    let refs = SKILLS.map(|Skill { id, .. }| format!("{{ref: {SERVER}/{SERVER}.{id}}}")).join(", ");
    let server = format!(
        "apiVersion: asp/v1\nname: {SERVER}\ntitle: Bench\ndescription: For the benchmark.\nversion: 1.0.0\n\
         protocols: [mcp, a2a]\nsessions: both\ndefaultExposure: allow\nauth: {{schemes: [jwt], issuers: [dev]}}\n\
         primitives: [{refs}]\n"
    );
    let mut files = vec![json!({"path": format!("{SERVER}/server.yaml"), "text": server})];
    for Skill { id, mutation, .. } in SKILLS {
        let spec = format!(
            "id: {SERVER}.{id}\nname: {id}\ntype: tool\nversion: 1.0.0\nowner: bench@example.com\nsummary: Answers.\n\
             tags: [bench]\nmutation: {mutation}\n\
             exposure: {{mcp: {{tool: {{name: {id}}}}}, a2a: {{skill: {{id: {id}}}}}}}\nprimitiveSchema:\n  \
             input_schema:\n    type: object\n    required: [message]\n    \
             properties: {{message: {{type: string}}}}\nsecurity: {{riskClass: low}}\n\
             runtime: {{mode: builtin, entrypoint: echo}}\n"
        );
        files.push(json!({"path": format!("{SERVER}/{id}.yaml"), "text": spec}));
    }
    let admin = Admin::of(&path.stack).await?;
    admin.put(&format!("/api/registry/servers/{SERVER}"), &json!({"files": files})).await?;
    let card = format!("/{SERVER}/.well-known/agent-card.json");
    let edge = path.edge.address();
    let serves = || async {
        let answer = http1::get(edge, &card, &[]).await.ok().filter(|answer| answer.status == 200)?;
        let skills = answer.json().ok()?.get("skills").and_then(Value::as_array).map(Vec::len)?;
        (skills == SKILLS.len()).then_some(())
    };
    wait::until("the skills are served", wait::START, serves).await
}

/// Waits until the gateway keeps short tasks that only read without its database, as it does from then on.
async fn knows_to_be_alone(path: &Path) -> Result<()> {
    let gateway = path.gateway();
    let is_alone = || async move {
        let metrics = http1::get(gateway, "/metrics", &[]).await.ok()?.text();
        metrics.lines().any(|line| line == "asp_gateway_alone 1").then_some(())
    };
    wait::until("the gateway knows that it is alone", wait::START, is_alone).await
}

/// The rows over MCP and A2A by turns, behind Envoy.
fn lanes(path: &Path, callers: &[Caller]) -> Vec<Lane> {
    let lane = |row, shape, target: &str, tool| Lane {
        place: path.behind(row, &path.edge),
        shape,
        target: format!("/{SERVER}/{target}"),
        tool,
        authority: path.authority(),
        callers: callers.to_vec(),
    };
    let lanes = SKILLS.into_iter().flat_map(|Skill { id, mcp, a2a, .. }| {
        let mut lanes: Vec<Lane> = mcp.iter().map(|&(row, shape)| lane(row, shape, "mcp", id)).collect();
        lanes.push(lane(a2a, Shape::Message, "a2a", id));
        lanes
    });
    lanes.collect()
}

impl Agents {
    /// Returns every goal that the figures speak to.
    pub(crate) fn judge(&self) -> Vec<Goal> {
        let mut goals = Vec::new();
        for Skill { mcp, a2a, .. } in SKILLS {
            for &(row, _) in mcp {
                goals.extend(
                    [FEW, MANY].into_iter().filter_map(|connections| self.goal([a2a, row], connections)),
                );
            }
        }
        goals.push(self.tasks.judge());
        goals.push(self.pushes.judge());
        goals
    }

    /// Returns the goal for a row over A2A and one over MCP; `None` unless both were measured.
    fn goal(&self, [a2a, mcp]: [&'static str; 2], connections: usize) -> Option<Goal> {
        let taken = self.measurements.as_slice();
        let of = |row| (Cell { row, connections }, taken);
        let ratio = loops::ratio(of(a2a), of(mcp), gateway_cpu)?;
        Some(Goal {
            goal: format!("{a2a}: at most {COST} of the gateway CPU of {mcp}, {connections} connections"),
            met: ratio.median <= COST,
            figures: format!("{} of it", ratio.text(2)),
        })
    }

    /// Writes the section.
    pub(crate) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(text, "\n## A2A beside MCP\n")?;
        writeln!(
            text,
            "`SendMessage` of A2A 1.0 over JSON-RPC and `tools/call` of 2026-07-28, of the same builtin tools, behind \
             Envoy with the filter; closed loops, CPU in us per request. Ratios are those within a run, to the first \
             row of the tool over MCP: that of Envoy is what the filter and the larger message cost. A message that \
             changes something is stored before it is answered, and so is a call with a key.\n"
        )?;
        writeln!(
            text,
            "| row | connections | req/s | p50 us | p99 us | Envoy CPU | gateway CPU | of MCP's Envoy CPU \
             | of MCP's gateway CPU |\n|---|---|---|---|---|---|---|---|---|"
        )?;
        for connections in [FEW, MANY] {
            for Skill { mcp, a2a, .. } in SKILLS {
                let rows = mcp.iter().map(|&(row, _)| row);
                let Some(first) = rows.clone().next() else { continue };
                for row in rows.chain([a2a]) {
                    self.line(text, [Cell { row, connections }, Cell { row: first, connections }])?;
                }
            }
        }
        self.tasks.render(text)?;
        self.pushes.render(text)
    }

    fn line(&self, text: &mut String, [at, mcp]: [Cell; 2]) -> std::fmt::Result {
        let taken = self.measurements.as_slice();
        let of = |figure: Figure, decimals| cell(at.over_runs(taken, figure), decimals);
        let ratio = |figure: Figure| cell(loops::ratio((at, taken), (mcp, taken), figure), 2);
        let envoy_cpu: Figure = |one| one.envoy_cpu_us;
        writeln!(
            text,
            "| `{}` | {} | {} | {} | {} | {} | {} | {} | {} |",
            at.row,
            at.connections,
            of(rate, 0),
            of(|one| Some(one.p50_us), 0),
            of(|one| Some(one.p99_us), 0),
            of(envoy_cpu, 1),
            of(gateway_cpu, 1),
            ratio(envoy_cpu),
            ratio(gateway_cpu),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loops::tests::measured;

    fn agents(few: f64, many: f64) -> Agents {
        let Skill { mcp, a2a, .. } = SKILLS[0];
        let mcp = mcp[0].0;
        let measurements = vec![
            measured(1, mcp, FEW, 100.0),
            measured(1, a2a, FEW, few),
            measured(1, mcp, MANY, 100.0),
            measured(1, a2a, MANY, many),
        ];
        Agents { measurements, tasks: Tasks::default(), pushes: Pushes::default() }
    }

    #[test]
    fn a_message_may_cost_so_much_of_a_call_over_mcp() {
        let met = |few, many| {
            let goals = agents(few, many).judge();
            goals.iter().take(2).map(|goal| goal.met).collect::<Vec<_>>()
        };
        assert_eq!(met(120.0, 119.0), [true, true]);
        assert_eq!(met(121.0, 122.0), [false, false]);
        assert_eq!(agents(1.0, 1.0).judge().len(), 4, "rows that were not measured have no goal");
    }

    #[test]
    fn the_table_has_the_ratio_to_mcp() {
        let mut text = String::new();
        agents(110.0, 90.0).render(&mut text).unwrap();
        let line = "| `a2a, read-only` | 8 | 110 (110..110) | 110 (110..110) | 110 (110..110) | - | 110.0 (110.0..110.0) | - | 1.10 (1.10..1.10) |";
        assert!(text.contains(line), "{text}");
    }
}
