//! Preview of a change of policy on recorded calls, checked against a plain model of the rules.

use asp_store::audit::{AuditLog, CallEvent};
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::{Answer, Api, DEMO, sample};

const PREVIEW: &str = "/api/policy/preview";
const BINDINGS: &str = "/api/policy/orgs/acme/bindings";
const CALLS: usize = 10_000;

/// Returns numbers that differ and are the same in every run.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % sides
    }

    fn pick<'a>(&mut self, of: &[&'a str]) -> &'a str {
        of[self.roll(of.len())]
    }
}

/// A recorded call: user, primitive and protocol.
type Call = (String, &'static str, &'static str);

fn event(number: usize, (user, primitive, protocol): &Call) -> CallEvent {
    let event = json!({ "event": "call.finish", "call": format!("c{number}"), "user": user, "issuer": "dev", "wcit": "t",
        "server": "demo", "primitive": format!("{primitive}@1.0.0"), "protocol": protocol, "reason": "ok",
        "latencyUs": 0, "rateLimitHit": false });
    CallEvent { at_ms: i64::try_from(number).unwrap(), org: "acme".into(), event: event.to_string() }
}

async fn with_calls(calls: &[Call]) -> Api {
    let api = Api::start().await;
    let stored = api.put("platform", DEMO, sample("demo")).await;
    assert!(stored.status.is_success(), "{}", stored.body);
    let events: Vec<CallEvent> = calls.iter().enumerate().map(|(number, call)| event(number, call)).collect();
    api.calls.append(&events).await.unwrap();
    api
}

async fn preview(api: &Api, role: &str, mut change: Value) -> Answer {
    change["org"] = json!("acme");
    api.send(role, Method::POST, PREVIEW, Some(change), &[]).await
}

/// A binding of users: pattern of the user, pattern of the primitive, protocol or `*`, and whether it allows.
type Rule = (String, String, &'static str, bool);

fn body((user, primitive, protocol, allowed): &Rule) -> Value {
    json!({ "target": { "type": "user", "idOrPattern": user, "issuer": "dev" },
        "primitive": { "name": primitive, "protocol": protocol }, "allowed": allowed })
}

/// Decides in the plainest way: of the rules that name the call, the one with the longest primitive, then user, then a named
/// protocol, then a denial.
fn model(rules: &[Rule], (user, primitive, protocol): &Call) -> bool {
    let names = |pattern: &str, name: &str| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => pattern == name,
    };
    let length = |pattern: &str| match pattern.strip_suffix('*') {
        Some(prefix) => prefix.len(),
        None => 1_000,
    };
    let mut best: Option<((usize, usize, bool, bool), bool)> = None;
    for (whose, what, over, allowed) in rules {
        if names(whose, user) && names(what, primitive) && (*over == "*" || over == protocol) {
            let rank = (length(what), length(whose), *over != "*", !allowed);
            if best.is_none_or(|(known, _)| rank > known) {
                best = Some((rank, *allowed));
            }
        }
    }
    best.is_none_or(|(_, allowed)| allowed)
}

fn rule(dice: &mut Dice) -> Rule {
    let user = match dice.roll(4) {
        0 => "*".to_owned(),
        1 => format!("u{}*", dice.roll(4)),
        _ => format!("u{}", dice.roll(40)),
    };
    let primitive = dice.pick(&["echo", "clock", "c*", "co*", "greeting", "*"]).to_owned();
    (user, primitive, dice.pick(&["*", "mcp", "rest"]), dice.roll(2) == 0)
}

/// Returns the rules that are in force if they are stored one after the other: of equal keys the last one.
fn last(rules: Vec<Rule>) -> Vec<Rule> {
    let same_key = |one: &Rule, other: &Rule| (&one.0, &one.1, one.2) == (&other.0, &other.1, other.2);
    rules.into_iter().fold(Vec::new(), |mut kept: Vec<Rule>, rule| {
        kept.retain(|known| !same_key(known, &rule));
        kept.push(rule);
        kept
    })
}

#[tokio::test]
async fn ten_thousand_calls_change_exactly_as_a_plain_model_says() {
    let mut dice = Dice(6);
    let protocols = ["mcp", "rest"];
    let primitives = ["echo", "clock", "count", "greeting", "about", "item"];
    let calls: Vec<Call> = (0..CALLS)
        .map(|_| {
            let user = format!("u{}", dice.roll(40));
            (user, dice.pick(&primitives), dice.pick(&protocols))
        })
        .collect();
    let api = with_calls(&calls).await;
    let stored: Vec<Rule> = (0..12).map(|_| rule(&mut dice)).collect();
    let new: Vec<Rule> = (0..8).map(|_| rule(&mut dice)).collect();
    let stored = last(stored);
    let new = last(new);
    for rule in &stored {
        let put = api.put("org:acme", BINDINGS, body(rule)).await;
        assert_eq!(put.status, StatusCode::OK, "{}", put.body);
    }
    let then = last([stored.clone(), new.clone()].concat());
    let change = json!({ "bindings": new.iter().map(body).collect::<Vec<_>>() });
    let answer = preview(&api, "org:acme:read", change).await;
    assert_eq!(answer.status, StatusCode::OK, "{}", answer.body);
    let changed = |from: bool, to: bool| {
        calls.iter().filter(|call| (model(&stored, call), model(&then, call)) == (from, to)).count()
    };
    let refused = changed(true, false);
    let admitted = changed(false, true);
    assert!(refused > 100 && admitted > 100, "the rules change too little: {refused} {admitted}");
    let seen = answer.body;
    assert_eq!(
        (&seen["calls"], &seen["newlyRefused"], &seen["newlyAdmitted"], &seen["newlyAsked"]),
        (&json!(CALLS), &json!(refused), &json!(admitted), &json!(0)),
    );
    assert_eq!(seen["more"], json!(false), "all calls are replayed");
    assert_eq!(seen["undetermined"], json!({ "groups": 0, "arguments": 0, "notServed": 0 }));
    let named = seen["changed"].as_array().unwrap();
    assert_eq!(named.len(), 100);
    let expected: Vec<String> = calls
        .iter()
        .enumerate()
        .rev()
        .filter(|(_, call)| model(&stored, call) != model(&then, call))
        .take(100)
        .map(|(number, _)| format!("c{number}"))
        .collect();
    let found: Vec<&str> = named.iter().map(|call| call["call"].as_str().unwrap()).collect();
    assert_eq!(found, expected);
    let after = api.get("org:acme", BINDINGS).await.body;
    assert_eq!(after.as_array().unwrap().len(), stored.len(), "nothing is stored");
    api.calls.append(&[event(CALLS, &calls[0])]).await.unwrap();
    let seen = preview(&api, "org:acme:read", json!({})).await.body;
    assert_eq!((&seen["calls"], &seen["more"]), (&json!(CALLS), &json!(true)), "the oldest call is not read");
}

fn some_calls() -> Vec<Call> {
    [("alice", "echo", "mcp"), ("bob", "echo", "mcp"), ("bob", "echo", "rest"), ("bob", "clock", "mcp")]
        .map(|(user, primitive, protocol)| (user.to_owned(), primitive, protocol))
        .into()
}

#[tokio::test]
async fn a_change_that_groups_or_arguments_decide_is_undetermined_and_not_named() {
    let api = with_calls(&some_calls()).await;
    let of_group = json!({ "target": { "type": "group", "idOrPattern": "ops" }, "primitive": { "name": "echo" },
        "allowed": false });
    let seen = preview(&api, "org:acme", json!({ "bindings": [of_group] })).await.body;
    assert_eq!((&seen["undetermined"]["groups"], &seen["newlyRefused"]), (&json!(3), &json!(0)), "{seen}");
    let conditional = json!({ "target": { "type": "user", "idOrPattern": "bob" }, "primitive": { "name": "echo" },
        "allowed": false, "when": [{ "pointer": "/message", "equals": "x" }] });
    let seen = preview(&api, "org:acme", json!({ "bindings": [conditional] })).await.body;
    assert_eq!((&seen["undetermined"]["arguments"], &seen["newlyRefused"]), (&json!(2), &json!(0)), "{seen}");
    let mut asked = json!({ "target": { "type": "user", "idOrPattern": "bob" }, "primitive": { "name": "echo" },
        "allowed": true, "approval": true });
    let seen = preview(&api, "org:acme", json!({ "bindings": [asked] })).await.body;
    assert_eq!((&seen["newlyAsked"], &seen["undetermined"]["arguments"]), (&json!(2), &json!(0)), "{seen}");
    asked["when"] = json!([{ "pointer": "/message", "notIn": ["x"] }]);
    let seen = preview(&api, "org:acme", json!({ "bindings": [asked] })).await.body;
    assert_eq!((&seen["newlyAsked"], &seen["undetermined"]["arguments"]), (&json!(0), &json!(2)), "{seen}");
    let observed = json!({ "target": { "type": "user", "idOrPattern": "bob" }, "primitive": { "name": "echo" },
        "allowed": false, "observe": true });
    let seen = preview(&api, "org:acme", json!({ "bindings": [observed] })).await.body;
    assert_eq!(seen["newlyRefused"], json!(0), "an observed binding refuses nothing: {seen}");
}

#[tokio::test]
async fn exposure_limits_and_the_removal_of_a_binding_are_previewed_too() {
    let api = with_calls(&some_calls()).await;
    let off = json!({ "exposure": [{ "server": "demo", "protocol": "rest", "enabled": false }] });
    let seen = preview(&api, "org:acme", off).await.body;
    assert_eq!(seen["newlyRefused"], json!(1), "{seen}");
    let call = &seen["changed"][0];
    assert_eq!(
        (&call["user"], &call["protocol"], &call["from"], &call["to"]),
        (&json!("bob"), &json!("rest"), &json!("admitted"), &json!("refused"))
    );
    let seen = preview(&api, "org:acme", json!({ "limits": ["2/h for each user"] })).await.body;
    assert_eq!(seen["limits"][0]["wouldRefuse"], json!(1), "{seen}");
    let deny = json!({ "target": { "type": "user", "idOrPattern": "bob" }, "primitive": { "name": "echo" },
        "allowed": false });
    api.put("org:acme", BINDINGS, deny.clone()).await;
    let seen = preview(&api, "org:acme", json!({ "removeBindings": [deny] })).await.body;
    assert_eq!((&seen["newlyAdmitted"], &seen["newlyRefused"]), (&json!(2), &json!(0)), "{seen}");
    assert_eq!(
        seen["callers"],
        json!([{ "user": "bob", "issuer": "dev", "refused": 0, "admitted": 2, "asked": 0 }])
    );
    let recent = preview(&api, "org:acme", json!({ "since": 3 })).await.body;
    assert_eq!((&recent["calls"], &recent["since"]), (&json!(1), &json!(3)));
}

#[tokio::test]
async fn another_org_and_a_malformed_change_are_refused() {
    let api = Api::start().await;
    assert_eq!(preview(&api, "org:other", json!({})).await.status, StatusCode::NOT_FOUND);
    assert_eq!(preview(&api, "server:demo", json!({})).await.status, StatusCode::NOT_FOUND);
    for bad in [
        json!({ "limits": ["60/week"] }),
        json!({ "bindings": [{ "target": { "type": "robot", "idOrPattern": "x" }, "primitive": { "name": "*" },
            "allowed": false }] }),
        json!({ "exposure": [{ "server": "d*", "protocol": "mcp", "enabled": true }] }),
        json!({ "binding": [] }),
        json!({ "limits": vec!["1/s"; 1_001] }),
    ] {
        let refused = preview(&api, "org:acme", bad.clone()).await;
        assert!(refused.status.is_client_error(), "{bad}: {}", refused.body);
    }
}

/// The preview is about policy alone: arguments that fit no schema change nothing in its decision.
#[tokio::test]
async fn a_call_that_policy_allows_and_its_arguments_do_not_is_one_that_policy_would_refuse() {
    let call: Call = ("carl".to_owned(), "echo", "mcp");
    let api = with_calls(&some_calls()).await;
    let mut invalid = event(4, &call);
    invalid.event = invalid.event.replace("\"reason\":\"ok\"", "\"reason\":\"invalid_params\"");
    assert!(invalid.event.contains("invalid_params"));
    api.calls.append(&[invalid]).await.unwrap();
    let denied: Rule = ("carl".into(), "echo".into(), "*", false);
    let seen = preview(&api, "org:acme", json!({ "bindings": [body(&denied)] })).await.body;
    assert_eq!((&seen["calls"], &seen["newlyRefused"]), (&json!(5), &json!(1)), "{seen}");
    let changed = &seen["changed"][0];
    assert_eq!((&changed["from"], &changed["to"]), (&json!("admitted"), &json!("refused")), "{seen}");
    assert_eq!(changed["reason"], json!("invalid_params"), "{seen}");
}
