//! Users of named secrets (`ASP_SECRETS`) that do not exist.
//!
//! The runtime knows the secrets but not the servers; where it is started together with a directory of primitives, both are
//! known. Never reads the values: they are skipped. An unreadable file is left for the runtime to reject.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::slice::from_ref;

use asp_platform::operator_list;
use asp_registry::CompiledServer;
use serde::Deserialize;

/// The variable that names the file.
pub const ENV_SECRETS: &str = "ASP_SECRETS";
/// Maximum size of the file; the runtime rejects a larger one.
const MAX_FILE: u64 = 4 << 20;

/// A pattern that matches no primitive, or a secret without a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnusedSecret {
    pub name: String,
    /// `None`: the secret's `for` is empty.
    pub pattern: Option<String>,
}

impl fmt::Display for UnusedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let UnusedSecret { name, pattern } = self;
        match pattern {
            None => write!(f, "{ENV_SECRETS}: {name} applies to no primitive: its `for` is empty"),
            Some(pattern) => {
                write!(
                    f,
                    "{ENV_SECRETS}: {name}: `{pattern}` in its `for` names no primitive that is served here"
                )
            }
        }
    }
}

/// An entry of the file, without its value.
#[derive(Deserialize)]
struct SecretUsers {
    #[serde(default, rename = "for")]
    users: Vec<String>,
}

/// Lists the patterns in a file of secrets that match no primitive of these servers.
pub fn unused<'a>(
    file: &Path,
    servers: impl Iterator<Item = &'a CompiledServer> + Clone,
) -> Vec<UnusedSecret> {
    let is_small = std::fs::metadata(file).is_ok_and(|file| file.len() <= MAX_FILE);
    let text = if is_small { std::fs::read_to_string(file).unwrap_or_default() } else { String::new() };
    let entries: BTreeMap<String, SecretUsers> = serde_json::from_str(&text).unwrap_or_default();
    let is_used = |pattern: &String| {
        servers.clone().any(|server| {
            let mut ids = server.primitives.iter().map(|primitive| primitive.id.as_str());
            ids.any(|id| operator_list::allows(from_ref(pattern), &server.server.name, id))
        })
    };
    let mut unused = Vec::new();
    for (name, SecretUsers { users }) in entries {
        if users.is_empty() {
            unused.push(UnusedSecret { name, pattern: None });
            continue;
        }
        let of_nobody = users.into_iter().filter(|pattern| !is_used(pattern));
        unused.extend(of_nobody.map(|pattern| UnusedSecret { name: name.clone(), pattern: Some(pattern) }));
    }
    unused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_names_no_primitive_is_named_with_its_secret_and_no_value_is() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../primitives");
        let servers = asp_registry::check(&asp_registry::read_dir(&root).unwrap()).catalog.unwrap().servers;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("secrets.json");
        let text = r#"{"a": {"value": "hunter2", "for": ["demo/echo", "demo/ec*", "*", "demo/ecko", "demoo/*"]},
            "b": {"file": "key"}}"#;
        std::fs::write(&file, text).unwrap();
        let unused = unused(&file, servers.iter());
        let said: Vec<String> = unused.iter().map(UnusedSecret::to_string).collect();
        assert_eq!(
            said,
            [
                "ASP_SECRETS: a: `demo/ecko` in its `for` names no primitive that is served here",
                "ASP_SECRETS: a: `demoo/*` in its `for` names no primitive that is served here",
                "ASP_SECRETS: b applies to no primitive: its `for` is empty",
            ]
        );
        assert!(super::unused(&directory.path().join("absent"), servers.iter()).is_empty());
    }
}
