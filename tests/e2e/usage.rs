//! Sums of calls, running work and its end, and the page for admins, in a real browser.

use anyhow::{Context, Result, ensure};
use asp_e2e::chromium::Chromium;
use asp_e2e::http1::{self, Request};
use asp_e2e::stack::Stack;
use asp_e2e::wait;
use asp_e2e::wait::ErrorDetails;
use serde_json::{Value, json};

use crate::message::{initialize, legacy, modern};
use crate::policy::{admin, as_role, becomes, caller};
use crate::trial::{Shared, trials};

trials! { usage:
    calls_are_summed_for_their_org,
    a_running_call_is_listed_and_cancelled_by_an_admin,
    a_session_is_listed_and_ended_by_an_admin,
    an_admin_answers_five_questions_on_the_page_alone,
}

fn call(token: &str, tool: &str, arguments: Value) -> Request {
    modern(token, "tools/call", json!({"name": tool, "arguments": arguments}), &[("mcp-name", tool)])
}

async fn read(stack: &Stack, path: &str) -> Option<Value> {
    admin(stack, "GET", path, "").await.ok()?.json().ok()
}

async fn calls_are_summed_for_their_org(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = caller(stack, "metered").await?;
    for _ in 0..3 {
        let answer = http1::send(stack.edge(), &call(&token, "echo", json!({"message": "hi"}))).await?;
        ensure!(answer.status == 200, "{}", answer.text());
    }
    let wrong = http1::send(stack.edge(), &call(&token, "echo", json!({"message": 5}))).await?;
    ensure!(wrong.text().contains("error") || wrong.text().contains("isError"), "{}", wrong.text());
    let sums = wait::until("the calls are summed", wait::CONVERGE, || async {
        let usage = read(stack, "/api/usage?org=metered&by=primitive").await?;
        let group = usage["groups"].as_array()?.iter().find(|group| group["name"] == "echo")?.clone();
        (group["calls"].as_u64()? >= 3).then_some(group)
    })
    .await?;
    ensure!(sums["latency"]["p50Ms"].as_f64().context("a latency")? > 0.0, "{sums}");
    let users = read(stack, "/api/usage?org=metered&by=user").await.context("users")?;
    ensure!(users["groups"][0]["name"] == "carol", "{users}");
    let own = as_role(stack, "org:metered:read", "GET", "/api/usage?by=day", "").await?.json()?;
    ensure!(own["total"]["calls"].as_u64() >= Some(3), "{own}");
    let others = as_role(stack, "org:globex", "GET", "/api/usage?org=metered", "").await?;
    ensure!(others.status == 404, "{}", others.text());
    // Of two days: the calls may have been before midnight.
    let unused = read(stack, "/api/usage/unused?org=metered&days=2").await.context("unused")?;
    let is_listed = |id: &str| {
        let mut listed = unused["unused"].as_array().into_iter().flatten();
        listed.any(|one| one["server"] == "demo" && one["primitive"] == id)
    };
    ensure!(is_listed("clock") && !is_listed("echo"), "{unused}");
    Ok(())
}

/// Returns the id of the first call or session of an org that is listed.
async fn listed(stack: &Stack, kind: &str, org: &str) -> Result<String> {
    wait::until("it is listed", wait::CONVERGE, || async {
        let found = read(stack, &format!("/api/{kind}?org={org}")).await?;
        found[0]["id"].as_str().map(str::to_owned)
    })
    .await
}

async fn a_running_call_is_listed_and_cancelled_by_an_admin(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = caller(stack, "hasty").await?;
    // It would take 100 s.
    let mut long = call(&token, "count", json!({"to": 100, "delayMs": 1000}));
    let body = String::from_utf8(long.body)?;
    long.body = body.replace(r#""_meta":{"#, r#""_meta":{"progressToken":1,"#).into_bytes();
    let open = http1::open(stack.edge(), &long, "notifications/progress").await?;
    let id = listed(stack, "calls", "hasty").await?;
    let shown = read(stack, "/api/calls?org=hasty&primitive=count&user=carol").await.context("calls")?;
    ensure!(shown[0]["server"] == "demo" && shown[0]["state"] != "completed", "{shown}");
    let path = format!("/api/calls/{id}");
    let others = as_role(stack, "org:globex", "DELETE", &path, "").await?;
    ensure!(others.status == 202, "another org's admin learns nothing: {}", others.text());
    let asked = as_role(stack, "org:hasty", "DELETE", &path, "").await?;
    ensure!(asked.status == 202, "{}", asked.text());
    let ended = open.finish().await?;
    ensure!(!ended.text().contains("\"counted\":100"), "{}", ended.text());
    wait::until("it is listed no more", wait::CONVERGE, || async {
        (read(stack, "/api/calls?org=hasty").await? == json!([])).then_some(())
    })
    .await
}

async fn a_session_is_listed_and_ended_by_an_admin(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let token = caller(stack, "seated").await?;
    let session = initialize(stack.edge(), &token).await?;
    let headers = [("mcp-session-id", session.as_str()), ("mcp-protocol-version", "2025-11-25")];
    let list = legacy(&token, "tools/list", json!({}), &headers);
    ensure!(http1::send(stack.edge(), &list).await?.status == 200);
    let id = listed(stack, "sessions", "seated").await?;
    admin(stack, "DELETE", &format!("/api/sessions/{id}"), "").await?;
    wait::until("the session is unknown", wait::CONVERGE, || async {
        (http1::send(stack.edge(), &list).await.ok()?.status == 404).then_some(())
    })
    .await
}

/// Waits until a part of the page has a text; returns the whole text.
async fn shows(browser: &Chromium, id: &str, wanted: &str) -> Result<String> {
    let script = format!("return document.getElementById('{id}').textContent");
    let shown = wait::until(wanted, wait::CONVERGE, || async {
        let text = browser.run(&script).await.ok()?.as_str()?.to_owned();
        text.contains(wanted).then_some(text)
    });
    match shown.await {
        Ok(text) => Ok(text),
        Err(late) => {
            let fault = browser.run("return document.body.textContent").await?;
            Err(late).with_details(|| format!("the page says {fault}"))
        }
    }
}

async fn an_admin_answers_five_questions_on_the_page_alone(shared: &Shared) -> Result<()> {
    let stack = shared.stack().await?;
    let bob = stack.token(&["--org", "paged", "--user", "bob"]).await?;
    // The page shows the calls of one day.
    wait::until_day_lasts(2 * wait::START).await?;
    record(stack, &bob).await?;
    let browser = Chromium::start().await?;
    browser.open(&format!("http://{}/admin", stack.admin())).await?;
    browser.fill("#org", "paged").await?;
    browser.fill("#token", "no token").await?;
    browser.click("#login button").await?;
    shows(&browser, "fault", "401").await?;
    browser.run("document.querySelector('#token').value = ''").await?;
    let admin_token = stack.token(&["--admin", "--user", "ops", "--role", "org:paged"]).await?;
    browser.fill("#token", &admin_token).await?;
    browser.click("#login button").await?;
    asks_who_called(&browser).await.context("who called it, and what was refused")?;
    blocks(stack, &browser, &bob).await.context("block bob, prove he is out, let him in")?;
    previews(&browser).await.context("a limit and a rule")?;
    let limits = read(stack, "/api/ratelimits/orgs/paged").await.context("limits")?;
    ensure!(limits[0]["selector"]["user"] == "each", "{limits}");
    let rules = read(stack, "/api/policy/orgs/paged/bindings").await.context("rules")?;
    let names = rules.as_array().into_iter().flatten().map(|rule| &rule["primitive"]["name"]);
    ensure!(names.collect::<Vec<_>>() == ["clock"], "the rule about echo is undone: {rules}");
    for list in ["ratelimits/orgs/paged", "policy/orgs/paged/bindings"] {
        admin(stack, "DELETE", &format!("/api/{list}"), "").await?;
    }
    browser.stop().await
}

/// Records two calls of carol, and one of bob that is denied.
async fn record(stack: &Stack, bob: &str) -> Result<()> {
    let carol = caller(stack, "paged").await?;
    let deny = json!({"target": {"type": "user", "idOrPattern": "bob"}, "primitive": {"name": "clock"}, "allowed": false});
    admin(stack, "PUT", "/api/policy/orgs/paged/bindings?force=true", &deny.to_string()).await?;
    let list = modern(bob, "tools/list", json!({}), &[]);
    wait::until("bob may not call clock", wait::CONVERGE, || async {
        let listed = http1::send(stack.gateway(), &list).await.ok()?.text();
        (listed.contains("\"echo\"") && !listed.contains("\"clock\"")).then_some(())
    })
    .await?;
    http1::send(stack.gateway(), &call(bob, "clock", json!({}))).await?;
    for _ in 0..2 {
        http1::send(stack.edge(), &call(&carol, "echo", json!({"message": "hi"}))).await?;
    }
    wait::until("the calls are in the log", wait::CONVERGE, || async {
        let calls = read(stack, "/api/audit/calls?org=paged").await?;
        let ended = calls.as_array()?.iter().filter(|call| call["event"]["event"] == "call.finish").count();
        (ended == 3).then_some(())
    })
    .await
}

/// Asks who called, what was refused, and what nobody used.
async fn asks_who_called(browser: &Chromium) -> Result<()> {
    let today = "document.querySelector('#calls [name=day]').value = new Date().toISOString().slice(0, 10)";
    browser.run(today).await?;
    browser.fill("#calls [name=primitive]", "echo").await?;
    browser.click("#calls button").await?;
    let calls = shows(browser, "calls-answer", "2 calls by 1 caller on").await?;
    ensure!(calls.contains("carol") && calls.contains("0 refused, 0 failed"), "{calls}");
    browser.run("document.querySelector('#calls [name=primitive]').value = ''").await?;
    browser.click("#calls [name=refused]").await?;
    browser.click("#calls button").await?;
    let refused = shows(browser, "calls-answer", "1 of 3 calls").await?;
    ensure!(refused.contains("by 1 caller: 1 refused, 0 failed"), "{refused}");
    ensure!(refused.contains("refused by a rule (denied), by user:bob clock *"), "{refused}");
    ensure!(!refused.contains("carol"), "the summary has no caller without a refused call: {refused}");
    browser.click("#unused").await?;
    let unused = shows(browser, "usage-answer", "had no admitted call since").await?;
    ensure!(unused.contains("clock"), "the refused call of bob is no use: {unused}");
    Ok(())
}

/// Blocks bob, proves that he is out, by the page and by his own calls, and lets him in again.
async fn blocks(stack: &Stack, browser: &Chromium, bob: &str) -> Result<()> {
    let list = modern(bob, "tools/list", json!({}), &[]);
    browser.fill("#block [name=user]", "bobx").await?;
    browser.click("#block button").await?;
    shows(browser, "block-answer", "No call by bobx is counted in the last 30 days").await?;
    let none = read(stack, "/api/blocks?org=paged").await.context("blocks")?;
    ensure!(none == json!([]), "nobody is blocked before the name is confirmed: {none}");
    browser.run("document.querySelector('#block [name=user]').value = ''").await?;
    browser.fill("#block [name=user]", "bob").await?;
    browser.fill("#block [name=reason]", "left the company").await?;
    browser.click("#block button").await?;
    let blocked = shows(browser, "block-answer", "left the company").await?;
    ensure!(blocked.contains("bob"), "{blocked}");
    for (name, value) in [("user", "bob"), ("primitive", "clock"), ("server", "demo")] {
        browser.fill(&format!("#explain [name={name}]"), value).await?;
    }
    browser.click("#explain button").await?;
    shows(browser, "explain-answer", "Refused: bob is blocked.").await?;
    for place in [stack.edge(), stack.gateway()] {
        becomes(place, list.clone(), 403, Some("blocked")).await?;
    }
    browser.click("#block-answer button").await?;
    shows(browser, "block-answer", "Nobody is blocked.").await?;
    browser.click("#explain button").await?;
    shows(browser, "explain-answer", "Refused by the rule: bob may not call clock.").await?;
    shows(browser, "explain-answer", "denied, by user:bob clock *").await?;
    browser.run("document.querySelector('#explain [name=primitive]').value = 'echo'").await?;
    browser.click("#explain button").await?;
    shows(browser, "explain-answer", "Allowed: no rule speaks of it").await?;
    for place in [stack.edge(), stack.gateway()] {
        becomes(place, list.clone(), 200, None).await?;
    }
    browser.run("document.getElementById('explain').reset()").await.map(drop)
}

/// Undoes the last change of a part of the page, whose preview has this word.
async fn undoes(browser: &Chromium, id: &str, word: &str) -> Result<()> {
    let button = format!("#{id} button");
    browser.click(&button).await?;
    shows(browser, id, word).await?;
    browser.click(&button).await?;
    shows(browser, id, "Undone.").await.map(drop)
}

/// Asks whom a limit and a rule would have refused, and stores both; undoes the removal of the limit, and the rule.
async fn previews(browser: &Chromium) -> Result<()> {
    browser.run("document.querySelector('#limit [name=count]').value = '1'").await?;
    browser.run("document.querySelector('#limit [name=unit]').value = 'h'").await?;
    browser.fill("#limit [name=primitive]", "echo").await?;
    browser.click("#limit button").await?;
    let limit = shows(browser, "limit-answer", "would have refused 1 of 2 calls").await?;
    ensure!(limit.contains("carol"), "{limit}");
    browser.click("#limit-answer button").await?;
    shows(browser, "limit-answer", "the org has 1 limit.").await?;
    browser.click("#limits").await?;
    shows(browser, "limit-answer", "1 call an hour for each user on echo").await?;
    browser.click("#limit-answer td button").await?;
    shows(browser, "limit-answer", "Removed.").await?;
    undoes(browser, "limit-answer", "stores again").await?;
    browser.fill("#rule [name=primitive]", "clock").await?;
    browser.fill("#rule [name=target]", "bob").await?;
    browser.click("#rule button").await?;
    shows(browser, "rule-answer", "bob is already refused.").await?;
    browser.fill("#rule [name=target]", "x").await?;
    browser.click("#rule button").await?;
    shows(browser, "rule-answer", "No call by bobx in this period.").await?;
    shows(browser, "rule-answer", "Store this rule anyway").await?;
    browser.run("document.getElementById('rule').reset()").await?;
    browser.fill("#rule [name=primitive]", "echo").await?;
    browser.click("#rule button").await?;
    let rule = shows(browser, "rule-answer", "2 would be refused").await?;
    ensure!(rule.contains("allowed -> refused"), "{rule}");
    browser.click("#rule-answer button").await?;
    shows(browser, "rule-answer", "Stored.").await?;
    browser.fill("#explain [name=user]", "carol").await?;
    browser.fill("#explain [name=primitive]", "echo").await?;
    browser.fill("#explain [name=server]", "demo").await?;
    browser.click("#explain button").await?;
    shows(browser, "explain-answer", "Refused by the rule: no user may call echo.").await?;
    undoes(browser, "rule-answer", "removes").await?;
    let foreign = browser.run("return [...document.querySelectorAll('script')].length").await?;
    ensure!(foreign == json!(1), "{foreign}");
    Ok(())
}
