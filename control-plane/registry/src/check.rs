//! The whole check: every file by itself, then all files together, then the compilation.
//!
//! Keeps true: every fault of every file is reported, in the order of files and lines; there is a catalog exactly if
//! there is no fault.

use crate::compiled::CompiledServer;
use std::collections::{HashMap, HashSet};

use serde::Serialize;

use crate::compile::compile_server;
use crate::document::Document;
use crate::fault::{Fault, FaultCode, shortened};
use crate::findings::{self, Findings};
use crate::link::{self, Declaration, Index};
use crate::published::{server_format, spec_format};
use crate::rules;
use crate::schema_file::{self, LoadedSchemaFile};
use crate::server_file::ServerFile;
use crate::source::{MAX_FILES, Source};
use crate::spec::Spec;
use crate::structure;

/// The result of a check.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    pub faults: Vec<Fault>,
    pub warnings: Vec<Fault>,
    /// Present exactly if there is no fault.
    #[serde(skip)]
    pub catalog: Option<Catalog>,
}

/// Compiled servers, sorted by name.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    pub servers: Vec<CompiledServer>,
}

/// A file that could be parsed.
struct ParsedFile<'a> {
    source: &'a Source,
    document: Document,
}

/// Maximum encoded size of the servers that one check compiles, in bytes: several times that of all servers that can
/// be published. Each server has a copy of what it lists, so a small set of files may compile to any size.
const MAX_COMPILED: usize = 128 * 1024 * 1024;

/// Maximum length of the path of a file that is read, in bytes; valid paths are shorter.
const MAX_PATH: usize = 512;

/// Checks and compiles all sources together.
pub fn check(sources: &[Source]) -> CheckReport {
    check_all(sources, true, MAX_COMPILED)
}

/// Does the same as [`check`] without the schemas generated from plugin code: their generator needs the list of
/// plugins before schemas exist, or while they are out of date.
pub fn check_before_build(sources: &[Source]) -> CheckReport {
    let written: Vec<Source> = sources.iter().filter(|source| !source.is_schema_file()).cloned().collect();
    check_all(&written, false, MAX_COMPILED)
}

fn check_all(sources: &[Source], is_built: bool, max_compiled: usize) -> CheckReport {
    let mut faults = Vec::new();
    let mut parsed = Vec::new();
    let bound = findings::max_per_file(sources.len());
    for source in sources.iter().take(MAX_FILES) {
        faults.extend(check_path(source));
        // Each fault of a file repeats its path.
        if source.path.len() > MAX_PATH {
            continue;
        }
        let (document, found) = Document::parse(source);
        faults.extend(found.into_iter().take(bound));
        if let Some(document) = document {
            parsed.push(ParsedFile { source, document });
        }
    }
    faults.extend(check_file_set(sources));
    let (servers, specs) = decode(&parsed, is_built, bound, &mut faults);
    let catalog = link_and_compile(servers, specs, max_compiled, &mut faults);
    drop_echoes(&mut faults);
    let (mut warnings, mut faults): (Vec<_>, Vec<_>) =
        faults.into_iter().partition(|fault| fault.code.is_warning());
    let order =
        |a: &Fault, b: &Fault| (&a.file, a.line, &a.path, a.code).cmp(&(&b.file, b.line, &b.path, b.code));
    warnings.sort_by(order);
    faults.sort_by(order);
    let catalog = if faults.is_empty() { Some(catalog) } else { None };
    CheckReport { faults, warnings, catalog }
}

/// Removes faults of values that the parser rejected. Those became null, and the null is not another fault of the
/// author.
fn drop_echoes(faults: &mut Vec<Fault>) {
    let is_refused =
        |fault: &Fault| matches!(fault.code, FaultCode::YamlFeature | FaultCode::AmbiguousScalar);
    let refused: HashSet<(String, String)> = faults
        .iter()
        .filter(|fault| is_refused(fault))
        .map(|fault| (fault.file.clone(), fault.path.clone()))
        .collect();
    faults.retain(|fault| is_refused(fault) || !refused.contains(&(fault.file.clone(), fault.path.clone())));
}

/// A decoded file with its findings. The value is absent if its structure is invalid.
struct DecodedFile<'a, T> {
    source: &'a Source,
    value: Option<T>,
    findings: Findings<'a>,
}

fn decode<'a>(
    parsed: &'a [ParsedFile<'a>],
    is_built: bool,
    bound: usize,
    faults: &mut Vec<Fault>,
) -> (Vec<DecodedFile<'a, ServerFile>>, Vec<DecodedFile<'a, Spec>>) {
    let mut servers = Vec::new();
    let mut specs = Vec::new();
    let (made, parsed): (Vec<_>, Vec<_>) = parsed.iter().partition(|file| file.source.is_schema_file());
    let mut made: Vec<_> =
        made.iter().map(|file| LoadedSchemaFile::read(file.source, &file.document, bound)).collect();
    for file in parsed {
        let mut findings = Findings::new(&file.source.path, &file.document, bound);
        rules::check_texts(&file.document, &mut findings);
        let json = file.document.to_json();
        if file.source.is_server() {
            let value: Option<ServerFile> = structure::decode(&json, server_format(), &mut findings);
            if let Some(server) = &value {
                rules::check_server(server, file.source.folder(), &mut findings);
            }
            servers.push(DecodedFile { source: file.source, value, findings });
        } else {
            let value: Option<Spec> = structure::decode(&json, spec_format(), &mut findings);
            specs.push(DecodedFile { source: file.source, value, findings });
        }
    }
    let newest = newest(&specs);
    for DecodedFile { source, value, findings } in &mut specs {
        let Some(spec) = value else { continue };
        // The code belongs to the newest version.
        let is_newest = newest.get(&(source.folder(), spec.id.clone())) == Some(&spec.major());
        let written = if is_newest { made.as_mut_slice() } else { &mut [] };
        schema_file::complete(spec, source.folder(), written, is_built, findings);
        rules::check_spec(spec, findings);
    }
    faults.extend(made.into_iter().flat_map(|written| written.into_findings().into_list()));
    (servers, specs)
}

/// Returns the highest major version of each primitive, by folder and id.
fn newest<'a>(specs: &[DecodedFile<'a, Spec>]) -> HashMap<(&'a str, String), u64> {
    let mut newest = HashMap::new();
    for (source, spec) in specs.iter().filter_map(|file| Some((file.source, file.value.as_ref()?))) {
        let major = newest.entry((source.folder(), spec.id.clone())).or_default();
        *major = spec.major().max(*major);
    }
    newest
}

fn link_and_compile(
    mut servers: Vec<DecodedFile<'_, ServerFile>>,
    specs: Vec<DecodedFile<'_, Spec>>,
    max_compiled: usize,
    faults: &mut Vec<Fault>,
) -> Catalog {
    let mut whole = Vec::new();
    let mut findings = Vec::new();
    for decoded in specs {
        match decoded.value {
            Some(spec) => {
                whole.push((decoded.source, spec));
                findings.push(decoded.findings);
            }
            None => faults.extend(decoded.findings.into_list()),
        }
    }
    let declared: Vec<Declaration<'_>> = whole
        .iter()
        .map(|(source, spec)| Declaration { spec, file: &source.path, folder: source.folder() })
        .collect();
    let index = Index::new(&declared);
    link::check_duplicate_ids(&declared, &mut findings);
    link::check_packages(&declared, &mut findings);
    let looping = link::looping_delegates(&declared, &index);
    for (item, findings) in declared.iter().zip(&mut findings) {
        link::check_dependencies(item, &index, findings);
        link::check_delegate(item, &index, &looping, findings);
    }
    let CompiledServers { servers: mut compiled, used } = compile_servers(&mut servers, &index, max_compiled);
    // A single spec may be checked without any server.
    let used = used.filter(|_| !servers.is_empty());
    for (item, mut findings) in declared.iter().zip(findings) {
        if used.as_ref().is_some_and(|used| !used.contains(item.file)) {
            let hint = "list it in a server.yaml, or remove it";
            findings.add(FaultCode::UnlistedPrimitive, "/id", "no server uses this primitive", hint);
        }
        faults.extend(findings.into_list());
    }
    faults.extend(servers.into_iter().flat_map(|server| server.findings.into_list()));
    compiled.sort_by(|a, b| a.server.name.cmp(&b.server.name));
    Catalog { servers: compiled }
}

/// The compiled servers without faults.
struct CompiledServers {
    servers: Vec<CompiledServer>,
    /// Files of the primitives that servers use; `None` if not all servers were compiled.
    used: Option<HashSet<String>>,
}

fn compile_servers(
    servers: &mut [DecodedFile<'_, ServerFile>],
    index: &Index<'_>,
    max_compiled: usize,
) -> CompiledServers {
    let mut compiled = Vec::new();
    let mut used = HashSet::new();
    let mut bytes = 0;
    for decoded in servers {
        let Some(server) = &decoded.value else { continue };
        let members = link::members(server, index, &mut decoded.findings);
        let needed = link::required_members(&members, index);
        link::check_listed(&members, &needed, &mut decoded.findings);
        link::check_readers(server, &members, &mut decoded.findings);
        used.extend(members.iter().chain(&needed).map(|member| member.file.to_string()));
        if decoded.findings.has_faults() {
            continue;
        }
        let server = compile_server(server, &decoded.source.path, &members, &needed);
        bytes += server.encoded_bytes();
        if bytes > max_compiled {
            let message = format!(
                "with this server the servers of these files take more than {max_compiled} bytes once compiled; it and those \
                 after it were not checked"
            );
            let hint = "check fewer servers at a time, or list large primitives in fewer of them";
            decoded.findings.add(FaultCode::TooMany, "", message, hint);
            return CompiledServers { servers: Vec::new(), used: None };
        }
        compiled.push(server);
    }
    CompiledServers { servers: compiled, used: Some(used) }
}

/// Checks that a path is `<folder>/<file>.yaml|yml|json`, with a server name as its folder.
fn check_path(source: &Source) -> Option<Fault> {
    let parts: Vec<&str> = source.path.split('/').collect();
    let fits = match parts.as_slice() {
        [folder, file] => {
            asp_edge::names::is_label(folder)
                && Source::is_spec_name(file)
                && !file.starts_with('.')
                && file.len() <= 200
        }
        _ => false,
    };
    if fits {
        return None;
    }
    Some(Fault {
        code: FaultCode::BadPath,
        file: shortened(source.path.clone()),
        line: 0,
        path: String::new(),
        message: "a file belongs in a server's folder and ends in .yaml, .yml or .json".into(),
        hint: "move it to <server>/<file>.yaml; folders use a-z 0-9 -".into(),
    })
}

/// Checks for one server file in each folder, distinct paths, and not too many files.
fn check_file_set(sources: &[Source]) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |code, file: &str, message: String, hint: &str| {
        let file = file.to_string();
        let hint = hint.to_string();
        faults.push(Fault { code, file, line: 0, path: String::new(), message, hint });
    };
    let mut paths = HashSet::new();
    let mut folders = HashSet::new();
    for source in sources.iter().take(MAX_FILES).filter(|source| source.path.len() <= MAX_PATH) {
        if !paths.insert(source.path.as_str()) {
            fault(
                FaultCode::DuplicateId,
                &source.path,
                "the path occurs twice".into(),
                "send each file once",
            );
        } else if source.is_server() && !folders.insert(source.folder()) {
            let message = "a second server file in this folder".into();
            fault(FaultCode::DuplicateId, &source.path, message, "keep one of the server files");
        }
    }
    if sources.len() > MAX_FILES {
        let message = format!("{} files, the limit is {MAX_FILES}", sources.len());
        fault(FaultCode::TooMany, "", message, "split the catalog");
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns servers that all list one primitive.
    fn sources(servers: usize) -> Vec<Source> {
        let spec = "id: echo\nname: Echo\ntype: tool\nversion: 1.0.0\nowner: o\nsummary: s\nmutation: read_only\n\
                    primitiveSchema: {input_schema: {type: object}}\nruntime: {mode: builtin, entrypoint: echo}\n";
        let mut sources = vec![Source { path: "s0/echo.yaml".into(), text: spec.into() }];
        sources.extend((0..servers).map(|number| Source {
            path: format!("s{number}/server.yaml"),
            text: format!(
                "apiVersion: asp/v1\nname: s{number}\nprotocols: [mcp]\nauth: {{schemes: [jwt], issuers: [dev]}}\n\
                 primitives: [{{ref: s0/echo}}]\n"
            ),
        }));
        sources
    }

    #[test]
    fn what_is_found_in_many_files_is_bounded() {
        let keys: String = (0..20).map(|key| format!("k{key}: 1\n")).collect();
        let file = |number: usize| Source { path: format!("demo/f{number}.yaml"), text: keys.clone() };
        let many: Vec<Source> = (0..1_000).map(file).collect();
        assert_eq!(check(&many).faults.len(), 1_000 * findings::max_per_file(1_000));
        let long = Source { path: format!("demo/{}.yaml", "x".repeat(100_000)), text: keys.clone() };
        let found = check(&[long]).faults;
        assert_eq!((found.len(), found[0].code), (1, FaultCode::BadPath));
        assert!(found[0].file.len() < 1_000);
        let empty = Source { path: "demo/a.yaml".into(), text: String::new() };
        assert!(check(&vec![empty; 3 * MAX_FILES]).faults.len() < 3 * MAX_FILES);
    }

    #[test]
    fn a_check_ends_where_its_servers_take_too_many_bytes() {
        let one = check(&sources(1)).catalog.unwrap().servers[0].encoded_bytes();
        let within = check_all(&sources(3), true, 4 * one);
        assert_eq!((within.faults, within.catalog.map(|found| found.servers.len())), (vec![], Some(3)));
        let beyond = check_all(&sources(9), true, 4 * one);
        let found: Vec<_> = beyond.faults.iter().map(|fault| (fault.code, fault.file.as_str())).collect();
        assert_eq!(found, [(FaultCode::TooMany, "s4/server.yaml")]);
        assert!(beyond.catalog.is_none() && beyond.faults[0].message.contains("once compiled"));
    }
}
