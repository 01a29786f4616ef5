//! Explains why a caller may or may not call a primitive, with the code that decides calls.
//!
//! Answers from the published snapshot: what is enforced, not what was written a moment ago. Keeps true: the team of a
//! server learns how calls to its own server end, and nothing else about an org's policy.

pub(super) mod depends;
mod limits;
mod not_served;
mod question;
mod revoked;
pub(super) mod rules;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use asp_edge::{Caller, MACHINE_ISSUER};
use asp_issuers::admin_role::valid_org;
use asp_proto::snapshot::{Binding, Listing, OrgPart, Primitive, Protocol, ServerPart};
use asp_registry::CompiledServer;
use asp_snapshot::ListedPrimitive;
use asp_snapshot::limits::{EVERY_ORG, LimitedCall};
use asp_snapshot::policy::{
    Decision, Effect, Policy, Ruling, RulingReason, protocol_word, target_issuer, target_word,
};
use asp_xds::published::{Evaluator, Publication};
use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::AdminState;
use super::auth::Admin;
use super::policy::{PrimitiveSelector, Target};
use super::problem::{Code, Problem, Result};
use super::request::Body;
use super::{name_checks, offers};
use crate::policy;
use crate::policy::when;
use depends::Subject;
pub(super) use question::Explanation;
pub use question::Question;
use revoked::{CallerRevocations, TokenHolder};
use rules::{danger, exposure_rule, name_in_protocol, outcome};

/// Maximum number of groups and of scopes in a question; no token has more.
const MAX_GROUPS: usize = asp_edge::MAX_LISTED;

/// Longest wait for the publication of the last write, which usually takes milliseconds.
const PUBLISHED_WITHIN: Duration = Duration::from_secs(1);

/// Explains which rule decides a call. The team of a server may ask about its own server, without `arguments`.
#[utoipa::path(post, path = "/api/policy/explain", tag = "policy", request_body = Question,
    responses((status = 200, body = Explanation), (status = 403, body = Problem), (status = 404, body = Problem)))]
pub async fn explain(
    admin: Admin,
    State(state): State<Arc<AdminState>>,
    Body(mut question): Body<Question>,
) -> Result<Json<Explanation>> {
    let is_team = is_team(&admin, &question)?;
    let protocol = check(&question, is_team)?;
    let permit = state.queues.to_read(&admin).await?;
    let published = newest(&state).await?;
    let is_offered = state.admission.offered(&question.server, &question.org).await?.is_some();
    let of_org = admin.role.org().is_some();
    // For an org, a server that is not offered to it does not exist, and has no issuers.
    let part = published.server(&question.server).filter(|_| is_offered || !of_org);
    let (issuer, issuers) = complete(&state, part.as_ref(), &mut question);
    let exposed_as = replace_exposed(part.as_ref(), &mut question);
    let stored = state.store.server(&question.server).await?.filter(|_| is_offered);
    let is_off = |server: &Arc<CompiledServer>| server.server.name == question.server && server.is_a2a_off();
    let is_a2a_off = protocol == Protocol::A2a && state.compiler.last_compiled().iter().any(is_off);
    let not_served = stored.and_then(|stored| not_served::reason(&stored, &question.primitive, is_a2a_off));
    let asked = Arc::clone(&published);
    // The server's team must not learn about callers of an org to which its server is not offered.
    let revoked = match is_team && !is_offered {
        true => CallerRevocations::default(),
        false => {
            let holder = holder(&state, &question);
            revoked::find(state.store.as_ref(), &published, &holder, admin.role.is_platform()).await?
        }
    };
    let (decided, limits, switches) = permit
        .with_thread()
        .await?
        .work(move || {
            let org = asked.org(&question.org);
            let of_all = asked.org(EVERY_ORG);
            let limits = limits::of(&[&org, &of_all], call_of(&question));
            let part = part.filter(|_| is_offered);
            let switches = part.map(|part| switches(&part, &org)).unwrap_or_default();
            let decided = match not_served {
                Some(rule) => ("not_served", rule).into(),
                None => decide(&asked, &question, protocol, is_offered)?,
            };
            let is_unknown = matches!(decided.outcome, "unknown_server" | "unknown_primitive");
            let hides = of_org && !is_offered && is_unknown;
            Ok::<_, Problem>((if hides { not_offered() } else { decided }, limits, switches))
        })
        .await??;
    let decided = decided.with_revocations(&revoked);
    let (decided, limits) =
        if is_team { (decided.withhold_bindings(), Vec::new()) } else { (decided, limits) };
    let DecisionReport { outcome, by: decided_by, rules, observed, depends } = decided;
    Ok(Json(Explanation {
        allowed: matches!(outcome, "allowed" | "needs_approval"),
        outcome: outcome.to_owned(),
        decided_by,
        rules,
        observed,
        depends,
        revocations: revoked.revocations_json(is_team),
        limits,
        switches,
        primitive: exposed_as.unwrap_or_default(),
        issuer,
        issuers,
        revision: published.gateways_at(),
    }))
}

/// Puts the id in place of an exposed name, and returns it.
fn replace_exposed(part: Option<&ServerPart>, question: &mut Question) -> Option<String> {
    let id = id_of_exposed(part?, &question.primitive)?;
    question.primitive.clone_from(&id);
    Some(id)
}

/// Returns the id of the primitive that a server exposes by this name; `None` if the name is an id there, or unknown.
fn id_of_exposed(part: &ServerPart, name: &str) -> Option<String> {
    let listings = part.server.as_ref()?.listings.as_slice();
    if listings.iter().any(|listing| listing.id == name) {
        return None;
    }
    let exposes = |listing: &&Listing| name_checks::exposed_names(listing).any(|exposed| exposed == name);
    listings.iter().find(exposes).map(|listing| listing.id.clone())
}

/// Returns the protocols of a server, each with whether it is switched on for the org.
fn switches(part: &ServerPart, of_org: &OrgPart) -> Vec<Value> {
    let Some(edge) = &part.edge else { return Vec::new() };
    let all = offers::switches(edge, |protocol| rules::exception(of_org, &edge.name, protocol));
    all.iter().map(|switch| json!(switch)).collect()
}

/// Whether the admin is of the server's team, which may ask about any org; others must have access to the org.
fn is_team(admin: &Admin, question: &Question) -> Result<bool> {
    let is_own = admin.role.server() == Some(question.server.as_str());
    if is_own && valid_org(&question.org) {
        return Ok(true);
    }
    admin.of_org(&question.org).map(|()| false)
}

fn check(question: &Question, is_team: bool) -> Result<Protocol> {
    if question.groups.len() > MAX_GROUPS || question.scopes.len() > MAX_GROUPS {
        return Err(Problem::params(format!("groups and scopes: at most {MAX_GROUPS} each")));
    }
    let names_user = !question.user.is_empty() || !question.issuer.is_empty();
    if !question.machine.is_empty() && names_user {
        return Err(Problem::params("machine goes with neither user nor issuer"));
    }
    if is_team && question.arguments.is_some() {
        let detail =
            "only the org's own admins see which arguments its policy refuses: leave `arguments` out";
        return Err(Problem::new(Code::Forbidden, detail));
    }
    policy::protocol(&question.protocol).map_err(|error| Problem::params(error.to_string()))
}

/// Returns the published snapshot once it includes the last write, or after [`PUBLISHED_WITHIN`] as it is.
pub(super) async fn newest(state: &AdminState) -> Result<Arc<Publication>> {
    let written = state.store.revision().await?;
    let mut published = state.publisher.xds_state();
    if !state.publisher.status().borrow().is_of(written) {
        // Written by another process, or an audit row, for which the publisher is not notified.
        state.publisher.changed();
    }
    let is_in = async {
        state.publisher.wait_until_sent(written).await;
        let _ = published.wait_for(|state| state.snapshot.is_some()).await.map(drop);
    };
    // Err: publication lags; the answer names the revision it is based on.
    let _ = tokio::time::timeout(PUBLISHED_WITHIN, is_in).await;
    let snapshot = published.borrow().snapshot.clone();
    snapshot.ok_or_else(|| Problem::new(Code::Internal, "no snapshot is published yet"))
}

/// Completes the question with its issuer. Returns that issuer if others speak for the org too, and the possible ones if there
/// are several.
fn complete(state: &AdminState, part: Option<&ServerPart>, question: &mut Question) -> (String, Vec<String>) {
    if !question.machine.is_empty() {
        question.user = std::mem::take(&mut question.machine);
        question.issuer = MACHINE_ISSUER.to_owned();
    }
    if !question.issuer.is_empty() {
        return Default::default();
    }
    let accepted = part.and_then(|part| part.edge.as_ref()).map(|edge| edge.issuers.as_slice());
    let accepted = accepted.unwrap_or_default();
    let mut found = name_checks::issuers_of(state, &question.org);
    let of_org = found.len();
    found.retain(|name| accepted.contains(name));
    match found.as_mut_slice() {
        [only] => {
            question.issuer = std::mem::take(only);
            let assumed = if of_org > 1 { question.issuer.clone() } else { String::new() };
            (assumed, Vec::new())
        }
        _ => (String::new(), found),
    }
}

/// Returns the caller with the `iss` values that its token may have.
fn holder<'a>(state: &AdminState, question: &'a Question) -> TokenHolder<'a> {
    let Question { org, user, wcit, issuer, .. } = question;
    let issuers = match issuer.as_str() {
        MACHINE_ISSUER => vec![MACHINE_ISSUER.to_owned()],
        name => {
            let clients = &state.compiler.trust().in_force().clients;
            let named = clients.iter().filter(|known| name.is_empty() || known.name == name);
            named.map(|known| known.iss.clone()).collect()
        }
    };
    TokenHolder { org, user, wcit, issuers }
}

fn call_of(question: &Question) -> LimitedCall<'_> {
    let Question { server, primitive, user, wcit, issuer, groups, .. } = question;
    LimitedCall { server, primitive, user, wcit, issuer, groups }
}

struct DecisionReport {
    outcome: &'static str,
    by: Value,
    rules: Vec<Value>,
    observed: Option<Value>,
    depends: Vec<Value>,
}

impl DecisionReport {
    /// Replaces the outcome by that of a revoked token or a blocked caller, who is refused before any policy of the org
    /// is evaluated.
    fn with_revocations(self, revoked: &CallerRevocations) -> DecisionReport {
        let (outcome, rule) = match (revoked.block, revoked.token) {
            (true, _) => ("blocked", "the caller is blocked"),
            (false, true) => ("token_revoked", "the token is revoked"),
            (false, false) => return self,
        };
        match self.outcome {
            "not_served" | "unknown_server" | "unknown_primitive" | "not_offered" => self,
            _ => (outcome, json!({ "stage": "identity", "rule": rule })).into(),
        }
    }

    /// Withholds the content of bindings, which only the org may see.
    fn withhold_bindings(self) -> DecisionReport {
        let stage = self.by.get("stage").and_then(Value::as_str);
        let is_orgs = matches!(stage, Some("bindings" | "arguments"));
        let by = if is_orgs { json!({ "stage": "bindings", "withheld": true }) } else { self.by };
        (self.outcome, by).into()
    }
}

impl From<(&'static str, Value)> for DecisionReport {
    fn from((outcome, by): (&'static str, Value)) -> DecisionReport {
        DecisionReport { outcome, by, rules: Vec::new(), observed: None, depends: Vec::new() }
    }
}

/// Returns the same answer to an org for a primitive that is not offered and for one that does not exist.
fn not_offered() -> DecisionReport {
    ("not_offered", json!({ "stage": "offer", "rule": "no such primitive is offered to the org" })).into()
}

fn decide(
    published: &Publication,
    question: &Question,
    protocol: Protocol,
    is_offered: bool,
) -> Result<DecisionReport> {
    let Some(part) = published.server(&question.server) else {
        return Ok(("unknown_server", json!({ "stage": "resolve" })).into());
    };
    let listings = part.server.as_ref().map(|server| server.listings.as_slice()).unwrap_or_default();
    let listed = listings
        .iter()
        .find(|listing| listing.id == question.primitive && !name_in_protocol(listing, protocol).is_empty());
    let primitive = listed.and_then(|listing| {
        let mut all = part.primitives.iter();
        let found = all.find(|known| known.id == listing.id && known.version == listing.version);
        Some((found?, listing))
    });
    let Some((primitive, listing)) = primitive else {
        return Ok(("unknown_primitive", json!({ "stage": "resolve" })).into());
    };
    if !is_offered {
        return Ok(not_offered());
    }
    let of_org = published.org(&question.org);
    let Evaluator { edge, policy } = published.evaluator(&part, &of_org).map_err(|fault| {
        tracing::error!(%fault, "the published snapshot cannot be read and an explain request got an internal error");
        Problem::new(Code::Internal, "")
    })?;
    let speaks = part.edge.as_ref().is_some_and(|edge| edge.protocols().any(|spoken| spoken == protocol));
    if !speaks || !edge.exposed(&question.server, &question.org, protocol) {
        return Ok(("not_exposed", exposure_rule(speaks, &of_org, &question.server, protocol)).into());
    }
    let caller = caller(question);
    let required = [edge.required_scopes(&question.server), primitive.scopes.as_slice()].concat();
    let missing: BTreeSet<&String> = required.iter().filter(|scope| !caller.scopes.contains(scope)).collect();
    let call = EvaluatedCall { policy: &policy, org: &of_org, caller: &caller, primitive, listing, protocol };
    let ruling = policy.rule(&caller, primitive, protocol);
    Ok(match ruling {
        Ruling::Denied(rule) => call.with_rules(("denied", binding_rule(&rule)), &question.arguments),
        Ruling::Allowed(_) | Ruling::NeedsApproval if !missing.is_empty() => {
            let (scopes, given) = (&required, &caller.scopes);
            let by = json!({ "stage": "scopes", "required": scopes, "given": given, "missing": missing });
            ("insufficient_scope", by).into()
        }
        Ruling::Allowed(_) | Ruling::NeedsApproval if question.arguments.is_some() => {
            call.with_arguments(question.arguments.clone().unwrap_or_default())
        }
        Ruling::Allowed(rule) => call.without_arguments(("allowed", binding_rule(&rule))),
        Ruling::NeedsApproval => call.without_arguments(("needs_approval", danger())),
    })
}

/// A caller with the primitive that it would call.
struct EvaluatedCall<'a> {
    policy: &'a Policy,
    org: &'a OrgPart,
    caller: &'a Caller,
    primitive: &'a Primitive,
    listing: &'a Listing,
    protocol: Protocol,
}

impl EvaluatedCall<'_> {
    /// Decides as a gateway does once it has the arguments: validates them, with their defaults filled in.
    fn with_arguments(&self, mut arguments: Value) -> DecisionReport {
        let input = ListedPrimitive::build(self.primitive, self.listing).ok().and_then(|entry| entry.input);
        if let Some(schema) = input {
            schema.apply_defaults(&mut arguments);
            if let Err(misfit) = schema.check(&arguments) {
                let by = json!({ "stage": "input", "pointer": misfit.pointer, "rule": misfit.message });
                return ("invalid_arguments", by).into();
            }
        }
        let decision = self.policy.decide(self.caller, self.primitive, self.protocol, &arguments);
        let Decision { effect, by, observed } = decision;
        let by = match by {
            None if effect == Effect::Approve => danger(),
            None => binding_rule(&RulingReason::Default),
            Some(binding) if binding.when.is_empty() => binding_rule(&RulingReason::Binding(binding)),
            Some(binding) => json!({ "stage": "arguments", "binding": body(&binding, false) }),
        };
        let observed =
            observed.map(|seen| json!({ "outcome": outcome(seen.effect), "binding": body(&seen.by, true) }));
        let decided = self.with_rules((outcome(effect), by), &Some(arguments));
        DecisionReport { observed, ..decided }
    }

    /// Decides about a call whose arguments are not known: by a binding that requires an approval of all calls, else as
    /// `otherwise` says.
    fn without_arguments(&self, otherwise: (&'static str, Value)) -> DecisionReport {
        let decision = self.policy.decide_without_arguments(self.caller, self.primitive, self.protocol);
        match decision {
            Decision { effect: Effect::Approve, by: Some(binding), .. } => {
                let by = binding_rule(&RulingReason::Binding(binding));
                self.with_rules(("needs_approval", by), &None)
            }
            _ => self.with_rules(otherwise, &None),
        }
    }

    fn with_rules(&self, decided: (&'static str, Value), arguments: &Option<Value>) -> DecisionReport {
        let mut rules = Vec::new();
        let looked_at = arguments.as_ref().unwrap_or(&Value::Null);
        let whose = (self.caller, self.primitive);
        self.policy.concerning(whose, self.protocol, looked_at, |rule| {
            let holds = (arguments.is_some() || rule.binding.when.is_empty()).then_some(rule.holds);
            rules.push(json!({ "binding": body(rule.binding, rule.observed), "holds": holds }));
        });
        let outcome = |caller: &Caller| self.outcome(caller, arguments.as_ref());
        let asked = Subject {
            caller: self.caller,
            primitive: &self.primitive.id,
            has_arguments: arguments.is_some(),
        };
        let depends = depends::of(&self.org.bindings, &asked, outcome);
        DecisionReport { rules, depends, ..decided.into() }
    }

    /// Returns the outcome for another caller.
    fn outcome(&self, caller: &Caller, arguments: Option<&Value>) -> &'static str {
        if let Some(arguments) = arguments {
            return outcome(self.policy.decide(caller, self.primitive, self.protocol, arguments).effect);
        }
        match self.policy.rule(caller, self.primitive, self.protocol) {
            Ruling::Denied(_) => "denied",
            // A binding without conditions may require an approval.
            Ruling::Allowed(_) | Ruling::NeedsApproval => {
                outcome(self.policy.decide_without_arguments(caller, self.primitive, self.protocol).effect)
            }
        }
    }
}

fn binding_rule(rule: &RulingReason) -> Value {
    match rule {
        RulingReason::Default => {
            json!({ "stage": "bindings", "rule": "no binding matches: allowed when exposed" })
        }
        RulingReason::Binding(binding) => json!({ "stage": "bindings", "binding": body(binding, false) }),
    }
}

/// Returns a binding in the form of the admin API.
fn body(binding: &Binding, observe: bool) -> Value {
    let target = Target {
        kind: target_word(binding).to_owned(),
        id_or_pattern: binding.target.clone(),
        issuer: target_issuer(binding).to_owned(),
    };
    let protocol = protocol_word(binding).to_owned();
    let written = super::policy::Binding {
        target,
        primitive: PrimitiveSelector { name: binding.primitive.clone(), protocol },
        allowed: Effect::of(binding) != Effect::Deny,
        when: binding.when.iter().map(when::body).collect(),
        approval: Effect::of(binding) == Effect::Approve,
        approvers: super::policy::Approvers::of(&binding.approvers, &binding.approvers_issuer),
        observe,
        name: binding.name.clone(),
    };
    // Texts, numbers and flags can always be encoded as JSON.
    serde_json::to_value(written).unwrap_or_default()
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
        issuer: question.issuer.clone(),
        issued_at: 0,
        expires_at: u64::MAX,
    }
}
