//! A change through the admin API is enforced at the edge and at the gateway, and nowhere else.

use std::net::SocketAddr;

use anyhow::Result;
use asp_e2e::http1::{self, Request, Response};
use asp_e2e::stack::Stack;
use asp_e2e::wait;
use serde_json::json;

use crate::message::{modern, rest};
use crate::trial::{Shared, trials};

trials! { policy:
    a_server_switched_off_for_an_org_is_gone_for_it_alone,
    an_org_reaches_a_hidden_server_while_it_is_offered_to_it,
    a_revoked_token_is_refused_at_the_edge_and_at_the_gateway,
    a_revoked_token_ends_the_stream_of_its_running_call,
    a_forbidden_tool_is_neither_listed_nor_callable,
    a_rule_denies_by_argument_and_changes_no_list,
    an_observed_denial_lets_through_and_is_counted_and_shown,
}

async fn a_server_switched_off_for_an_org_is_gone_for_it_alone(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let theirs = caller(stack, "switched-off").await?;
    let ours = stack.alice().await?;
    let list = |token: &str| modern(token, "tools/list", json!({}), &[]);
    assert_eq!(http1::send(stack.edge(), &list(&theirs)).await?.status, 200);
    let path = "/api/policy/orgs/switched-off/exposure?force=true";
    let off = json!({"server": "demo", "protocol": "mcp", "enabled": false});
    admin(stack, "PUT", path, &off.to_string()).await?;
    for address in [stack.edge(), stack.gateway()] {
        becomes(address, list(&theirs), 404, Some("unknown_server")).await?;
        assert_eq!(http1::send(address, &list(&ours)).await?.status, 200, "another org keeps it");
    }
    let on = json!({"server": "demo", "protocol": "mcp", "enabled": true});
    admin(stack, "PUT", path, &on.to_string()).await?;
    becomes(stack.edge(), list(&theirs), 200, None).await
}

/// Its own admin opens nothing to an org that the platform or the server's team has not offered.
async fn an_org_reaches_a_hidden_server_while_it_is_offered_to_it(shared: &Shared) -> Result<()> {
    const HIDDEN: &str = "webex-compliance";
    let stack = shared.stack().await?;
    let token = caller(stack, "intruder").await?;
    let mut list = modern(&token, "tools/list", json!({}), &[]);
    list.target = format!("/{HIDDEN}/mcp");
    let switch = async |server: &str| {
        let on = json!({"server": server, "protocol": "mcp", "enabled": true}).to_string();
        as_role(stack, "org:intruder", "PUT", "/api/policy/orgs/intruder/exposure", &on).await
    };
    let (hidden, unknown) = (switch(HIDDEN).await?, switch("nowhere").await?);
    assert_eq!(
        (hidden.status, hidden.text().replace(HIDDEN, "SERVER")),
        (404, unknown.text().replace("nowhere", "SERVER"))
    );
    let offer = format!("/api/registry/servers/{HIDDEN}/offers/intruder?force=true");
    let own = as_role(stack, "org:intruder", "PUT", &offer, "").await?;
    assert_eq!(own.status, 403, "nobody offers to himself");
    for address in [stack.edge(), stack.gateway()] {
        becomes(address, list.clone(), 404, Some("unknown_server")).await?;
    }

    let by_team = as_role(stack, &format!("server:{HIDDEN}"), "PUT", &offer, "").await?;
    assert_eq!(by_team.status, 200, "{}", by_team.text());
    assert_eq!(switch(HIDDEN).await?.status, 200, "the same request");
    for address in [stack.edge(), stack.gateway()] {
        becomes(address, list.clone(), 200, None).await?;
    }
    let withdrawn = std::time::Instant::now();
    admin(stack, "DELETE", &offer, "").await?;
    for address in [stack.edge(), stack.gateway()] {
        becomes(address, list.clone(), 404, Some("unknown_server")).await?;
    }
    println!("withdrawn at edge and gateway after {:?}", withdrawn.elapsed());
    assert_eq!(switch(HIDDEN).await?.status, 404);
    Ok(())
}

async fn a_revoked_token_is_refused_at_the_edge_and_at_the_gateway(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let lost = caller(stack, "careless").await?;
    let kept = caller(stack, "careless").await?;
    let list = |token: &str| modern(token, "tools/list", json!({}), &[]);
    for token in [&lost, &kept] {
        assert_eq!(http1::send(stack.edge(), &list(token)).await?.status, 200);
    }
    let revoked = json!({"type": "token_hash", "id": sha256(&lost), "reason": "lost"});
    admin(stack, "POST", "/api/revocations", &revoked.to_string()).await?;
    for address in [stack.edge(), stack.gateway()] {
        becomes(address, list(&lost), 401, Some("token_revoked")).await?;
        assert_eq!(http1::send(address, &list(&kept)).await?.status, 200, "only that token");
    }
    Ok(())
}

async fn a_revoked_token_ends_the_stream_of_its_running_call(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let lost = caller(stack, "overheard").await?;
    let kept = caller(stack, "overheard").await?;
    // A minute of progress, then a result: who is not ended in time gets that. The other one has it after ten seconds.
    let call = |token: &str, delay: u64| {
        let params = json!({"name": "count", "arguments": {"to": 100, "delayMs": delay}, "_meta": {}});
        let mut request = modern(token, "tools/call", params, &[("mcp-name", "count")]);
        let body = String::from_utf8(request.body).unwrap();
        request.body = body.replace(r#""_meta":{"#, r#""_meta":{"progressToken":1,"#).into_bytes();
        request
    };
    let dead = http1::open(stack.edge(), &call(&lost, 600), "notifications/progress").await?;
    let alive = http1::open(stack.edge(), &call(&kept, 100), "notifications/progress").await?;
    let revoked = json!({"type": "token_hash", "id": sha256(&lost), "reason": "overheard"});
    admin(stack, "POST", "/api/revocations", &revoked.to_string()).await?;
    let ended = dead.finish().await?;
    assert_eq!(ended.reason().as_deref(), Some("token_revoked"), "{}", ended.text());
    let other = alive.finish().await?.json()?;
    assert_eq!(other["result"]["structuredContent"], json!({"counted": 100}), "only that token");
    Ok(())
}

async fn a_forbidden_tool_is_neither_listed_nor_callable(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = caller(stack, "narrow").await?;
    let list = modern(&token, "tools/list", json!({}), &[]);
    let call =
        modern(&token, "tools/call", json!({"name": "clock", "arguments": {}}), &[("mcp-name", "clock")]);
    assert!(http1::send(stack.edge(), &list).await?.text().contains("\"clock\""));
    let id = primitive_id("clock")?;
    let deny = json!({
        "target": {"type": "user", "idOrPattern": "*"},
        "primitive": {"name": id, "protocol": "mcp"},
        "allowed": false,
    });
    admin(stack, "PUT", "/api/policy/orgs/narrow/bindings?force=true", &deny.to_string()).await?;
    wait::until("the tool is gone from the list", wait::CONVERGE, || async {
        let listed = http1::send(stack.edge(), &list).await.ok()?.text();
        (!listed.contains("\"clock\"") && listed.contains("\"echo\"")).then_some(())
    })
    .await?;
    let answer = http1::send(stack.edge(), &call).await?;
    let mut unknown = modern(&token, "tools/call", json!({"name": "clock"}), &[("mcp-name", "nothing")]);
    unknown.body = String::from_utf8(unknown.body)?.replace("clock", "nothing").into_bytes();
    let nothing = http1::send(stack.edge(), &unknown).await?;
    assert_eq!(
        answer.json()?["error"]["data"],
        nothing.json()?["error"]["data"],
        "hidden and unknown are the same"
    );
    assert_eq!(answer.status, nothing.status);
    Ok(())
}

fn echo(token: &str, message: &str) -> Request {
    let params = json!({"name": "echo", "arguments": {"message": message}});
    modern(token, "tools/call", params, &[("mcp-name", "echo")])
}

/// A denial of `echo` for everybody of an org.
fn denial(extra: &serde_json::Value) -> Result<String> {
    let mut deny = json!({
        "target": {"type": "user", "idOrPattern": "*"},
        "primitive": {"name": primitive_id("echo")?, "protocol": "*"},
        "allowed": false,
    });
    for (name, value) in extra.as_object().into_iter().flatten() {
        deny[name] = value.clone();
    }
    Ok(deny.to_string())
}

async fn explained(stack: &Stack, org: &str, message: &str) -> Result<serde_json::Value> {
    let question = json!({
        "org": org, "user": "carol", "server": "demo", "primitive": primitive_id("echo")?, "protocol": "mcp",
        "arguments": {"message": message},
    });
    admin(stack, "POST", "/api/policy/explain", &question.to_string()).await?.json()
}

async fn a_rule_denies_by_argument_and_changes_no_list(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = caller(stack, "ruled").await?;
    let when = json!([{"pointer": "/message", "glob": "*payroll*"}]);
    let deny = denial(&json!({"when": when, "name": "payroll"}))?;
    admin(stack, "PUT", "/api/policy/orgs/ruled/bindings?force=true", &deny).await?;
    for address in [stack.edge(), stack.gateway()] {
        wait::until("the call is refused for its argument", wait::CONVERGE, || async {
            let answer = http1::send(address, &echo(&token, "the payroll of May")).await.ok()?.json().ok()?;
            (answer["result"]["_meta"]["asp/reason"] == "content_refused").then_some(())
        })
        .await?;
        let answer = http1::send(address, &echo(&token, "the weather")).await?.json()?;
        assert_eq!(answer["result"]["structuredContent"], json!({"message": "the weather"}));
        let listed = http1::send(address, &modern(&token, "tools/list", json!({}), &[])).await?;
        assert!(listed.text().contains("\"echo\""), "lists do not change");
    }
    let other = caller(stack, "unruled").await?;
    let answer = http1::send(stack.edge(), &echo(&other, "the payroll of May")).await?.json()?;
    assert_eq!(answer["result"]["isError"], false, "another org has no such rule");
    let refused = explained(stack, "ruled", "payroll").await?;
    assert_eq!(
        (&refused["outcome"], &refused["decidedBy"]["stage"]),
        (&json!("denied"), &json!("arguments"))
    );
    assert_eq!(refused["decidedBy"]["binding"]["name"], "payroll");
    assert_eq!(explained(stack, "ruled", "weather").await?["outcome"], "allowed");
    Ok(())
}

async fn an_observed_denial_lets_through_and_is_counted_and_shown(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = caller(stack, "trying").await?;
    let deny = denial(&json!({"observe": true, "name": "trial"}))?;
    admin(stack, "PUT", "/api/policy/orgs/trying/bindings?force=true", &deny).await?;
    let counted = async || -> Option<u64> {
        let get = Request { method: "GET".into(), target: "/metrics".into(), headers: vec![], body: vec![] };
        let text = http1::send(stack.gateway(), &get).await.ok()?.text();
        let line = text.lines().find(|line| line.starts_with("asp_policy_observed_total{"))?;
        assert!(line.contains(r#"would="deny",did="allow""#) && !line.contains("trying"), "{line}");
        line.rsplit(' ').next()?.parse().ok()
    };
    wait::until("the observed denial is counted", wait::CONVERGE, || async {
        let answer = http1::send(stack.edge(), &echo(&token, "hi")).await.ok()?.json().ok()?;
        assert_eq!(answer["result"]["structuredContent"], json!({"message": "hi"}), "it lets through");
        counted().await.map(drop)
    })
    .await?;
    let before = counted().await;
    http1::send(stack.edge(), &echo(&token, "hi")).await?;
    assert_eq!(counted().await, before.map(|count| count + 1));
    let shown = explained(stack, "trying", "hi").await?;
    assert_eq!((&shown["outcome"], &shown["observed"]["outcome"]), (&json!("allowed"), &json!("denied")));
    assert_eq!(shown["observed"]["binding"]["name"], "trial");
    wait::until("the audit tells what would have been", wait::CONVERGE, || async {
        let calls = admin(stack, "GET", "/api/audit/calls?org=trying", "").await.ok()?.text();
        let rule = format!("user:* {} * trial", primitive_id("echo").ok()?);
        (calls.contains(&rule) && calls.contains(r#""would":"deny""#)).then_some(())
    })
    .await
}

/// The `id` in the spec of a `demo` tool; policy names primitives by it.
fn primitive_id(name: &str) -> Result<String> {
    let file = asp_e2e::tool::root()?.join(format!("primitives/demo/{name}.yaml"));
    let text = std::fs::read_to_string(file)?;
    let id = text.lines().find_map(|line| line.strip_prefix("id:")).unwrap_or(name);
    Ok(id.trim().trim_matches('"').to_string())
}

pub(crate) async fn caller(stack: &Stack, org: &str) -> Result<String> {
    stack.token(&["--org", org, "--user", "carol"]).await
}

/// Shows a server to an org, and waits until the edge lets its tokens in.
pub(crate) async fn expose(stack: &Stack, org: &str, server: &str) -> Result<()> {
    let on = json!({"server": server, "protocol": "mcp", "enabled": true});
    admin(stack, "PUT", &format!("/api/policy/orgs/{org}/exposure?force=true"), &on.to_string()).await?;
    let token = caller(stack, org).await?;
    let mut list = modern(&token, "tools/list", json!({}), &[]);
    list.target = format!("/{server}/mcp");
    let what = format!("{server} is there for {org}");
    wait::until(&what, wait::CONVERGE, || async {
        let answer = http1::send(stack.edge(), &list).await.ok()?;
        (answer.status != 404).then_some(())
    })
    .await
}

/// Shows an agent to an org, and waits until the edge lets its tokens in.
pub(crate) async fn expose_agent(stack: &Stack, org: &str, server: &str) -> Result<()> {
    let on = json!({"server": server, "protocol": "a2a", "enabled": true});
    admin(stack, "PUT", &format!("/api/policy/orgs/{org}/exposure?force=true"), &on.to_string()).await?;
    let token = caller(stack, org).await?;
    let mut card = rest("GET", &format!("/{server}/a2a/extendedAgentCard"), &token, &json!(null));
    card.headers.push(("a2a-version".into(), b"1.0".to_vec()));
    let what = format!("{server} is an agent for {org}");
    wait::until(&what, wait::CONVERGE, || async {
        let answer = http1::send(stack.edge(), &card).await.ok()?;
        (answer.status != 404).then_some(())
    })
    .await
}

/// Sends a change to the admin API, which must take it.
pub(crate) async fn admin(stack: &Stack, method: &str, path: &str, body: &str) -> Result<Response> {
    let answer = as_role(stack, "platform", method, path, body).await?;
    assert!((200..300).contains(&answer.status), "{method} {path}: {} {}", answer.status, answer.text());
    Ok(answer)
}

/// Sends a request to the admin API as an admin with this role.
pub(crate) async fn as_role(
    stack: &Stack,
    role: &str,
    method: &str,
    path: &str,
    body: &str,
) -> Result<Response> {
    let token = stack.token(&["--admin", "--user", "root", "--role", role]).await?;
    let headers = vec![
        ("authorization".to_string(), format!("Bearer {token}").into_bytes()),
        ("content-type".to_string(), b"application/json".to_vec()),
    ];
    let request =
        Request { method: method.into(), target: path.into(), headers, body: body.as_bytes().to_vec() };
    http1::send(stack.admin(), &request).await
}

pub(crate) async fn becomes(
    address: SocketAddr,
    request: Request,
    status: u16,
    reason: Option<&str>,
) -> Result<()> {
    let what = format!("{address} answers {status}");
    wait::until(&what, wait::CONVERGE, || async {
        let answer = http1::send(address, &request).await.ok()?;
        (answer.status == status && answer.reason().as_deref() == reason).then_some(())
    })
    .await
}

pub(crate) fn sha256(text: &str) -> String {
    use sha2::{Digest, Sha256};
    Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect()
}
