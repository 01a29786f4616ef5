//! Checks of a server's exposed names: each means one primitive, and clients can tell them apart and use them.
//!
//! Owns the checks that need the whole list. Refuses two equal names; warns of names that clients reject, of names
//! that look alike, and of resource templates that match the same URIs.

use std::collections::HashMap;

use crate::compile::{self, ServerMember};
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::server_file::ServerFile;
use crate::spec::Kind;

/// Number of tools from which models still choose reliably.
const MANY_TOOLS: usize = 64;
/// Maximum length of a name in the function calling of large model providers, which accept `[A-Za-z0-9_-]{1,64}`.
const PORTABLE_LENGTH: usize = 64;
const RENAME: &str = "give one of them another name with `as`";

/// Checks the names of the listed primitives; `findings` are those of the server's file.
pub(super) fn check(server: &ServerFile, members: &[ServerMember<'_>], findings: &mut Findings<'_>) {
    let mut seen: HashMap<(&str, String), String> = HashMap::new();
    let mut templates: Vec<Template> = Vec::new();
    let mut tools = 0;
    for (position, member) in members.iter().enumerate() {
        let path = format!("/primitives/{position}");
        let listing = compile::exposed_names(server, member);
        // Tools, prompts and resources have separate lists in MCP.
        let list = match member.spec.kind {
            Kind::Tool | Kind::Task => "mcp tool",
            Kind::Prompt => "mcp prompt",
            _ => "mcp resource",
        };
        tools += usize::from(list == "mcp tool" && !listing.mcp_name.is_empty());
        if list == "mcp tool" {
            check_portable(&listing.mcp_name, &path, findings);
        }
        if member.spec.kind == Kind::ResourceTemplate && !listing.mcp_name.is_empty() {
            check_overlap(&listing.mcp_name, &mut templates, &path, findings);
        }
        let names = [
            (list, listing.mcp_name),
            ("a2a skill", listing.a2a_skill),
            ("rest operation", listing.rest_name),
        ];
        for (list, name) in names.into_iter().filter(|(_, name)| !name.is_empty()) {
            match seen.insert((list, name.to_ascii_lowercase()), name.clone()) {
                Some(other) if other == name => {
                    let message = format!("a second {list} called `{name}`");
                    findings.add(FaultCode::DuplicateName, &path, message, RENAME);
                }
                Some(other) => {
                    let message = format!("the {list} `{name}` differs from `{other}` in case only");
                    findings.add(FaultCode::CaseTwins, &path, message, RENAME);
                }
                None => {}
            }
        }
    }
    if tools > MANY_TOOLS {
        let message = format!("{tools} tools; models choose badly from more than {MANY_TOOLS}");
        findings.add(FaultCode::ManyTools, "/primitives", message, "split the server by task");
    }
}

fn check_portable(name: &str, path: &str, findings: &mut Findings<'_>) {
    let problem = if name.contains('.') {
        format!("the tool name `{name}` has a dot")
    } else if name.len() > PORTABLE_LENGTH {
        format!("the tool name `{name}` has {} characters", name.len())
    } else {
        return;
    };
    let hint = "MCP allows it, but many model providers take 1 to 64 of A-Z a-z 0-9 _ - only: use `as`, or \
                exposure.mcp.tool.name";
    findings.add(FaultCode::UnportableName, path, problem, hint);
}

/// A resource template, compared by path segments, which variables never cross.
struct Template {
    text: String,
}

impl Template {
    /// Whether one URI may match both. Between its first and last variable a segment is assumed to match anything:
    /// this is only a warning.
    fn overlaps(&self, other: &Template) -> bool {
        let mut mine = self.text.split('/');
        let mut theirs = other.text.split('/');
        loop {
            match (mine.next(), theirs.next()) {
                (None, None) => return true,
                (Some(one), Some(another)) if segments_overlap(one, another) => {}
                _ => return false,
            }
        }
    }
}

fn segments_overlap(one: &str, another: &str) -> bool {
    match (fixed_ends(one), fixed_ends(another)) {
        (None, None) => one == another,
        (Some(ends), None) => fits(another, ends),
        (None, Some(ends)) => fits(one, ends),
        (Some((start, end)), Some((other_start, other_end))) => {
            (start.starts_with(other_start) || other_start.starts_with(start))
                && (end.ends_with(other_end) || other_end.ends_with(end))
        }
    }
}

/// Returns the fixed text before the first variable and after the last one; `None` without a variable.
fn fixed_ends(segment: &str) -> Option<(&str, &str)> {
    let (start, _) = segment.split_once('{')?;
    let (_, end) = segment.rsplit_once('}')?;
    Some((start, end))
}

fn fits(text: &str, (start, end): (&str, &str)) -> bool {
    text.len() > start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
}

fn check_overlap(text: &str, earlier: &mut Vec<Template>, path: &str, findings: &mut Findings<'_>) {
    let template = Template { text: text.to_string() };
    if let Some(other) = earlier.iter().find(|other| other.text != text && template.overlaps(other)) {
        let message =
            format!("`{text}` and `{}` match the same URIs; the first one listed answers", other.text);
        let hint = "give each template a fixed part of its own";
        findings.add(FaultCode::OverlappingTemplates, path, message, hint);
    }
    earlier.push(template);
}
