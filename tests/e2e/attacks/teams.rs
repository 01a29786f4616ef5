//! Teams that say of themselves whose they are: an id belongs to the server that stored it first, and which tokens a
//! server takes its issuers list.

use anyhow::{Result, ensure};
use asp_e2e::http1;
use serde_json::{Value, json};

use super::specs::{self, ECHO, OF_COMPANY};
use super::{CONTRACTORS, CORPORATE, refusal};
use crate::policy::becomes;
use crate::trial::{Shared, trials};

/// A server with this version of `cc.pay`, whose owner anybody can copy.
fn pay(server: &str, version: &str) -> Value {
    let (id, spec) = specs::tool("cc.pay", "destructive", ECHO);
    let spec = spec.replace("version: 1.0.0", &format!("version: {version}"));
    specs::server(server, OF_COMPANY, &[(id, spec)])
}

trials! { attacks:
    a_copied_owner_takes_no_id_of_another_server,
    a_server_takes_no_token_for_an_audience_that_its_issuer_does_not_list,
}

/// An org allowed `cc.pay` of the team that has it; nobody else gets that right by the same id.
async fn a_copied_owner_takes_no_id_of_another_server(shared: &Shared) -> Result<()> {
    let world = shared.attacked().await?;
    world.stored("pay", &pay("pay", "1.4.0")).await?;
    let allow = json!({
        "target": {"type": "user", "idOrPattern": "alice", "issuer": CORPORATE.name},
        "primitive": {"name": "cc.pay"},
        "allowed": true,
    });
    world.tell("org:acme", "PUT", "/api/policy/orgs/acme/bindings", &allow).await?;
    let alice = world.token(&CORPORATE, json!({"sub": "alice"}));
    world.carried_out(&specs::call("pay", "cc.pay", &alice)).await?;

    // A later version, and the one that the team would deploy next.
    for version in ["9.0.0", "1.5.0"] {
        let refused = world.store("copycat", &pay("copycat", version)).await?;
        ensure!(refusal(&refused) == (422, "invalid_primitives".into()), "{}", refused.text());
        ensure!(refused.text().contains("belongs to another server"), "{}", refused.text());
    }
    for address in world.doors() {
        let answer = http1::send(address, &specs::call("copycat", "cc.pay", &alice)).await?;
        ensure!(answer.reason().as_deref() == Some("unknown_server"), "{}", answer.text());
    }
    world.stored("pay", &pay("pay", "1.5.0")).await?;

    let grant = "/api/registry/primitives/cc.pay/servers/copycat";
    let itself = world.ask("server:copycat", "PUT", grant, &Value::Null).await?;
    ensure!(refusal(&itself) == (404, "not_found".into()), "{}", itself.text());
    world.tell("platform", "PUT", grant, &Value::Null).await?;
    world.stored("copycat", &pay("copycat", "9.0.0")).await?;
    world.carried_out(&specs::call("copycat", "cc.pay", &alice)).await
}

/// Whoever gets users' tokens for another service is none of these users here.
async fn a_server_takes_no_token_for_an_audience_that_its_issuer_does_not_list(
    shared: &Shared,
) -> Result<()> {
    const SHOP: &str = "https://shop.example.com";
    let world = shared.attacked().await?;
    let server = |name: &str, more: &str| {
        let tool = specs::tool(&format!("{name}.buy"), "read_only", ECHO);
        specs::server(name, &format!("{{schemes: [jwt], issuers: [contractors]{more}}}"), &[tool])
    };
    let stall = server("stall", &format!(", audiences: [\"{SHOP}\"]"));
    let refused = world.store("stall", &stall).await?;
    ensure!(refusal(&refused) == (422, "invalid_primitives".into()), "{}", refused.text());
    ensure!(refused.text().contains("does not list"), "{}", refused.text());
    world.stored("booth", &server("booth", "")).await?;
    let own = world.token(&CONTRACTORS, json!({}));
    let of_shop = world.token(&CONTRACTORS, json!({"aud": SHOP}));
    world.carried_out(&specs::call("booth", "booth.buy", &own)).await?;
    for address in world.doors() {
        let replayed = specs::call("booth", "booth.buy", &of_shop);
        becomes(address, replayed, 401, Some("token_invalid")).await?;
    }

    let mut document = CONTRACTORS.document();
    document["serverAudiences"] = json!({"stall": [SHOP]});
    world.put_issuer(CONTRACTORS.name, &document).await?;
    world.stored("stall", &stall).await?;
    world.carried_out(&specs::call("stall", "stall.buy", &of_shop)).await?;
    for address in world.doors() {
        let answer = http1::send(address, &specs::call("booth", "booth.buy", &of_shop)).await?;
        ensure!(answer.status == 401, "it is listed for the other server: {}", answer.text());
    }
    Ok(())
}
