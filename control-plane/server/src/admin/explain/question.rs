//! A question about a hypothetical call, and its answer, in the form of the admin API.
//!
//! Keeps true: members only grow; what an answer leaves out for the team of a server is stated at its member.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

/// A hypothetical call.
#[derive(Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Question {
    pub org: String,
    /// Name of a user. Excludes `machine`
    #[serde(default)]
    pub user: String,
    /// Name of a machine. Excludes `user`
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub machine: String,
    /// Name of the user's issuer [default: the server's only issuer for the org]
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    #[serde(default)]
    pub groups: Vec<String>,
    #[serde(default)]
    pub wcit: String,
    #[serde(default)]
    pub scopes: Vec<String>,
    pub server: String,
    /// Id of the primitive, or the name by which the server exposes it.
    pub primitive: String,
    /// `mcp`, `a2a` or `rest`
    pub protocol: String,
    /// Arguments of the call, for bindings with `when`; without arguments, the answer does not say how these decide.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub arguments: Option<Value>,
}

/// The answer to a question.
#[derive(Serialize, Deserialize, ToSchema)]
pub struct Explanation {
    /// Whether the call would be allowed, subject to rate limits.
    pub allowed: bool,
    /// `allowed`, `needs_approval`, `not_served`, `unknown_server`, `unknown_primitive`, `not_offered`, `not_exposed`,
    /// `denied`, `insufficient_scope`, `token_revoked`, `blocked` or `invalid_arguments`. An admin of an org gets
    /// `not_offered` for unknown names, too, because they do not exist for the org
    pub outcome: String,
    /// Stage and rule that decided. The team of the server gets `withheld: true` instead of an org's bindings
    #[serde(rename = "decidedBy")]
    #[schema(value_type = Object)]
    pub decided_by: Value,
    /// Bindings with `when`, `approval` or `observe` that name the caller and the primitive. `holds` of each is whether its
    /// conditions hold; null without arguments
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub rules: Vec<Value>,
    /// Outcome if observed bindings were enforced, if one of them would decide
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<Object>)]
    pub observed: Option<Value>,
    /// Groups and tokens (`group` or `wcit`, as in a binding) that the question does not name and that would change the
    /// `outcome`; with `when: true` for some arguments only. At most 20
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub depends: Vec<Value>,
    /// Revocations of the caller's tokens, at most 20. Those of `type` `user` and `org` revoke tokens issued up to
    /// `issuedUntil` (Unix seconds); all are kept `until` (Unix milliseconds). A block (`block_user`, `block_org`) has
    /// neither. `by` is `platform` or `org`, `revocation` the id. The team of the server gets only `type` and
    /// `issuedUntil`
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub revocations: Vec<Value>,
    /// The rate limits of the org, at most 8, and of all orgs that the call would draw from, most specific first, each with
    /// its `level` and its `buckets`: `one`, or one for each user, token or both
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub limits: Vec<Value>,
    /// The server's protocols, each with whether it is switched on for the org, in the form of `on` of
    /// `GET /api/registry/orgs/{org}/servers/{server}`; none if it is not offered
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<Object>)]
    pub switches: Vec<Value>,
    /// Id of the primitive, if the question has its exposed name
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub primitive: String,
    /// Issuer that was assumed, as the server's only one for the org, if others speak for the org too: a binding that allows
    /// the user or token must name it
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub issuer: String,
    /// Possible issuers, if none was named and the server has several for the org; bindings and limits that name one of
    /// them were ignored
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issuers: Vec<String>,
    /// Revision of the snapshot that was evaluated.
    pub revision: u64,
}
