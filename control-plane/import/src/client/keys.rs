//! The operator's files of keys, to which an import adds those of a client's file: secrets of packages (`ASP_SECRETS`) and
//! credentials of services (`ASP_CREDENTIALS`).
//!
//! Keeps true: a key is in these files alone, which only their owner can read, and never in a spec or in the output; an existing
//! entry stays as it is; each key is for the imported server alone.

use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use asp_command::environment::Environment;
use asp_command::state_dir;
use asp_platform::secret::Secret;
use asp_platform::shell;
use reqwest::Url;
use serde_json::{Map, Value, json};

const ENV_SECRETS: &str = "ASP_SECRETS";
const ENV_CREDENTIALS: &str = "ASP_CREDENTIALS";
const ENV_STATE_DIR: &str = "ASP_STATE_DIR";
const DEFAULT_STATE_DIR: &str = ".asp";
/// Directory of the values of credentials, next to their file.
const VALUES: &str = "keys";
/// Maximum length of a secret's name, in bytes.
const MAX_NAME: usize = 63;

/// One of the operator's files.
struct KeyFile {
    path: PathBuf,
    /// Variable that names the file to the platform.
    variable: &'static str,
    /// Whether the variable is set already.
    is_set: bool,
    /// Whether the import needs an entry of it.
    is_used: bool,
}

/// Both files.
pub(super) struct KeyFiles {
    secrets: KeyFile,
    credentials: KeyFile,
}

impl KeyFiles {
    /// Returns the files that the environment names, or those in the state directory.
    pub(super) fn of(environment: &dyn Environment) -> KeyFiles {
        let state = environment.get(ENV_STATE_DIR).unwrap_or_else(|| DEFAULT_STATE_DIR.to_owned());
        let file = |variable: &'static str, name: &str| {
            let named = environment.get(variable).map(PathBuf::from);
            KeyFile {
                is_set: named.is_some(),
                path: named.unwrap_or_else(|| Path::new(&state).join(name)),
                variable,
                is_used: false,
            }
        };
        KeyFiles {
            secrets: file(ENV_SECRETS, "secrets.json"),
            credentials: file(ENV_CREDENTIALS, "credentials.json"),
        }
    }

    /// Returns the variable and the file of secrets, for a runtime that lists a package; `None` if there is no file.
    pub(super) fn secrets_variable(&self) -> Option<(String, String)> {
        let path = std::path::absolute(&self.secrets.path).ok().filter(|path| path.is_file())?;
        Some((ENV_SECRETS.to_owned(), path.to_str()?.to_owned()))
    }

    /// Adds a secret for a server; returns whether there was none of this name.
    pub(super) fn add_secret(&mut self, server: &str, name: &str, value: &Secret) -> anyhow::Result<bool> {
        let entry = || Ok(json!({ "value": value.expose(), "for": [format!("{server}/*")] }));
        self.secrets.add(name, entry)
    }

    /// Adds the credential that sends a header to a server, with the server's name; returns whether there was none of this name.
    pub(super) fn add_credential(
        &mut self,
        server: &str,
        url: &Url,
        (header, value): (&str, &Secret),
    ) -> anyhow::Result<bool> {
        let folder = self.credentials.path.parent().unwrap_or(Path::new("")).join(VALUES);
        let entry = || -> anyhow::Result<Value> {
            state_dir::create(&folder).with_context(|| format!("create {}", folder.display()))?;
            let bearer = value
                .expose()
                .strip_prefix("Bearer ")
                .filter(|_| header.eq_ignore_ascii_case("authorization"));
            let file = std::path::absolute(folder.join(server)).context("find the directory of keys")?;
            let text = bearer.unwrap_or(value.expose());
            state_dir::replace(&file, text.as_bytes())
                .with_context(|| format!("write {}", file.display()))?;
            let file = file.to_str().context("the path of the directory of keys is not text")?;
            let origin = url.origin().ascii_serialization();
            let users = [format!("{server}/*")];
            Ok(match bearer {
                Some(_) => json!({ "origin": origin, "for": users, "bearerFile": file }),
                None => {
                    json!({ "origin": origin, "for": users, "header": { "name": header, "valueFile": file } })
                }
            })
        };
        self.credentials.add(server, entry)
    }

    /// Returns the file of the secrets, for texts.
    pub(super) fn secrets_path(&self) -> &Path {
        &self.secrets.path
    }

    /// Returns the settings with which the platform finds the files that the import needs.
    pub(super) fn settings(&self) -> Vec<String> {
        let changed =
            [&self.secrets, &self.credentials].into_iter().filter(|file| file.is_used && !file.is_set);
        changed.map(|file| format!("{}={}", file.variable, shell::path(&file.path))).collect()
    }
}

impl KeyFile {
    /// Adds an entry, unless there is one of this name; returns whether it did.
    fn add(&mut self, name: &str, entry: impl FnOnce() -> anyhow::Result<Value>) -> anyhow::Result<bool> {
        let path = self.path.display();
        let mut entries: Map<String, Value> = match std::fs::read_to_string(&self.path) {
            // The error of the decoder may repeat a key.
            Ok(text) => serde_json::from_str(&text).map_err(|_| anyhow!("{path} is not a JSON object"))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Map::new(),
            Err(error) => return Err(error).with_context(|| format!("read {path}")),
        };
        self.is_used = true;
        if entries.contains_key(name) {
            return Ok(false);
        }
        if !self.is_set
            && let Some(folder) = self.path.parent()
        {
            state_dir::create(folder).with_context(|| format!("create {}", folder.display()))?;
        }
        entries.insert(name.to_owned(), entry()?);
        let text = serde_json::to_string_pretty(&entries).context("write the entries")? + "\n";
        state_dir::replace(&self.path, text.as_bytes()).with_context(|| format!("write {path}"))?;
        Ok(true)
    }
}

/// Returns the name of the secret for a variable of a server.
pub(super) fn secret_name(server: &str, variable: &str) -> String {
    let mut name = format!("{server}.{variable}");
    name.truncate(name.floor_char_boundary(MAX_NAME));
    name
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn read(path: &Path) -> Value {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn keys_are_added_for_their_server_alone_and_existing_ones_stay() {
        let root = tempfile::tempdir().unwrap();
        let state = root.path().join("state");
        let environment = BTreeMap::from([(ENV_STATE_DIR, state.to_str().unwrap())]);
        let mut keys = KeyFiles::of(&environment);
        assert_eq!((keys.secrets_variable(), keys.settings()), (None, Vec::new()));
        assert!(keys.add_secret("github", "github.TOKEN", &"ghp_1".into()).unwrap());
        assert!(!keys.add_secret("github", "github.TOKEN", &"ghp_2".into()).unwrap());
        let secrets = state.join("secrets.json");
        assert_eq!(read(&secrets), json!({"github.TOKEN": {"value": "ghp_1", "for": ["github/*"]}}));
        assert_eq!(std::fs::metadata(&secrets).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(keys.secrets_variable().unwrap().1, secrets.to_str().unwrap());

        let url = Url::parse("https://crm.example:8443/mcp").unwrap();
        keys.add_credential("crm", &url, ("Authorization", &"Bearer t".into())).unwrap();
        keys.add_credential("maps", &url, ("X-Key", &"k".into())).unwrap();
        let found = read(&state.join("credentials.json"));
        let crm = state.join("keys/crm");
        let maps = state.join("keys/maps");
        let expected = json!({
            "crm": {"origin": "https://crm.example:8443", "for": ["crm/*"], "bearerFile": crm},
            "maps": {"origin": "https://crm.example:8443", "for": ["maps/*"], "header": {"name": "X-Key", "valueFile": maps}},
        });
        assert_eq!(found, expected);
        assert_eq!(
            (std::fs::read_to_string(crm).unwrap(), std::fs::read_to_string(maps).unwrap()),
            ("t".into(), "k".into())
        );
        let settings = keys.settings();
        assert!(
            settings[0].starts_with("ASP_SECRETS=") && settings[1].starts_with("ASP_CREDENTIALS="),
            "{settings:?}"
        );
    }

    #[test]
    fn a_file_that_the_environment_names_is_used_and_one_that_is_no_object_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("mine.json");
        let environment = BTreeMap::from([(ENV_SECRETS, file.to_str().unwrap())]);
        let mut keys = KeyFiles::of(&environment);
        std::fs::write(&file, "{\"old\": {\"value\": \"x\", \"for\": []}}").unwrap();
        keys.add_secret("a", "a.K", &"y".into()).unwrap();
        assert_eq!(read(&file).as_object().unwrap().keys().collect::<Vec<_>>(), ["old", "a.K"]);
        assert_eq!(keys.settings(), Vec::<String>::new(), "it is set already");
        std::fs::write(&file, "[\"hunter2\"").unwrap();
        let fault = keys.add_secret("a", "a.L", &"y".into()).unwrap_err().to_string();
        assert!(fault.contains("mine.json") && !fault.contains("hunter2"), "{fault}");
    }

    #[test]
    fn a_secret_has_a_name_that_the_runtime_accepts() {
        assert_eq!(secret_name("github", "TOKEN"), "github.TOKEN");
        assert_eq!(secret_name("github", &"A".repeat(100)).len(), MAX_NAME);
    }
}
