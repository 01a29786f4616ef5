//! Streams of tasks that run and report nothing: what each costs the gateway and Envoy.

use std::fmt::Write;
use std::net::SocketAddr;
use std::ops::Range;

use anyhow::{Context, Result};
use asp_e2e::agent::{Agent, message};
use asp_e2e::http1::Opened;
use asp_e2e::stack::{Options, Stack};
use asp_e2e::tool::Build;
use serde::Serialize;
use serde_json::json;

use crate::goal::Goal;
use crate::plan::Plan;
use crate::streams::memory;
use crate::usage::Processes;

/// Callers that share the streams, each of an org of its own.
const CALLERS: usize = 50;
/// Part of the streams that are open before memory is read, so that what is made once is there.
const FIRST: usize = 10;
/// Bytes that a stream and its task may cost the gateway.
const MOST_BYTES: u64 = 16 * 1024;

/// Results.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Tasks {
    pub tasks: usize,
    /// Bytes of each.
    pub gateway_bytes: u64,
    pub envoy_bytes: u64,
}

pub(super) async fn measure(plan: &Plan) -> Result<Tasks> {
    let stack = Stack::start(Options::of(Build::own()?)).await?;
    let processes = Processes { envoy: stack.envoy.process.id(), gateway: stack.asp.id(), backend: None };
    let mut callers = Vec::new();
    for number in 0..CALLERS {
        let org = format!("streaming-{number}");
        let token = stack.token(&["--org", &org, "--user", "carol", "--ttl", "1h"]).await?;
        callers.push(Agent::of("a2a-conformance", token));
    }
    let first = plan.tasks / FIRST;
    let mut streams = open(stack.edge(), &callers, 0..first).await?;
    let before = memory(&processes)?;
    streams.extend(open(stack.edge(), &callers, first..plan.tasks).await?);
    let after = memory(&processes)?;
    let more = u64::try_from(plan.tasks - first)?.max(1);
    let each = |before: u64, after: u64| after.saturating_sub(before) * 1024 / more;
    // The stack is ended with its tasks, which would go on for minutes.
    Ok(Tasks {
        tasks: streams.len(),
        gateway_bytes: each(before.gateway_kib, after.gateway_kib),
        envoy_bytes: each(before.envoy_kib, after.envoy_kib),
    })
}

/// Starts tasks that run until they are cancelled, each with a stream of its own.
async fn open(edge: SocketAddr, callers: &[Agent], numbers: Range<usize>) -> Result<Vec<Opened>> {
    let mut streams = Vec::new();
    for (number, caller) in numbers.zip(callers.iter().cycle()) {
        let params = json!({"message": message(json!([{"text": "tck-cancel"}]), None)});
        let stream = caller.open(edge, "SendStreamingMessage", &params).await;
        streams.push(stream.with_context(|| format!("stream {number}"))?);
    }
    Ok(streams)
}

impl Tasks {
    pub(super) fn judge(&self) -> Goal {
        Goal {
            goal: format!("a stream and its task cost the gateway at most {MOST_BYTES} bytes"),
            met: self.tasks > 0 && self.gateway_bytes <= MOST_BYTES,
            figures: format!("{} bytes, of {} tasks", self.gateway_bytes, self.tasks),
        }
    }

    pub(super) fn render(&self, text: &mut String) -> std::fmt::Result {
        writeln!(
            text,
            "\n{} tasks ran at once, each with a stream of its own through Envoy, and reported nothing. Memory is `VmRSS` \
             for each beyond the first tenth, in bytes: gateway {}, Envoy {}. The gateway's process holds the control \
             plane too.",
            self.tasks, self.gateway_bytes, self.envoy_bytes
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_goal_is_met_by_little_memory() {
        let met = |gateway_bytes| Tasks { tasks: 1, gateway_bytes, envoy_bytes: 0 }.judge().met;
        assert!(met(MOST_BYTES) && !met(MOST_BYTES + 1));
        assert!(!Tasks::default().judge().met, "nothing was measured");
    }
}
