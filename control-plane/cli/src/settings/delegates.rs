//! The models that answer delegations: the operator's own endpoint, and the keys of endpoints that specs name.
//!
//! Keeps true: a key is read once, belongs to one origin and prints as `***`; no fault repeats it.

use std::collections::BTreeMap;
use std::path::Path;

use asp_backends::delegate::endpoint::{DefaultEndpoint, EndpointKey, Endpoints};
use asp_platform::operator_list::{self, EVERY_PRIMITIVE, ListEntry};
use asp_platform::secret::Secret;
use clap::Args;

use super::source::Checks;
use super::values::{List, choice, is_origin, list_entries, small_file};

pub const ENV_DELEGATE_KEYS: &str = "ASP_DELEGATE_KEYS";

/// Form of the endpoint's setting. The value may contain a password, so faults do not repeat it.
const BASE_FORM: &str = "must be http(s)://host[:port][/path] without credentials, query and fragment, and may end with \
                         ;for=SERVER/DELEGATE of the delegates that it answers";

/// Maximum size in bytes of a key file: a key is one line.
const MAX_KEY_FILE: u64 = 16 << 10;

/// Settings of the models for delegations
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Delegations")]
pub struct DelegateArgs {
    /// Base of an OpenAI-compatible endpoint, e.g. `https://llm.internal/v1[;for=server/*]`: it answers plugins' delegations if
    /// the client has no model; without `for` those of every delegate
    #[arg(long, env = "ASP_DELEGATE_URL", value_parser = base)]
    delegate_url: Option<ListEntry>,
    /// Name of the model there (required with `ASP_DELEGATE_URL`)
    #[arg(long, env = "ASP_DELEGATE_MODEL")]
    delegate_model: Option<String>,
    /// API key for it
    #[arg(long, env = "ASP_DELEGATE_API_KEY", hide_env_values = true, value_parser = key)]
    delegate_api_key: Option<Secret>,
    /// Whether it accepts JSON Schemas as `response_format`: `true` or `false` [default: false]
    #[arg(long, env = "ASP_DELEGATE_JSON_SCHEMA", value_parser = choice(&[("true", true), ("false", false)]))]
    delegate_json_schema: Option<bool>,
    /// Keys that delegates may name, each for one origin: `name=origin=file;for=server/*,…` (docs/operator-lists.md)
    #[arg(long, env = ENV_DELEGATE_KEYS, default_value = "", value_parser = list_entries)]
    delegate_keys: List<ListEntry>,
}

impl DelegateArgs {
    pub(super) fn section(&self, checks: &mut Checks<'_>) -> Endpoints {
        Endpoints { default: self.endpoint(checks), keys: self.keys(checks) }
    }

    fn endpoint(&self, checks: &mut Checks<'_>) -> Option<DefaultEndpoint> {
        let Some(ListEntry { value, patterns }) = &self.delegate_url else {
            let given = [
                ("ASP_DELEGATE_MODEL", self.delegate_model.is_some()),
                ("ASP_DELEGATE_API_KEY", self.delegate_api_key.is_some()),
                ("ASP_DELEGATE_JSON_SCHEMA", self.delegate_json_schema.is_some()),
            ];
            checks.without("ASP_DELEGATE_URL", &given);
            return None;
        };
        // Older settings have no `for`.
        let primitives = match patterns {
            Some(patterns) => checks.primitives_of("ASP_DELEGATE_URL", value, Some(patterns.clone())),
            None => vec![EVERY_PRIMITIVE.to_owned()],
        };
        if self.delegate_model.is_none() {
            checks.fault("ASP_DELEGATE_MODEL", "is required with ASP_DELEGATE_URL");
        }
        Some(DefaultEndpoint {
            url: value.clone(),
            model: self.delegate_model.clone()?,
            key: self.delegate_api_key.clone(),
            json_schema: self.delegate_json_schema.unwrap_or_default(),
            primitives,
        })
    }

    /// Reads the files of `name=origin=file;for=…` entries.
    fn keys(&self, checks: &mut Checks<'_>) -> BTreeMap<String, EndpointKey> {
        let mut keys: BTreeMap<String, EndpointKey> = BTreeMap::new();
        let is_entry = |entry: &str| key_entry(entry).is_some();
        for (entry, primitives) in checks.operator_list(ENV_DELEGATE_KEYS, &self.delegate_keys, is_entry) {
            let Some((name, origin, file)) = key_entry(&entry) else {
                let message = "must be name=http(s)://host[:port]=file;for=… with a name of a-z 0-9 - _";
                checks.fault(ENV_DELEGATE_KEYS, message);
                continue;
            };
            if keys.contains_key(name) {
                checks.fault(ENV_DELEGATE_KEYS, format!("names {name} twice"));
                continue;
            }
            let read = small_file(Path::new(file), MAX_KEY_FILE, "is too large for a key");
            match read.and_then(|text| key(text.trim()).map_err(str::to_owned)) {
                Ok(key) => {
                    let key = EndpointKey { origin: origin.to_owned(), key, primitives };
                    keys.insert(name.to_owned(), key);
                }
                Err(why) => checks.fault(ENV_DELEGATE_KEYS, format!("the file of {name}: {why}")),
            }
        }
        keys
    }
}

/// Parses `URL[;for=…]` into the base and the delegates that it answers.
fn base(text: &str) -> Result<ListEntry, &'static str> {
    match operator_list::parse(text).unwrap_or_default().as_slice() {
        [entry] if is_base(&entry.value) => Ok(entry.clone()),
        _ => Err(BASE_FORM),
    }
}

/// Splits `name=origin=file`.
fn key_entry(entry: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = entry.split_once('=')?;
    let (origin, file) = rest.split_once('=')?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (!name.is_empty() && name.bytes().all(plain) && is_origin(origin)).then_some((name, origin, file))
}

/// Checks that a key can be sent in a header: visible ASCII only.
fn key(text: &str) -> Result<Secret, &'static str> {
    match !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.into()),
        false => Err("must be a key: one word of printable ASCII"),
    }
}

fn is_base(url: &str) -> bool {
    let Some((scheme, rest)) = url.split_once("://") else { return false };
    let end = rest.find('/').unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-._~%".contains(&byte);
    is_origin(&format!("{scheme}://{authority}")) && path.bytes().all(plain)
}

#[cfg(test)]
mod tests {
    use asp_command::failure::SettingFault;

    use super::*;

    fn settings(rows: &[(&'static str, &str)]) -> Result<Endpoints, Vec<SettingFault>> {
        let environment: BTreeMap<&str, &str> = rows.iter().copied().collect();
        let mut checks = Checks::new(&environment, false);
        let section = checks.read::<DelegateArgs>().map(|args| args.section(&mut checks));
        checks.finish(section)
    }

    #[test]
    fn an_endpoint_and_keys_are_read_and_no_key_prints() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, "sk-from-file\n").unwrap();
        let keys = format!("llm=https://llm.internal={};for=crm/* ops/ask", file.display());
        let section = settings(&[
            ("ASP_DELEGATE_URL", "http://127.0.0.1:11434/v1"),
            ("ASP_DELEGATE_MODEL", "small"),
            ("ASP_DELEGATE_API_KEY", "sk-from-env"),
            ("ASP_DELEGATE_JSON_SCHEMA", "true"),
            (ENV_DELEGATE_KEYS, &keys),
        ])
        .unwrap();
        let printed = format!("{section:?}");
        assert!(!printed.contains("sk-from"), "{printed}");
        let default = section.default.unwrap();
        assert_eq!((default.url.as_str(), default.model.as_str()), ("http://127.0.0.1:11434/v1", "small"));
        assert!(default.json_schema);
        assert_eq!(default.primitives, ["*"]);
        assert_eq!(default.key.unwrap().expose(), "sk-from-env");
        assert_eq!(section.keys["llm"].key.expose(), "sk-from-file");
        assert_eq!(section.keys["llm"].origin, "https://llm.internal");
        assert_eq!(section.keys["llm"].primitives, ["crm/*", "ops/ask"]);
        assert!(settings(&[]).unwrap().default.is_none());
    }

    #[test]
    fn the_operators_endpoint_may_name_the_delegates_that_it_answers() {
        let of = |url: &str| {
            let section = settings(&[("ASP_DELEGATE_URL", url), ("ASP_DELEGATE_MODEL", "m")]);
            section.map(|section| section.default.map(|own| (own.url, own.primitives)))
        };
        let (url, primitives) = of("https://llm.internal/v1;for=crm/* ops/ask").unwrap().unwrap();
        assert_eq!(
            (url.as_str(), primitives),
            ("https://llm.internal/v1", vec!["crm/*".into(), "ops/ask".into()])
        );
        assert_eq!(
            of("https://llm.internal/v1;for=").unwrap().unwrap().1,
            [""; 0],
            "an empty list is nobody"
        );
        for bad in
            ["https://h/v1;for=crm", "https://h/v1;to=*", "https://h/v1;for=*,https://i/v1;for=*", ";for=*"]
        {
            assert!(of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_without_the_secret() {
        let rows: [(&[(&'static str, &str)], &str); 14] = [
            (
                &[("ASP_DELEGATE_URL", "https://h/v1;key=s3cret"), ("ASP_DELEGATE_MODEL", "m")],
                "ASP_DELEGATE_URL",
            ),
            (&[("ASP_DELEGATE_URL", "https://llm.internal/v1")], "ASP_DELEGATE_MODEL"),
            (&[("ASP_DELEGATE_MODEL", "m")], "ASP_DELEGATE_MODEL"),
            (&[("ASP_DELEGATE_API_KEY", "s3cret")], "ASP_DELEGATE_API_KEY"),
            (&[("ASP_DELEGATE_JSON_SCHEMA", "true")], "ASP_DELEGATE_JSON_SCHEMA"),
            (&[("ASP_DELEGATE_URL", "llm.internal"), ("ASP_DELEGATE_MODEL", "m")], "ASP_DELEGATE_URL"),
            (&[("ASP_DELEGATE_URL", "ftp://llm.internal/"), ("ASP_DELEGATE_MODEL", "m")], "ASP_DELEGATE_URL"),
            (&[("ASP_DELEGATE_URL", "https://u:s3cret@h/"), ("ASP_DELEGATE_MODEL", "m")], "ASP_DELEGATE_URL"),
            (
                &[("ASP_DELEGATE_URL", "https://h/v1?key=s3cret"), ("ASP_DELEGATE_MODEL", "m")],
                "ASP_DELEGATE_URL",
            ),
            (
                &[
                    ("ASP_DELEGATE_URL", "https://h/v1"),
                    ("ASP_DELEGATE_MODEL", "m"),
                    ("ASP_DELEGATE_API_KEY", "s3cret\nx-evil: 1"),
                ],
                "ASP_DELEGATE_API_KEY",
            ),
            (&[(ENV_DELEGATE_KEYS, "s3cret")], ENV_DELEGATE_KEYS),
            (&[(ENV_DELEGATE_KEYS, "llm=https://h/path=/dev/null;for=*")], ENV_DELEGATE_KEYS),
            (&[(ENV_DELEGATE_KEYS, "llm=https://h=/nonexistent;for=*")], ENV_DELEGATE_KEYS),
            (&[(ENV_DELEGATE_KEYS, "llm=https://h=/nonexistent")], ENV_DELEGATE_KEYS),
        ];
        for (environment, name) in rows {
            let faults = settings(environment).unwrap_err();
            assert_eq!(faults.first().map(|fault| fault.name.as_str()), Some(name), "{environment:?}");
            assert!(!format!("{faults:?}").contains("s3cret"), "{faults:?}");
        }
    }
}
