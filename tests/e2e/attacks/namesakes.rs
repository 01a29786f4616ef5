//! Users, groups and machines of one name: policy that names an issuer is about that issuer's alone.

use anyhow::Result;
use serde_json::{Value, json};

use super::specs::{self, ECHO};
use super::{CONTRACTORS, CORPORATE, Issuer, World};
use crate::trial::{Shared, trials};

const BINDINGS: &str = "/api/policy/orgs/acme/bindings";

trials! { attacks: a_namesake_of_another_issuer_has_nobodys_rights }

/// The company's alice and its finance may call; their namesakes among the contractors and the machines may not.
async fn a_namesake_of_another_issuer_has_nobodys_rights(shared: &Shared) -> Result<()> {
    let world = shared.attacked().await?;
    let auth = "{schemes: [jwt, psk], issuers: [corporate, contractors]}";
    let tools = ["ledger.post", "ledger.close"].map(|id| specs::tool(id, "destructive", ECHO));
    world.stored("ledger", &specs::server("ledger", auth, &tools)).await?;
    allow(world, ("user", "alice"), "ledger.post").await?;
    allow(world, ("group", "finance"), "ledger.close").await?;

    let alice = |issuer: &Issuer| world.token(issuer, json!({"sub": "alice"}));
    let of_finance = |issuer: &Issuer| world.token(issuer, json!({"sub": "bob", "groups": ["finance"]}));
    let post = |token: &str| specs::call("ledger", "ledger.post", token);
    let close = |token: &str| specs::call("ledger", "ledger.close", token);
    world.carried_out(&post(&alice(&CORPORATE))).await?;
    world.carried_out(&close(&of_finance(&CORPORATE))).await?;

    let machine = world.key("alice", &[]).await?;
    for namesake in [post(&alice(&CONTRACTORS)), close(&of_finance(&CONTRACTORS)), post(&machine)] {
        // Destructive, and allowed by nothing: a person would have to approve it.
        world.ends_with(&namesake, "insufficient_scope").await?;
    }
    let machine_too = json!({
        "target": {"type": "machine", "idOrPattern": "alice"}, "primitive": {"name": "ledger.post"}, "allowed": true,
    });
    world.tell("org:acme", "PUT", BINDINGS, &machine_too).await?;
    world.carried_out(&post(&machine)).await?;
    world.ends_with(&post(&alice(&CONTRACTORS)), "insufficient_scope").await
}

/// Allows a primitive to a user or a group of the company's issuer.
async fn allow(world: &World, (kind, name): (&str, &str), primitive: &str) -> Result<Value> {
    let binding = json!({
        "target": {"type": kind, "idOrPattern": name, "issuer": CORPORATE.name},
        "primitive": {"name": primitive},
        "allowed": true,
    });
    world.tell("org:acme", "PUT", BINDINGS, &binding).await
}
