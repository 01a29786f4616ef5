//! What an org's own admin gives to machines: neither scopes and groups that the platform does not let them have, nor the
//! word of a person.

use anyhow::{Result, ensure};
use asp_e2e::http1::{self, Request};
use serde_json::{Value, json};

use super::specs::{self, ECHO};
use super::{CORPORATE, refusal};
use crate::message::{modern_of, rest};
use crate::policy::becomes;
use crate::trial::{Shared, trials};

const KEYS: &str = "/api/machines/orgs/acme/keys";
const BOUND: &str = "/api/machines/orgs/acme/bound";
/// Takes tokens of the company, and keys of machines.
const WITH_KEYS: &str = "{schemes: [jwt, psk], issuers: [corporate]}";

trials! { attacks:
    an_org_gives_its_machines_no_scope_and_no_group_beyond_its_bound,
    a_machine_approves_none_of_its_own_calls,
}

/// The company gives nobody `payments:admin`: no admin of an org gives it to a machine.
async fn an_org_gives_its_machines_no_scope_and_no_group_beyond_its_bound(shared: &Shared) -> Result<()> {
    let world = shared.attacked().await?;
    let scoped = ECHO.replace(
        "security: {riskClass: low}",
        "security: {riskClass: low, auth: {type: jwt, scopes: ['payments:admin']}}",
    );
    let pay = specs::tool("payments.pay", "read_only", &scoped);
    world.stored("payments", &specs::server("payments", WITH_KEYS, &[pay])).await?;
    let wide = json!({"machine": "x", "scopes": ["payments:admin"], "ttlSeconds": 3600});
    let grouped = json!({"machine": "x", "groups": ["finance"], "ttlSeconds": 3600});
    for body in [&wide, &grouped] {
        let refused = world.ask("org:acme", "POST", KEYS, body).await?;
        ensure!(refusal(&refused) == (409, "limit_reached".into()), "{}", refused.text());
    }
    let itself = world.ask("org:acme", "PUT", BOUND, &json!({"scopes": ["payments:admin"]})).await?;
    ensure!(refusal(&itself) == (403, "forbidden".into()), "{}", itself.text());
    let plain = world.key("plain", &[]).await?;
    let call = |key: &str| specs::call("payments", "payments.pay", key);
    for address in world.doors() {
        becomes(address, call(&plain), 403, Some("insufficient_scope")).await?;
    }

    world.tell("platform", "PUT", BOUND, &json!({"scopes": ["payments:admin"]})).await?;
    let key = world.key("payer", &["payments:admin"]).await?;
    world.carried_out(&call(&key)).await?;
    let refused = world.ask("org:acme", "POST", KEYS, &grouped).await?;
    ensure!(refusal(&refused) == (409, "limit_reached".into()), "a scope is no group: {}", refused.text());
    // Narrowed again, the bound holds for keys that were made before.
    world.tell("platform", "DELETE", BOUND, &Value::Null).await?;
    for address in world.doors() {
        becomes(address, call(&key), 401, Some("token_invalid")).await?;
    }
    Ok(())
}

/// A call that a person must approve: a machine is not asked, whatever it says that it can.
async fn a_machine_approves_none_of_its_own_calls(shared: &Shared) -> Result<()> {
    let world = shared.attacked().await?;
    let wipe = specs::tool("vault.wipe", "destructive", ECHO);
    world.stored("vault", &specs::server("vault", WITH_KEYS, &[wipe])).await?;
    let key = world.key("robot", &[]).await?;
    let by_machine = "/vault/rest/tools/vault.wipe/calls/by-machine";
    let put = rest("PUT", by_machine, &key, &json!({"message": "gone"}));
    for address in world.doors() {
        becomes(address, put.clone(), 403, Some("insufficient_scope")).await?;
    }
    let approved = json!({"result": {"action": "accept", "content": {"approve": true}}});
    let advance = rest("POST", &format!("{by_machine}/advance"), &key, &approved);
    for address in world.doors() {
        let answer = http1::send(address, &advance).await?;
        ensure!(answer.status == 404, "there is nothing to approve: {} {}", answer.status, answer.text());
    }
    world.ends_with(&asking(&key), "insufficient_scope").await?;

    let token = world.token(&CORPORATE, json!({}));
    let by_person = "/vault/rest/tools/vault.wipe/calls/by-person";
    let asks = patient(rest("PUT", by_person, &token, &json!({"message": "gone"})));
    let asks = http1::send(world.stack.edge(), &asks).await?.json()?;
    ensure!(asks["status"] == "awaitingElicitationResult", "{asks}");
    let mut approved = approved;
    approved["serverData"] = asks["serverData"].clone();
    let advance = patient(rest("POST", &format!("{by_person}/advance"), &token, &approved));
    let done = http1::send(world.stack.edge(), &advance).await?.json()?;
    ensure!(done["status"] == "success", "{done}");
    ensure!(done["result"]["structuredContent"]["message"] == "gone", "{done}");
    Ok(())
}

/// A call over MCP of a client that can ask a person.
fn asking(key: &str) -> Request {
    let params = json!({"name": "vault.wipe", "arguments": {"message": "gone"}});
    let abilities = json!({"elicitation": {}});
    let mut request = modern_of(key, ("tools/call", params), &abilities, &[("mcp-name", "vault.wipe")]);
    request.target = "/vault/mcp".into();
    request
}

/// Holds the answer open until the call has ended or asks something.
fn patient(mut request: Request) -> Request {
    request.headers.push(("prefer".into(), b"wait=20".to_vec()));
    request
}
