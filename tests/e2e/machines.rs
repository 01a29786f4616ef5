//! A machine calls with its key through Envoy: made by the admin API, changed for the next without a gap, bounded and
//! revoked as a user is, and deleted.

use anyhow::{Context, Result};
use asp_e2e::http1::{self, Response};
use asp_e2e::stack::{Options, Stack};
use asp_e2e::wait;
use serde_json::{Value, json};

use crate::message::modern;
use crate::policy::{admin, becomes};
use crate::trial::{Shared, trials};

const KEYS: &str = "/api/machines/orgs/acme/keys";

/// Requests a second without a valid credential; a bucket holds those of ten seconds.
const UNAUTHENTICATED: &str = "5";
/// Calls in a row: more than a bucket holds.
const MANY: usize = 200;

const SERVER: &str = "apiVersion: asp/v1\nname: robots\ntitle: Robots\ndescription: For machines.\nversion: 1.0.0\n\
    protocols: [mcp]\nsessions: both\ndefaultExposure: allow\nauth: {schemes: [jwt, psk], issuers: [dev]}\n\
    primitives: [{ref: robots/robots.say}]\n";
const TOOL: &str = "id: robots.say\nname: Say\ntype: tool\nversion: 1.0.0\nowner: t@example.com\nsummary: Says it again.\n\
    tags: [test]\nmutation: read_only\nprimitiveSchema:\n  input_schema:\n    type: object\n    required: [message]\n    \
    properties: {message: {type: string}}\nsecurity: {riskClass: low}\nruntime: {mode: builtin, entrypoint: echo}\n";

trials! { machines:
    a_key_is_made_changed_bounded_revoked_and_deleted,
}

async fn make(stack: &Stack) -> Result<(String, String)> {
    let bound = json!({"groups": ["robots"]}).to_string();
    admin(stack, "PUT", "/api/machines/orgs/acme/bound", &bound).await?;
    let body = json!({"machine": "press", "groups": ["robots"], "ttlSeconds": 3600}).to_string();
    let made: Value = admin(stack, "POST", KEYS, &body).await?.json()?;
    let text = |name: &str| made[name].as_str().map(str::to_owned).with_context(|| format!("no {name}"));
    Ok((text("key")?, text("id")?))
}

fn say(key: &str) -> http1::Request {
    let params = json!({"name": "robots.say", "arguments": {"message": "hi"}});
    let mut request = modern(key, "tools/call", params, &[("mcp-name", "robots.say")]);
    request.target = "/robots/mcp".into();
    request
}

fn said(answer: &Response) -> bool {
    answer.json().is_ok_and(|answer| answer["result"]["structuredContent"]["message"] == "hi")
}

async fn a_key_is_made_changed_bounded_revoked_and_deleted(_: &Shared) -> Result<()> {
    let environment = vec![("ASP_UNAUTHENTICATED_RATE", UNAUTHENTICATED.to_owned())];
    let stack = Stack::start(Options { environment, ..Options::repository()? }).await?;
    let files =
        json!([{"path": "robots/server.yaml", "text": SERVER}, {"path": "robots/say.yaml", "text": TOOL}]);
    admin(&stack, "PUT", "/api/registry/servers/robots", &json!({"files": files}).to_string()).await?;
    let (first, first_id) = make(&stack).await?;
    for address in [stack.edge(), stack.gateway()] {
        wait::until("the key opens the server", wait::CONVERGE, || async {
            said(&http1::send(address, &say(&first)).await.ok()?).then_some(())
        })
        .await?;
        // A server that takes no keys refuses it, at the edge without asking anybody.
        let mut elsewhere = modern(&first, "tools/list", json!({}), &[]);
        let answer = http1::send(address, &elsewhere).await?;
        assert_eq!((answer.status, answer.reason().as_deref()), (401, Some("token_invalid")));
        elsewhere.target = "/robots/mcp".into();
        assert!(http1::send(address, &elsewhere).await?.text().contains("robots.say"));
        let forged = http1::send(address, &say(&format!("{first}0"))).await?;
        assert_eq!((forged.status, forged.reason().as_deref()), (401, Some("token_invalid")));
    }
    for number in 0..MANY {
        // The edge cannot verify a key; one that the gateway accepts does not count as a request without a credential.
        let answer = http1::send(stack.edge(), &say(&first)).await?;
        assert!(said(&answer), "call {number}: {} {}", answer.status, answer.text());
    }
    let user = stack.alice().await?;
    assert!(said(&http1::send(stack.edge(), &say(&user)).await?), "users come with their tokens as before");

    // The next key is good before the first one goes.
    let (second, _) = make(&stack).await?;
    wait::until("the second key opens it", wait::CONVERGE, || async {
        said(&http1::send(stack.edge(), &say(&second)).await.ok()?).then_some(())
    })
    .await?;
    assert!(said(&http1::send(stack.edge(), &say(&first)).await?), "so does the first one");
    admin(&stack, "DELETE", &format!("{KEYS}/{first_id}"), "").await?;
    becomes(stack.edge(), say(&first), 401, Some("token_invalid")).await?;
    assert!(said(&http1::send(stack.edge(), &say(&second)).await?));

    let deny = json!({
        "target": {"type": "group", "idOrPattern": "robots"}, "primitive": {"name": "robots.say"}, "allowed": false,
    });
    admin(&stack, "PUT", "/api/policy/orgs/acme/bindings", &deny.to_string()).await?;
    wait::until("the machine's group may not call it", wait::CONVERGE, || async {
        let answer = http1::send(stack.edge(), &say(&second)).await.ok()?;
        (answer.reason().as_deref() == Some("unknown_primitive")).then_some(())
    })
    .await?;
    assert!(said(&http1::send(stack.edge(), &say(&user)).await?), "others may");
    admin(&stack, "DELETE", "/api/policy/orgs/acme/bindings", "").await?;
    wait::until("it may again", wait::CONVERGE, || async {
        said(&http1::send(stack.edge(), &say(&second)).await.ok()?).then_some(())
    })
    .await?;

    let gone = json!({"type": "user", "org": "acme", "id": "press", "reason": "stolen"});
    admin(&stack, "POST", "/api/revocations", &gone.to_string()).await?;
    for address in [stack.edge(), stack.gateway()] {
        becomes(address, say(&second), 401, Some("token_revoked")).await?;
    }
    assert!(said(&http1::send(stack.edge(), &say(&user)).await?), "nobody else is revoked");
    let calls = admin(&stack, "GET", "/api/audit/calls?org=acme", "").await?.text();
    assert!(calls.contains(r#""user":"press""#) && !calls.contains("asp_psk_"), "{calls}");
    stack.stop(&[]).await
}
