//! `asp history` and `asp undo`: the changes that admins made, and the undo of one after a preview.
//!
//! Keeps true: an undo is sent only with the preview that was shown; if the list has changed since, it is refused (412).

use std::io::{self, BufRead, IsTerminal, Read, Write};

use anyhow::{Context, anyhow};
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_platform::clock;
use asp_platform::time::{from_rfc3339, rfc3339};
use serde_json::{Value, json};

use super::answer::{self, is, list, number, text};
use super::binding;
use super::client::{AdminClient, block_on, with_query};
use super::token::parse_ttl;
use crate::args::history::{HistoryArgs, UndoArgs};

/// Maximum length of the answer to a question, in bytes.
const MAX_LINE: u64 = 4_096;

/// Number of changes in a page of a search: the most that the API returns.
const PAGE: u32 = 1_000;
/// Maximum number of pages that one command searches.
const SEARCHED_PAGES: u32 = 100;

/// Lists changes, newest first.
pub fn history(args: &HistoryArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let wanted = ChangeFilter::read(args, clock::now_ms())?;
    let found = block_on(search(&api, args, &wanted))?;
    answer::rows(&Value::from(found), args.json, line);
    Ok(())
}

/// Choice of changes that the API does not make.
struct ChangeFilter<'a> {
    actor: Option<&'a str>,
    /// Unix milliseconds.
    since: Option<u64>,
    until: Option<u64>,
}

impl<'a> ChangeFilter<'a> {
    fn read(args: &'a HistoryArgs, now_ms: u64) -> Result<ChangeFilter<'a>, Failure> {
        let time = |option: &str, text: &Option<String>| {
            text.as_deref().map(|text| parse_time(option, text, now_ms)).transpose()
        };
        Ok(ChangeFilter {
            actor: args.actor.as_deref(),
            since: time("--since", &args.since)?,
            until: time("--until", &args.until)?,
        })
    }

    fn is_search(&self) -> bool {
        self.actor.is_some() || self.since.is_some() || self.until.is_some()
    }

    fn includes(&self, change: &Value) -> bool {
        let at = number(change, "at");
        let actor = text(change, "actor");
        let is_by = |name: &str| actor == name || actor.rsplit_once('@').is_some_and(|(own, _)| own == name);
        self.actor.is_none_or(is_by)
            && self.since.is_none_or(|since| at >= since)
            && self.until.is_none_or(|until| at < until)
    }

    /// Whether no earlier change can be wanted.
    fn ends_at(&self, change: &Value) -> bool {
        self.since.is_some_and(|since| number(change, "at") < since)
    }
}

/// Parses the time of an option, or an age such as `2h` before `now_ms`; returns Unix milliseconds.
fn parse_time(option: &str, text: &str, now_ms: u64) -> Result<u64, Failure> {
    if let Some(age) = parse_ttl(text) {
        return Ok(now_ms.saturating_sub(u64::try_from(age.as_millis()).unwrap_or(u64::MAX)));
    }
    let time = from_rfc3339(text).map(|time| u64::try_from(time).unwrap_or_default());
    time.ok_or_else(|| {
        Failure::bad(option, format!("`{text}` is not a time: write 15m, 2h, 7d or 2026-01-31T08:00:00Z"))
    })
}

/// Returns the wanted changes: those of one page or, if only some are wanted, of many pages.
async fn search(
    api: &AdminClient,
    args: &HistoryArgs,
    wanted: &ChangeFilter<'_>,
) -> Result<Vec<Value>, Failure> {
    let (size, pages) = if wanted.is_search() { (PAGE, SEARCHED_PAGES) } else { (args.limit, 1) };
    let most = usize::try_from(args.limit).unwrap_or(usize::MAX);
    let mut before = args.before;
    let mut found = Vec::new();
    for _ in 0..pages {
        let mut query = vec![("limit", size.to_string())];
        query.extend(before.map(|before| ("before", before.to_string())));
        query.extend(args.org.clone().map(|org| ("org", org)));
        query.extend(args.kind.clone().map(|kind| ("kind", kind)));
        let page = api.get(&with_query("/api/audit", &query)?).await?.accepted()?;
        let changes = page.as_array().cloned().unwrap_or_default();
        before = changes.last().map(|change| number(change, "revision"));
        let is_last =
            changes.len() < size as usize || changes.last().is_none_or(|change| wanted.ends_at(change));
        found.extend(changes.into_iter().filter(|change| wanted.includes(change)));
        if is_last || found.len() >= most {
            found.truncate(most);
            return Ok(found);
        }
    }
    if let Some(before) = before.filter(|_| wanted.is_search()) {
        let searched = PAGE * SEARCHED_PAGES;
        print::note(&format!("{searched} changes were searched; --before {before} searches earlier ones"));
    }
    Ok(found)
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
        if !args.yes && !confirm("Undo it? [y/N] ")? {
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
pub(super) fn confirm(question: &str) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stderr().is_terminal() {
        return Err(Failure::bad("--yes", "is required where there is no terminal to ask at"));
    }
    let mut terminal = io::stderr();
    write!(terminal, "{question}").and_then(|()| terminal.flush()).context("ask at the terminal")?;
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
    fn changes_are_chosen_by_their_author_and_time() {
        let args = HistoryArgs {
            org: None,
            kind: None,
            actor: Some("ops".into()),
            since: Some("10s".into()),
            until: Some("1970-01-01T00:01:00Z".into()),
            limit: 5,
            before: None,
            json: false,
        };
        let wanted = ChangeFilter::read(&args, 50_000).unwrap();
        let change = |actor: &str, at: u64| json!({ "actor": actor, "at": at });
        assert!(wanted.includes(&change("ops@acme", 40_000)) && wanted.includes(&change("ops", 59_999)));
        for other in [change("ops2@acme", 45_000), change("ops@acme", 39_999), change("ops@acme", 60_000)] {
            assert!(!wanted.includes(&other), "{other}");
        }
        assert!(wanted.ends_at(&change("eve@acme", 39_999)) && !wanted.ends_at(&change("eve@acme", 40_000)));
        let bad = HistoryArgs { since: Some("yesterday".into()), ..args };
        assert!(ChangeFilter::read(&bad, 0).is_err());
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
