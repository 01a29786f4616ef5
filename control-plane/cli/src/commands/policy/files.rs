//! `asp policy export`, `diff` and `apply`: an org's policy as a file, the difference to what is stored with the recorded calls
//! that it changes, and its application.
//!
//! Refuses: unknown members, and two entries with the same key. Keeps true: a list that the file leaves out is not touched;
//! nothing is written before the difference was shown and confirmed; the first write of each list is refused if the list was
//! changed since it was shown (412); what takes access away is stored first, in all lists, and what gives it last.

use std::path::{Path, PathBuf};

use anyhow::Context;
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use asp_control::admin::policy::{Binding, Exposure};
use asp_control::admin::ratelimits::{self, RateLimit};
use asp_control::policy::limit_line;
use percent_encoding::utf8_percent_encode;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{how_to_undo, preview, removal};
use crate::args::policy::{ApplyPolicyArgs, DiffPolicyArgs, ExportPolicyArgs};
use crate::commands::client::{AdminClient, RESERVED, api_path, block_on, with_query};
use crate::commands::{answer, binding, history};

/// Maximum number of files in a directory.
const MAX_FILES: usize = 1_000;
/// Maximum bytes of a file.
const MAX_FILE: u64 = 8 << 20;
const EXPOSURE: &str = "exposure";
const BINDINGS: &str = "bindings";
const LIMITS: &str = "limits";

/// A file as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PolicyFile {
    org: String,
    exposure: Option<Vec<Exposure>>,
    bindings: Option<Vec<Binding>>,
    limits: Option<Vec<FileLimit>>,
}

/// A limit in one line, or in the form of the API.
#[derive(Deserialize)]
#[serde(untagged)]
enum FileLimit {
    Line(String),
    Limit(Box<RateLimit>),
}

/// Entries of an org's lists in the form of the API; `None` for a list that a file leaves out.
#[derive(Debug, PartialEq)]
struct OrgPolicyFile {
    org: String,
    exposure: Option<Vec<Value>>,
    bindings: Option<Vec<Value>>,
    limits: Option<Vec<Value>>,
}

/// Writes the policy of orgs into files.
pub fn export(args: &ExportPolicyArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    std::fs::create_dir_all(&args.directory)
        .with_context(|| format!("create {}", args.directory.display()))?;
    let mut written = Vec::new();
    block_on(async {
        for org in &args.orgs {
            let stored = StoredLists::read(&api, org).await?;
            let path = args.directory.join(format!("{}.yaml", utf8_percent_encode(org, RESERVED)));
            std::fs::write(&path, yaml(org, &stored)).with_context(|| format!("write {}", path.display()))?;
            written.push(path.display().to_string());
        }
        Ok::<_, Failure>(())
    })?;
    answer::show(&json!({ "files": written }), args.json, &format!("written: {}", written.join(", ")));
    Ok(())
}

/// Shows the difference between files and the stored policy, and the recorded calls that it changes.
pub fn diff(args: &DiffPolicyArgs) -> Result<(), Failure> {
    let files = read_all(&args.path)?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    block_on(async {
        let plans = plans(&api, files).await?;
        show(&plans, args.json);
        Ok(())
    })
}

/// Shows the difference, asks, and stores it.
pub fn apply(args: &ApplyPolicyArgs) -> Result<(), Failure> {
    let files = read_all(&args.directory)?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    block_on(async {
        let plans = plans(&api, files).await?;
        show(&plans, args.json);
        let changed: Vec<&FileChange> = plans.iter().filter(|plan| !plan.is_empty()).collect();
        if args.dry_run || changed.is_empty() {
            return Ok(());
        }
        if !args.yes && !history::confirm("Store it? [y/N] ")? {
            print::note("nothing was stored");
            return Err(Failure::Refused);
        }
        for plan in changed {
            plan.store(&api, args.force).await?;
            print::note(&format!("{}: stored; {}", plan.org, how_to_undo(&plan.org)));
        }
        Ok(())
    })
}

fn show(plans: &[FileChange], as_json: bool) {
    let all: Vec<Value> = plans.iter().map(FileChange::to_json).collect();
    let words: Vec<String> = plans.iter().map(FileChange::describe).collect();
    answer::show(&Value::from(all), as_json, &words.join("\n"));
}

/// Reads a file, or every YAML and JSON file of a directory in the order of their names.
fn read_all(path: &Path) -> Result<Vec<OrgPolicyFile>, Failure> {
    let mut paths = vec![path.to_owned()];
    if path.is_dir() {
        let entries = std::fs::read_dir(path).with_context(|| format!("read {}", path.display()))?;
        let entries = entries.take(MAX_FILES * 10).collect::<Result<Vec<_>, _>>();
        let entries = entries.with_context(|| format!("read {}", path.display()))?;
        let is_policy = |path: &PathBuf| {
            path.extension()
                .is_some_and(|ending| ["yaml", "yml", "json"].iter().any(|known| ending == *known))
        };
        paths = entries.into_iter().map(|entry| entry.path()).filter(is_policy).collect();
        paths.sort();
        if paths.len() > MAX_FILES {
            return Err(Failure::bad("DIR", format!("has more than {MAX_FILES} files")));
        }
    }
    let mut files: Vec<OrgPolicyFile> = Vec::new();
    for path in paths {
        let bad = |fault: String| Failure::bad("DIR", format!("{}: {fault}", path.display()));
        let size = std::fs::metadata(&path).with_context(|| format!("read {}", path.display()))?.len();
        if size > MAX_FILE {
            return Err(bad(format!("is larger than {MAX_FILE} bytes")));
        }
        let text = std::fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        let file = parse(&text).map_err(bad)?;
        if files.iter().any(|known| known.org == file.org) {
            return Err(bad(format!("another file has the org {} too", file.org)));
        }
        files.push(file);
    }
    if files.is_empty() {
        return Err(Failure::bad("DIR", "has no file: `asp policy export DIR ORG` writes one".to_owned()));
    }
    Ok(files)
}

/// Parses the text of a file.
fn parse(text: &str) -> Result<OrgPolicyFile, String> {
    let value: Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
    let PolicyFile { org, exposure, bindings, limits } =
        serde_json::from_value(value).map_err(|error| error.to_string())?;
    let limits = limits.map(|limits| {
        let one = |limit| match limit {
            FileLimit::Limit(limit) => Ok(*limit),
            FileLimit::Line(line) => {
                limit_line::parse(&line).map(ratelimits::entry).map_err(|fault| fault.to_string())
            }
        };
        limits.into_iter().map(one).collect::<Result<Vec<RateLimit>, String>>()
    });
    let file = OrgPolicyFile {
        org,
        exposure: exposure.map(|list| values(&list)).transpose()?,
        bindings: bindings.map(|list| values(&list)).transpose()?,
        limits: limits.transpose()?.map(|list| values(&list)).transpose()?,
    };
    for (name, list) in [(EXPOSURE, &file.exposure), (BINDINGS, &file.bindings)] {
        let list = list.as_deref().unwrap_or_default();
        let is_repeated = |(place, entry): (usize, &Value)| {
            list.iter().take(place).any(|known| same_key(name, known, entry))
        };
        if let Some(place) = list.iter().enumerate().position(is_repeated) {
            return Err(format!("entry {} of {name} has the key of an earlier one", place + 1));
        }
    }
    Ok(file)
}

fn values<T: Serialize>(list: &[T]) -> Result<Vec<Value>, String> {
    list.iter().map(|entry| serde_json::to_value(entry).map_err(|error| error.to_string())).collect()
}

/// Whether two entries of a list are the same one with other content.
fn same_key(list: &str, one: &Value, other: &Value) -> bool {
    match list {
        BINDINGS => removal::key_of(one) == removal::key_of(other),
        _ => one.get("server") == other.get("server") && one.get("protocol") == other.get("protocol"),
    }
}

/// The stored lists of an org with their ETags.
struct StoredLists {
    exposure: (Vec<Value>, Option<String>),
    bindings: (Vec<Value>, Option<String>),
    limits: (Vec<Value>, Option<String>),
}

impl StoredLists {
    async fn read(api: &AdminClient, org: &str) -> Result<StoredLists, Failure> {
        Ok(StoredLists {
            exposure: read_list(api, &list_path(org, EXPOSURE)).await?,
            bindings: read_list(api, &list_path(org, BINDINGS)).await?,
            limits: read_list(api, &list_path(org, LIMITS)).await?,
        })
    }
}

async fn read_list(api: &AdminClient, path: &str) -> Result<(Vec<Value>, Option<String>), Failure> {
    let read = api.get(path).await?;
    let etag = read.etag.clone();
    Ok((read.accepted()?.as_array().cloned().unwrap_or_default(), etag))
}

fn list_path(org: &str, list: &str) -> String {
    match list {
        LIMITS => api_path(&["api", "ratelimits", "orgs", org]),
        list => api_path(&["api", "policy", "orgs", org, list]),
    }
}

/// Formats the policy of an org; each entry is a line, so that a version control system shows what changed.
fn yaml(org: &str, stored: &StoredLists) -> String {
    let mut text = format!(
        "# `asp policy diff` compares this file with the stored policy, `asp policy apply` stores it.\norg: {}\n",
        json!(org)
    );
    for (name, (list, _)) in
        [(EXPOSURE, &stored.exposure), (BINDINGS, &stored.bindings), (LIMITS, &stored.limits)]
    {
        if list.is_empty() {
            text.push_str(&format!("{name}: []\n"));
            continue;
        }
        text.push_str(&format!("{name}:\n"));
        for entry in list {
            text.push_str(&format!("  - {entry}\n"));
        }
    }
    text
}

/// Changes of one keyed list.
struct ListPlan {
    name: &'static str,
    /// StoredLists entries whose keys the file does not have.
    removed: Vec<Value>,
    /// Entries of the file that are not stored as they are.
    put: Vec<Value>,
    etag: Option<String>,
}

impl ListPlan {
    fn new(
        name: &'static str,
        (stored, etag): (Vec<Value>, Option<String>),
        wanted: Option<Vec<Value>>,
    ) -> ListPlan {
        let Some(wanted) = wanted else {
            return ListPlan { name, removed: Vec::new(), put: Vec::new(), etag };
        };
        let is_gone = |entry: &&Value| !wanted.iter().any(|one| same_key(name, one, entry));
        let removed = stored.iter().filter(is_gone).cloned().collect();
        let mut put: Vec<Value> = wanted.iter().filter(|entry| !stored.contains(entry)).cloned().collect();
        // Denials first: no caller has more access in between than before or after.
        put.sort_by_key(gives);
        ListPlan { name, removed, put, etag }
    }

    /// Stores what takes access away; returns the ETag of the list with it.
    async fn restrict(&self, api: &AdminClient, org: &str, force: bool) -> Result<Option<String>, Failure> {
        let path = list_path(org, self.name);
        let mut etag = self.etag.clone();
        for entry in self.put.iter().filter(|entry| !gives(entry)) {
            etag = put(api, &path, entry, etag.as_deref(), force).await?;
        }
        for entry in self.removed.iter().filter(|entry| gives(entry)) {
            etag = self.remove(api, &path, entry, etag.as_deref()).await?;
        }
        Ok(etag)
    }

    /// Stores what gives access, in the list with this ETag.
    async fn open(
        &self,
        api: &AdminClient,
        org: &str,
        mut etag: Option<String>,
        force: bool,
    ) -> Result<(), Failure> {
        let path = list_path(org, self.name);
        for entry in self.removed.iter().filter(|entry| !gives(entry)) {
            etag = self.remove(api, &path, entry, etag.as_deref()).await?;
        }
        for entry in self.put.iter().filter(|entry| gives(entry)) {
            etag = put(api, &path, entry, etag.as_deref(), force).await?;
        }
        Ok(())
    }

    /// Removes an entry; returns the ETag of the list without it.
    async fn remove(
        &self,
        api: &AdminClient,
        path: &str,
        entry: &Value,
        etag: Option<&str>,
    ) -> Result<Option<String>, Failure> {
        let key: Vec<(&str, String)> = match self.name {
            BINDINGS => removal::key_of(entry).into(),
            _ => ["server", "protocol"].map(|name| (name, answer::text(entry, name).to_owned())).into(),
        };
        api.delete_if_match(&with_query(path, &key)?, etag).await?.accepted()?;
        Ok(read_list(api, path).await?.1)
    }
}

/// Whether an entry gives access.
fn gives(entry: &Value) -> bool {
    ["allowed", "enabled"].iter().any(|member| answer::is(entry, member))
}

/// Puts an entry; returns the ETag of the list with it.
async fn put(
    api: &AdminClient,
    path: &str,
    entry: &Value,
    etag: Option<&str>,
    force: bool,
) -> Result<Option<String>, Failure> {
    let stored = api.put_if_match(&super::with_force(path, force), entry, etag).await?;
    let etag = stored.etag.clone();
    stored.accepted()?;
    Ok(etag)
}

/// The changes that a file makes.
struct FileChange {
    org: String,
    exposure: ListPlan,
    bindings: ListPlan,
    /// The whole list, and the stored one, if the file has another one.
    limits: Option<(Vec<Value>, Vec<Value>)>,
    limits_etag: Option<String>,
    preview: Value,
}

/// Compares files with what is stored.
async fn plans(api: &AdminClient, files: Vec<OrgPolicyFile>) -> Result<Vec<FileChange>, Failure> {
    let mut plans = Vec::new();
    for file in files {
        plans.push(FileChange::read(api, file).await?);
    }
    Ok(plans)
}

impl FileChange {
    async fn read(api: &AdminClient, file: OrgPolicyFile) -> Result<FileChange, Failure> {
        let stored = StoredLists::read(api, &file.org).await?;
        let (stored_limits, limits_etag) = stored.limits;
        let mut plan = FileChange {
            exposure: ListPlan::new(EXPOSURE, stored.exposure, file.exposure),
            bindings: ListPlan::new(BINDINGS, stored.bindings, file.bindings),
            limits: file
                .limits
                .filter(|wanted| *wanted != stored_limits)
                .map(|wanted| (wanted, stored_limits)),
            limits_etag,
            preview: Value::Null,
            org: file.org,
        };
        if !plan.is_empty() {
            plan.preview = preview::read(api, &plan.to_preview()).await?;
        }
        Ok(plan)
    }

    fn is_empty(&self) -> bool {
        let lists = [&self.exposure, &self.bindings];
        self.limits.is_none() && lists.iter().all(|list| list.removed.is_empty() && list.put.is_empty())
    }

    /// Returns the change for a preview. Of the limits only the new ones are tried.
    fn to_preview(&self) -> Value {
        let (new_limits, _) = self.changed_limits();
        json!({ "org": self.org, "exposure": self.exposure.put, "removeExposure": self.exposure.removed,
            "bindings": self.bindings.put, "removeBindings": self.bindings.removed, "limits": new_limits })
    }

    /// Returns the limits that are new, and those that are removed.
    fn changed_limits(&self) -> (Vec<&Value>, Vec<&Value>) {
        let Some((wanted, stored)) = &self.limits else { return Default::default() };
        let new = wanted.iter().filter(|limit| !stored.contains(limit)).collect();
        (new, stored.iter().filter(|limit| !wanted.contains(limit)).collect())
    }

    fn to_json(&self) -> Value {
        let (put, removed) = self.changed_limits();
        let list = |list: &ListPlan| json!({ "put": list.put, "remove": list.removed });
        json!({ "org": self.org, "exposure": list(&self.exposure), "bindings": list(&self.bindings),
            "limits": { "put": put, "remove": removed }, "preview": self.preview })
    }

    /// Describes the changes, and the recorded calls that they change.
    fn describe(&self) -> String {
        if self.is_empty() {
            return format!("{}: nothing to change", self.org);
        }
        let mut lines = vec![format!("{}:", self.org)];
        let (put, removed) = self.changed_limits();
        let exposure = |entry: &Value| {
            let state = if answer::is(entry, "enabled") { "on" } else { "off" };
            format!("{} over {} {state}", answer::text(entry, "server"), answer::text(entry, "protocol"))
        };
        let of_binding = |entry: &Value| binding::describe_binding(&self.org, entry);
        lines.extend(self.exposure.removed.iter().map(|entry| format!("  - {}", exposure(entry))));
        lines.extend(self.exposure.put.iter().map(|entry| format!("  + {}", exposure(entry))));
        lines.extend(self.bindings.removed.iter().map(|entry| format!("  - {}", of_binding(entry))));
        lines.extend(self.bindings.put.iter().map(|entry| format!("  + {}", of_binding(entry))));
        lines.extend(removed.iter().map(|limit| format!("  - limit {limit}")));
        lines.extend(put.iter().map(|limit| format!("  + limit {limit}")));
        if put.is_empty() && removed.is_empty() && self.limits.is_some() {
            lines.push("  the limits in another order".to_owned());
        }
        lines.push(preview::describe(&self.preview));
        lines.join("\n")
    }

    async fn store(&self, api: &AdminClient, force: bool) -> Result<(), Failure> {
        let note = |list: &str| print::note(&format!("{}: {list} may be stored in part", self.org));
        // Of both lists first what takes access away: a denial may move from one to the other.
        let bindings = self.bindings.restrict(api, &self.org, force).await.inspect_err(|_| note(BINDINGS))?;
        let exposure = self.exposure.restrict(api, &self.org, force).await.inspect_err(|_| note(EXPOSURE))?;
        self.bindings.open(api, &self.org, bindings, force).await.inspect_err(|_| note(BINDINGS))?;
        self.exposure.open(api, &self.org, exposure, force).await.inspect_err(|_| note(EXPOSURE))?;
        if let Some((wanted, _)) = &self.limits {
            let path = super::with_force(&list_path(&self.org, LIMITS), force);
            let body = Value::from(wanted.clone());
            api.put_if_match(&path, &body, self.limits_etag.as_deref()).await?.accepted()?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
