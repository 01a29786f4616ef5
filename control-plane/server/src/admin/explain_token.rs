//! Explains a call by the token of its caller, which is evaluated as edges and gateways would, by their own code.
//!
//! Keeps true: the token is neither logged nor stored, and no answer repeats it; an admin learns nothing of a caller of an org
//! that he has no access to.

use std::sync::Arc;

use asp_edge::{Caller, Snapshot};
use asp_platform::clock;
use asp_platform::secret::Secret;
use asp_proto::snapshot::{EdgeServer, EdgeSnapshot};
use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use utoipa::ToSchema;

use super::AdminState;
use super::auth::Admin;
use super::explain::{Explanation, Question, explain, newest};
use super::problem::{Problem, Result};
use super::request::Body;

/// Name of the server that stands for one that does not exist.
const ANY: &str = "any";

/// A token, which prints as `***`.
#[derive(Deserialize)]
#[serde(from = "String")]
struct TokenText(Secret);

impl From<String> for TokenText {
    fn from(text: String) -> TokenText {
        TokenText(Secret::new(text))
    }
}

/// A hypothetical call by the holder of a token.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct TokenQuestion {
    /// Signed access token of the caller. It is evaluated, and neither logged nor stored.
    #[schema(value_type = String)]
    token: TokenText,
    server: String,
    /// Id of the primitive, or the name by which the server exposes it.
    primitive: String,
    /// `mcp`, `a2a` or `rest` [default: mcp]
    #[serde(default = "mcp")]
    protocol: String,
    /// Arguments of the call, as for `POST /api/policy/explain`.
    #[serde(default)]
    #[schema(value_type = Option<Object>)]
    arguments: Option<Map<String, Value>>,
}

fn mcp() -> String {
    "mcp".to_owned()
}

/// The caller that a token proves.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TokenCaller {
    org: String,
    user: String,
    groups: Vec<String>,
    scopes: Vec<String>,
    /// Id of the token.
    wcit: String,
    /// Name of the issuer.
    issuer: String,
    /// Unix seconds.
    issued_at: u64,
    /// Unix seconds.
    expires_at: u64,
}

/// The answer to a question with a token.
#[derive(Serialize, ToSchema)]
pub struct TokenExplanation {
    /// The answer; `outcome` is `token_refused` if the token proves no caller.
    #[serde(flatten)]
    explanation: Explanation,
    /// The caller that the token proves; none if it is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    caller: Option<TokenCaller>,
}

/// Explains which rule decides a call by the holder of a token, which is evaluated and not kept. The team of a server may ask
/// about its own server, without `arguments`.
#[utoipa::path(post, path = "/api/explain", tag = "policy", request_body = TokenQuestion,
    responses((status = 200, body = TokenExplanation), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn explain_token(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Body(asked): Body<TokenQuestion>,
) -> Result<Json<TokenExplanation>> {
    let is_of_other = admin.role.server().is_some_and(|own| own != asked.server);
    if is_of_other || admin.role.is_installer() || admin.role.is_auditor() {
        return Err(Problem::not_found());
    }
    let permit = state.queues.to_read(&admin).await?;
    let published = newest(&state).await?;
    // For an org, a server that is not offered to it has no issuers.
    let is_there = match admin.role.org() {
        Some(org) => state.admission.offered(&asked.server, org).await?.is_some(),
        None => true,
    };
    let server = published.server(&asked.server).filter(|_| is_there).and_then(|part| part.edge);
    let content = Arc::clone(&published.edge.content);
    let revision = published.gateways_at();
    let TokenQuestion { token, server: name, primitive, protocol, arguments } = asked;
    let work = move || evaluate(&content, server, &token.0);
    let caller = match permit.with_thread().await?.work(work).await? {
        Ok(caller) => caller,
        Err(fault) => return Ok(Json(refused(&fault, revision))),
    };
    let question = Question {
        org: caller.org.clone(),
        user: caller.user.clone(),
        machine: String::new(),
        issuer: caller.issuer.clone(),
        groups: caller.groups.clone(),
        wcit: caller.wcit.clone(),
        scopes: caller.scopes.clone(),
        server: name,
        primitive,
        protocol,
        arguments: arguments.map(Value::Object),
    };
    let Json(explanation) = explain(admin, State(state), Body(question)).await?;
    let Caller { org, user, groups, scopes, wcit, issuer, issued_at, expires_at, .. } = caller;
    let caller = TokenCaller { org, user, groups, scopes, wcit, issuer, issued_at, expires_at };
    Ok(Json(TokenExplanation { explanation, caller: Some(caller) }))
}

/// Returns the caller that a token proves to a server, or to any one if there is none. Revocations are not evaluated.
fn evaluate(content: &EdgeSnapshot, server: Option<EdgeServer>, token: &Secret) -> Result<Caller, String> {
    let issuers = || content.issuers.iter().map(|issuer| issuer.name.clone()).collect();
    let server = match server {
        Some(EdgeServer { name, issuers, audiences, .. }) => {
            EdgeServer { name, issuers, audiences, ..EdgeServer::default() }
        }
        None => EdgeServer { name: ANY.to_owned(), issuers: issuers(), ..EdgeServer::default() },
    };
    let name = server.name.clone();
    let alone = EdgeSnapshot {
        public_url: content.public_url.clone(),
        issuers: content.issuers.clone(),
        servers: vec![server],
        ..EdgeSnapshot::default()
    };
    let snapshot = Snapshot::from_message(alone).map_err(|fault| fault.to_string())?;
    let verified = snapshot.verified(&name, token.expose(), clock::now_ms() / 1_000);
    verified.map_err(|(reason, cause)| match cause {
        Some(cause) => cause.to_string(),
        None => reason.as_str().replace('_', " "),
    })
}

fn refused(fault: &str, revision: u64) -> TokenExplanation {
    let rule = format!("the token is refused: {fault}");
    let explanation = Explanation {
        allowed: false,
        outcome: "token_refused".to_owned(),
        decided_by: json!({ "stage": "identity", "rule": rule }),
        rules: Vec::new(),
        observed: None,
        depends: Vec::new(),
        revocations: Vec::new(),
        limits: Vec::new(),
        switches: Vec::new(),
        primitive: String::new(),
        issuer: String::new(),
        issuers: Vec::new(),
        revision,
    };
    TokenExplanation { explanation, caller: None }
}
