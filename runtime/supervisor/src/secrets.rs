//! The operator's named secrets (`ASP_SECRETS`, a JSON file), and the primitives that may use each (ADR 16).
//!
//! ```json
//! {"crm-key": {"file": "/run/secrets/crm", "for": ["crm/*"]},
//!  "demo-key": {"value": "not a secret", "for": ["demo/search"]}}
//! ```
//!
//! Keeps true: a secret is read once and prints as `***`; no error message repeats it; a secret whose `for` is empty is
//! never used.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use asp_platform::operator_list;
use asp_platform::secret::Secret;
use serde::Deserialize;

/// Maximum number of secrets in the file.
const MAX_SECRETS: usize = 1_000;
const MAX_FILE: u64 = 4 << 20;
const MAX_SECRET: u64 = 16 << 10;
const MAX_NAME: usize = 63;

/// All secrets, by name.
#[derive(Clone, Debug, Default)]
pub struct Secrets(BTreeMap<String, SecretGrant>);

#[derive(Clone, Debug)]
struct SecretGrant {
    value: Secret,
    users: Vec<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SecretEntry {
    value: Option<String>,
    file: Option<PathBuf>,
    #[serde(default, rename = "for")]
    users: Vec<String>,
}

impl Secrets {
    /// Reads the file, or returns every fault; logs secrets that no primitive may use. A path in it is relative to the
    /// file's own directory.
    pub fn read(path: &Path) -> Result<Secrets, Vec<String>> {
        let at = |fault: &dyn std::fmt::Display| vec![format!("{}: {fault}", path.display())];
        let text = bounded(path, MAX_FILE).map_err(|fault| at(&fault))?;
        // Only the position: an error of the decoder may repeat a value.
        let entries: BTreeMap<String, SecretEntry> = serde_json::from_str(&text).map_err(|error| {
            let what = "must be an object of {\"value\" or \"file\": text, \"for\": [server/primitive, ...]} by name";
            at(&format!("{what} (line {}, column {})", error.line(), error.column()))
        })?;
        if entries.len() > MAX_SECRETS {
            return Err(at(&format!("more than {MAX_SECRETS} secrets")));
        }
        let (mut found, mut faults) = (BTreeMap::new(), Vec::new());
        let directory = path.parent().unwrap_or(Path::new("."));
        for (name, entry) in entries {
            match grant(&name, entry, directory) {
                Ok(secret) => drop(found.insert(name, secret)),
                Err(fault) => faults.extend(at(&format!("{name}: {fault}"))),
            }
        }
        if !faults.is_empty() {
            return Err(faults);
        }
        let secrets = Secrets(found);
        for entry in secrets.without_users() {
            tracing::warn!(
                list = "ASP_SECRETS",
                entry,
                "an operator's entry serves nobody: its `for` is empty; name primitives or remove the entry"
            );
        }
        Ok(secrets)
    }

    /// Returns the names of the secrets whose `for` is empty.
    fn without_users(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, grant)| grant.users.is_empty()).map(|(name, _)| name.as_str())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns those of the wanted secrets that `user` (`server/primitive`) may use, sorted.
    pub fn granted<'a>(&self, user: &str, wanted: impl Iterator<Item = &'a str>) -> Vec<String> {
        let may_use = |name: &&str| {
            let called = user.split_once('/').zip(self.0.get(*name));
            called.is_some_and(|((server, id), secret)| operator_list::allows(&secret.users, server, id))
        };
        let names: BTreeSet<&str> = wanted.filter(may_use).collect();
        names.into_iter().map(str::to_owned).collect()
    }

    pub fn get(&self, name: &str) -> Option<&Secret> {
        self.0.get(name).map(|secret| &secret.value)
    }
}

/// Whether `text` is a valid name for a secret, or for a credential in specs (primitives/README.md).
pub fn is_secret_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(plain)
}

fn grant(name: &str, entry: SecretEntry, directory: &Path) -> Result<SecretGrant, String> {
    let SecretEntry { value, file, users } = entry;
    if !is_secret_name(name) {
        return Err(format!("a name has 1 to {MAX_NAME} letters, digits, `-`, `_` and `.`"));
    }
    operator_list::check(&users)?;
    let value = match (value, file) {
        (Some(value), None) if value.len() as u64 <= MAX_SECRET => value,
        (Some(_), None) => return Err(format!("a secret has at most {MAX_SECRET} bytes")),
        (None, Some(file)) => bounded(&directory.join(file), MAX_SECRET)?,
        _ => return Err("needs either `value` or `file`".into()),
    };
    // Strips the line break with which editors end a file.
    let value =
        value.strip_suffix('\n').map_or(value.as_str(), |line| line.strip_suffix('\r').unwrap_or(line));
    if value.is_empty() || value.contains('\0') {
        return Err("a secret is not empty and has no NUL character".into());
    }
    Ok(SecretGrant { value: Secret::new(value.to_owned()), users })
}

fn bounded(path: &Path, most: u64) -> Result<String, String> {
    let at = |fault: &dyn std::fmt::Display| format!("{}: {fault}", path.display());
    let length = std::fs::metadata(path).map_err(|error| at(&error))?.len();
    if length > most {
        return Err(at(&format!("more than {most} bytes")));
    }
    std::fs::read_to_string(path).map_err(|error| at(&error))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(secrets: &Value) -> Result<Secrets, Vec<String>> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("key"), "from a file\n").unwrap();
        std::fs::write(dir.path().join("large"), "x".repeat(20_000)).unwrap();
        let path = dir.path().join("secrets.json");
        std::fs::write(&path, secrets.to_string()).unwrap();
        Secrets::read(&path)
    }

    #[test]
    fn a_secret_is_for_its_users_alone_and_never_prints() {
        let secrets = read(&json!({
            "crm": {"file": "key", "for": ["crm/find", "crm/list_*"]},
            "all": {"value": "hunter2", "for": ["*"]},
            "nobodys": {"value": "hunter2"},
        }))
        .unwrap();
        let granted = |user: &str| secrets.granted(user, ["nobodys", "crm", "all", "absent"].into_iter());
        assert_eq!(granted("crm/find"), ["all", "crm"]);
        assert_eq!(granted("crm/list_all"), ["all", "crm"]);
        for other in ["crm/finder", "crm/fin", "other/find", "crm2/find"] {
            assert_eq!(granted(other), ["all"], "{other}");
        }
        assert_eq!(secrets.without_users().collect::<Vec<_>>(), ["nobodys"]);
        assert!(granted("").is_empty(), "a gateway that names no primitive gets none");
        assert_eq!(secrets.granted("crm/find", ["crm"].into_iter()), ["crm"], "what it wants and no more");
        assert_eq!(secrets.get("crm").unwrap().expose(), "from a file");
        let shown = format!("{secrets:?}");
        assert!(!shown.contains("hunter2") && !shown.contains("from a file"), "{shown}");
    }

    #[test]
    fn every_fault_is_named_and_none_repeats_a_secret() {
        let faults = read(&json!({
            "both": {"value": "hunter2", "file": "key"},
            "neither": {"for": ["*"]},
            "away": {"file": "nowhere"},
            "large": {"file": "large"},
            "empty": {"value": ""},
            "nul": {"value": "hunter2\0"},
            "bad name": {"value": "hunter2"},
            "pattern": {"value": "hunter2", "for": ["crm"]},
            "star": {"value": "hunter2", "for": ["c*/find"]},
            "slash": {"value": "hunter2", "for": ["crm/"]},
            "capital": {"value": "hunter2", "for": ["CRM/find"]},
        }))
        .unwrap_err();
        assert_eq!(faults.len(), 11, "{faults:?}");
        for odd in [json!({"a": "hunter2"}), json!(["hunter2"]), json!({"a": {"value": "x", "hunter2": 1}})] {
            let faults = read(&odd).unwrap_err();
            assert!(faults[0].contains("line 1") && !faults[0].contains("hunter2"), "{faults:?}");
        }
        assert!(!faults.join(" ").contains("hunter2"), "{faults:?}");
    }
}
