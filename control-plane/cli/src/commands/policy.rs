//! `asp policy`, `asp limits` and `asp revoke`: the most frequent changes by admins, without writing HTTP by hand.
//!
//! Decides nothing itself: the API does, and its refusal is shown.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::policy::EVERY_ISSUER;
use asp_platform::shell;
use asp_platform::time::rfc3339;
use serde_json::{Value, json};

use super::answer::{show, text, texts};
use super::client::{AdminClient, api_path, block_on};
use crate::args::RevokeArgs;
use crate::args::policy::{PolicyArgs, PolicyCommand};

pub mod files;
pub mod limits;
mod preview;
mod removal;
mod revocations;

/// Changes one exposure or binding of an org, or shows all of them.
pub fn policy(args: &PolicyArgs) -> Result<(), Failure> {
    match &args.command {
        Some(PolicyCommand::Diff(args)) => return files::diff(args),
        Some(PolicyCommand::Apply(args)) => return files::apply(args),
        Some(PolicyCommand::Export(args)) => return files::export(args),
        None if args.org.is_empty() => return Err(Failure::bad("ORG", "is required")),
        None => {}
    }
    let api = AdminClient::new(&ProcessEnvironment)?;
    if let Some(primitive) = &args.remove {
        return block_on(removal::run(&api, args, primitive));
    }
    if let Some(server) = &args.reset {
        return block_on(removal::exception(&api, args, server));
    }
    let exposure = api_path(&["api", "policy", "orgs", &args.org, "exposure"]);
    let bindings = api_path(&["api", "policy", "orgs", &args.org, "bindings"]);
    let change = change(args)?;
    block_on(async {
        if let Some((part, bodies)) = &change {
            if args.dry_run {
                let seen = preview::read(&api, &preview::of_bodies(&args.org, *part, bodies)).await?;
                let words = format!("{}: not stored; {}", args.org, preview::describe(&seen));
                show(&seen, args.json, &words);
                return Ok(());
            }
            let path = if *part == PolicyPart::Exposure { &exposure } else { &bindings };
            let mut answer = Value::Null;
            for body in bodies {
                answer = api.put(&with_force(path, args.force), body).await?.accepted()?;
            }
            show(&answer, args.json, &format!("{}: stored; {}", args.org, how_to_undo(&args.org)));
            return Ok(());
        }
        let exposure = api.get(&exposure).await?.accepted()?;
        let bindings = api.get(&bindings).await?.accepted()?;
        print::json(&json!({ "exposure": exposure, "bindings": bindings }));
        Ok(())
    })
}

/// Describes how to find a change and take it back.
fn how_to_undo(org: &str) -> String {
    format!("`asp history{}` lists the change, `asp undo CHANGE` takes it back", shell::option("org", org))
}

/// Returns the path for a write that, with `force`, may name things that the platform has no record of.
fn with_force(path: &str, force: bool) -> String {
    if force { format!("{path}?force=true") } else { path.to_owned() }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PolicyPart {
    Exposure,
    Bindings,
}

/// Returns the part of the policy to change, and the bodies to put one after the other.
fn change(args: &PolicyArgs) -> Result<Option<(PolicyPart, Vec<Value>)>, Failure> {
    let server = args.expose.as_ref().or(args.hide.as_ref());
    let enabled = args.expose.is_some();
    if let Some(server) = server {
        let protocol = args.protocol.as_deref().unwrap_or("mcp");
        let body = json!({ "server": server, "protocol": protocol, "enabled": enabled });
        return Ok(Some((PolicyPart::Exposure, vec![body])));
    }
    let Some(primitive) = args.allow.as_ref().or(args.deny.as_ref()).or(args.approval.as_ref()) else {
        return Ok(None);
    };
    let (allowed, approval) = (args.deny.is_none(), args.approval.is_some());
    let when = args.when.0.iter().map(|words| condition(words)).collect::<Result<Vec<_>, _>>()?;
    let approvers = args
        .by
        .as_deref()
        .map(|group| json!({ "group": group, "issuer": args.by_issuer.as_deref().unwrap_or_default() }));
    let binding = |target: Value| {
        let mut body = json!({
            "target": target,
            "primitive": { "name": primitive, "protocol": args.protocol.as_deref().unwrap_or("*") },
            "allowed": allowed,
            "when": when,
            "approval": approval,
            "observe": args.observe,
            "name": args.name.as_deref().unwrap_or_default(),
        });
        if let (Some(approvers), Some(body)) = (&approvers, body.as_object_mut()) {
            body.insert("approvers".into(), approvers.clone());
        }
        body
    };
    Ok(Some((PolicyPart::Bindings, targets(args).into_iter().map(binding).collect())))
}

/// Returns the targets of the binding. If none is given, these are all users and all machines, since a machine is not a user.
fn targets(args: &PolicyArgs) -> Vec<Value> {
    let named =
        [("user", &args.user), ("machine", &args.machine), ("group", &args.group), ("wcit", &args.wcit)];
    let named = named.into_iter().find_map(|(kind, name)| Some((kind, name.as_deref()?)));
    let target =
        |kind: &str, name: &str, issuer: &str| json!({ "type": kind, "idOrPattern": name, "issuer": issuer });
    match (named, args.issuer.as_deref().unwrap_or_default()) {
        (Some((kind, name)), issuer) => vec![target(kind, name, issuer)],
        // All users of every issuer: which issuer is meant cannot be unclear.
        (None, "" | EVERY_ISSUER) => vec![target("user", "*", ""), target("machine", "*", "")],
        (None, issuer) => vec![target("user", "*", issuer)],
    }
}

/// Converts `POINTER TEST VALUE…` to the API's form.
fn condition(words: &[String]) -> Result<Value, Failure> {
    let bad = |fault: &str| Failure::bad("--when", format!("`{}`: {fault}", words.join(" ")));
    let [pointer, test, values @ ..] = words else { return Err(bad("a pointer, a test and a value")) };
    let value = match (test.as_str(), values) {
        ("equals", [value]) => scalar(value),
        ("in", values) => values.iter().map(|value| scalar(value)).collect(),
        ("glob", [text]) => json!(text),
        ("range", [range]) => parse_range(range).ok_or_else(|| bad("a range is MIN..MAX, MIN.. or ..MAX"))?,
        ("not-in", values) => values.iter().map(|value| scalar(value)).collect(),
        ("not-glob", [text]) => json!(text),
        ("equals" | "glob" | "range" | "not-glob", _) => return Err(bad("this test has one value")),
        _ => return Err(bad("the test must be equals, in, glob, range, not-in or not-glob")),
    };
    let member = match test.as_str() {
        "not-in" => "notIn",
        "not-glob" => "notGlob",
        test => test,
    };
    Ok(json!({ "pointer": pointer, member: value }))
}

/// Parses a JSON string, number, boolean or null; any other text is a string.
fn scalar(text: &str) -> Value {
    let read =
        serde_json::from_str(text).ok().filter(|value: &Value| !value.is_array() && !value.is_object());
    read.unwrap_or_else(|| json!(text))
}

fn parse_range(text: &str) -> Option<Value> {
    let (min, max) = text.split_once("..")?;
    let mut range = serde_json::Map::new();
    for (name, end) in [("min", min), ("max", max)] {
        if !end.is_empty() {
            let number: serde_json::Number = serde_json::from_str(end).ok()?;
            range.insert(name.to_owned(), number.into());
        }
    }
    (!range.is_empty()).then_some(Value::Object(range))
}

/// Reads a list in YAML or JSON from a file or, for `-`, from standard input; `argument` names it in a fault.
pub(super) fn read_list(argument: &str, path: &Path) -> Result<Value, Failure> {
    let text = text_of(path)?;
    let value: Value = serde_saphyr::from_str(&text)
        .map_err(|error| Failure::bad(argument, format!("{}: {error}", path.display())))?;
    if value.is_array() { Ok(value) } else { Err(Failure::bad(argument, "the file holds no list")) }
}

/// Maximum number of tokens in one request.
const AT_ONCE: usize = 1_000;

/// Revokes a token, many tokens, a user or an org, or lifts a revocation.
pub fn revoke(args: &RevokeArgs) -> Result<(), Failure> {
    if args.list {
        return revocations::list(args);
    }
    if let Some(id) = &args.lift {
        let api = AdminClient::new(&ProcessEnvironment)?;
        block_on(async { api.delete(&api_path(&["api", "revocations", id])).await?.accepted() })?;
        let words = format!(
            "lifted ({id}); the tokens that it revoked are valid again within a second, until \
            they expire"
        );
        show(&json!({ "lifted": id }), args.json, &words);
        return Ok(());
    }
    let lists = [("token", &args.tokens), ("token_hash", &args.token_hashes)];
    for (kind, path) in lists {
        if let Some(path) = path {
            return revoke_several(args, kind, &text_of(path)?);
        }
    }
    let body = revocation(args)?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    let answer = block_on(async { api.post("/api/revocations", &body).await?.accepted() })?;
    show(&answer, args.json, &revoked(&answer));
    Ok(())
}

/// Reads a file or, for `-`, standard input.
fn text_of(path: &Path) -> Result<String, Failure> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("read standard input")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    }
    Ok(text)
}

/// Revokes the tokens in a list, as many per request as the API accepts; tokens revoked before a refusal stay revoked.
fn revoke_several(args: &RevokeArgs, kind: &str, list: &str) -> Result<(), Failure> {
    let requests = token_revocations(args, kind, list)?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    let mut revoked = Vec::new();
    block_on(async {
        for request in &requests {
            let answer = api.post("/api/revocations/batch", request).await?.accepted();
            let answer = answer.inspect_err(|_| {
                if !revoked.is_empty() {
                    print::note(&format!("the first {} of the list are revoked", revoked.len()));
                }
            })?;
            revoked.extend(answer.as_array().cloned().unwrap_or_default());
        }
        Ok::<_, Failure>(())
    })?;
    let words = format!("revoked {} tokens; edges and gateways enforce it within a second", revoked.len());
    show(&Value::from(revoked), args.json, &words);
    Ok(())
}

/// Returns the requests for a list with one token a line; empty lines are skipped.
fn token_revocations(args: &RevokeArgs, kind: &str, list: &str) -> Result<Vec<Value>, Failure> {
    let ids: Vec<&str> = list.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if ids.is_empty() {
        return Err(Failure::bad("asp revoke", "the list names no token"));
    }
    let of = |ids: &[&str]| json!({ "type": kind, "ids": ids, "org": args.org, "reason": args.reason });
    Ok(ids.chunks(AT_ONCE).map(of).collect())
}

/// Describes the answer: what is revoked, until when, and how to keep out new tokens.
fn revoked(answer: &Value) -> String {
    let text = |key: &str| text(answer, key);
    let number = |key: &str| answer.get(key).and_then(Value::as_u64);
    let mut lines = format!(
        "revoked ({0}); edges and gateways enforce it within a second, until `asp revoke --lift {0}`",
        text("revocation")
    );
    if let Some(seconds) = number("issuedUntil") {
        let until = rfc3339(seconds.saturating_mul(1_000));
        lines.push_str(&format!("\nit ends tokens issued until {until}; a token issued later works"));
    } else {
        lines.push_str("\nit ends this token; a new one works at once");
    }
    if let Some(until) = number("until") {
        lines.push_str(&format!(
            "\nit stays until {}, when the last of these tokens has expired",
            rfc3339(until)
        ));
    }
    let commands = texts(answer, "keepOut");
    if !commands.is_empty() {
        lines.push_str(&format!("\nto keep {} out, new tokens included:", text("id")));
    }
    for command in commands {
        lines.push_str(&format!("\n  {command}"));
    }
    if let Some(omitted) = number("keepOutOmitted").filter(|omitted| *omitted > 0) {
        let bindings =
            if omitted == 1 { "1 more binding allows" } else { &format!("{omitted} more bindings allow") };
        lines.push_str(&format!(
            "\n{bindings} calls in spite of these commands: run them, then this `asp revoke` again for the next ones"
        ));
    }
    lines
}

fn revocation(args: &RevokeArgs) -> Result<Value, Failure> {
    let (kind, id) = match (&args.token, &args.token_hash, &args.user, &args.org) {
        (Some(token), ..) => ("token", token),
        (_, Some(hash), ..) => ("token_hash", hash),
        (_, _, Some(user), Some(_)) => ("user", user),
        (_, _, Some(_), None) => {
            return Err(Failure::bad("--org", "is needed: a user is revoked within its org"));
        }
        (_, _, None, Some(org)) => ("org", org),
        _ => {
            return Err(Failure::bad(
                "asp revoke",
                "name a --token, --token-hash, --tokens, --token-hashes, --user or --org",
            ));
        }
    };
    Ok(json!({ "type": kind, "id": id, "org": args.org, "reason": args.reason }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_of_policy_is_the_apis_body() {
        let deny = PolicyArgs {
            org: "acme".into(),
            deny: Some("echo".into()),
            group: Some("ops".into()),
            ..PolicyArgs::default()
        };
        let (part, bodies) = change(&deny).unwrap().unwrap();
        let body = &bodies[0];
        assert_eq!(
            (part, &body["target"]["type"], &body["allowed"]),
            (PolicyPart::Bindings, &json!("group"), &json!(false))
        );
        let hide = PolicyArgs { org: "acme".into(), hide: Some("demo".into()), ..PolicyArgs::default() };
        let off = json!({ "server": "demo", "protocol": "mcp", "enabled": false });
        assert_eq!(change(&hide).unwrap(), Some((PolicyPart::Exposure, vec![off])));
        let shown = parsed(&["--expose", "demo", "--protocol", "rest"]);
        let on = json!({ "server": "demo", "protocol": "rest", "enabled": true });
        assert_eq!(change(&shown).unwrap(), Some((PolicyPart::Exposure, vec![on])));
        let printed = parsed(&["--deny=-p", "--user=-u", "--protocol", "mcp", "--force"]);
        let (_, bodies) = change(&printed).unwrap().unwrap();
        assert_eq!(bodies[0]["target"], json!({ "type": "user", "idOrPattern": "-u", "issuer": "" }));
        assert_eq!(bodies[0]["primitive"], json!({ "name": "-p", "protocol": "mcp" }));
        let shows = PolicyArgs { org: "acme".into(), ..PolicyArgs::default() };
        assert_eq!(change(&shows).unwrap(), None);
    }

    fn parsed(words: &[&str]) -> PolicyArgs {
        #[derive(clap::Parser)]
        struct Line {
            #[command(flatten)]
            args: PolicyArgs,
        }
        let line = ["asp", "acme"].iter().chain(words);
        <Line as clap::Parser>::try_parse_from(line).unwrap().args
    }

    #[test]
    fn a_binding_names_one_target_and_all_users_and_machines_where_nobody_is_named() {
        let targets = |words: &[&str]| {
            let (_, bodies) = change(&parsed(words)).unwrap().unwrap();
            bodies.into_iter().map(|mut body| body["target"].take()).collect::<Vec<_>>()
        };
        let all = |kind: &str| json!({ "type": kind, "idOrPattern": "*", "issuer": "" });
        assert_eq!(targets(&["--deny", "x"]), [all("user"), all("machine")]);
        let of_login = json!({ "type": "user", "idOrPattern": "*", "issuer": "login" });
        assert_eq!(targets(&["--deny", "x", "--issuer", "login"]), [of_login]);
        let bob = json!({ "type": "user", "idOrPattern": "bob", "issuer": "login" });
        assert_eq!(targets(&["--allow", "x", "--user", "bob", "--issuer", "login"]), [bob]);
        let any_bob = json!({ "type": "user", "idOrPattern": "bob", "issuer": "*" });
        assert_eq!(targets(&["--allow", "x", "--user", "bob", "--issuer", "*"]), [any_bob]);
        assert_eq!(targets(&["--allow", "x", "--issuer", "*"]), [all("user"), all("machine")]);
        let press = json!({ "type": "machine", "idOrPattern": "press", "issuer": "" });
        assert_eq!(targets(&["--allow", "x", "--machine", "press"]), [press]);
    }

    #[test]
    fn each_condition_is_one_of_the_apis_with_its_own_values() {
        let args = parsed(&[
            "--deny",
            "cc.pay",
            "--when",
            "/currency",
            "in",
            "USD",
            "5",
            "\"5\"",
            "--when",
            "/amount",
            "range",
            " -1.5..10",
            "--when",
            "/note",
            "glob",
            "*x*",
            "--when",
            "",
            "equals",
            "null",
            "--name",
            "large",
            "--observe",
        ]);
        let (_, bodies) = change(&args).unwrap().unwrap();
        let body = &bodies[0];
        let when = json!([
            { "pointer": "/currency", "in": ["USD", 5, "5"] },
            { "pointer": "/amount", "range": { "min": -1.5, "max": 10 } },
            { "pointer": "/note", "glob": "*x*" },
            { "pointer": "", "equals": null },
        ]);
        assert_eq!((&body["when"], &body["name"], &body["allowed"]), (&when, &json!("large"), &json!(false)));
        assert_eq!((&body["observe"], &body["approval"]), (&json!(true), &json!(false)));
        let (_, bodies) =
            change(&parsed(&["--approval", "a", "--when", "/n", "range", "..3"])).unwrap().unwrap();
        let body = &bodies[0];
        assert_eq!((&body["allowed"], &body["approval"]), (&json!(true), &json!(true)));
        assert_eq!(body["when"], json!([{ "pointer": "/n", "range": { "max": 3 } }]));
    }

    #[test]
    fn a_condition_that_makes_no_sense_is_bad_configuration() {
        let of = |words: &[&str]| condition(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        for words in [
            ["/a", "is", "1"].as_slice(),
            &["/a", "equals", "1", "2"],
            &["/a", "glob", "a", "b"],
            &["/a", "range", "1"],
            &["/a", "range", ".."],
            &["/a", "range", "a..b"],
            &["/a", "range", "1..2", "3..4"],
            &["/a", "equals"],
            &["/a"],
        ] {
            assert!(matches!(of(words), Err(Failure::Configuration(_))), "{words:?}");
        }
        assert_eq!(of(&["/a", "equals", "[1]"]).unwrap()["equals"], json!("[1]"), "an array is a text");
    }

    #[test]
    fn a_revocation_is_shown_with_its_end_and_with_what_keeps_a_new_token_out() {
        let answer = json!({
            "revocation": "r1", "id": "bob", "issuedUntil": 60, "until": 86_460_000, "newTokensWork": true,
            "keepOut": ["asp policy acme --deny '*' --user bob"],
        });
        assert_eq!(
            revoked(&answer),
            "revoked (r1); edges and gateways enforce it within a second, until `asp revoke --lift r1`\n\
             it ends tokens issued until 1970-01-01T00:01:00.000Z; a token issued later works\n\
             it stays until 1970-01-02T00:01:00.000Z, when the last of these tokens has expired\n\
             to keep bob out, new tokens included:\n  asp policy acme --deny '*' --user bob"
        );
        let mut many = answer.clone();
        many["keepOutOmitted"] = json!(31);
        let shown = revoked(&many);
        assert!(shown.ends_with(
            "--user bob\n31 more bindings allow calls in spite of these commands: run them, then this `asp revoke` again for \
             the next ones"
        ), "{shown}");
        let token = json!({ "revocation": "r2", "id": "j1", "until": 1_000, "keepOut": [] });
        assert_eq!(
            revoked(&token),
            "revoked (r2); edges and gateways enforce it within a second, until `asp revoke --lift r2`\n\
             it ends this token; a new one works at once\n\
             it stays until 1970-01-01T00:00:01.000Z, when the last of these tokens has expired"
        );
    }

    #[test]
    fn a_list_of_tokens_is_revoked_a_thousand_at_a_time() {
        let args =
            RevokeArgs { org: Some("acme".into()), reason: Some("leak".into()), ..RevokeArgs::default() };
        let list: String = (0..1_001).map(|n| format!(" t{n}\r\n\n")).collect();
        let requests = token_revocations(&args, "token", &list).unwrap();
        let lengths: Vec<usize> = requests.iter().map(|body| body["ids"].as_array().unwrap().len()).collect();
        assert_eq!(lengths, [1_000, 1]);
        assert_eq!(
            requests[1],
            json!({ "type": "token", "ids": ["t1000"], "org": "acme", "reason": "leak" })
        );
        assert!(token_revocations(&args, "token", "\n").is_err());
    }

    #[test]
    fn what_is_revoked_is_the_narrowest_that_is_named() {
        let args = |org: Option<&str>, user: Option<&str>, token: Option<&str>| RevokeArgs {
            org: org.map(str::to_owned),
            user: user.map(str::to_owned),
            token: token.map(str::to_owned),
            ..RevokeArgs::default()
        };
        let kind = |args: RevokeArgs| revocation(&args).map(|body| body["type"].clone()).ok();
        assert_eq!(kind(args(Some("acme"), Some("bob"), Some("j1"))), Some(json!("token")));
        assert_eq!(kind(args(Some("acme"), Some("bob"), None)), Some(json!("user")));
        assert_eq!(kind(args(Some("acme"), None, None)), Some(json!("org")));
        assert_eq!(kind(args(None, Some("bob"), None)), None, "a user of which org?");
        assert_eq!(kind(args(None, None, None)), None);
    }
}
