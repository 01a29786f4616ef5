//! `asp policy`, `asp limits` and `asp revoke`: what an admin changes most, without writing HTTP by hand.
//!
//! Refuses judgement of its own: the API decides, and its refusal is shown.

use std::io::Read;
use std::path::Path;

use anyhow::Context;
use serde_json::{Value, json};

use super::client::{AdminClient, api_path, block_on};
use crate::args::{LimitsArgs, PolicyArgs, RevokeArgs};
use crate::failure::Failure;
use crate::print;
use crate::settings::source::ProcessEnvironment;

/// Changes one exposure or binding of an org, or shows all of them.
pub fn policy(args: &PolicyArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let exposure = api_path(&["api", "policy", "orgs", &args.org, "exposure"]);
    let bindings = api_path(&["api", "policy", "orgs", &args.org, "bindings"]);
    let change = change(args);
    block_on(async {
        if let Some((part, body)) = &change {
            let path = if *part == Part::Exposure { &exposure } else { &bindings };
            let answer = api.put(path, body).await?.accepted()?;
            return show(&answer, args.json, &format!("{}: stored", args.org));
        }
        let exposure = api.get(&exposure).await?.accepted()?;
        let bindings = api.get(&bindings).await?.accepted()?;
        print::json(&json!({ "exposure": exposure, "bindings": bindings }));
        Ok(())
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    Exposure,
    Bindings,
}

fn change(args: &PolicyArgs) -> Option<(Part, Value)> {
    let server = args.expose.as_ref().or(args.hide.as_ref());
    let enabled = args.expose.is_some();
    if let Some(server) = server {
        return Some((Part::Exposure, json!({ "server": server, "protocol": "mcp", "enabled": enabled })));
    }
    let primitive = args.allow.as_ref().or(args.deny.as_ref())?;
    let allowed = args.allow.is_some();
    let (kind, target) = match (&args.user, &args.group, &args.wcit) {
        (Some(user), ..) => ("user", user.as_str()),
        (_, Some(group), _) => ("group", group.as_str()),
        (_, _, Some(token)) => ("wcit", token.as_str()),
        _ => ("user", "*"),
    };
    let binding = json!({
        "target": { "type": kind, "idOrPattern": target },
        "primitive": { "name": primitive, "protocol": "*" },
        "allowed": allowed,
    });
    Some((Part::Bindings, binding))
}

/// Replaces an org's rate limits by a file's, or shows them.
pub fn limits(args: &LimitsArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let path = api_path(&["api", "ratelimits", "orgs", &args.org]);
    let list = args.put.as_deref().map(read).transpose()?;
    block_on(async {
        let Some(list) = &list else {
            print::json(&api.get(&path).await?.accepted()?);
            return Ok(());
        };
        let answer = api.put(&path, list).await?.accepted()?;
        show(
            &answer,
            args.json,
            &format!("{}: {} limits stored", args.org, list.as_array().map_or(0, Vec::len)),
        )
    })
}

/// YAML or JSON, from a file or, for `-`, from standard input.
fn read(path: &Path) -> Result<Value, Failure> {
    let mut text = String::new();
    if path == Path::new("-") {
        std::io::stdin().read_to_string(&mut text).context("read standard input")?;
    } else {
        text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    }
    let value: Value = serde_saphyr::from_str(&text)
        .map_err(|error| Failure::bad("--put", format!("{}: {error}", path.display())))?;
    if value.is_array() { Ok(value) } else { Err(Failure::bad("--put", "the file holds no list of limits")) }
}

/// Revokes a token, a user or an org.
pub fn revoke(args: &RevokeArgs) -> Result<(), Failure> {
    let body = revocation(args)?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    let answer = block_on(async { api.post("/api/revocations", &body).await?.accepted() })?;
    let id = answer.get("revocation").and_then(Value::as_str).unwrap_or_default();
    show(&answer, args.json, &format!("revoked ({id}); edges and gateways have it within a second"))
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
        _ => return Err(Failure::bad("asp revoke", "name a --token, --token-hash, --user or --org")),
    };
    Ok(json!({ "type": kind, "id": id, "org": args.org, "reason": args.reason }))
}

fn show(answer: &Value, as_json: bool, words: &str) -> Result<(), Failure> {
    if as_json {
        print::json(answer);
    } else {
        print::line(words);
    }
    Ok(())
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
        let (part, body) = change(&deny).unwrap();
        assert_eq!(
            (part, &body["target"]["type"], &body["allowed"]),
            (Part::Bindings, &json!("group"), &json!(false))
        );
        let hide = PolicyArgs { org: "acme".into(), hide: Some("demo".into()), ..PolicyArgs::default() };
        let off = json!({ "server": "demo", "protocol": "mcp", "enabled": false });
        assert_eq!(change(&hide), Some((Part::Exposure, off)));
        assert_eq!(change(&PolicyArgs { org: "acme".into(), ..PolicyArgs::default() }), None, "shows");
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
