//! Floods of those who have proved nothing, and an issuer that is slow: whoever is known is served beside them.

use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use asp_e2e::http1::{self, Connection, Request, Response};
use asp_e2e::wait;
use futures::future::try_join_all;
use serde_json::json;
use tokio::task::JoinSet;

use super::specs::{self, ECHO, OF_COMPANY};
use super::{CORPORATE, World, jwk};
use crate::trial::{Shared, trials};

/// Unknown tokens that are sent at a time, and most of these batches: more than a client address may show, also on a
/// machine that needs a second for each batch.
const BATCH: usize = 100;
const BATCHES: usize = 20;
/// Logins of one client address at one issuer at a time (`control-plane/gateway/identity/src/issuers/logins.rs`).
const TURNS: usize = 16;
/// Refreshes of one client: more than it may send at once and in the seconds that they take.
const REFRESHES: usize = 200;
/// Most requests of a flood of one client: six times what a worker of Envoy lets one address send at once, because it
/// refills the bucket meanwhile.
const FLOOD: usize = 3_000;
const FORM: (&str, &str) = ("content-type", "application/x-www-form-urlencoded");

trials! { attacks:
    a_flood_of_unknown_opaque_tokens_keeps_no_known_caller_out,
    a_slow_issuer_and_a_flood_of_refreshes_hold_up_no_other_login,
    a_flood_without_a_valid_token_ends_at_the_edge_and_a_valid_token_beside_it_does_not,
}

/// Tokens that nobody has given out, each asked about at its issuer.
async fn a_flood_of_unknown_opaque_tokens_keeps_no_known_caller_out(shared: &Shared) -> Result<()> {
    let world = shared.attacked().await?;
    let introspection = json!({
        "credential": "sso", "url": format!("{}/introspect", world.issuer.origin()), "audiences": ["asp"],
    });
    let document = json!({
        "iss": "https://sso.example", "orgs": ["acme"], "algs": ["ES256"], "jwks": {"keys": [jwk("other")]},
        "introspection": introspection,
    });
    world.put_issuer("sso", &document).await?;
    let tools = [specs::tool("opaque.say", "read_only", ECHO)];
    let server = specs::server("opaque", "{schemes: [opaque], issuers: [sso]}", &tools);
    world.stored("opaque", &server).await?;
    let edge = world.stack.edge();
    let call = |token: &str| specs::call("opaque", "opaque.say", token);
    world.carried_out(&call("known-alice")).await?;

    let asked = world.issuer.count("/introspect");
    let mut sent = 0;
    let mut refused = None;
    while refused.is_none() && sent < BATCH * BATCHES {
        let flood = (sent..sent + BATCH).map(|at| call(&format!("made-up-{at}"))).collect::<Vec<_>>();
        let flood = try_join_all(flood.iter().map(|call| http1::send(edge, call)));
        let alice = call("known-alice");
        let (answers, known) = tokio::join!(flood, http1::send(edge, &alice));
        let known = known?;
        ensure!(super::is_carried_out(&known), "a known caller: {} {}", known.status, known.text());
        for answer in answers? {
            ensure!([401, 429].contains(&answer.status), "{} {}", answer.status, answer.text());
            refused = refused.or_else(|| Some(answer).filter(|answer| answer.status == 429));
        }
        sent += BATCH;
    }
    let refused =
        refused.with_context(|| format!("{sent} unknown tokens of one address were asked about"))?;
    ensure!(refused.reason().as_deref() == Some("rate_limited"), "{}", refused.text());
    ensure!(refused.header("retry-after").is_some(), "{:?}", refused.headers);
    let asked = world.issuer.count("/introspect") - asked;
    ensure!(asked < sent, "the issuer was asked about all {sent}");
    world.carried_out(&call("known-alice")).await
}

/// Logins of one server, whose issuer never answers, and a client that refreshes without end.
async fn a_slow_issuer_and_a_flood_of_refreshes_hold_up_no_other_login(shared: &Shared) -> Result<()> {
    let world = shared.attacked().await?;
    let (slow, quick) = (front(world, "slow", "/slow/token").await?, front(world, "quick", "/token").await?);
    let edge = world.stack.edge();
    let mut waiting = JoinSet::new();
    for _ in 0..TURNS {
        let slow = slow.clone();
        waiting.spawn(async move { slow.refresh(edge).await });
    }
    wait::until("the slow issuer holds its logins up", wait::CONVERGE, || async {
        (world.issuer.count("/slow/token") == TURNS).then_some(())
    })
    .await?;
    let more = slow.refresh(edge).await?;
    ensure!(more.status == 429 && more.header("retry-after").is_some(), "{} {}", more.status, more.text());
    ensure!(world.issuer.count("/slow/token") == TURNS, "one more reaches no issuer");
    let bogus = quick.token(edge, "grant_type=authorization_code&code=bogus&code_verifier=v").await?;
    ensure!(bogus.status == 400 && bogus.json()?["error"] == "invalid_grant", "{}", bogus.text());
    ensure!(world.issuer.count("/token") == 0, "a made-up code reaches no issuer");
    let served = quick.refresh(edge).await?;
    ensure!(served.status == 200 && served.json()?["access_token"] == "t", "{}", served.text());
    ensure!(waiting.try_join_next().is_none(), "the others wait still");
    drop(waiting);

    let flood = try_join_all((0..REFRESHES).map(|_| quick.refresh(edge))).await?;
    let refused = flood.iter().find(|answer| answer.status == 429).context("refreshes without end")?;
    ensure!(refused.header("retry-after").is_some(), "{:?}", refused.headers);
    ensure!(flood.iter().all(|answer| [200, 429].contains(&answer.status)), "served, or told to wait");
    ensure!(world.issuer.count("/token") < REFRESHES, "what is refused reaches no issuer");
    Ok(())
}

/// Clients of one address without a token, and with a bad one. They have an address of their own, since others attack too.
async fn a_flood_without_a_valid_token_ends_at_the_edge_and_a_valid_token_beside_it_does_not(
    shared: &Shared,
) -> Result<()> {
    let world = shared.attacked().await?;
    let tools = [specs::tool("flooded.say", "read_only", ECHO)];
    world.stored("flooded", &specs::server("flooded", OF_COMPANY, &tools)).await?;
    let valid = specs::call("flooded", "flooded.say", &world.token(&CORPORATE, json!({})));
    world.carried_out(&valid).await?;
    let edge = world.stack.envoy.address;
    for (kind, authorization) in [("anonymous", None), ("bad_token", Some("Bearer x"))] {
        let mut request =
            Request { method: "GET".into(), target: "/flooded/mcp".into(), ..Request::default() };
        let header = authorization.map(|value| ("authorization".to_owned(), value.as_bytes().to_vec()));
        request.headers.extend(header);
        // One connection, because each worker of Envoy counts by itself.
        let mut client = Connection::from(IpAddr::from([127, 0, 0, 99]), edge);
        let refused = flood(&mut client, &request).await.with_context(|| kind.to_owned())?;
        ensure!(refused.reason().as_deref() == Some("rate_limited"), "{kind}: {}", refused.text());
        ensure!(refused.header("retry-after") == Some("1"), "{kind}: {:?}", refused.headers);
        let answer = client.send(&valid).await?;
        ensure!(super::is_carried_out(&answer), "{kind}: {} {}", answer.status, answer.text());
        let answer = Connection::from(IpAddr::from([127, 0, 0, 98]), edge).send(&request).await?;
        ensure!(answer.status == 401, "{kind} of another address: {} {}", answer.status, answer.text());
        let metric = format!("asp_edge_unauthenticated_refusals_total.{kind}");
        let counted = world.stack.envoy.stats(&metric).await?;
        ensure!(counted.values().sum::<u64>() > 0, "{metric} counts nothing");
    }
    Ok(())
}

/// Sends a request again and again, and returns the first answer that is not 401.
async fn flood(client: &mut Connection, request: &Request) -> Result<Response> {
    for _ in 0..FLOOD {
        let answer = client.send(request).await?;
        if answer.status != 401 {
            ensure!(answer.status == 429, "{} {}", answer.status, answer.text());
            return Ok(answer);
        }
    }
    bail!("{FLOOD} requests were evaluated")
}

/// A client that is registered at a server which stands before its issuer.
#[derive(Clone)]
struct Client {
    server: String,
    id: String,
}

/// Stores an issuer and a server that stands before it, and registers a client there.
async fn front(world: &World, name: &str, token_endpoint: &str) -> Result<Client> {
    let origin = world.issuer.origin();
    let login = json!({
        "clientId": "mcp", "authorizationEndpoint": format!("{origin}/authorize"),
        "tokenEndpoint": format!("{origin}{token_endpoint}"),
    });
    let document = json!({
        "iss": format!("https://{name}.example"), "orgs": ["acme"], "algs": ["ES256"],
        "jwks": {"keys": [jwk("other")]}, "login": login,
    });
    world.put_issuer(name, &document).await?;
    let server = format!("{name}-notes");
    let tools = [specs::tool(&format!("{server}.say"), "read_only", ECHO)];
    let auth = format!("{{schemes: [jwt], issuers: [{name}]}}");
    world.stored(&server, &specs::server(&server, &auth, &tools)).await?;
    let metadata =
        json!({"client_name": name, "redirect_uris": ["http://127.0.0.1:4711/callback"]}).to_string();
    let path = format!("/{server}/oauth/register");
    let edge = world.stack.edge();
    let registered = wait::until("a client registers", wait::CONVERGE, || async {
        let answer = http1::post(edge, &path, &[], &metadata).await.ok()?;
        (answer.status == 201).then_some(answer)
    });
    let id = registered.await?.json()?["client_id"].as_str().context("an id")?.to_owned();
    Ok(Client { server, id })
}

impl Client {
    async fn refresh(&self, edge: SocketAddr) -> Result<Response> {
        self.token(edge, "grant_type=refresh_token&refresh_token=r").await
    }

    /// Asks the token endpoint; the id of a client is of characters that a form takes as they are.
    async fn token(&self, edge: SocketAddr, form: &str) -> Result<Response> {
        let path = format!("/{}/oauth/token", self.server);
        http1::post(edge, &path, &[FORM], &format!("{form}&client_id={}", self.id)).await
    }
}
