//! Attacks on a platform of several teams and tenants. Each fails with the right answer, and its legitimate counterpart
//! works beside it: what the platform's admin or the operator's list permits.
//!
//! | attack | trial |
//! |---|---|
//! | an org's admin opens a hidden server to his own org | `policy::an_org_reaches_a_hidden_server_while_it_is_offered_to_it` |
//! | an org's admin gives his machines scopes and groups | [`machines::an_org_gives_its_machines_no_scope_and_no_group_beyond_its_bound`] |
//! | a team acts as its callers at another team's service | [`deputies::a_teams_spec_acts_as_its_callers_at_no_service_of_another_team`]; by exchange: `on_behalf::a_callers_token_is_exchanged_at_its_issuer`; plugins: `control-plane/gateway/tests/it/plugin/tokens.rs`, `a_plugins_token_has_one_audience_or_there_is_none` |
//! | a team takes another team's id by a copied owner | [`teams::a_copied_owner_takes_no_id_of_another_server`] |
//! | a team takes tokens that are for another service | [`teams::a_server_takes_no_token_for_an_audience_that_its_issuer_does_not_list`] |
//! | unknown opaque tokens lock known callers out | [`floods::a_flood_of_unknown_opaque_tokens_keeps_no_known_caller_out`]; streams that are reset: `control-plane/gateway/tests/it/issuers/asked.rs`, `a_client_that_goes_away_leaves_no_open_question_behind` |
//! | an org registers a certificate that it has seen | [`certificates::a_certificate_that_was_seen_makes_nobody_its_machine`] |
//! | floods without a valid token cost checks and keep a valid token out | [`floods::a_flood_without_a_valid_token_ends_at_the_edge_and_a_valid_token_beside_it_does_not`] |
//! | logins at one server starve those of others | [`floods::a_slow_issuer_and_a_flood_of_refreshes_hold_up_no_other_login`] |
//! | a machine approves its own call | [`machines::a_machine_approves_none_of_its_own_calls`] |
//! | a spec uses another team's private service | [`deputies::a_teams_spec_acts_as_its_callers_at_no_service_of_another_team`]; models' keys: `control-plane/gateway/tests/it/delegates/model.rs`, `a_key_serves_the_delegates_that_the_operator_names` |
//! | a plugin's own DNS leads into a private network | `runtime/supervisor/src/egress/tests.rs`, `a_private_address_is_reached_where_the_operator_lists_its_network`; `runtime/supervisor/src/egress/rules.rs`, `a_private_address_belongs_to_the_name_that_the_operator_pairs_it_with` |
//! | a local process has Envoy send it clients' requests | [`subscribers::a_process_without_a_certificate_leads_no_requests_off_this_machine`]; with certificates: `peers::a_stolen_certificate_makes_no_gateway` |
//! | a namesake at another issuer, or a machine, has a user's rights | [`namesakes::a_namesake_of_another_issuer_has_nobodys_rights`] |
//! | a CI job of any branch deploys | [`workloads::a_job_of_an_unprotected_branch_deploys_nothing`] |
//! | `asp` shows its tokens to proxies, in clear and after redirects | [`commands::asp_shows_its_tokens_to_no_proxy_and_after_no_redirect`] |

mod certificates;
mod commands;
mod deputies;
mod floods;
mod machines;
mod namesakes;
mod service;
mod specs;
mod subscribers;
mod teams;
mod workloads;

use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait;
use asp_edge::testkit::{Keys, Recipe, mint};
use libtest_mimic::Trial;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tempfile::TempDir;

use self::service::{Heard, Reply, Service};
use crate::policy::{admin, as_role};
use crate::trial::Shared;

pub(crate) fn trials(shared: &Shared) -> Vec<Trial> {
    const MODULES: &[fn(&Shared) -> Vec<Trial>] = &[
        machines::trials,
        deputies::trials,
        teams::trials,
        floods::trials,
        subscribers::trials,
        namesakes::trials,
        workloads::trials,
        commands::trials,
        certificates::trials,
    ];
    MODULES.iter().flat_map(|trials| trials(shared)).collect()
}

/// An issuer of callers whose key the tests have.
struct Issuer {
    name: &'static str,
    iss: &'static str,
    /// One of [`Keys`].
    key: &'static str,
}

const CORPORATE: Issuer = Issuer { name: "corporate", iss: "https://login.corporate.example", key: "dev" };
const CONTRACTORS: Issuer =
    Issuer { name: "contractors", iss: "https://login.contractors.example", key: "other" };

impl Issuer {
    /// The issuer as the admin API takes it, for both orgs.
    fn document(&self) -> Value {
        let keys = json!({"keys": [jwk(self.key)]});
        json!({"iss": self.iss, "orgs": ["acme", "globex"], "algs": ["ES256"], "jwks": keys})
    }
}

fn jwk(key: &str) -> Value {
    let mut jwk = Keys::shared().jwk(key);
    jwk["kid"] = json!(key);
    jwk
}

/// A platform with two issuers and two orgs, acme and globex, whose teams run servers of their own. The service of the team
/// `crm` is private: the operator opens it to the server `crm` below `/v1`, and to the server `weather` below `/open`.
pub(crate) struct World {
    stack: Stack,
    crm: Service,
    /// What issuers do beside signing: token endpoints, and introspection.
    issuer: Service,
    _secrets: TempDir,
}

impl World {
    pub(crate) async fn start() -> Result<World> {
        let crm = Service::start(|_| Reply::Says(json!({"done": true}))).await?;
        let issuer = Service::start(endpoint).await?;
        let secrets = tempfile::tempdir()?;
        let (secret, credentials) = (secrets.path().join("secret"), secrets.path().join("credentials.json"));
        std::fs::write(&secret, "gateways-secret")?;
        let basic = json!({"user": "gateway", "passwordFile": secret});
        let credential = json!({"origin": issuer.origin(), "basic": basic, "for": []});
        std::fs::write(&credentials, json!({ "sso": credential }).to_string())?;
        let service = crm.origin();
        let upstreams =
            format!("crm.internal={service}/v1;for=crm/*,crm.internal={service}/open;for=weather/*");
        let environment = vec![
            ("ASP_UPSTREAMS", upstreams),
            ("ASP_TOKEN_AUDIENCES", "http://crm.internal;for=crm/*".to_owned()),
            ("ASP_ISSUER_ORIGINS", issuer.origin()),
            ("ASP_CREDENTIALS", credentials.display().to_string()),
        ];
        let stack = Stack::start(Options { environment, ..Options::repository()? }).await?;
        let world = World { stack, crm, issuer, _secrets: secrets };
        for issuer in [CORPORATE, CONTRACTORS] {
            world.put_issuer(issuer.name, &issuer.document()).await?;
        }
        Ok(world)
    }

    /// Ends the platform, and judges its logs.
    pub(crate) async fn stop(self, expected: &[&str]) -> Result<()> {
        self.stack.stop(expected).await
    }

    /// Through Envoy, and at the gateway behind it.
    fn doors(&self) -> [SocketAddr; 2] {
        [self.stack.edge(), self.stack.gateway()]
    }

    fn public_url(&self) -> String {
        format!("http://{}", self.stack.edge())
    }

    /// A token of an issuer for the platform, of org acme, with these claims over the usual ones.
    fn token(&self, issuer: &Issuer, claims: Value) -> String {
        let mut all = json!({"iss": issuer.iss, "groups": null});
        for (claim, value) in claims.as_object().into_iter().flatten() {
            all[claim] = value.clone();
        }
        let claims = all.as_object().cloned().unwrap_or_default();
        let recipe = Recipe { claims, sign: Some(issuer.key.to_owned()), ..Recipe::default() };
        mint(&recipe, Keys::shared(), now(), &self.public_url())
    }

    async fn put_issuer(&self, name: &str, document: &Value) -> Result<()> {
        let path = format!("/api/issuers/clients/{name}");
        admin(&self.stack, "PUT", &path, &document.to_string()).await.map(drop)
    }

    /// Sends a request to the admin API.
    async fn ask(&self, role: &str, method: &str, path: &str, body: &Value) -> Result<Response> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        as_role(&self.stack, role, method, path, &body).await
    }

    /// Sends a request to the admin API, which must take it.
    async fn tell(&self, role: &str, method: &str, path: &str, body: &Value) -> Result<Value> {
        let answer = self.ask(role, method, path, body).await?;
        let is_taken = (200..300).contains(&answer.status);
        ensure!(is_taken, "{role}: {method} {path}: {} {}", answer.status, answer.text());
        answer.json()
    }

    /// Stores a server, as its team does; the answer.
    async fn store(&self, name: &str, files: &Value) -> Result<Response> {
        let path = format!("/api/registry/servers/{name}");
        self.ask(&format!("server:{name}"), "PUT", &path, files).await
    }

    /// The same, which must be taken.
    async fn stored(&self, name: &str, files: &Value) -> Result<()> {
        let answer = self.store(name, files).await?;
        ensure!(answer.status == 200, "{name}: {} {}", answer.status, answer.text());
        Ok(())
    }

    /// A key of a machine of acme, which an admin of acme makes.
    async fn key(&self, machine: &str, scopes: &[&str]) -> Result<String> {
        let body = json!({"machine": machine, "scopes": scopes, "ttlSeconds": 3600});
        let made = self.tell("org:acme", "POST", "/api/machines/orgs/acme/keys", &body).await?;
        made["key"].as_str().map(str::to_owned).context("a key")
    }

    /// Waits until a call is carried out, through Envoy and at the gateway.
    async fn carried_out(&self, call: &Request) -> Result<()> {
        self.both(call, "the call is carried out", is_carried_out).await
    }

    /// Waits until a call ends with this reason in the result of its tool, through Envoy and at the gateway.
    async fn ends_with(&self, call: &Request, reason: &str) -> Result<()> {
        let what = format!("the call ends with {reason}");
        self.both(call, &what, |answer| reason_of(answer).as_deref() == Some(reason)).await
    }

    /// Waits until a call is refused in these words, through Envoy and at the gateway.
    async fn refused(&self, call: &Request, words: &str) -> Result<()> {
        let is_refused = |answer: &Response| !is_carried_out(answer) && answer.text().contains(words);
        self.both(call, &format!("the call is refused: {words}"), is_refused).await
    }

    async fn both(&self, call: &Request, what: &str, holds: impl Fn(&Response) -> bool) -> Result<()> {
        for address in self.doors() {
            let last = Mutex::new(String::new());
            wait::until(&format!("{address}: {what}"), wait::CONVERGE, || async {
                let answer = http1::send(address, call).await;
                *last.lock() = format!("{answer:?}");
                holds(&answer.ok()?).then_some(())
            })
            .await
            .with_context(|| last.lock().clone())?;
        }
        Ok(())
    }
}

fn is_carried_out(answer: &Response) -> bool {
    let Ok(answer) = answer.json() else { return false };
    answer["result"]["structuredContent"].is_object() && answer["result"]["isError"] != true
}

/// The reason for which a tool did not run.
fn reason_of(answer: &Response) -> Option<String> {
    answer.json().ok()?["result"]["_meta"]["asp/reason"].as_str().map(str::to_owned)
}

/// The refusal of an admin's request: its status and its code.
fn refusal(answer: &Response) -> (u16, String) {
    let code = answer.json().ok().and_then(|body| body["code"].as_str().map(str::to_owned));
    (answer.status, code.unwrap_or_default())
}

/// An issuer that knows the opaque tokens that begin with `known-`, and whose slow token endpoint never answers.
fn endpoint(heard: &Heard) -> Reply {
    let now = now();
    match heard.target.as_str() {
        "/introspect" if heard.body.contains("token=known-") => Reply::Says(json!({
            "active": true, "sub": "alice", "org": "acme", "aud": "asp", "iat": now - 5, "exp": now + 600,
        })),
        "/introspect" => Reply::Says(json!({"active": false})),
        "/slow/token" => Reply::Hangs,
        _ => Reply::Says(json!({"access_token": "t", "token_type": "Bearer", "expires_in": 60})),
    }
}

/// Unix seconds.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs()
}
