//! A team's CI: a role needs every claim that its grant names, so that no other branch, workflow or repository deploys.

use anyhow::{Result, ensure};
use asp_e2e::http1;
use asp_edge::testkit::{Keys, Recipe, mint};
use serde_json::{Map, Value, json};

use super::specs::{self, ECHO, OF_COMPANY};
use super::{jwk, now, refusal};
use crate::message::rest;
use crate::trial::{Shared, trials};

const ISS: &str = "https://token.ci.example";
/// Signs what the CI says of its jobs.
const KEY: &str = "dev";
const BILLING: &str = "/api/registry/servers/billing";

/// What the CI says of a job; a claim that is `null` is left out.
fn job(claims: &Value) -> String {
    let mut all = json!({
        "iss": ISS, "aud": "asp-admin", "sub": "repo:acme/billing", "repository": "acme/billing",
        "repository_owner_id": "1234567", "repository_id": "7654321", "environment": "production",
        "org": null, "groups": null,
    });
    for (claim, value) in claims.as_object().into_iter().flatten() {
        all[claim] = value.clone();
    }
    let claims: Map<String, Value> = all.as_object().cloned().unwrap_or_default();
    mint(&Recipe { claims, sign: Some(KEY.into()), ..Recipe::default() }, Keys::shared(), now(), "")
}

trials! { attacks: a_job_of_an_unprotected_branch_deploys_nothing }

async fn a_job_of_an_unprotected_branch_deploys_nothing(shared: &Shared) -> Result<()> {
    let world = shared.attacked().await?;
    let document = json!({
        "iss": ISS, "algs": ["ES256"], "jwks": {"keys": [jwk(KEY)]},
        "grants": [{"role": "server:billing", "claims": {
            "repository_owner_id": "1234567", "repository_id": "7654321", "environment": "production",
        }}],
    });
    world.tell("platform", "PUT", "/api/issuers/admins/ci", &document).await?;
    let files = specs::server("billing", OF_COMPANY, &[specs::tool("billing.show", "read_only", ECHO)]);
    let deploy = async |path: &str, claims: Value| {
        http1::send(world.stack.admin(), &rest("PUT", path, &job(&claims), &files)).await
    };
    for claims in [
        json!({"environment": null}),
        json!({"environment": "staging"}),
        json!({"environment": ["production"]}),
        // A repository of the same name, after the team's was deleted.
        json!({"repository_id": "9999999"}),
        json!({"environment": null, "role": "server:billing"}),
        json!({"environment": null, "groups": ["server:billing", "production"]}),
    ] {
        let refused = deploy(BILLING, claims.clone()).await?;
        ensure!(refusal(&refused) == (401, "token_invalid".into()), "{claims}: {}", refused.text());
    }
    let missing = world.ask("platform", "GET", BILLING, &Value::Null).await?;
    ensure!(missing.status == 404, "nothing is stored: {}", missing.text());

    let deployed = deploy(BILLING, json!({})).await?;
    ensure!(deployed.status == 200, "{} {}", deployed.status, deployed.text());
    let other = deploy("/api/registry/servers/payroll", json!({})).await?;
    ensure!(refusal(&other) == (404, "not_found".into()), "another team's: {}", other.text());
    Ok(())
}
