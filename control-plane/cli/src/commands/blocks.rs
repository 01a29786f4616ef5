//! `asp block` and `asp unblock`: users and orgs that are kept out.

use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_platform::shell;
use asp_platform::time::rfc3339;
use serde_json::{Value, json};

use super::answer::{number, rows, show, text};
use super::client::{AdminClient, block_on, with_query};
use crate::args::blocks::{BlockCommand, BlockListArgs, UnblockCommand};

const BLOCKS: &str = "/api/blocks";
/// Maximum number of blocks in a response of the API.
const PAGE: u32 = 1_000;

/// Blocks a user or an org, or lists the blocks.
pub fn block(command: &BlockCommand) -> Result<(), Failure> {
    let (body, json) = match command {
        BlockCommand::List(args) => return list(args),
        BlockCommand::User(args) => {
            (json!({ "type": "user", "id": args.name, "org": args.org, "reason": args.reason }), args.json)
        }
        BlockCommand::Org(args) => {
            (json!({ "type": "org", "id": args.name, "reason": args.reason }), args.json)
        }
    };
    let api = AdminClient::new(&ProcessEnvironment)?;
    let answer = block_on(async { api.post(BLOCKS, &body).await?.accepted() })?;
    show(&answer, json, &blocked(&answer));
    Ok(())
}

/// Lets a user or an org in again.
pub fn unblock(command: &UnblockCommand) -> Result<(), Failure> {
    let (mut query, json) = match command {
        UnblockCommand::User(args) => {
            (vec![("type", "user".to_owned()), ("id", args.name.clone())], args.json)
        }
        UnblockCommand::Org(args) => (vec![("type", "org".to_owned()), ("id", args.name.clone())], args.json),
    };
    if let UnblockCommand::User(args) = command {
        query.extend(args.org.clone().map(|org| ("org", org)));
    }
    let api = AdminClient::new(&ProcessEnvironment)?;
    let path = with_query(BLOCKS, &query)?;
    let lifted = block_on(async { api.delete(&path).await?.accepted() })?;
    let names: Vec<String> = lifted.as_array().into_iter().flatten().map(named).collect();
    let words = format!(
        "unblocked {}; edges and gateways let them in within a second, with a token that is not revoked",
        names.first().map_or("nobody", String::as_str)
    );
    show(&lifted, json, &words);
    Ok(())
}

fn list(args: &BlockListArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let mut query = vec![("limit", PAGE.to_string())];
    query.extend(args.org.clone().map(|org| ("org", org)));
    let path = with_query(BLOCKS, &query)?;
    let found = block_on(async { api.get(&path).await?.accepted() })?;
    rows(&found, args.json, line);
    Ok(())
}

/// Describes a new block, and the command that lifts it.
fn blocked(block: &Value) -> String {
    let lift = match text(block, "type") {
        "org" => shell::command("asp unblock org", text(block, "id"), ""),
        _ => shell::command("asp unblock user", text(block, "id"), &shell::option("org", text(block, "org"))),
    };
    format!(
        "blocked {} since {}; edges and gateways enforce it within a second and end its running calls, until `{lift}`",
        named(block),
        rfc3339(number(block, "since"))
    )
}

/// Formats a block: the blocked caller, since when, by whom and the reason.
fn line(block: &Value) -> String {
    let reason = match text(block, "reason") {
        "" => String::new(),
        reason => format!(": {reason}"),
    };
    let maker = match text(block, "by") {
        "platform" => "the platform",
        _ => text(block, "org"),
    };
    format!("{} since {}, by an admin of {maker}{reason}", named(block), rfc3339(number(block, "since")))
}

fn named(block: &Value) -> String {
    match text(block, "type") {
        "org" => format!("org {}", text(block, "id")),
        _ => format!("user {} of {}", text(block, "id"), text(block, "org")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_shown_with_the_command_that_lifts_it_and_listed_with_its_maker_and_reason() {
        let mut block = json!({ "block": "b1", "type": "user", "org": "acme", "id": "bob b", "since": 1_000,
            "by": "org", "reason": "left" });
        assert_eq!(
            blocked(&block),
            "blocked user bob b of acme since 1970-01-01T00:00:01.000Z; edges and gateways enforce it within a second and end \
             its running calls, until `asp unblock user 'bob b' --org acme`"
        );
        assert_eq!(
            line(&block),
            "user bob b of acme since 1970-01-01T00:00:01.000Z, by an admin of acme: left"
        );
        block["type"] = json!("org");
        block["id"] = json!("acme");
        block["by"] = json!("platform");
        block["reason"] = json!("");
        assert_eq!(line(&block), "org acme since 1970-01-01T00:00:01.000Z, by an admin of the platform");
        assert!(blocked(&block).ends_with("until `asp unblock org acme`"), "{}", blocked(&block));
    }
}
