//! `asp history` and `asp undo`: the changes that admins made, and the undo of one after a preview.
//!
//! Keeps true: an undo is sent only with the preview that was shown; if the list has changed since, it is refused (412).

use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::{Context, anyhow};
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::time::rfc3339;
use serde_json::{Value, json};

use super::answer::{self, is, list, number, text};
use super::binding;
use super::client::{AdminClient, block_on, with_query};
use crate::args::history::{HistoryArgs, UndoArgs};

/// Maximum length of the answer to a question, in bytes.
const MAX_LINE: u64 = 4_096;

/// Lists changes, newest first.
pub fn history(args: &HistoryArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let mut query = vec![("limit", args.limit.to_string())];
    query.extend(args.before.map(|before| ("before", before.to_string())));
    query.extend(args.org.clone().map(|org| ("org", org)));
    query.extend(args.kind.clone().map(|kind| ("kind", kind)));
    let path = with_query("/api/audit", &query)?;
    let page = block_on(async { api.get(&path).await?.accepted() })?;
    answer::rows(&page, args.json, line);
    Ok(())
}

/// Formats a change: its number, time, author, action, org and detail.
pub(super) fn line(change: &Value) -> String {
    let time = rfc3339(number(change, "at"));
    let org = match text(change, "org") {
        "" => "-",
        org => org,
    };
    let about = match text(change, "detail") {
        "" => text(change, "resource"),
        detail => detail,
    };
    let about = about.replace('\n', "\n         ");
    let no_undo = if is(change, "undoable") { "" } else { " (no undo)" };
    let (revision, actor, action) =
        (number(change, "revision"), text(change, "actor"), text(change, "action"));
    format!("{revision:<8} {time} {actor} {action} {org}: {about}{no_undo}")
}

/// Shows what the undo of a change would do, asks, and undoes it.
pub fn undo(args: &UndoArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let path = format!("/api/audit/{}/undo", args.change);
    block_on(async {
        let read = api.get(&path).await?;
        let etag = read.etag.clone();
        let preview = read.accepted()?;
        let words = describe(&preview);
        if args.dry_run {
            answer::show(&preview, args.json, &words);
            return Ok(());
        }
        if args.json {
            print::note(&words)
        } else {
            print::line(&words)
        }
        if is(&preview, "restoresAccess") && !args.restore_access {
            let change = args.change;
            return Err(Failure::Other(anyhow!(
                "nothing was undone: tokens would be valid again; `asp undo {change} --restore-access` does that"
            )));
        }
        if !args.yes && !confirm()? {
            print::note("nothing was undone");
            return Err(Failure::Refused);
        }
        let query = if args.restore_access { "?restoreAccess=true" } else { "" };
        let answer = api.post_if_match(&format!("{path}{query}"), etag.as_deref()).await?.accepted()?;
        let undo = number(&answer, "revision");
        let done = format!("undone by change {undo}; `asp undo {undo}` undoes that");
        answer::show(&json!({ "preview": preview, "undo": answer }), args.json, &done);
        Ok(())
    })
}

/// Asks at the terminal; fails if there is none.
fn confirm() -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::bad("--yes", "is required where there is no terminal to ask at"));
    }
    let mut terminal = io::stderr();
    write!(terminal, "Undo it? [y/N] ").and_then(|()| terminal.flush()).context("ask at the terminal")?;
    let mut reply = String::new();
    io::stdin().lock().take(MAX_LINE).read_line(&mut reply).context("read the answer")?;
    Ok(["y", "yes"].contains(&reply.trim().to_ascii_lowercase().as_str()))
}

/// Describes what an undo would do.
fn describe(preview: &Value) -> String {
    let (change, action, actor) =
        (number(preview, "change"), text(preview, "action"), text(preview, "actor"));
    let time = rfc3339(number(preview, "at"));
    let mut lines = vec![format!("the undo of change {change} ({action} by {actor} at {time})")];
    for (member, verb) in [("removes", "removes"), ("restores", "stores again")] {
        lines.extend(
            list(preview, member).map(|entry| format!("  {verb}: {}", describe_entry(preview, entry))),
        );
    }
    for (member, verb) in [("gains", "gives access"), ("loses", "takes access")] {
        lines.extend(list(preview, member).map(|effect| format!("  {verb}: {}", describe_effect(effect))));
    }
    if list(preview, "gains").len() + list(preview, "loses").len() == 0 {
        lines.push(
            "  changes nobody's access: other entries decide, or the server is not reachable".to_owned(),
        );
    }
    match number(preview, "more") {
        0 => {}
        more => lines.push(format!("  and {more} more")),
    }
    lines.join("\n")
}

fn describe_entry(preview: &Value, entry: &Value) -> String {
    let of = |pointer: &str| entry.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    match text(preview, "list") {
        "bindings" => binding::describe_binding(text(preview, "org"), entry),
        "exposure" => {
            let state = if is(entry, "enabled") { "on" } else { "off" };
            format!("{} over {} switched {state}", of("/server"), of("/protocol"))
        }
        "offers" => format!("the offer of {} to {}", of("/server"), of("/org")),
        "revocations" => match of("/type").strip_prefix("block_") {
            Some(kind) => format!("the block of {kind} {} ({})", of("/id"), of("/revocation")),
            None => format!("the revocation of {} {} ({})", of("/type"), of("/id"), of("/revocation")),
        },
        _ => entry.to_string(),
    }
}

fn describe_effect(effect: &Value) -> String {
    let of = |member: &str| text(effect, member);
    let mut what = match (of("primitive"), of("server")) {
        ("*", "*") => "everything".to_owned(),
        (primitive, "*") => primitive.to_owned(),
        ("*", server) => server.to_owned(),
        (primitive, server) => format!("{primitive} of {server}"),
    };
    if of("protocol") != "*" {
        what.push_str(&format!(" over {}", of("protocol")));
    }
    format!("{}: {what}: {} -> {}", of("who"), of("from"), of("to"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_line_with_its_number_and_whether_it_can_be_undone() {
        let change = json!({ "revision": 17, "at": 0, "actor": "ops@acme", "action": "binding.put", "resource": "bindings/acme",
            "org": "acme", "detail": "user:bob echo * allowed=false", "undoable": true });
        let shown = line(&change);
        assert_eq!(
            shown,
            "17       1970-01-01T00:00:00.000Z ops@acme binding.put acme: user:bob echo * allowed=false"
        );
        let server = json!({ "revision": 1, "at": 0, "actor": "ops@platform", "action": "server.put",
            "resource": "server/demo", "org": "", "detail": "", "undoable": false });
        assert!(line(&server).ends_with("server.put -: server/demo (no undo)"), "{}", line(&server));
    }

    #[test]
    fn a_preview_names_entries_and_who_gains_or_loses() {
        let entry = json!({ "target": { "type": "user", "idOrPattern": "bob" },
            "primitive": { "name": "echo", "protocol": "*" }, "allowed": false });
        let effect = |to: &str, server: &str| {
            json!({ "who": "user bob", "server": server, "primitive": "echo", "protocol": "mcp", "from": "denied",
                "to": to })
        };
        let mut preview = json!({ "change": 17, "at": 0, "actor": "ops@acme", "action": "binding.put", "org": "acme",
            "list": "bindings", "removes": [entry], "restores": [], "gains": [effect("allowed", "demo")],
            "loses": [], "more": 2 });
        let words = describe(&preview);
        let lines: Vec<&str> = words.lines().collect();
        assert_eq!(
            lines,
            [
                "the undo of change 17 (binding.put by ops@acme at 1970-01-01T00:00:00.000Z)",
                "  removes: a binding of acme denies the user bob to call echo over every protocol",
                "  gives access: user bob: echo of demo over mcp: denied -> allowed",
                "  and 2 more",
            ]
        );
        preview["gains"] = json!([]);
        assert!(describe(&preview).contains("changes nobody's access"));
        preview["list"] = json!("exposure");
        preview["removes"] = json!([{ "server": "demo", "protocol": "rest", "enabled": false }]);
        assert!(
            describe(&preview).contains("removes: demo over rest switched off"),
            "{}",
            describe(&preview)
        );
        assert_eq!(describe_effect(&effect("allowed", "*")), "user bob: echo over mcp: denied -> allowed");
    }
}
