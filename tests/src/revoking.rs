//! Samples of revocations: a call streams, its caller is revoked, blocked or denied, and the time is taken until the stream has
//! ended, and until the edge and every gateway refuse the caller's next call.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::future::try_join_all;
use futures::{StreamExt, TryStreamExt, stream};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::cluster::Cluster;
use crate::http1::{self, Request, Response};
use crate::message::{modern, rest, revocation};
use crate::wait;

const ORG: &str = "acme";
/// Reason of each revocation, which a refusal repeats.
pub const REASON: &str = "a sample";
/// Longer than the longest row.
const TOKEN: &str = "2h";
/// Between two probes of one place, so that they leave the processors to what is measured.
const PAUSE: Duration = Duration::from_millis(25);
/// Tokens that are minted at once; each is a process.
const MINTED_AT_ONCE: usize = 4;

/// Loss of the right to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// The token is revoked by its hash.
    Token,
    /// All tokens of the user that were issued before are revoked.
    User,
    /// The user is blocked.
    Block,
    /// The primitive is denied to the user.
    Denial,
}

/// Measurement of one loss.
#[derive(Debug)]
pub struct Sample {
    pub loss: Loss,
    /// Last message of the call's stream.
    pub ended: Value,
    /// Answers to the next call, of the edge and each gateway.
    pub refused: Vec<Value>,
    /// Time from the admin's request to the end of the stream.
    pub until_ended: Duration,
    /// Time from the admin's request to the first refusal at the last place.
    pub until_refused: Duration,
}

impl Loss {
    pub const ALL: [Loss; 4] = [Loss::Token, Loss::User, Loss::Block, Loss::Denial];

    /// Name in a report.
    pub fn name(self) -> &'static str {
        match self {
            Loss::Token => "revocation of a token",
            Loss::User => "revocation of a user's tokens",
            Loss::Block => "block of a user",
            Loss::Denial => "denial of a tool",
        }
    }

    /// Stable reason of the refusals.
    pub fn reason(self) -> &'static str {
        match self {
            Loss::Token | Loss::User => "token_revoked",
            Loss::Block => "blocked",
            Loss::Denial => "unknown_primitive",
        }
    }

    fn write(self, root: &str, token: &str, user: &str) -> Request {
        let of_user = json!({"type": "user", "org": ORG, "id": user, "reason": REASON});
        match self {
            Loss::Token => revocation(root, token),
            Loss::User => rest("POST", "/api/revocations", root, &of_user),
            Loss::Block => rest("POST", "/api/blocks", root, &of_user),
            Loss::Denial => {
                let deny = json!({
                    "target": {"type": "user", "idOrPattern": user},
                    "primitive": {"name": "count", "protocol": "*"},
                    "allowed": false,
                });
                rest("PUT", &format!("/api/policy/orgs/{ORG}/bindings?force=true"), root, &deny)
            }
        }
    }
}

impl Sample {
    /// Checks what was answered: the reason, and for a user the time and the admin's words.
    pub fn judge(&self) -> Result<()> {
        let reason = self.loss.reason();
        for answer in self.refused.iter().chain([&self.ended]) {
            let data = answer.pointer("/error/data").with_context(|| format!("no refusal: {answer}"))?;
            ensure!(data.get("reason") == Some(&json!(reason)), "{:?}: {answer}", self.loss);
            let is_explained = data.get("revokedSince").is_some_and(Value::is_string);
            ensure!(is_explained == (self.loss != Loss::Denial), "{:?}: {answer}", self.loss);
            if matches!(self.loss, Loss::User | Loss::Block) {
                ensure!(data.get("revokedReason") == Some(&json!(REASON)), "{:?}: {answer}", self.loss);
            }
        }
        ensure!(!self.ended.to_string().contains("\"counted\":100"), "a result: {}", self.ended);
        Ok(())
    }
}

/// Takes `count` samples of all losses in turn, `at_once` at a time.
pub async fn samples(cluster: &Cluster, first: usize, count: usize, at_once: usize) -> Result<Vec<Sample>> {
    let root = cluster.token(&["--admin", "--user", "root", "--ttl", TOKEN]).await?;
    let minted = stream::iter(first..first + count).map(|number| async move {
        let user = format!("sample-{number}");
        let token = cluster.token(&["--org", ORG, "--user", &user, "--ttl", TOKEN]).await?;
        anyhow::Ok((number, user, token))
    });
    let minted: Vec<(usize, String, String)> = minted.buffer_unordered(MINTED_AT_ONCE).try_collect().await?;
    let root = root.as_str();
    let taken = stream::iter(minted).map(|(number, user, token)| async move {
        let loss = Loss::ALL.into_iter().cycle().nth(number % Loss::ALL.len()).context("a loss")?;
        sample(cluster, number, (loss, loss.write(root, &token, &user)), &token).await
    });
    taken.buffer_unordered(at_once).try_collect().await
}

async fn sample(
    cluster: &Cluster,
    number: usize,
    (loss, write): (Loss, Request),
    token: &str,
) -> Result<Sample> {
    let mut places = cluster.addresses();
    places.push(cluster.envoy.address);
    let place = places.iter().cycle().nth(number % places.len()).context("a gateway")?;
    // A minute, so that only its loss ends it in time.
    let opened = http1::open(*place, &count(token, 100, 600), "notifications/progress").await?;
    let api = SocketAddr::from(([127, 0, 0, 1], cluster.control_ports.admin));
    let requested = Instant::now();
    let written = async {
        let answer = http1::send(api, &write).await?;
        ensure!(answer.status < 300, "{}: {} {}", write.target, answer.status, answer.text());
        anyhow::Ok(())
    };
    let ended = async { anyhow::Ok((opened.finish().await?.json()?, requested.elapsed())) };
    let probe = count(token, 1, 0);
    let refused = try_join_all(places.iter().map(|place| refused(*place, &probe, loss)));
    let ((), (ended, until_ended), refused) = tokio::try_join!(written, ended, refused)?;
    let until_refused = refused.iter().map(|(_, at)| at.saturating_duration_since(requested)).max();
    Ok(Sample {
        loss,
        ended,
        until_ended,
        until_refused: until_refused.unwrap_or_default(),
        refused: refused.into_iter().map(|(answer, _)| answer).collect(),
    })
}

/// Probes a place until it refuses; the answer and its time.
async fn refused(place: SocketAddr, probe: &Request, loss: Loss) -> Result<(Value, Instant)> {
    let began = Instant::now();
    loop {
        let answer: Response = http1::send(place, probe).await?;
        if answer.reason().as_deref() == Some(loss.reason()) {
            return Ok((answer.json()?, Instant::now()));
        }
        let is_in_time = began.elapsed() < wait::CONVERGE;
        ensure!(is_in_time, "{place} does not refuse: {} {}", answer.status, answer.text());
        sleep(PAUSE).await;
    }
}

fn count(token: &str, to: u64, delay_ms: u64) -> Request {
    let arguments = json!({"to": to, "delayMs": delay_ms});
    let params = json!({"name": "count", "arguments": arguments, "_meta": {"progressToken": 1}});
    modern(token, "tools/call", params, &[("mcp-name", "count")])
}
