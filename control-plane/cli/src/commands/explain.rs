//! `asp explain`: the rule that decides a call, and what would change the decision.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::admin::explain::Question;
use asp_platform::shell;
use serde_json::Value;

use super::answer::{is, list, text, texts};
use super::binding;
use super::client::{AdminClient, api_path, block_on};
use super::server_access::{self, CallPermission, ServerAccess};
use crate::args::ExplainArgs;

mod by_token;
mod caller;
mod recorded;

/// Asks the API and prints the answer; fails if the call would not be allowed.
pub fn run(args: &ExplainArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let mut question = question(args)?;
    let answer = block_on(async {
        if let Some(file) = &args.token {
            return by_token::ask(&api, file, &mut question).await;
        }
        if let Some(id) = &args.trace {
            let call = recorded::find(&api, args.org.as_deref(), id).await?;
            recorded::complete(&mut question, &call);
            print::note(&recorded::describe(&call));
        }
        if question.protocol.is_empty() {
            "mcp".clone_into(&mut question.protocol);
        }
        let body = serde_json::to_value(&question).map_err(anyhow::Error::new)?;
        api.post("/api/policy/explain", &body).await?.accepted()
    })?;
    if args.json {
        print::json(&answer);
    } else {
        if !text(&answer, "primitive").is_empty() {
            text(&answer, "primitive").clone_into(&mut question.primitive);
        }
        print::line(&describe_decision(&question, &answer));
        if let Some(line) = access_of(&question, &answer) {
            print::line(&line);
        }
        let of_caller = caller::revocations(&question, &answer).into_iter().chain(caller::depends(&answer));
        let of_call = describe_conditional_bindings(&question, &answer).into_iter().chain(limits(&answer));
        for line in of_caller.chain(of_call) {
            print::line(&line);
        }
    }
    if is(&answer, "allowed") { Ok(()) } else { Err(Failure::Refused) }
}

/// Returns the question in the arguments; what they leave out is empty.
fn question(args: &ExplainArgs) -> Result<Question, Failure> {
    let text = |given: &Option<String>| given.clone().unwrap_or_default();
    Ok(Question {
        org: text(&args.org),
        user: text(&args.user),
        machine: text(&args.machine),
        issuer: text(&args.issuer),
        groups: args.groups.clone(),
        wcit: text(&args.wcit),
        scopes: args.scopes.clone(),
        server: text(&args.server),
        primitive: text(&args.primitive),
        protocol: text(&args.protocol),
        arguments: args.arguments.as_deref().map(arguments).transpose()?,
    })
}

/// Describes the rate limits that the call draws from.
fn limits(answer: &Value) -> Vec<String> {
    let line = |limit: &Value| {
        let number = |member: &str| limit.get(member).map(Value::to_string).unwrap_or_default();
        let selector = limit.get("selector").and_then(Value::as_object).into_iter().flatten();
        let named = selector.filter_map(|(name, value)| Some((name, value.as_str()?)));
        let named: Vec<String> =
            named.filter(|(_, value)| *value != "*").map(|(name, value)| format!("{name} {value}")).collect();
        let about = if named.is_empty() { "all calls of the org".to_owned() } else { named.join(", ") };
        let capacity = number("capacity");
        let window = number("windowSeconds");
        let amount = match text(limit, "type") {
            "concurrency" => format!("at most {capacity} at once"),
            "fixed-window" => format!("{capacity} in each {window} seconds"),
            "sliding-window" => format!("{capacity} in any {window} seconds"),
            _ => format!("{capacity} at once, then {} a second", number("refillPerSecond")),
        };
        let observed = if is(limit, "observe") { "; observed, refuses nothing" } else { "" };
        format!("limit: {amount} ({about}); buckets: {}{observed}", text(limit, "buckets"))
    };
    list(answer, "limits").map(line).collect()
}

/// Returns the first unmet one of the three conditions for a call, and who can change it.
fn access_of(question: &Question, answer: &Value) -> Option<String> {
    let allow = allow(question, answer);
    let conditions = answer.pointer("/decidedBy/binding").and_then(binding::describe_conditions);
    let denied = conditions.as_deref().map_or(CallPermission::No(&allow), CallPermission::NotIf);
    let Question { server, org, protocol, .. } = question;
    let outcome = answer.get("outcome").and_then(Value::as_str)?;
    let mut on = server_access::switches(answer.get("switches"));
    if on.is_empty() {
        // An older control plane answers about the protocol of the question only.
        on.push((protocol.as_str(), outcome != "not_exposed"));
    }
    let (offered, allowed) = match outcome {
        "not_offered" => (false, CallPermission::Depends),
        "not_exposed" => (true, CallPermission::Depends),
        "denied" => (true, denied),
        "allowed" | "needs_approval" => (true, CallPermission::Yes),
        _ => return None,
    };
    Some(server_access::line(&ServerAccess { server, org, offered, on: &on, protocol, allowed }))
}

/// Whether the answer is for the team of the server, which does not see the bindings of the org.
fn is_withheld(answer: &Value) -> bool {
    answer.pointer("/decidedBy/withheld").and_then(Value::as_bool) == Some(true)
}

/// Returns the command that allows the primitive for this caller, or one for each issuer that may be meant. Its binding is
/// more specific than the denial that decided, or replaces it.
fn allow(question: &Question, answer: &Value) -> String {
    let denial = |pointer: &str| {
        let text = answer.pointer(&format!("/decidedBy/binding{pointer}")).and_then(Value::as_str);
        text.filter(|text| !matches!(*text, "" | "*"))
    };
    let target = match denial("/target/type") {
        Some("wcit") => ("wcit", question.wcit.as_str()),
        _ if question.machine.is_empty() => ("user", question.user.as_str()),
        _ => ("machine", question.machine.as_str()),
    };
    let asked = Some(question.issuer.as_str()).filter(|name| !name.is_empty());
    let assumed = || answer.get("issuer").and_then(Value::as_str);
    let issuer = asked.or_else(assumed).or_else(|| denial("/target/issuer"));
    let protocol = match is_withheld(answer) {
        // As specific as the denial may be.
        true => Some(question.protocol.as_str()),
        false => denial("/primitive/protocol"),
    };
    let command = |issuer: Option<&str>| {
        let words = [("allow", question.primitive.as_str()), target].into_iter();
        let words = words.chain(issuer.map(|issuer| ("issuer", issuer)));
        let words = words.chain(protocol.map(|protocol| ("protocol", protocol)));
        let options: String = words.map(|(name, value)| shell::option(name, value)).collect();
        shell::command("asp policy", &question.org, &options)
    };
    // If several issuers may be meant, an allow that names none is rejected.
    let possible = answer.get("issuers").and_then(Value::as_array).into_iter().flatten();
    let possible: Vec<String> = possible.map(|name| command(name.as_str())).collect();
    match issuer.is_some() || target.0 == "machine" || possible.is_empty() {
        true => command(issuer),
        false => possible.join("` or `"),
    }
}

fn arguments(text: &str) -> Result<Value, Failure> {
    match serde_json::from_str(text) {
        Ok(value @ Value::Object(_)) => Ok(value),
        Ok(_) => Err(Failure::bad("--arguments", "is not a JSON object")),
        Err(error) => Err(Failure::bad("--arguments", format!("is not JSON: {error}"))),
    }
}

/// Describes the bindings that have conditions on arguments or are only observed.
fn describe_conditional_bindings(question: &Question, answer: &Value) -> Vec<String> {
    let mut lines = Vec::new();
    if answer.get("issuers").is_some() {
        let issuers = texts(answer, "issuers").join(", ");
        lines.push(format!(
            "several issuers may be meant ({issuers}), so bindings and limits of one issuer were left out: name one with --issuer"
        ));
    }
    for rule in list(answer, "rules") {
        let Some(binding) = rule.get("binding") else { continue };
        let holds = match rule.get("holds").and_then(Value::as_bool) {
            Some(true) => "it is about this call",
            Some(false) => "it is not about this call",
            None => "give --arguments to see whether it is about a call",
        };
        lines.push(format!("- {}: {holds}", binding::describe_binding(&question.org, binding)));
    }
    if let Some(observed) = answer.get("observed") {
        let outcome = text(observed, "outcome");
        let by = observed.get("binding").map(|binding| binding::describe_binding(&question.org, binding));
        lines.push(format!(
            "observed: it would be {}, because {}",
            outcome.replace('_', " "),
            by.unwrap_or_else(|| "a binding says so".to_owned())
        ));
    }
    lines
}

/// Describes what decided, then what would change it.
fn describe_decision(question: &Question, answer: &Value) -> String {
    let Question { org, server, primitive, protocol, .. } = question;
    let outcome = text(answer, "outcome");
    let rule = answer.pointer("/decidedBy/rule").and_then(Value::as_str).unwrap_or_default();
    if is_withheld(answer) {
        return caller::describe_for_team(question, outcome);
    }
    let bindings = api_path(&["api", "policy", "orgs", org, "bindings"]);
    let exposure = api_path(&["api", "policy", "orgs", org, "exposure"]);
    let decisive = answer.pointer("/decidedBy/binding");
    let remedy = remedy(org, decisive);
    let binding = decisive.map(|binding| binding::describe_binding(org, binding));
    match (outcome, binding) {
        ("allowed", Some(binding)) => {
            format!(
                "allowed: {binding}. A more specific binding that denies it would change that ({bindings})."
            )
        }
        ("allowed", None) => format!(
            "allowed: {server} is exposed to {org} over {protocol} and no binding speaks of {primitive}. A binding \
             that denies it would change that ({bindings})."
        ),
        ("needs_approval", Some(binding)) => format!("allowed once a person approves: {binding}. {remedy}"),
        ("needs_approval", None) => format!(
            "allowed once a person approves: {primitive} is {rule}. A binding that allows it would drop the \
             approval ({bindings})."
        ),
        ("denied", binding) => {
            format!("denied: {}. {remedy}", binding.unwrap_or_else(|| "a binding forbids it".to_owned()))
        }
        ("not_exposed", _) => format!(
            "denied: {server} is not exposed to {org} over {protocol}, by {rule}. An exception that enables it \
             would change that ({exposure})."
        ),
        ("insufficient_scope", _) => caller::scope(question, answer),
        ("token_revoked", _) => {
            format!("denied: the token {} is revoked; a new one of the same caller works.", question.wcit)
        }
        ("blocked", _) => {
            let who = if question.user.is_empty() { &question.machine } else { &question.user };
            let lift = shell::command("asp unblock user", who, &shell::option("org", org));
            format!("denied: {who} of {org} is blocked, or the whole org is. `{lift}` lets a user in again.")
        }
        ("invalid_arguments", _) => {
            let place = answer.pointer("/decidedBy/pointer").and_then(Value::as_str).unwrap_or_default();
            format!("denied: the arguments do not fit the schema at `{place}`: {rule}.")
        }
        ("not_offered", _) => format!(
            "denied: no server {server} with the primitive {primitive} is offered to {org}. Admins of the server and of \
             the platform see more with `asp servers show {server} --org {org}`."
        ),
        ("unknown_server", _) => {
            format!("denied: no server is called {server}. `asp apply` registers one; `asp diff` lists them.")
        }
        ("unknown_primitive", _) => format!(
            "denied: {server} lists nothing by the id or the exposed name {primitive}. Its server.yaml decides."
        ),
        _ => format!("denied: {rule}."),
    }
}

/// Describes how to change the decision of a binding. One with conditions holds for other calls too, so it is changed rather
/// than removed.
fn remedy(org: &str, decisive: Option<&Value>) -> String {
    let Some(binding) = decisive else {
        return "To change that, remove that binding or write a more specific one that allows it.".to_owned();
    };
    if binding::describe_conditions(binding).is_none() {
        let removal = binding::removal(org, binding);
        return format!(
            "To change that, remove that binding (`{removal}`) or write a more specific one that allows it."
        );
    }
    let stored = binding::storing(org, binding).map(|command| format!(": `{command}`")).unwrap_or_default();
    format!(
        "It applies only to arguments that meet its condition: call with others, or change the values of the condition by \
         storing the binding again{stored}."
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn line(outcome: &str, decided_by: Value) -> String {
        let question = json!({
            "org": "acme", "user": "alice", "server": "demo", "primitive": "echo", "protocol": "mcp"
        });
        let question: Question = serde_json::from_value(question).unwrap();
        describe_decision(&question, &json!({ "outcome": outcome, "decidedBy": decided_by }))
    }

    #[test]
    fn the_command_for_a_denied_caller_is_as_exact_as_the_denial_and_about_nobody_else() {
        let question = |changes: Value| {
            let mut question = json!({ "org": "acme", "user": "bob b", "server": "shop", "primitive": "shop.buy", "protocol": "mcp" });
            question.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            serde_json::from_value::<Question>(question).unwrap()
        };
        let denial = |target: Value, protocol: &str| {
            let primitive = json!({ "name": "shop.*", "protocol": protocol });
            json!({ "outcome": "denied", "decidedBy": { "binding": { "target": target, "primitive": primitive } } })
        };
        let of_user = denial(json!({ "type": "user", "idOrPattern": "*", "issuer": "login" }), "mcp");
        let said = access_of(&question(json!({})), &of_user).unwrap();
        let command = "`asp policy acme --allow shop.buy --user 'bob b' --issuer login --protocol mcp`";
        assert!(said.ends_with(command), "{said}");
        let of_token = denial(json!({ "type": "wcit", "idOrPattern": "t-1" }), "*");
        let said = access_of(&question(json!({ "wcit": "t-1" })), &of_token).unwrap();
        assert!(said.ends_with("`asp policy acme --allow shop.buy --wcit t-1`"), "{said}");
        let of_login = question(json!({ "wcit": "t-1", "issuer": "login" }));
        let said = access_of(&of_login, &of_token).unwrap();
        assert!(said.ends_with("`asp policy acme --allow shop.buy --wcit t-1 --issuer login`"), "{said}");
        let mut open = denial(json!({ "type": "user", "idOrPattern": "*" }), "*");
        open["issuers"] = json!(["login", "contractors"]);
        let said = access_of(&question(json!({})), &open).unwrap();
        assert!(
            said.ends_with(
                "allows it: `asp policy acme --allow shop.buy --user 'bob b' --issuer login` or `asp policy acme --allow \
                 shop.buy --user 'bob b' --issuer contractors`"
            ),
            "{said}"
        );
        // The server has one issuer, and the org several.
        let mut assumed = denial(json!({ "type": "user", "idOrPattern": "bob b" }), "*");
        assumed["issuer"] = json!("login");
        let said = access_of(&question(json!({})), &assumed).unwrap();
        assert!(said.ends_with("`asp policy acme --allow shop.buy --user 'bob b' --issuer login`"), "{said}");
        let withheld = json!({ "outcome": "denied", "decidedBy": { "withheld": true } });
        let said = access_of(&question(json!({})), &withheld).unwrap();
        assert!(said.ends_with("`asp policy acme --allow shop.buy --user 'bob b' --protocol mcp`"), "{said}");
        let of_group = denial(json!({ "type": "group", "idOrPattern": "ops" }), "*");
        let said = access_of(&question(json!({ "user": "", "machine": "press" })), &of_group).unwrap();
        assert!(said.ends_with("`asp policy acme --allow shop.buy --machine press`"), "{said}");
    }

    #[test]
    fn every_outcome_is_a_sentence_that_says_what_decided_and_what_would_change_it() {
        let binding = |allowed: bool| {
            json!({ "binding": {
                "target": { "type": "group", "idOrPattern": "ops" },
                "primitive": { "name": "ec*", "protocol": "*" },
                "allowed": allowed,
            }})
        };
        assert_eq!(
            line("denied", binding(false)),
            "denied: a binding of acme denies the group ops to call ec* over every protocol. To change \
             that, remove that binding (`asp policy acme --remove 'ec*' --group ops`) or write a more specific one that \
             allows it."
        );
        assert!(
            line("allowed", binding(true)).starts_with("allowed: a binding of acme allows the group ops")
        );
        assert!(line("allowed", json!({})).contains("no binding speaks of echo"));
        assert!(line("needs_approval", json!({ "rule": "destructive" })).contains("once a person approves"));
        let hidden = line("not_exposed", json!({ "rule": "the server's default" }));
        assert!(hidden.contains("by the server's default") && hidden.contains("/exposure"), "{hidden}");
        let scopes = line("insufficient_scope", json!({ "required": ["read", "write"] }));
        assert!(scopes.contains("read, write"), "{scopes}");
        assert!(line("token_revoked", json!({})).contains("is revoked"));
        assert!(line("denied", json!({ "withheld": true })).starts_with("denied: the policy of acme denies"));
        let off = line("not_served", json!({ "rule": "A2A is off: confirm it" }));
        assert_eq!(off, "denied: A2A is off: confirm it.");
        let misfit = line("invalid_arguments", json!({ "pointer": "/a", "rule": "is no string" }));
        assert_eq!(misfit, "denied: the arguments do not fit the schema at `/a`: is no string.");
        assert!(arguments("[]").is_err() && arguments("{").is_err() && arguments("{}").is_ok());
        for unknown in ["unknown_server", "unknown_primitive"] {
            assert!(line(unknown, json!({})).starts_with("denied: "), "{unknown}");
        }
    }

    #[test]
    fn a_binding_with_conditions_is_named_by_them_and_is_stored_again_to_change_them() {
        let rule = json!({
            "target": { "type": "user", "idOrPattern": "*" },
            "primitive": { "name": "echo", "protocol": "mcp" },
            "allowed": true, "approval": true, "name": "large",
            "when": [{ "pointer": "/amount", "range": { "min": 1 } }],
        });
        let asked = line("needs_approval", json!({ "binding": rule.clone() }));
        assert!(
            asked.starts_with(
                "allowed once a person approves: a binding `large` of acme requires a person's approval for the user * \
                 to call echo over mcp when /amount range 1... It applies only to arguments"
            ),
            "{asked}"
        );
        let bound = json!({ "binding": {
            "target": { "type": "user", "idOrPattern": "*" },
            "primitive": { "name": "echo", "protocol": "*" },
            "allowed": false, "name": "large",
            "when": [{ "pointer": "/amount", "range": { "min": 1 } }],
        }});
        assert_eq!(
            line("denied", bound.clone()),
            "denied: a binding `large` of acme denies the user * to call echo over every protocol when /amount range 1... It \
             applies only to arguments that meet its condition: call with others, or change the values of the condition by \
             storing the binding again: `asp policy acme --deny echo --user '*' --name large --when /amount range 1..`."
        );
        let question = json!({ "org": "acme", "server": "demo", "primitive": "echo", "protocol": "mcp" });
        let question: Question = serde_json::from_value(question).unwrap();
        let access = access_of(&question, &json!({ "outcome": "denied", "decidedBy": bound })).unwrap();
        let expected = "allowed no with these arguments, which meet the condition /amount range 1..";
        assert!(access.ends_with(expected) && !access.contains("--allow"), "{access}");
        let mut seen = rule.clone();
        seen["observe"] = json!(true);
        let answer = json!({
            "rules": [{ "binding": rule, "holds": null }, { "binding": seen.clone(), "holds": true }],
            "observed": { "outcome": "needs_approval", "binding": seen },
        });
        let lines = describe_conditional_bindings(&question, &answer);
        assert!(lines[0].ends_with("give --arguments to see whether it is about a call"), "{}", lines[0]);
        assert!(lines[1].starts_with("- an observed binding `large`"), "{}", lines[1]);
        assert!(lines[2].starts_with("observed: it would be needs approval, because"), "{}", lines[2]);
    }
}
