//! The end of an import: what of it can be served is compared with the previous import, and written.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, anyhow};
use asp_command::failure::Failure;
use asp_control::catalog;
use asp_registry::{CompiledServer, Source};
use serde_json::Value;

use crate::args::ImportArgs;
use crate::files::{ImportResult, Requirement, merge_sources};
use crate::listing::list_primitives;
use crate::report::ImportReport;
use crate::{choices, edited, protocols, served, versions};

/// Writes an import into the directory of primitives; fails if its changes are not accepted.
pub(super) fn write_import(
    args: &ImportArgs,
    mut imported: ImportResult,
    report: &mut ImportReport,
) -> Result<(), Failure> {
    let mut sources = existing(args)?;
    let prefix = format!("{}/", args.server);
    let server_file = format!("{prefix}server.yaml");
    let before = compiled(&sources, &args.server);
    choices::rename(&mut imported, args)?;
    if before.is_some() {
        for line in edited::keep_edits(&mut imported.files, &sources) {
            report.line(&line);
        }
        if args.credential.is_none() && args.exchange.is_none() && !args.no_auth {
            edited::keep_auth(&mut imported.files, &sources);
        }
    }
    choices::mark_read_only(&mut imported, args);
    let ours = sources.iter().filter(|source| source.path.starts_with(&prefix));
    protocols::expose(&mut imported.files, args, ours);
    // The files of an earlier import are replaced, so that a tool that the upstream dropped disappears.
    let stale: Vec<String> = sources
        .iter()
        .filter(|source| source.path.starts_with(&prefix) && source.path != server_file)
        .map(|source| source.path.clone())
        .collect();
    let kept = sources.iter().find(|source| source.path == server_file).map(|source| source.text.clone());
    sources.retain(|source| !stale.contains(&source.path) && source.path != server_file);
    let (mut new, left_out) = servable_part(args, &imported, (kept, before.as_ref()), &sources, report)?;
    check(&merge_sources(&sources, &new), &prefix, report)?;
    let raised = raise_versions(&mut new, &sources, before.as_ref(), &server_file);
    let sources = merge_sources(&sources, &new);
    match (&before, compiled(&sources, &args.server)) {
        (Some(before), Some(after)) if !accepted(args, before, &after, report) => {
            return Err(Failure::Refused);
        }
        (None, _) if !stale.is_empty() && !args.accept => {
            report.refuse(&format!(
                "nothing was written: the earlier import in {prefix} has faults, so the changes cannot be listed; \
                 fix the faults that `asp lint` lists, or overwrite it with --accept"
            ));
            return Err(Failure::Refused);
        }
        _ => {}
    }
    write(&args.out, &stale, &new)?;
    report_written(args, &imported, (&new, left_out), (raised.as_slice(), report));
    Ok(())
}

/// Reports the files that were written, and what a person has to look at.
fn report_written(
    args: &ImportArgs,
    imported: &ImportResult,
    (new, left_out): (&BTreeMap<String, String>, usize),
    (raised, report): (&[String], &mut ImportReport),
) {
    raised.iter().for_each(|line| report.line(line));
    for line in &imported.dropped {
        report.line(&format!("dropped: {line}"));
    }
    let left_out = if left_out > 0 { format!(" ({left_out} left out)") } else { String::new() };
    let summary = format!("{}{left_out}", imported.said);
    report.add_files(&args.out.join(&args.server), ids(new, |_| true), &summary);
    let marked = ids(new, |spec| spec.get("mutation").is_some_and(|word| word == "destructive"));
    if !marked.is_empty() {
        report.needs_approval(&approvals(&marked), &marked);
    }
    list_requirements(&imported.requirements, new).for_each(|line| report.operator_entry(line));
}

/// Returns the ids of the specs that fit.
fn ids(files: &BTreeMap<String, String>, fits: impl Fn(&Value) -> bool) -> Vec<String> {
    let specs = files.values().filter_map(|text| serde_json::from_str::<Value>(text).ok());
    let id = |spec: Value| spec.get("id").and_then(Value::as_str).map(str::to_owned);
    specs.filter(|spec| fits(spec)).filter_map(id).collect()
}

/// Raises the major version of each primitive that breaks its callers and, where that is not enough because one is gone, of the
/// server. Returns a line for each.
fn raise_versions(
    new: &mut BTreeMap<String, String>,
    others: &[Source],
    before: Option<&CompiledServer>,
    server_file: &str,
) -> Vec<String> {
    let Some(before) = before else { return Vec::new() };
    let after = |new: &BTreeMap<String, String>| compiled(&merge_sources(others, new), &before.server.name);
    let Some(first) = after(new) else { return Vec::new() };
    let mut lines = versions::raise(new, before, &first);
    let breaks = |after: &CompiledServer| {
        asp_registry::compare(before, after).iter().any(asp_registry::Change::breaks_callers)
    };
    if after(new).is_some_and(|after| breaks(&after))
        && let Some(text) = new.get_mut(server_file)
    {
        let (raised, version) = versions::raise_server(text, &before.server.version);
        *text = raised;
        lines.push(format!(
            "raised: the server {} to {version}, because callers of it break",
            before.server.name
        ));
    }
    lines
}

/// Reads the sources in the directory; none if it does not exist.
fn existing(args: &ImportArgs) -> Result<Vec<Source>, Failure> {
    match asp_registry::read_dir(&args.out) {
        Ok(sources) => Ok(sources),
        Err(_) if !args.out.exists() => Ok(Vec::new()),
        Err(error) => Err(anyhow!(error).context(format!("read {}", args.out.display())).into()),
    }
}

/// Returns the part of an import that can be served, with the server's file, and the number of primitives that cannot. `kept`
/// is the server's current file, and `before` its compiled form.
fn servable_part(
    args: &ImportArgs,
    imported: &ImportResult,
    (kept, before): (Option<String>, Option<&CompiledServer>),
    others: &[Source],
    report: &mut ImportReport,
) -> Result<(BTreeMap<String, String>, usize), Failure> {
    let server_file = format!("{}/server.yaml", args.server);
    let mut new = imported.files.clone();
    let fresh = new.remove(&server_file).unwrap_or_default();
    let listing = protocols::listed(&kept.unwrap_or(fresh), args);
    versions::keep_versions(&mut new, before);
    let left = |left_out: &BTreeSet<String>| {
        imported.ids.iter().filter(|id| !left_out.contains(*id)).cloned().collect::<Vec<_>>()
    };
    let listed = |left_out: &BTreeSet<String>| list_primitives(&listing, &args.server, &left(left_out));
    let served::Selection { mut files, lines, left_out } =
        served::select_servable(new, others, |left_out| (server_file.clone(), listed(left_out)));
    for line in imported.renamed.iter().chain(&lines) {
        report.line(line);
    }
    if let Some(file) = &args.report {
        append(file, &lines)?;
    }
    if left(&left_out).is_empty() && !imported.ids.is_empty() {
        report.refuse("nothing was written: no part of it can be served");
        return Err(Failure::Refused);
    }
    files.insert(server_file.clone(), listed(&left_out));
    Ok((files, left_out.len()))
}

/// Adds lines to the report that the conversion of the document wrote.
fn append(file: &Path, lines: &[String]) -> Result<(), Failure> {
    let named = || format!("write {}", file.display());
    let mut report = OpenOptions::new().create(true).append(true).open(file).with_context(named)?;
    for line in lines {
        writeln!(report, "{line}").with_context(named)?;
    }
    Ok(())
}

/// Describes the tools whose calls need an approval, and both remedies.
fn approvals(ids: &[String]) -> String {
    let shown = ids.iter().take(20).cloned().collect::<Vec<_>>().join(", ");
    let more = if ids.len() > 20 { format!(" and {} more", ids.len() - 20) } else { String::new() };
    format!(
        "needs approval: each call of {shown}{more}. If a tool only reads, import it with `--read-only NAME`; if it destroys \
         nothing, write its `mutation` (idempotent or non_idempotent) into its spec; later imports keep both. To allow it \
         without asking, run `asp policy ORG --allow ID`"
    )
}

/// Returns the lines on the operator's entries that the specs name.
pub(super) fn list_requirements<'a>(
    requirements: &'a [Requirement],
    files: &BTreeMap<String, String>,
) -> impl Iterator<Item = &'a str> {
    let specs: Vec<Value> = files.values().filter_map(|text| serde_json::from_str(text).ok()).collect();
    let is_named = move |requirement: &&Requirement| {
        let name =
            |spec: &Value| spec.pointer(requirement.place).is_some_and(|name| *name == requirement.name);
        specs.iter().any(name)
    };
    requirements.iter().filter(is_named).map(|requirement| requirement.line.as_str())
}

/// Compiles the server; `None` if it does not exist or has a fault.
pub(super) fn compiled(sources: &[Source], server: &str) -> Option<CompiledServer> {
    let prefix = format!("{server}/");
    // Compiled alone, so that a fault in another server does not matter.
    let own: Vec<Source> =
        sources.iter().filter(|source| source.path.starts_with(&prefix)).cloned().collect();
    let servers = asp_registry::check(&own).catalog?.servers;
    servers.into_iter().find(|compiled| compiled.server.name == server)
}

fn check(sources: &[Source], prefix: &str, report: &mut ImportReport) -> Result<(), Failure> {
    let found = asp_registry::check(sources);
    let ours = |file: &str| file.starts_with(prefix);
    for warning in found.warnings.iter().filter(|warning| ours(&warning.file)) {
        report.line(&format!("warning: {}", catalog::describe(warning)));
    }
    for fault in found.faults.iter().filter(|fault| ours(&fault.file)) {
        report.line(&format!("error: {}", catalog::describe(fault)));
    }
    if found.faults.iter().any(|fault| ours(&fault.file)) {
        report.refuse("nothing was written; an import with faults would not be served");
        return Err(Failure::Refused);
    }
    Ok(())
}

/// Reports the changes since the previous import; returns whether they may be written.
fn accepted(
    args: &ImportArgs,
    before: &CompiledServer,
    after: &CompiledServer,
    report: &mut ImportReport,
) -> bool {
    let changes = asp_registry::compare(before, after);
    for change in &changes {
        report.change(change);
    }
    if !changes.is_empty() && !args.accept {
        report.refuse("nothing was written: look at the changes, and accept them with --accept");
        return false;
    }
    true
}

fn write(root: &Path, stale: &[String], new: &BTreeMap<String, String>) -> Result<(), Failure> {
    for path in stale.iter().filter(|path| !new.contains_key(*path)) {
        std::fs::remove_file(root.join(path)).with_context(|| format!("remove {path}"))?;
    }
    for (path, text) in new {
        let file = root.join(path);
        let folder = file.parent().unwrap_or(root);
        std::fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
        std::fs::write(&file, text).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}
