//! An admin who changes a policy and revokes tokens at any control plane.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::Fleet;
use super::places::Places;
use crate::history::{History, What};
use crate::http1;
use crate::message::{modern, rest, token_hash};
use crate::wait;

/// Most tokens that are revoked.
const TOKENS: usize = 40;
/// Between two writes.
const PACE: Duration = Duration::from_millis(700);
/// Whose policy changes, and what it says.
const CAROL: &str = "carol's clock";

pub(super) struct Admin {
    token: String,
    history: History,
    random: StdRng,
    carol: String,
    /// Those at the end are revoked by now.
    tokens: Vec<String>,
    revoked: Vec<String>,
    writes: usize,
}

impl Admin {
    pub(super) async fn of(fleet: &Fleet, seed: u64) -> Result<Admin> {
        let mut tokens = Vec::new();
        for number in 0..TOKENS {
            tokens.push(fleet.caller_named(&format!("leaver-{number}")).await?.token);
        }
        Ok(Admin {
            token: fleet.cluster.token(&["--admin", "--user", "root", "--ttl", super::TOKEN]).await?,
            history: fleet.history.clone(),
            random: StdRng::seed_from_u64(seed),
            carol: fleet.caller_named("carol").await?.token,
            tokens,
            revoked: Vec::new(),
            writes: 0,
        })
    }

    pub(super) fn writes(&self) -> usize {
        self.writes
    }

    pub(super) async fn run(mut self, places: Places, is_over: Arc<AtomicBool>) -> Result<Admin> {
        while !is_over.load(Ordering::Acquire) {
            let at = places.any_admin(&mut self.random)?;
            if self.random.random_bool(0.1)
                && let Some(token) = self.tokens.pop()
            {
                let body = json!({"type": "token_hash", "id": token_hash(&token)});
                self.write(at, &name(&token), "revoked", ("POST", "/api/revocations"), &body).await;
                self.revoked.push(token);
            } else {
                let allowed = self.random.random_bool(0.5);
                let body = json!({
                    "target": {"type": "user", "idOrPattern": "carol"},
                    "primitive": {"name": "clock", "protocol": "mcp"},
                    "allowed": allowed,
                });
                let to = ("PUT", "/api/policy/orgs/acme/bindings");
                self.write(at, CAROL, if allowed { "shown" } else { "hidden" }, to, &body).await;
            }
            sleep(PACE).await;
        }
        Ok(self)
    }

    async fn write(
        &mut self,
        at: SocketAddr,
        of: &str,
        value: &str,
        (method, path): (&str, &str),
        body: &Value,
    ) {
        let write = self.history.write(of, value);
        match http1::send(at, &rest(method, path, &self.token, body)).await {
            Ok(answer) if answer.status < 300 => {
                self.writes += 1;
                write.stored();
            }
            Ok(answer) if answer.status < 500 => write.not_stored(),
            Ok(_) | Err(_) => write.unanswered(),
        }
    }

    /// What is in force at every gateway and at the edge, once it is the same everywhere, or after a while.
    pub(super) async fn look(&self, fleet: &Fleet) -> Result<()> {
        let mut places = fleet.cluster.addresses();
        places.push(fleet.cluster.envoy.address);
        let wanted = [(CAROL.to_owned(), &self.carol)].into_iter();
        for (of, token) in wanted.chain(self.revoked.iter().map(|token| (name(token), token))) {
            let found = || async {
                let found = in_force(&places, token).await.ok()?;
                found
                    .iter()
                    .all(|(_, value)| Some(value) == found.first().map(|(_, first)| first))
                    .then_some(found)
            };
            let found = match wait::until("it is the same everywhere", wait::CONVERGE, found).await {
                Ok(found) => found,
                Err(_) => in_force(&places, token).await?,
            };
            for (place, value) in found {
                self.history.add(&of, What::InForce { place, value });
            }
        }
        Ok(())
    }
}

/// What each place says to whoever has this token.
async fn in_force(places: &[SocketAddr], token: &str) -> Result<Vec<(String, String)>> {
    let list = modern(token, "tools/list", json!({}), &[]);
    let mut found = Vec::new();
    for place in places {
        let answer = http1::send(*place, &list).await?;
        let value = match (answer.status, answer.text().contains("\"clock\"")) {
            (200, true) => "shown".to_owned(),
            (200, false) => "hidden".to_owned(),
            (401, _) => "revoked".to_owned(),
            (status, _) => format!("status {status}"),
        };
        found.push((place.to_string(), value));
    }
    Ok(found)
}

fn name(token: &str) -> String {
    format!("token {}", token_hash(token))
}
