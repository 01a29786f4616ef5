//! Rules across files: ids, references, dependencies, exposed names.
//!
//! Owns the resolution of `folder/id` and `folder/id@major`. Keeps true: an id is declared once for each major
//! version, by one owner; every listed primitive and every dependency exists and is of the right kind, and a name
//! means one primitive.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use crate::compile::ServerMember;
use crate::fault::FaultCode;
use crate::findings::Findings;
use crate::rules::MAX_PRIMITIVES;
use crate::server_file::ServerFile;
use crate::spec::{Dependency, Kind, Scheme, Spec, versioned};

mod delegate;
mod loops;
mod names;
mod packages;
mod readers;

pub(crate) use delegate::{check_delegate, check_listed};
pub(crate) use loops::looping_delegates;
pub(crate) use packages::check_packages;
pub(crate) use readers::check_readers;

/// A spec with its file and folder.
pub(crate) struct Declaration<'a> {
    pub(crate) spec: &'a Spec,
    pub(crate) file: &'a str,
    pub(crate) folder: &'a str,
}

/// Every declared primitive by folder and id.
pub(crate) struct Index<'a> {
    /// Declared versions by folder and id, the highest major version first.
    by_place: HashMap<(&'a str, &'a str), Vec<&'a Declaration<'a>>>,
}

impl<'a> Index<'a> {
    pub(crate) fn new(declared: &'a [Declaration<'a>]) -> Index<'a> {
        let mut by_place: HashMap<_, Vec<&Declaration<'_>>> = HashMap::new();
        for item in declared {
            by_place.entry((item.folder, item.spec.id.as_str())).or_default().push(item);
        }
        for versions in by_place.values_mut() {
            versions.sort_by_key(|item| Reverse(item.spec.major()));
        }
        Index { by_place }
    }

    /// Returns the highest version.
    pub(crate) fn resolve(&self, folder: &str, reference: &str) -> Option<&'a Declaration<'a>> {
        self.versions(folder, reference).first().copied()
    }

    /// Resolves a reference in a server's list or a delegate: the named major version, else the highest one.
    fn resolve_listed(&self, folder: &str, reference: &str) -> Option<&'a Declaration<'a>> {
        let (reference, Some(major)) = versioned(reference) else {
            return self.resolve(folder, reference);
        };
        let major = major.parse::<u64>().ok().filter(|number| number.to_string() == major)?;
        let versions = self.versions(folder, reference);
        let place = versions.partition_point(|item| item.spec.major() > major);
        versions.get(place).filter(|item| item.spec.major() == major).copied()
    }

    fn versions<'i>(&'i self, folder: &'i str, reference: &'i str) -> &'i [&'a Declaration<'a>] {
        let place = reference.split_once('/').unwrap_or((folder, reference));
        self.by_place.get(&place).map_or(&[], Vec::as_slice)
    }
}

/// Reports every declaration of an id and major version but the first.
pub(crate) fn check_duplicate_ids(declared: &[Declaration<'_>], findings: &mut [Findings<'_>]) {
    let mut first: HashMap<&str, &Declaration<'_>> = HashMap::new();
    let mut versions: HashMap<(&str, u64), &Declaration<'_>> = HashMap::new();
    for (item, findings) in declared.iter().zip(findings) {
        let id = item.spec.id.as_str();
        let version = (id, item.spec.major());
        // A version that agrees with the first one agrees with all others, unless it has the same major version as
        // one of them.
        let mut earlier = first.get(id).into_iter().chain(versions.get(&version));
        match earlier.find_map(|earlier| duplicate_reason(earlier, item)) {
            Some((message, hint)) => findings.add(FaultCode::DuplicateId, "/id", message, hint),
            None => {
                first.entry(id).or_insert(item);
                versions.insert(version, item);
            }
        }
    }
}

/// Returns the reason why two primitives may not have the same id.
fn duplicate_reason(earlier: &Declaration<'_>, item: &Declaration<'_>) -> Option<(String, &'static str)> {
    let id = &item.spec.id;
    let file = earlier.file;
    if earlier.spec.major() == item.spec.major() {
        let hint = "policy and limits name a primitive by its id: use another one, or another major version in the same folder";
        return Some((format!("{file} declares the id `{id}` as well"), hint));
    }
    let same = earlier.folder == item.folder
        && earlier.spec.kind == item.spec.kind
        && earlier.spec.owner == item.spec.owner;
    if !same || !item.spec.kind.is_exposable() {
        let hint = "use another id: only what a server lists has several versions, of one owner and type, in one folder";
        return Some((format!("{file} declares another version of `{id}`"), hint));
    }
    None
}

/// Checks that the dependencies of a spec are declared and of the right kind.
pub(crate) fn check_dependencies(item: &Declaration<'_>, index: &Index<'_>, findings: &mut Findings<'_>) {
    let lists = [
        ("elicitations", Kind::Elicitation, &item.spec.dependencies.elicitations),
        ("delegations", Kind::Delegate, &item.spec.dependencies.delegations),
    ];
    for (key, kind, dependencies) in lists {
        for (position, dependency) in dependencies.iter().enumerate() {
            let path = format!("/primitiveDependencies/{key}/{position}/id");
            let problem = match index.resolve(item.folder, &dependency.id) {
                None => format!("no file declares `{}`", dependency.id),
                Some(found) if found.spec.kind != kind => {
                    format!("`{}` is of type {}, not {}", dependency.id, found.spec.kind.word(), kind.word())
                }
                Some(_) => continue,
            };
            let hint = format!(
                "declare a primitive of type {} with this id in the folder, or write folder/id",
                kind.word()
            );
            findings.add(FaultCode::UnresolvedDependency, &path, problem, hint);
        }
    }
}

/// Returns the primitives that a server lists, in list order. Faults go to the server's file.
pub(crate) fn members<'a>(
    server: &'a ServerFile,
    index: &Index<'a>,
    findings: &mut Findings<'_>,
) -> Vec<ServerMember<'a>> {
    let mut members = Vec::new();
    // A longer list is reported as a fault elsewhere.
    for (position, listed) in server.primitives.iter().enumerate().take(MAX_PRIMITIVES) {
        let path = format!("/primitives/{position}/ref");
        let Some(found) = index.resolve_listed(&server.name, &listed.reference) else {
            let message = format!("no file declares `{}`", listed.reference);
            let hint = "write folder/id of a declared primitive, or folder/id@1 for its major version 1";
            findings.add(FaultCode::UnresolvedRef, &path, message, hint);
            continue;
        };
        if !found.spec.kind.is_exposable() {
            let message =
                format!("`{}` is of type {} and is never listed", found.spec.id, found.spec.kind.word());
            let hint = "remove it; primitives that depend on it bring it along";
            findings.add(FaultCode::NotExposable, &path, message, hint);
            continue;
        }
        if listed.alias.is_some() && found.spec.kind.is_resource() {
            let path = format!("/primitives/{position}/as");
            let hint = "remove `as`";
            findings.add(FaultCode::MisplacedKey, &path, "the name of a resource is its URI", hint);
        }
        check_scheme(server, found.spec, &path, findings);
        members.push(ServerMember {
            spec: found.spec,
            alias: listed.alias.as_deref(),
            pool: listed.pool.as_deref(),
            file: found.file,
            folder: found.folder,
        });
    }
    names::check(server, &members, findings);
    members
}

fn check_scheme(server: &ServerFile, spec: &Spec, path: &str, findings: &mut Findings<'_>) {
    let Some(auth) = &spec.security.auth else { return };
    if auth.scheme == Scheme::None || server.auth.schemes.contains(&auth.scheme) {
        return;
    }
    let message = format!("`{}` requires {}, which is not in auth.schemes", spec.id, auth.scheme.word());
    let hint = "add the scheme to the server, or list the primitive elsewhere";
    findings.add(FaultCode::AuthConflict, path, message, hint);
}

/// Returns the elicitations and delegates that the members depend on, each once.
pub(crate) fn required_members<'a>(members: &[ServerMember<'a>], index: &Index<'a>) -> Vec<ServerMember<'a>> {
    let mut needed: Vec<ServerMember<'a>> = Vec::new();
    let mut seen = HashSet::new();
    for member in members {
        let dependencies = &member.spec.dependencies;
        for Dependency { id } in dependencies.elicitations.iter().chain(&dependencies.delegations) {
            if let Some(found) = index.resolve(member.folder, id)
                && seen.insert(found.file)
            {
                let Declaration { spec, file, folder } = *found;
                needed.push(ServerMember { spec, alias: None, pool: None, file, folder });
            }
        }
    }
    needed
}
