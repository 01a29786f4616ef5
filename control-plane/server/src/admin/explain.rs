//! Why a caller may or may not call a primitive: the same code that decides, asked without a call.
//!
//! Answers from the published snapshot: what is enforced, not what was written a moment ago.

use std::sync::Arc;

use asp_edge::Caller;
use asp_proto::snapshot::{Binding, GatewaySnapshot, Listing, Protocol, TargetKind};
use asp_snapshot::policy::{Rule, Ruling};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::ToSchema;

use super::AdminState;
use super::auth::Admin;
use super::body::Body;
use super::problem::{Code, Problem};
use crate::policy;
use crate::xds::{Evaluator, Published};

/// Most groups, and most scopes, of one question: no token has more.
const MAX_GROUPS: usize = asp_edge::MAX_LISTED;

/// A call that might be made.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    pub org: String,
    #[serde(default)]
    pub user: String,
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default)]
    pub wcit: String,
    #[serde(default)]
    pub scopes: Vec<String>,
    pub server: String,
    /// The primitive's id.
    pub primitive: String,
    /// `mcp`; `a2a` and `rest` are not served yet.
    pub protocol: String,
}

/// The answer.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// Whether the call would reach the limits.
    pub allowed: bool,
    /// `allowed`, `needs_approval`, `not_served`, `unknown_server`, `unknown_primitive`, `not_exposed`, `denied` or
    /// `insufficient_scope`
    pub outcome: String,
    /// The stage and the rule that decided.
    #[serde(rename = "decidedBy")]
    #[schema(value_type = Object)]
    pub decided_by: Value,
    /// Revision of the snapshot that was asked.
    pub revision: u64,
}

/// Says which rule decides.
#[utoipa::path(post, path = "/api/policy/explain", tag = "policy", request_body = Question,
    responses((status = 200, body = Explanation), (status = 404, body = Problem)))]
pub async fn explain(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Body(question): Body<Question>,
) -> Result<Json<Explanation>, Problem> {
    admin.of_org(&question.org)?;
    if question.groups.len() > MAX_GROUPS || question.scopes.len() > MAX_GROUPS {
        return Err(Problem::params(format!("groups and scopes: at most {MAX_GROUPS} each")));
    }
    let protocol =
        policy::protocol(&question.protocol).map_err(|error| Problem::params(error.to_string()))?;
    let xds_state = state.publisher.xds_state().borrow().clone();
    let Some(published) = xds_state.snapshot else {
        return Err(Problem::new(Code::Internal, "no snapshot is published yet"));
    };
    let asked = Arc::clone(&published);
    let turn = state.turns.to_ask(&admin).await?;
    let (outcome, decided_by) = turn.work(move || decide(&asked, &question, protocol)).await??;
    Ok(Json(Explanation {
        allowed: matches!(outcome, "allowed" | "needs_approval"),
        outcome: outcome.to_owned(),
        decided_by,
        revision: published.revision,
    }))
}

fn decide(
    published: &Published,
    question: &Question,
    protocol: Protocol,
) -> Result<(&'static str, Value), Problem> {
    let snapshot = &published.snapshot;
    if !asp_registry::is_served(protocol) {
        let rule =
            format!("{} is not served yet; clients reach servers over mcp and rest", question.protocol);
        return Ok(("not_served", json!({ "stage": "protocol", "rule": rule })));
    }
    let Some(server) = snapshot.servers.iter().find(|server| server.name == question.server) else {
        return Ok(("unknown_server", json!({ "stage": "resolve" })));
    };
    let listed = server
        .listings
        .iter()
        .find(|listing| listing.id == question.primitive && !name_over(listing, protocol).is_empty());
    let primitive = listed.and_then(|listing| {
        snapshot
            .primitives
            .iter()
            .find(|primitive| primitive.id == listing.id && primitive.version == listing.version)
    });
    let Some(primitive) = primitive else {
        return Ok(("unknown_primitive", json!({ "stage": "resolve" })));
    };
    let Some(Evaluator { edge, policy }) = published.evaluator() else {
        return Err(Problem::new(Code::Internal, ""));
    };
    if !speaks(snapshot, question, protocol) || !edge.exposed(&question.server, &question.org, protocol) {
        return Ok(("not_exposed", exposure_rule(snapshot, question, protocol)));
    }
    let caller = caller(question);
    let required = [edge.required_scopes(&question.server), primitive.scopes.as_slice()].concat();
    let missing = required.iter().any(|scope| !caller.scopes.contains(scope));
    let ruling = policy.rule(&caller, primitive, protocol);
    Ok(match ruling {
        Ruling::Denied(rule) => ("denied", binding_rule(&rule)),
        Ruling::Allowed(_) | Ruling::NeedsApproval if missing => {
            ("insufficient_scope", json!({ "stage": "scopes", "required": required, "given": caller.scopes }))
        }
        Ruling::Allowed(rule) => ("allowed", binding_rule(&rule)),
        Ruling::NeedsApproval => (
            "needs_approval",
            json!({ "stage": "bindings", "rule": "destructive or high-risk, and no binding allows it" }),
        ),
    })
}

/// The name a primitive has over a protocol; empty when it has none.
fn name_over(listing: &Listing, protocol: Protocol) -> &str {
    match protocol {
        Protocol::Mcp => &listing.mcp_name,
        Protocol::A2a => &listing.a2a_skill,
        Protocol::Rest => &listing.rest_name,
        Protocol::Unspecified => "",
    }
}

fn speaks(snapshot: &GatewaySnapshot, question: &Question, protocol: Protocol) -> bool {
    let servers = snapshot.edge.iter().flat_map(|edge| &edge.servers);
    servers
        .filter(|server| server.name == question.server)
        .any(|server| server.protocols().any(|spoken| spoken == protocol))
}

fn exposure_rule(snapshot: &GatewaySnapshot, question: &Question, protocol: Protocol) -> Value {
    let edge = snapshot.edge.as_ref();
    let exception = edge.into_iter().flat_map(|edge| &edge.exposure_exceptions).find(|exception| {
        exception.org == question.org
            && exception.server == question.server
            && exception.protocol() == protocol
    });
    let rule = match (speaks(snapshot, question, protocol), exception) {
        (false, _) => "the server does not speak this protocol",
        (true, Some(_)) => "the org's exception",
        (true, None) => "the server's default",
    };
    json!({ "stage": "exposure", "rule": rule })
}

fn binding_rule(rule: &Rule) -> Value {
    match rule {
        Rule::Default => json!({ "stage": "bindings", "rule": "no binding matches: allowed when exposed" }),
        Rule::Binding(binding) => json!({ "stage": "bindings", "binding": body(binding) }),
    }
}

fn body(binding: &Binding) -> Value {
    let kind = match binding.target_kind() {
        TargetKind::User => "user",
        TargetKind::Wcit => "wcit",
        TargetKind::Group => "group",
        TargetKind::Unspecified => "unknown",
    };
    let protocol = match binding.protocol() {
        Protocol::Mcp => "mcp",
        Protocol::A2a => "a2a",
        Protocol::Rest => "rest",
        Protocol::Unspecified => "*",
    };
    json!({
        "target": { "type": kind, "idOrPattern": binding.target },
        "primitive": { "name": binding.primitive, "protocol": protocol },
        "allowed": binding.allowed,
    })
}

fn caller(question: &Question) -> Caller {
    Caller {
        org: question.org.clone(),
        user: question.user.clone(),
        groups: question.groups.clone(),
        scopes: question.scopes.clone(),
        client: String::new(),
        wcit: question.wcit.clone(),
        digest: [0; 32],
        issuer: String::new(),
        issued_at: 0,
        expires_at: u64::MAX,
    }
}
