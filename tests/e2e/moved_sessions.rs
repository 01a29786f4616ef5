//! A legacy session that is at two gateways, as after one came or went: what its client says at one of them gets to the
//! other, and it ends at both. The gateways are asked straight, because Envoy keeps a session where it is.

use std::net::SocketAddr;

use anyhow::{Context, Result, ensure};
use asp_e2e::cluster::Cluster;
use asp_e2e::http1::{self, Opened, Request};
use asp_e2e::stores::Redis;
use asp_e2e::wait;
use serde_json::{Value, json};

use crate::message::legacy;
use crate::trial::{Shared, trials};

trials! { moved_sessions:
    answers_and_cancels_get_to_the_gateway_of_the_call,
    what_was_set_and_the_end_hold_at_every_gateway,
    while_redis_is_away_nothing_is_lost_unsaid,
}

/// A client of an org in which a person approves what `echo` is to say.
struct Client {
    cluster: Cluster,
    token: String,
    session: String,
}

impl Client {
    /// Of a session that the first gateway has made.
    async fn start(redis: &Redis) -> Result<Client> {
        let cluster = Cluster::start_in(vec![("ASP_REDIS_URL", redis.url())], 2).await?;
        let token = cluster.token(&["--org", "acme", "--user", "alice"]).await?;
        let session = initialized(cluster.gateways[0].address, &token).await?;
        Ok(Client { cluster, token, session })
    }

    /// `here` hears what is told at `there` from now on: until it has subscribed, that is lost.
    async fn listens(&self, id: u64, here: SocketAddr, there: SocketAddr) -> Result<()> {
        let counting = self.call(id, "count", &json!({"to": 100, "delayMs": 1000}));
        let call = http1::open(here, &counting, "notifications/progress").await?;
        self.until_cancelled(call, there, id).await.map(drop)
    }

    /// Cancels a call at `there` until its stream ends; what came of it.
    async fn until_cancelled(&self, call: Opened, there: SocketAddr, id: u64) -> Result<String> {
        let ending = tokio::spawn(call.finish());
        let told = || async {
            let said = self.say(there, &cancelled(id)).await.ok()?;
            (said.0 == 202 && ending.is_finished()).then_some(())
        };
        wait::until("the call hears that it is cancelled", wait::CONVERGE, told).await?;
        Ok(ending.await??.text())
    }

    fn first(&self) -> SocketAddr {
        self.cluster.gateways[0].address
    }

    fn second(&self) -> SocketAddr {
        self.cluster.gateways[1].address
    }

    /// A message of the session.
    fn message(&self, message: &Value) -> Request {
        let headers = [("mcp-session-id", self.session.as_str()), ("mcp-protocol-version", "2025-11-25")];
        let mut request = legacy(&self.token, "", Value::Null, &headers);
        request.body = message.to_string().into_bytes();
        request
    }

    fn call(&self, id: u64, name: &str, arguments: &Value) -> Request {
        let params = json!({"name": name, "arguments": arguments, "_meta": {"progressToken": id}});
        self.message(&json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params}))
    }

    /// What a gateway answers to a message that is no request.
    async fn say(&self, gateway: SocketAddr, message: &Value) -> Result<(u16, String)> {
        let answer = http1::send(gateway, &self.message(message)).await?;
        Ok((answer.status, answer.text()))
    }

    async fn ping(&self, gateway: SocketAddr) -> Result<u16> {
        let ping = json!({"jsonrpc": "2.0", "id": "ping", "method": "ping"});
        Ok(http1::send(gateway, &self.message(&ping)).await?.status)
    }
}

/// A session that a gateway has made.
async fn initialized(gateway: SocketAddr, token: &str) -> Result<String> {
    let params = json!({
        "protocolVersion": "2025-11-25", "capabilities": {"elicitation": {}},
        "clientInfo": {"name": "wire", "version": "1"},
    });
    let answer = http1::send(gateway, &legacy(token, "initialize", params, &[])).await?;
    Ok(answer.header("mcp-session-id").context("a session")?.to_owned())
}

/// From now on a person approves what `echo` says of salaries, at both gateways and over every protocol.
pub(crate) async fn guard(cluster: &Cluster) -> Result<()> {
    let binding = json!({
        "target": {"type": "user", "idOrPattern": "*"},
        "primitive": {"name": "echo", "protocol": "*"},
        "allowed": true, "approval": true, "name": "salaries",
        "when": [{"pointer": "/message", "glob": "*salary*"}],
    });
    cluster.put("/api/policy/orgs/acme/bindings", &binding).await
}

fn cancelled(id: u64) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

async fn answers_and_cancels_get_to_the_gateway_of_the_call(_: &Shared) -> Result<()> {
    for redis in [Redis::start().await?, Redis::start_cluster().await?] {
        let mut client = Client::start(&redis).await?;
        guard(&client.cluster).await?;
        // By another session: this one has been at the first alone.
        let another = initialized(client.first(), &client.token).await?;
        let own = std::mem::replace(&mut client.session, another);
        client.listens(2, client.first(), client.second()).await?;
        client.listens(3, client.second(), client.first()).await?;
        client.session = own;
        // From one to the other, and back: the session was made by the first.
        for (id, here, there) in
            [(10, client.first(), client.second()), (20, client.second(), client.first())]
        {
            let asking = client.call(id, "echo", &json!({"message": "the salary of May"}));
            let open = http1::open(here, &asking, "text/event-stream").await?;
            let (open, question) = open.event_with("elicitation/create").await?;
            let question: Value = serde_json::from_str(&question)?;
            let answer = json!({"action": "accept", "content": {"approve": true}});
            let answer = json!({"jsonrpc": "2.0", "id": question["id"], "result": answer});
            let said = client.say(there, &answer).await?;
            ensure!(said.0 == 202, "{said:?}");
            let (_, result) = open.event_with("\"result\"").await?;
            ensure!(result.contains("the salary of May"), "{result}");

            let counting = client.call(id + 1, "count", &json!({"to": 100, "delayMs": 1000}));
            let open = http1::open(here, &counting, "notifications/progress").await?;
            let said = client.say(there, &cancelled(id + 1)).await?;
            ensure!(said.0 == 202, "{said:?}");
            // A cancelled request has no response, and its stream ends.
            let rest = open.finish().await?.text();
            ensure!(!rest.contains("\"result\"") && !rest.contains("\"error\""), "{rest}");
        }
        // What is of nothing anywhere is accepted, as at one gateway alone.
        for message in [cancelled(77), json!({"jsonrpc": "2.0", "id": "unknown", "result": {}})] {
            let said = client.say(client.second(), &message).await?;
            ensure!(said.0 == 202, "{said:?}");
        }
    }
    Ok(())
}

async fn what_was_set_and_the_end_hold_at_every_gateway(_: &Shared) -> Result<()> {
    let redis = Redis::start().await?;
    let client = Client::start(&redis).await?;
    let first = client.first();
    let second = client.second();
    let debug =
        json!({"jsonrpc": "2.0", "id": 1, "method": "logging/setLevel", "params": {"level": "debug"}});
    ensure!(http1::send(first, &client.message(&debug)).await?.status == 200);
    ensure!(client.ping(second).await? == 200, "it is rebuilt at the other");
    // What it set is in the directory, and so went with it.
    let level = "return tonumber(redis.call('HGET', redis.call('KEYS', 'asp:session:*')[1], 'level'))";
    let kept = redis.ask(&format!("EVAL \"{level}\" 0")).await?;
    ensure!(kept == ":0", "{kept}");

    client.listens(2, first, second).await?;
    // A call of the session and its own stream run at the first.
    let counting = client.call(5, "count", &json!({"to": 100, "delayMs": 1000}));
    let call = http1::open(first, &counting, "notifications/progress").await?;
    let mut listening = client.message(&Value::Null);
    listening.method = "GET".into();
    listening.body.clear();
    let stream = http1::open(first, &listening, "text/event-stream").await?;
    let mut end = listening.clone();
    end.method = "DELETE".into();
    let answer = http1::send(second, &end).await?;
    ensure!(answer.status == 200, "{}", answer.text());
    call.finish().await?;
    stream.finish().await?;
    for gateway in [first, second] {
        ensure!(client.ping(gateway).await? == 404);
        ensure!(http1::send(gateway, &end).await?.status == 404);
    }
    let ends = "return #redis.call('KEYS', 'asp:session:*')";
    let kept = redis.ask(&format!("EVAL \"{ends}\" 0")).await?;
    ensure!(kept == ":1", "the end alone is remembered of the session: {kept}");
    Ok(())
}

async fn while_redis_is_away_nothing_is_lost_unsaid(_: &Shared) -> Result<()> {
    let mut redis = Redis::start().await?;
    let client = Client::start(&redis).await?;
    let first = client.first();
    let second = client.second();
    redis.process.stop().await?;
    ensure!(client.ping(second).await? == 200, "a session goes on as its id says");
    let counting = client.call(5, "count", &json!({"to": 100, "delayMs": 1000}));
    let call = http1::open(first, &counting, "notifications/progress").await?;
    let (status, said) = client.say(second, &cancelled(5)).await?;
    ensure!(status == 503 && said.contains("upstream_unavailable"), "{status} {said}");
    client.cluster.gateways[1]
        .process
        .logged("client messages for calls at other gateways are refused")
        .await?;

    redis.start_again().await?;
    // The first listens again by itself; until then what it is told is lost, and said again.
    let rest = client.until_cancelled(call, second, 5).await?;
    ensure!(!rest.contains("\"result\""), "{rest}");
    Ok(())
}
