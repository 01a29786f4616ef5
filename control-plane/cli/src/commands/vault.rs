//! `asp vault`: the file of the vault's keys.

use std::path::{Path, PathBuf};

use anyhow::Context;
use asp_command::environment::{Environment, ProcessEnvironment};
use asp_command::failure::Failure;
use asp_command::state_dir;
use asp_platform::{clock, time};
use asp_vault::local::{self, KeyDescription};
use serde_json::{Value, json};

use super::answer::{self, is, text};
use crate::args::vault::VaultCommand;
use crate::settings::vault::{ENV_VAULT_KMS, KeyFileSettings};

pub fn run(command: &VaultCommand) -> Result<(), Failure> {
    match command {
        VaultCommand::Keys(args) => {
            let file = key_file(args.file.as_deref(), &ProcessEnvironment)?;
            let keys = local::list(&file).context("list the keys")?;
            let keys: Vec<Value> = keys.iter().map(entry).collect();
            answer::rows(&Value::Array(keys), args.json, line);
        }
        VaultCommand::Rotate(args) => {
            let file = key_file(args.file.as_deref(), &ProcessEnvironment)?;
            let from = clock::now_ms().saturating_add(args.delay.saturating_mul(1_000));
            let key = local::rotate(&file, from).context("add a key")?;
            let words = format!(
                "{}: key {} seals from {} on; back the file up",
                file.display(),
                key.id,
                time::rfc3339(key.from_ms)
            );
            answer::show(&entry(&key), args.json, &words);
        }
        VaultCommand::Forget(args) => {
            let file = key_file(args.file.as_deref(), &ProcessEnvironment)?;
            local::forget(&file, &args.key).context("remove a key")?;
            let words = format!("{}: key {} was removed", file.display(), args.key);
            answer::show(&json!({"key": args.key, "removed": true}), args.json, &words);
        }
    }
    Ok(())
}

/// Returns the file that a command works on.
fn key_file(given: Option<&Path>, environment: &dyn Environment) -> Result<PathBuf, Failure> {
    if let Some(file) = given {
        return Ok(file.to_owned());
    }
    let settings = KeyFileSettings::read(environment).map_err(Failure::Configuration)?;
    let Some(file) = settings.key_file() else {
        let message = "names no file of keys; rotate at the service that it names, or use --file";
        return Err(Failure::bad(ENV_VAULT_KMS, message));
    };
    if file.starts_with(&settings.state_dir) {
        let shown = settings.state_dir.display();
        state_dir::create(&settings.state_dir).with_context(|| format!("create {shown}"))?;
    }
    Ok(file)
}

fn entry(key: &KeyDescription) -> Value {
    json!({"key": key.id, "from": time::rfc3339(key.from_ms), "current": key.is_current})
}

fn line(key: &Value) -> String {
    let current = if is(key, "current") { " (current)" } else { "" };
    format!("{} seals from {}{current}", text(key, "key"), text(key, "from"))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn a_line_has_the_id_and_names_the_current_key() {
        let key = KeyDescription { id: "k1".into(), from_ms: 0, is_current: true };
        assert_eq!(line(&entry(&key)), "k1 seals from 1970-01-01T00:00:00.000Z (current)");
        let key = KeyDescription { is_current: false, ..key };
        assert_eq!(line(&entry(&key)), "k1 seals from 1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn the_file_is_the_one_that_serving_would_use() {
        let dir = tempfile::tempdir().unwrap();
        let state_dir = dir.path().join("state").display().to_string();
        let file = |more: &[(&'static str, &'static str)]| {
            let mut environment = BTreeMap::from([("ASP_STATE_DIR", state_dir.as_str())]);
            environment.extend(more.iter().copied());
            key_file(None, &environment).ok()
        };
        assert_eq!(file(&[]), Some(dir.path().join("state/vault-key")));
        let shared = ("ASP_DATABASE_URL", "postgres://asp@db/asp");
        assert_eq!(file(&[shared]), None, "several machines have no file of their own");
        let given = ("ASP_VAULT_KMS", "local:/etc/asp/vault-key");
        assert_eq!(file(&[shared, given]), Some("/etc/asp/vault-key".into()));
        assert_eq!(file(&[("ASP_VAULT_KMS", "plugin:/run/kms.sock")]), None);
        assert_eq!(key_file(Some(Path::new("x")), &BTreeMap::new()).ok(), Some("x".into()));
    }
}
