//! `asp servers`: the stored servers, their offers, their deprecated primitives, their confirmation, their versions, rollback, and
//! disabling.

mod deprecated;

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::shell;
use asp_platform::time::rfc3339;
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::answer::{self, is, list, number, texts};
use super::client::{AdminClient, api_path, block_on};
use super::server_access::{self, CallPermission, ServerAccess};
use crate::args::servers::{
    ServersCommand, ServersConfirmArgs, ServersDeleteArgs, ServersDisableArgs, ServersOfferArgs,
    ServersShowArgs,
};

pub fn run(command: &ServersCommand) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let of = |server: &str, part: &str| api_path(&["api", "registry", "servers", server, part]);
    block_on(async {
        match command {
            ServersCommand::List(args) => {
                let servers = api.get("/api/registry/servers").await?.accepted()?;
                answer::rows(&servers, args.json, |server| {
                    let revision = number(server, "revision");
                    let name = text(server, "server");
                    let disabled = describe_disabled(server);
                    format!("{name:<24} revision {revision:<8} {}{disabled}", hash(server))
                });
            }
            ServersCommand::Show(args) => show(&api, args).await?,
            ServersCommand::Offer(args) => offer(&api, args).await?,
            ServersCommand::Deprecated(args) => deprecated::run(&api, args).await?,
            ServersCommand::Confirm(args) => {
                let ServersConfirmArgs { server, protocol, json } = args;
                let answer = api.put(&of(server, protocol), &Value::Null).await?.accepted()?;
                let words = match is(&answer, "changed") {
                    true => format!(
                        "{protocol} is switched on for {server}; revision {}",
                        number(&answer, "revision")
                    ),
                    false => format!("{protocol} is confirmed for {server} already"),
                };
                answer::show(&answer, *json, &words);
            }
            ServersCommand::Disable(args) => disable(&api, args, true).await?,
            ServersCommand::Enable(args) => disable(&api, args, false).await?,
            ServersCommand::Delete(args) => delete(&api, args).await?,
            ServersCommand::Versions(args) => {
                let versions = api.get(&of(&args.server, "versions")).await?.accepted()?;
                answer::rows(&versions, args.json, |version| {
                    let (revision, time) =
                        (number(version, "revision"), rfc3339(number(version, "storedAt")));
                    format!("{revision:<8} {time} {} {}", hash(version), text(version, "actor"))
                });
            }
            ServersCommand::Rollback(args) => {
                let body = json!({ "revision": args.to });
                let answer = api.post(&of(&args.server, "rollback"), &body).await?.accepted()?;
                let revision = number(&answer, "revision");
                let words = match is(&answer, "changed") {
                    true => format!("{} is rolled back to {}; revision {revision}", args.server, args.to),
                    false => format!("{} is that already", args.server),
                };
                answer::show(&answer, args.json, &words);
            }
        }
        Ok(())
    })
}

/// Disables or enables a server, or each of the given primitives.
async fn disable(api: &AdminClient, args: &ServersDisableArgs, is_disabled: bool) -> Result<(), Failure> {
    let ServersDisableArgs { server, primitives, json } = args;
    let path = |entry: &[&str]| {
        let whole: [&str; 5] = ["api", "registry", "servers", server, "disabled"];
        api_path(&[&whole[..], entry].concat())
    };
    let of_primitive = |id: &String| (format!("{id} of {server}"), path(&[id]));
    let entries: Vec<(String, String)> = match primitives.is_empty() {
        true => vec![(server.clone(), path(&[]))],
        false => primitives.iter().map(of_primitive).collect(),
    };
    for (what, path) in entries {
        let answer = match is_disabled {
            true => api.put(&path, &Value::Null).await?.accepted()?,
            false => api.delete(&path).await?.accepted()?,
        };
        let state = if is_disabled { "disabled" } else { "enabled" };
        let words = match is(&answer, "changed") {
            true => format!("{what} is {state}; revision {}", number(&answer, "revision")),
            false => format!("{what} is {state} already"),
        };
        answer::show(&answer, *json, &words);
    }
    Ok(())
}

async fn delete(api: &AdminClient, args: &ServersDeleteArgs) -> Result<(), Failure> {
    let path = api_path(&["api", "registry", "servers", &args.server]);
    let answer = api.delete(&path).await?.accepted()?;
    answer::show(&answer, args.json, &describe_deleted(&args.server, number(&answer, "revision")));
    Ok(())
}

/// Describes a deletion, with what takes it back.
fn describe_deleted(server: &str, revision: u64) -> String {
    let word = shell::word(server);
    format!(
        "{server} is deleted; revision {revision}. `asp servers versions {word}` lists what `asp servers rollback {word} \
         --to REVISION` stores again"
    )
}

/// Describes what of a listed server is disabled; empty if nothing is.
fn describe_disabled(server: &Value) -> String {
    let entries = texts(server, "disabled");
    match entries.as_slice() {
        [] => String::new(),
        some if some.contains(&"*") => "  disabled".to_owned(),
        some => format!("  disabled: {}", some.join(", ")),
    }
}

/// Prints the orgs that a server is offered to, or its state for one org; fails if it is not offered to that org.
async fn show(api: &AdminClient, args: &ServersShowArgs) -> Result<(), Failure> {
    let ServersShowArgs { server, org, json } = args;
    let Some(org) = org else {
        let answer = api.get(&api_path(&["api", "registry", "servers", server, "offers"])).await?;
        if answer.status == StatusCode::FORBIDDEN {
            let refusal = answer.refusal();
            let server = shell::word(server);
            return Err(Failure::Other(anyhow::anyhow!(
                "{refusal}. Admins of an org see it for their org: `asp servers show {server} --org ORG`"
            )));
        }
        let offers = answer.accepted()?;
        answer::show(&offers, *json, &describe_offers(server, &offers));
        return Ok(());
    };
    let answer = api.get(&api_path(&["api", "registry", "orgs", org, "servers", server])).await?;
    let is_unknown = answer.body.get("detail").is_some();
    let state = match answer.status == StatusCode::NOT_FOUND && !is_unknown {
        // An org cannot tell a server that is not offered to it from one that does not exist. Admins who may see all servers can.
        true => json!({ "server": server, "org": org, "offered": false, "on": [] }),
        false => answer.accepted()?,
    };
    let on = server_access::switches(state.get("on"));
    let offered = is(&state, "offered");
    let allowed = CallPermission::Depends;
    let access = ServerAccess { server, org, offered, on: &on, protocol: "", allowed };
    answer::show(&state, *json, &server_access::line(&access));
    if offered { Ok(()) } else { Err(Failure::Refused) }
}

fn describe_offers(server: &str, offers: &Value) -> String {
    if is(offers, "everyOrg") {
        return format!("{server} is offered to every organisation, and on, by `defaultExposure: allow`");
    }
    let one = |offer: &Value| match text(offer, "by") {
        "server.yaml" => format!("{} (server.yaml)", text(offer, "org")),
        _ => text(offer, "org").to_owned(),
    };
    let all: Vec<String> = list(offers, "offers").map(one).collect();
    match all.is_empty() {
        true => format!("{server} is not offered to any org: `asp servers offer {server} --to ORG`"),
        false => format!("{server} is offered to {}", all.join(", ")),
    }
}

async fn offer(api: &AdminClient, args: &ServersOfferArgs) -> Result<(), Failure> {
    let server = &args.server;
    for org in &args.to {
        let path = api_path(&["api", "registry", "servers", server, "offers", org]);
        let answer = match args.withdraw {
            true => api.delete(&path).await?.accepted()?,
            false => {
                let path = if args.force { format!("{path}?force=true") } else { path };
                api.put(&path, &Value::Null).await?.accepted()?
            }
        };
        match (args.json, args.withdraw) {
            (true, _) => print::json(&answer),
            (false, true) => print::line(&format!("{server} is not offered to {org} any more")),
            (false, false) => {
                let state = api.get(&api_path(&["api", "registry", "orgs", org, "servers", server])).await?;
                print::line(&describe_offered(server, org, state.body.get("on")));
            }
        }
    }
    Ok(())
}

/// Describes a stored offer, and what is left to switch on. An offer that is renewed finds the org's switch as it was.
fn describe_offered(server: &str, org: &str, on: Option<&Value>) -> String {
    let on = server_access::switches(on);
    let names = |wanted: bool| {
        let names = on.iter().filter(|(_, is_on)| *is_on == wanted).map(|(protocol, _)| *protocol);
        names.collect::<Vec<_>>()
    };
    let said = match names(true).as_slice() {
        [] => format!("{server} is offered to {org}"),
        some => format!("{server} is offered to {org}, which has it switched on over {}", some.join(", ")),
    };
    match (names(false).first(), on.is_empty()) {
        (None, false) => said,
        (off, _) => {
            let command = server_access::expose(server, org, off.copied().unwrap_or_default());
            format!("{said}; its admin switches it on: `{command}`")
        }
    }
}

fn text<'a>(of: &'a Value, member: &str) -> &'a str {
    of.get(member).and_then(Value::as_str).unwrap_or("-")
}

/// Returns the start of the content hash, enough to tell versions apart.
fn hash(of: &Value) -> String {
    text(of, "contentHash").chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listed_server_shows_what_of_it_is_disabled() {
        let of = |disabled: Value| describe_disabled(&json!({ "server": "crm", "disabled": disabled }));
        assert_eq!(of(json!([])), "");
        assert_eq!(of(json!(["*", "echo"])), "  disabled");
        assert_eq!(of(json!(["count", "echo"])), "  disabled: count, echo");
        assert_eq!(describe_disabled(&json!({ "server": "crm" })), "", "an earlier control plane");
    }

    #[test]
    fn a_deletion_names_the_commands_that_take_it_back() {
        assert_eq!(
            describe_deleted("crm", 7),
            "crm is deleted; revision 7. `asp servers versions crm` lists what `asp servers rollback crm --to REVISION` \
             stores again"
        );
    }

    #[test]
    fn an_offer_names_only_what_is_left_to_switch_on() {
        let of = |on: Value| describe_offered("crm", "acme", Some(&on));
        let switch = |protocol: &str, on: bool| json!({ "protocol": protocol, "on": on });
        let mcp = switch("mcp", true);
        let rest = switch("rest", true);
        let all_on = "crm is offered to acme, which has it switched on over mcp, rest";
        assert_eq!(of(json!([mcp, rest])), all_on);
        assert_eq!(
            of(json!([mcp, switch("rest", false)])),
            "crm is offered to acme, which has it switched on over mcp; its admin switches it on: `asp policy acme --expose \
             crm --protocol rest`"
        );
        let off = "crm is offered to acme; its admin switches it on: `asp policy acme --expose crm`";
        for on in [json!([switch("mcp", false), switch("rest", false)]), json!([])] {
            assert_eq!(of(on), off);
        }
    }
}
