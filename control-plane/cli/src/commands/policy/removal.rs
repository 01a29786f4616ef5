//! `asp policy ORG --remove ID` and `--reset SERVER`: remove bindings, each identified as it was set, and an exposure exception.
//!
//! Keeps true: only what was just read is removed. If the org's list was changed in between, nothing is removed (412).

use std::collections::BTreeSet;

use anyhow::anyhow;
use asp_command::failure::Failure;
use asp_control::policy::EVERY_ISSUER;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::targets;
use crate::args::policy::PolicyArgs;
use crate::commands::client::{AdminClient, api_path, with_query};
use crate::commands::{answer, binding};

const ISSUER: &str = "issuer";
/// Maximum number of bindings of the same primitive listed if the requested one does not exist.
const MAX_NAMED: usize = 10;

/// Removes the binding of `primitive` for the target in the arguments; without one, those for all users and for all machines.
pub(super) async fn run(api: &AdminClient, args: &PolicyArgs, primitive: &str) -> Result<(), Failure> {
    let (mut removed, bindings) = remove(api, args, primitive).await?;
    if removed.is_empty()
        && let Some(id) = id_of_exposed(api, &args.org, primitive).await?
    {
        removed = remove(api, args, &id).await?.0;
    }
    if removed.is_empty() {
        return Err(Failure::Other(anyhow!(none(&args.org, primitive, &bindings))));
    }
    let describe = |one| format!("{}: removed: {}", args.org, binding::describe_binding(&args.org, one));
    let words = Vec::from_iter(removed.iter().map(describe)).join("\n");
    answer::show(&json!({ "removed": removed }), args.json, &words);
    Ok(())
}

/// Removes the bindings of a primitive for the targets in the arguments; returns them, and the bindings that it found.
async fn remove(
    api: &AdminClient,
    args: &PolicyArgs,
    primitive: &str,
) -> Result<(Vec<Value>, Vec<Value>), Failure> {
    let path = api_path(&["api", "policy", "orgs", &args.org, "bindings"]);
    let mut removed = Vec::new();
    let mut bindings = Vec::new();
    for target in targets(args) {
        let key = key(args, primitive, &target);
        let read = api.get(&path).await?;
        let etag = read.etag.clone();
        bindings = read.accepted()?.as_array().cloned().unwrap_or_default();
        let Some(found) = find_binding(&bindings, &key) else { continue };
        api.delete_if_match(&with_query(&path, &key_of(found))?, etag.as_deref()).await?.accepted()?;
        removed.push(found.clone());
    }
    Ok((removed, bindings))
}

/// Returns the id of the one primitive that the org is offered by this exposed name.
async fn id_of_exposed(api: &AdminClient, org: &str, name: &str) -> Result<Option<String>, Failure> {
    let path = api_path(&["api", "registry", "orgs", org, "primitives"]);
    let offered = api.get(&path).await?.accepted()?;
    let is_exposed = |primitive: &&Value| {
        let names = primitive.get("exposure").and_then(Value::as_object);
        names.is_some_and(|names| names.values().any(|exposed| exposed.as_str() == Some(name)))
    };
    let listed = offered.as_array().into_iter().flatten().filter(is_exposed);
    let ids: BTreeSet<&str> = listed.map(|primitive| answer::text(primitive, "name")).collect();
    Ok(ids.first().filter(|_| ids.len() == 1).map(|id| (*id).to_owned()))
}

/// Removes the exposure exception of a server over the protocol in the arguments.
pub(super) async fn exception(api: &AdminClient, args: &PolicyArgs, server: &str) -> Result<(), Failure> {
    let org = &args.org;
    let protocol = args.protocol.as_deref().unwrap_or("mcp");
    let path = api_path(&["api", "policy", "orgs", org, "exposure"]);
    let key = [("server", server.to_owned()), ("protocol", protocol.to_owned())];
    let response = api.delete(&with_query(&path, &key)?).await?;
    if response.status == StatusCode::NOT_FOUND {
        return Err(Failure::Other(anyhow!(
            "{org} has no exception for {server} over {protocol}; `asp policy {org}` lists its exceptions"
        )));
    }
    let words = format!("{org}: the default of {server} applies again over {protocol}");
    answer::show(&response.accepted()?, args.json, &words);
    Ok(())
}

/// Fields that identify a binding, as the API's query names them.
pub(super) type Key = [(&'static str, String); 6];

fn key(args: &PolicyArgs, primitive: &str, target: &Value) -> Key {
    let binding = json!({
        "target": target,
        "primitive": { "name": primitive, "protocol": args.protocol.as_deref().unwrap_or("*") },
        "name": args.name.as_deref().unwrap_or_default(),
    });
    key_of(&binding)
}

pub(super) fn key_of(binding: &Value) -> Key {
    let pointers = [
        ("targetType", "/target/type"),
        ("idOrPattern", "/target/idOrPattern"),
        (ISSUER, "/target/issuer"),
        ("primitive", "/primitive/name"),
        ("protocol", "/primitive/protocol"),
        ("name", "/name"),
    ];
    let text =
        |pointer: &str| binding.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned();
    pointers.map(|(name, pointer)| (name, text(pointer)))
}

/// Returns the binding with this key. If there is none, returns the one that explicitly names every issuer if the key names
/// no issuer, or the other way round.
fn find_binding<'a>(bindings: &'a [Value], key: &Key) -> Option<&'a Value> {
    let known_by = |key: &Key| bindings.iter().find(|binding| key_of(binding) == *key);
    let other_way = key.clone().map(|(name, text)| match (name, text.as_str()) {
        (ISSUER, "") => (name, EVERY_ISSUER.to_owned()),
        (ISSUER, EVERY_ISSUER) => (name, String::new()),
        _ => (name, text),
    });
    known_by(key).or_else(|| known_by(&other_way))
}

/// Returns the refusal if there is no such binding, with those of the same primitive.
fn none(org: &str, primitive: &str, bindings: &[Value]) -> String {
    let same = bindings.iter().filter(|binding| {
        binding.pointer("/primitive/name").and_then(Value::as_str).is_some_and(|name| name == primitive)
    });
    let commands: Vec<String> =
        same.map(|binding| format!("\n  {}", binding::removal(org, binding))).collect();
    if commands.is_empty() {
        return format!("{org} has no binding of {primitive}; `asp policy {org}` lists its bindings");
    }
    let more = match commands.len().saturating_sub(MAX_NAMED) {
        0 => String::new(),
        more => format!("\n  and {more} more"),
    };
    let shown: String = commands.into_iter().take(MAX_NAMED).collect();
    format!("{org} has no such binding of {primitive}. Remove its existing ones by{shown}{more}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binding_is_found_by_what_it_was_set_by_whatever_the_api_leaves_out() {
        let args = PolicyArgs { org: "acme".into(), user: Some("bob b".into()), ..PolicyArgs::default() };
        let target = targets(&args).remove(0);
        let stored = json!({ "target": { "type": "user", "idOrPattern": "bob b" },
            "primitive": { "name": "shop.*", "protocol": "*" }, "allowed": false });
        let key = key(&args, "shop.*", &target);
        assert_eq!(key, key_of(&stored));
        assert_eq!(
            with_query("/b", &key).unwrap(),
            "/b?targetType=user&idOrPattern=bob+b&issuer=&primitive=shop.*&protocol=*&name="
        );
        let mut other = stored.clone();
        other["target"]["issuer"] = json!("login");
        assert_ne!(key, key_of(&other));
        let said = none("acme", "shop.*", &[other]);
        assert!(said.ends_with("asp policy acme --remove 'shop.*' --user 'bob b' --issuer login"), "{said}");
        assert!(none("acme", "shop.buy", &[stored]).contains("`asp policy acme`"));
    }

    #[test]
    fn a_binding_of_every_issuer_is_found_whichever_way_it_was_set() {
        let of = |issuer: &str| {
            json!({ "target": { "type": "user", "idOrPattern": "bob", "issuer": issuer },
                "primitive": { "name": "shop.buy", "protocol": "*" } })
        };
        let (open, every, login) = (of(""), of("*"), of("login"));
        let both = [login.clone(), every.clone(), open.clone()];
        assert_eq!(find_binding(&both, &key_of(&open)), Some(&open));
        assert_eq!(find_binding(&both, &key_of(&every)), Some(&every));
        assert_eq!(find_binding(&both[..2], &key_of(&open)), Some(&every));
        assert_eq!(find_binding(std::slice::from_ref(&open), &key_of(&every)), Some(&open));
        assert_eq!(find_binding(&[login], &key_of(&open)), None);
    }
}
