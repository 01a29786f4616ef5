//! Import of a client's own file of MCP servers: each server over HTTP, and each package of `npx` and `uvx`, becomes a folder of
//! specs. Such a package can be named on the command line too.
//!
//! Owns the order: key, code, lists, specs. Keeps true: a server that cannot be imported is reported with its reason and stops no
//! other; keys are in the operator's files alone.

mod command;
mod fetch;
mod file;
mod keys;

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Context, anyhow};
use asp_command::environment::Environment;
use asp_command::failure::Failure;
use asp_packaging::stdio::check_variable;
use asp_platform::secret::Secret;
use asp_platform::{address, shell};
use reqwest::Url;
use reqwest::header::{HeaderName, HeaderValue};
use tokio::runtime::Runtime;

use crate::args::ImportArgs;
use crate::package::{self, ListingRuntime};
use crate::report::{ImportReport, reason};
use crate::specs::{self, Upstream};
use crate::upstream;
use crate::write::write_import;
use command::{ClientKey, PackageCommand};
use file::{ClientEntry, ClientServer};
use keys::{KeyFiles, secret_name};

/// Maximum size of the file, in bytes.
const MAX_FILE: u64 = 1 << 20;
/// Maximum length of a server's name here, in bytes.
const MAX_NAME: usize = 40;

/// Imports the servers of the file, or the one that `--server` names; fails if one of them is left out.
pub(super) fn import(
    args: &ImportArgs,
    file: &Path,
    runtime: &Runtime,
    environment: &dyn Environment,
    report: &mut ImportReport,
) -> Result<(), Failure> {
    let entries = read(file, environment)?;
    import_entries(args, (entries, &file.display().to_string()), (runtime, environment), report)
}

/// Imports the package that a command line of `npx` or `uvx` starts.
pub(super) fn import_package(
    args: &ImportArgs,
    (program, line): (&str, &str),
    runtime: &Runtime,
    environment: &dyn Environment,
    report: &mut ImportReport,
) -> Result<(), Failure> {
    let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
    let command = command::package(program, &words);
    let command = command.map_err(|fault| Failure::bad(&format!("--{program}"), fault))?;
    let value = |name: &String| environment.get(name).map(Secret::new).ok_or_else(|| format!("${{{name}}}"));
    let variables =
        args.variables.iter().map(|name| ClientKey { name: name.clone(), value: value(name) }).collect();
    let server = Ok(ClientServer::Package { command, variables });
    let entry = ClientEntry { name: args.server.clone(), server, unread: Vec::new() };
    import_entries(args, (vec![entry], line), (runtime, environment), report)
}

/// Imports the servers, or the one that `--server` names; `source` is where they are from, for texts.
fn import_entries(
    args: &ImportArgs,
    (entries, source): (Vec<ClientEntry>, &str),
    (runtime, environment): (&Runtime, &dyn Environment),
    report: &mut ImportReport,
) -> Result<(), Failure> {
    let keys = KeyFiles::of(environment);
    let mut import = ClientImport { args, runtime, keys, notes: Vec::new(), upstreams: Vec::new(), report };
    let mut taken = BTreeSet::new();
    let mut left_out = Vec::new();
    let mut imported = 0;
    for ClientEntry { name, server, unread } in entries {
        let here = server_name(&name, &mut taken);
        if !args.server.is_empty() && args.server != here {
            continue;
        }
        import.report.begin_server(&here, Some(&name));
        import.report.remark(&format!("{name:?} as {here}:"));
        for (member, remedy) in unread {
            import.notes.push(format!("left out of {here}: `{member}`: {remedy}"));
        }
        let added = server
            .map_err(Some)
            .and_then(|server| import.add(&here, &server).map_err(|failure| reason(&failure)));
        let why = added.err().map(|why| why.unwrap_or_else(|| "for the reasons above".to_owned()));
        import.report.end_server(why.as_deref());
        match why {
            None => imported += 1,
            Some(why) => left_out.push(format!("left out: {name:?}: {why}")),
        }
    }
    if imported == 0 && left_out.is_empty() {
        let names = taken.into_iter().collect::<Vec<_>>().join(", ");
        return Err(Failure::bad("--server", format!("names no server of {source}, which has: {names}")));
    }
    let ClientImport { keys, notes, upstreams, report, .. } = import;
    notes.iter().chain(&left_out).for_each(|line| report.line(line));
    report.remark(&format!("{imported} servers imported, {} left out", left_out.len()));
    if imported > 0 {
        for setting in keys.settings() {
            report.next_step(&format!("start the platform with {setting}"));
        }
        for entry in &upstreams {
            report.next_step(&format!("add the entry {entry} to ASP_UPSTREAMS"));
        }
        report.next_step(&format!("asp deploy {}", shell::path(&args.out)));
    }
    if left_out.is_empty() { Ok(()) } else { Err(Failure::Refused) }
}

fn read(file: &Path, environment: &dyn Environment) -> Result<Vec<ClientEntry>, Failure> {
    let named = || format!("read {}", file.display());
    if std::fs::metadata(file).with_context(named)?.len() > MAX_FILE {
        return Err(anyhow!("{} has more than {MAX_FILE} bytes", file.display()).into());
    }
    let text = std::fs::read_to_string(file).with_context(named)?;
    let entries = file::entries(&text, environment);
    entries.map_err(|fault| Failure::bad("FILE", format!("{}: {fault}", file.display())))
}

/// Returns the name of a server here: lower-case letters, digits and hyphens.
fn server_name(name: &str, taken: &mut BTreeSet<String>) -> String {
    let plain: String = name
        .chars()
        .map(|char| if char.is_ascii_alphanumeric() { char.to_ascii_lowercase() } else { '-' })
        .collect();
    let mut base = plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-");
    base.truncate(MAX_NAME);
    let base = if base.is_empty() { "server" } else { base.trim_end_matches('-') };
    let mut found = base.to_owned();
    let mut next = 2;
    while !taken.insert(found.clone()) {
        found = format!("{base}-{next}");
        next += 1;
    }
    found
}

/// One import of a file.
struct ClientImport<'a> {
    args: &'a ImportArgs,
    runtime: &'a Runtime,
    keys: KeyFiles,
    /// Lines for the end: what a person has to look at.
    notes: Vec<String>,
    /// Entries that let gateways reach services without TLS or at private addresses.
    upstreams: Vec<String>,
    report: &'a mut ImportReport,
}

impl ClientImport<'_> {
    fn add(&mut self, server: &str, entry: &ClientServer) -> Result<(), Failure> {
        let args =
            ImportArgs { client: None, npx: None, uvx: None, server: server.to_owned(), ..self.args.clone() };
        match entry {
            ClientServer::Http { url, headers } => self.add_service(args, url, headers),
            ClientServer::Package { command, variables } => self.add_package(args, command, variables),
        }
    }

    /// Imports a server over HTTP; the key among its headers becomes a credential of its name.
    fn add_service(&mut self, mut args: ImportArgs, url: &Url, headers: &[ClientKey]) -> Result<(), Failure> {
        let server = args.server.clone();
        let key = credential_of(headers);
        for header in headers.iter().filter(|header| key.is_none_or(|key| key.name != header.name)) {
            let name = &header.name;
            self.notes.push(format!(
                "left out of {server}: the header {name}: a server gets one header, its credential"
            ));
        }
        let mut header = None;
        if let Some(key) = key {
            let value = key.value.as_ref().map_err(|placeholder| {
                let name = &key.name;
                // A client asks for an input; no variable has its name.
                let or =
                    if placeholder.starts_with("${input:") { "" } else { ", or set it in the environment" };
                anyhow!("its header {name} needs the value of {placeholder}: write it into the file{or}")
            })?;
            let name: HeaderName = key.name.parse().context("read the name of a header")?;
            let mut sent = HeaderValue::from_str(value.expose())
                .map_err(|_| anyhow!("its header {name} has no valid value"))?;
            sent.set_sensitive(true);
            header = Some((name, sent));
            if !self.keys.add_credential(&server, url, (key.name.as_str(), value))? {
                self.notes.push(format!("kept: the credential {server}, which ASP_CREDENTIALS has already"));
            }
            args.credential = Some(server);
        }
        let host = url.host_str().unwrap_or_default();
        if url.scheme() == "http" || address::is_this_machine(host) {
            let name = format!("{}.internal", args.server);
            let origin = url.origin().ascii_serialization();
            self.upstreams.push(format!("{name}={origin};for={}/*", args.server));
            args.proxy_url = Some(format!("http://{name}{}", url.path()));
        }
        let lists = self.runtime.block_on(upstream::list_with(url.as_str(), header))?;
        write_import(&args, specs::convert(&args, &Upstream::Url(url.as_str()), &lists), self.report)
    }

    /// Fetches a package and imports what it lists; its variables become secrets.
    fn add_package(
        &mut self,
        args: ImportArgs,
        command: &PackageCommand,
        variables: &[ClientKey],
    ) -> Result<(), Failure> {
        let server = &args.server;
        let mut named = Vec::new();
        for variable in variables {
            let name = &variable.name;
            if let Err(why) = check_variable(name) {
                self.notes.push(format!("left out of {server}: the variable {name}: {why}"));
                continue;
            }
            let secret = secret_name(server, name);
            match &variable.value {
                Ok(value) if value.expose().is_empty() => continue,
                Ok(value) => {
                    if !self.keys.add_secret(server, &secret, value)? {
                        self.notes.push(format!("kept: the secret {secret}, which ASP_SECRETS has already"));
                    }
                }
                Err(placeholder) => self.notes.push(format!(
                    "missing: the value of {name} ({placeholder}): add {{\"{secret}\": {{\"value\": \"…\", \"for\": [\"{server}/*\"]}}}} \
                     to {}",
                    self.keys.secrets_path().display()
                )),
            }
            named.push((name.clone(), secret));
        }
        let plugins = args.out.join(server).join("plugins");
        let package = self.runtime.block_on(fetch::fetch(command, &named, &plugins, args.accept))?;
        let listing = ListingRuntime { secrets: self.keys.secrets_variable(), is_pinned: true };
        let (lists, found) = self.runtime.block_on(package::list(&args, &package, listing))?;
        let imported = specs::convert(&args, &Upstream::Package(found), &lists);
        if args.domains.is_empty() {
            self.notes.push(format!(
                "{server}: its sandbox has no network; hosts that it needs are named with `--server {server} --allow-domain HOST`, \
                 or in `security.allowedDomains` of its specs"
            ));
        }
        write_import(&args, imported, self.report)
    }
}

/// Returns the header that authenticates: the usual one, else one whose name says so, else the first.
fn credential_of(headers: &[ClientKey]) -> Option<&ClientKey> {
    let named = |words: &[&str]| {
        headers.iter().find(|header| words.iter().any(|word| header.name.to_ascii_lowercase().contains(word)))
    };
    named(&["authorization"])
        .or_else(|| named(&["key", "token", "auth", "secret"]))
        .or_else(|| headers.first())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn key(name: &str) -> ClientKey {
        ClientKey { name: name.to_owned(), value: Ok("v".into()) }
    }

    #[test]
    fn a_server_has_a_plain_name_of_its_own() {
        let mut taken = BTreeSet::new();
        let mut of = |name: &str| server_name(name, &mut taken);
        assert_eq!(
            (of("GitHub"), of("Brave  Search!"), of("github")),
            ("github".into(), "brave-search".into(), "github-2".into())
        );
        assert_eq!((of("検索"), of(&"x".repeat(99)).len()), ("server".into(), MAX_NAME));
    }

    #[test]
    fn the_header_with_the_key_is_the_credential() {
        let of = |names: &[&str]| {
            let headers: Vec<ClientKey> = names.iter().map(|name| key(name)).collect();
            credential_of(&headers).map(|header| header.name.clone())
        };
        assert_eq!(of(&["X-Region", "X-Api-Key", "Authorization"]).as_deref(), Some("Authorization"));
        assert_eq!(of(&["X-Region", "X-Api-Key"]).as_deref(), Some("X-Api-Key"));
        assert_eq!(of(&["X-Region"]).as_deref(), Some("X-Region"));
        assert_eq!(of(&[]), None);
    }

    #[test]
    fn what_cannot_be_imported_is_left_out_and_a_name_that_the_file_lacks_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("mcp.json");
        std::fs::write(
            &file,
            r#"{"mcpServers": {"Fetch": {"command": "docker", "args": ["run", "mcp/fetch"]}}}"#,
        )
        .unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let state = root.path().join("state");
        let environment = BTreeMap::from([("ASP_STATE_DIR", state.to_str().unwrap())]);
        let of = |server: &str| {
            let args = ImportArgs {
                server: server.to_owned(),
                out: root.path().join("out"),
                ..crate::specs::tests::args()
            };
            import(&args, &file, &runtime, &environment, &mut ImportReport::default())
        };
        assert!(matches!(of(""), Err(Failure::Refused)));
        assert!(matches!(of("fetch"), Err(Failure::Refused)));
        assert!(matches!(of("other"), Err(Failure::Configuration(_))));
        assert!(!state.exists() && !root.path().join("out").exists());
        std::fs::write(&file, "{}").unwrap();
        assert!(matches!(of(""), Err(Failure::Configuration(_))));
    }

    #[test]
    fn a_command_line_that_names_no_package_of_a_registry_is_refused_by_its_option() {
        let root = tempfile::tempdir().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let state = root.path().join("state");
        let environment = BTreeMap::from([("ASP_STATE_DIR", state.to_str().unwrap())]);
        let args = ImportArgs {
            mcp: None,
            out: root.path().join("out"),
            variables: vec!["API_KEY".to_owned()],
            ..crate::specs::tests::args()
        };
        for (program, line) in [
            ("npx", "./server"),
            ("npx", "git+https://example.com/server"),
            ("uvx", "server --token=hunter2"),
            ("npx", ""),
        ] {
            let mut report = ImportReport::default();
            let refused = import_package(&args, (program, line), &runtime, &environment, &mut report);
            let refused = refused.unwrap_err();
            let Failure::Configuration(faults) = refused else { panic!("{line}") };
            assert_eq!(faults[0].name, format!("--{program}"), "{line}");
            assert!(!faults[0].message.contains("hunter2"), "{}", faults[0].message);
        }
        assert!(!state.exists() && !args.out.exists());
    }
}
