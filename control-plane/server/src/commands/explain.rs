//! `asp explain`: which rule decides about a call.

use super::client::{AdminClient, block_on};
use super::{Failure, print};
use crate::admin::explain::Question;
use crate::args::ExplainArgs;
use crate::settings::source::ProcessEnvironment;

/// Asks and prints; fails when the call would not be allowed.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let question = Question {
        org: args.org.clone(),
        user: args.user.clone().unwrap_or_default(),
        groups: args.groups.clone(),
        wcit: args.wcit.clone().unwrap_or_default(),
        scopes: args.scopes.clone(),
        server: args.server.clone(),
        primitive: args.primitive.clone(),
        protocol: args.protocol.clone(),
    };
    let body = serde_json::to_value(question).map_err(anyhow::Error::new)?;
    let answer = block_on(async { api.post("/api/policy/explain", &body).await?.accepted() })?;
    if args.json {
        print::json(&answer);
    } else {
        let text = |key: &str| answer.get(key).map(ToString::to_string).unwrap_or_default();
        print::line(&format!("{} by {}", text("outcome").trim_matches('"'), text("decidedBy")));
    }
    match answer.get("allowed").and_then(serde_json::Value::as_bool) {
        Some(true) => Ok(()),
        _ => Err(Failure::Refused),
    }
}
