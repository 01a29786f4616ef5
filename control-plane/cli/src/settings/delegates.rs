//! The models that answer delegations: the operator's own endpoint, and the keys of endpoints that specs name.
//!
//! Keeps true: a key is read once, belongs to one origin and prints as `***`; no fault repeats it.

use std::path::Path;

use asp_platform::operator_list::{self, EVERY_PRIMITIVE, ListEntry};
use asp_platform::secret::Secret;

use super::source::{Reader, is_origin};

pub const ENV_DELEGATE_URL: &str = "ASP_DELEGATE_URL";
pub const ENV_DELEGATE_MODEL: &str = "ASP_DELEGATE_MODEL";
pub const ENV_DELEGATE_API_KEY: &str = "ASP_DELEGATE_API_KEY";
pub const ENV_DELEGATE_JSON_SCHEMA: &str = "ASP_DELEGATE_JSON_SCHEMA";
pub const ENV_DELEGATE_KEYS: &str = "ASP_DELEGATE_KEYS";

/// Form of the endpoint's setting. The value may contain a password, so faults do not repeat it.
const BASE_FORM: &str = "must be http(s)://host[:port][/path] without credentials, query and fragment, and may end with \
                         ;for=SERVER/DELEGATE of the delegates that it answers";

/// Maximum size in bytes of a key file: a key is one line.
const MAX_KEY_FILE: u64 = 16 << 10;

/// Models that the platform asks for delegations.
#[derive(Clone, Debug, Default)]
pub struct DelegateSection {
    /// Endpoint for delegates that name none.
    pub default: Option<DelegateEndpoint>,
    pub keys: Vec<DelegateKey>,
}

/// The operator's own endpoint.
#[derive(Clone, Debug)]
pub struct DelegateEndpoint {
    /// Base URL, e.g. `https://llm.internal/v1`.
    pub url: String,
    pub model: String,
    pub key: Option<Secret>,
    /// Whether it accepts a JSON Schema as `response_format`.
    pub json_schema: bool,
    /// Delegates that it answers.
    pub primitives: Vec<String>,
}

/// A key that specs name, and the only origin that it is sent to.
#[derive(Clone, Debug)]
pub struct DelegateKey {
    pub name: String,
    /// Scheme, host and port, as specs write them.
    pub origin: String,
    pub key: Secret,
    /// Delegates that may use it.
    pub primitives: Vec<String>,
}

pub(super) fn read(reader: &mut Reader<'_>) -> DelegateSection {
    DelegateSection { default: endpoint(reader), keys: keys(reader) }
}

fn endpoint(reader: &mut Reader<'_>) -> Option<DelegateEndpoint> {
    let entry = reader.optional(ENV_DELEGATE_URL);
    let model = reader.optional(ENV_DELEGATE_MODEL);
    let key = reader.optional(ENV_DELEGATE_API_KEY);
    let json_schema = reader.optional(ENV_DELEGATE_JSON_SCHEMA);
    let Some(entry) = entry else {
        let orphans = [
            (ENV_DELEGATE_MODEL, model.is_some()),
            (ENV_DELEGATE_API_KEY, key.is_some()),
            (ENV_DELEGATE_JSON_SCHEMA, json_schema.is_some()),
        ];
        for (name, _) in orphans.into_iter().filter(|(_, given)| *given) {
            reader.fault(name, format!("means nothing without {ENV_DELEGATE_URL}"));
        }
        return None;
    };
    let (url, primitives) = base(reader, &entry);
    if model.is_none() {
        reader.fault(ENV_DELEGATE_MODEL, format!("is required with {ENV_DELEGATE_URL}"));
    }
    let json_schema = match json_schema.as_deref() {
        None | Some("false") => false,
        Some("true") => true,
        Some(other) => {
            reader.fault(ENV_DELEGATE_JSON_SCHEMA, format!("must be true or false, not `{other}`"));
            false
        }
    };
    let key = key.map(|key| checked(reader, ENV_DELEGATE_API_KEY, key));
    Some(DelegateEndpoint { url, model: model?, key, json_schema, primitives })
}

/// Parses `URL[;for=…]` into the base and the delegates that it answers: every delegate without `for`, which older settings
/// do not have.
fn base(reader: &mut Reader<'_>, entry: &str) -> (String, Vec<String>) {
    let parsed = operator_list::parse(entry).unwrap_or_default();
    let (value, patterns) = match parsed.as_slice() {
        [ListEntry { value, patterns }] if is_base(value) => (value, patterns),
        _ => {
            reader.fault(ENV_DELEGATE_URL, BASE_FORM);
            return (String::new(), Vec::new());
        }
    };
    let primitives = match patterns {
        Some(patterns) => reader.served(ENV_DELEGATE_URL, value, Some(patterns.clone())),
        None => vec![EVERY_PRIMITIVE.to_owned()],
    };
    (value.clone(), primitives)
}

/// Parses `name=origin=file;for=…` entries, separated by commas.
fn keys(reader: &mut Reader<'_>) -> Vec<DelegateKey> {
    let mut keys: Vec<DelegateKey> = Vec::new();
    for (entry, primitives) in reader.operator_list(ENV_DELEGATE_KEYS, |entry| key_entry(entry).is_some()) {
        let Some((name, origin, file)) = key_entry(&entry) else {
            let message = "must be name=http(s)://host[:port]=file;for=… with a name of a-z 0-9 - _";
            reader.fault(ENV_DELEGATE_KEYS, message);
            continue;
        };
        if keys.iter().any(|other| other.name == name) {
            reader.fault(ENV_DELEGATE_KEYS, format!("names {name} twice"));
            continue;
        }
        match key_of_file(Path::new(file)) {
            Ok(key) => {
                let key = checked(reader, ENV_DELEGATE_KEYS, key);
                let (name, origin) = (name.to_owned(), origin.to_owned());
                keys.push(DelegateKey { name, origin, key, primitives });
            }
            Err(why) => reader.fault(ENV_DELEGATE_KEYS, format!("the file of {name}: {why}")),
        }
    }
    keys
}

/// Splits `name=origin=file`.
fn key_entry(entry: &str) -> Option<(&str, &str, &str)> {
    let (name, rest) = entry.split_once('=')?;
    let (origin, file) = rest.split_once('=')?;
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-_".contains(&byte);
    (!name.is_empty() && name.bytes().all(plain) && is_origin(origin)).then_some((name, origin, file))
}

fn key_of_file(file: &Path) -> Result<String, String> {
    let size = std::fs::metadata(file).map_err(|error| error.to_string())?.len();
    if size > MAX_KEY_FILE {
        return Err("is too large for a key".into());
    }
    // The text of an error about an invalid encoding names only its kind.
    let text = std::fs::read_to_string(file).map_err(|error| error.kind().to_string())?;
    Ok(text.trim().to_owned())
}

/// Checks that a key can be sent in a header: visible ASCII only.
fn checked(reader: &mut Reader<'_>, name: &str, key: String) -> Secret {
    if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        reader.fault(name, "a key is one word of printable ASCII");
    }
    Secret::new(key)
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
    use std::collections::BTreeMap;

    use super::*;
    use crate::settings::source::SettingFault;

    fn settings(rows: &[(&'static str, &str)]) -> Result<DelegateSection, Vec<SettingFault>> {
        let environment: BTreeMap<&str, &str> = rows.iter().copied().collect();
        let mut reader = Reader::new(&environment);
        let section = read(&mut reader);
        reader.finish(section)
    }

    #[test]
    fn an_endpoint_and_keys_are_read_and_no_key_prints() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("key");
        std::fs::write(&file, "sk-from-file\n").unwrap();
        let keys = format!("llm=https://llm.internal={};for=crm/* ops/ask", file.display());
        let section = settings(&[
            (ENV_DELEGATE_URL, "http://127.0.0.1:11434/v1"),
            (ENV_DELEGATE_MODEL, "small"),
            (ENV_DELEGATE_API_KEY, "sk-from-env"),
            (ENV_DELEGATE_JSON_SCHEMA, "true"),
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
        assert_eq!(section.keys[0].key.expose(), "sk-from-file");
        assert_eq!(section.keys[0].origin, "https://llm.internal");
        assert_eq!(section.keys[0].primitives, ["crm/*", "ops/ask"]);
        assert!(settings(&[]).unwrap().default.is_none());
    }

    #[test]
    fn the_operators_endpoint_may_name_the_delegates_that_it_answers() {
        let of = |url: &str| {
            let section = settings(&[(ENV_DELEGATE_URL, url), (ENV_DELEGATE_MODEL, "m")]);
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
            (&[(ENV_DELEGATE_URL, "https://h/v1;key=s3cret"), (ENV_DELEGATE_MODEL, "m")], ENV_DELEGATE_URL),
            (&[(ENV_DELEGATE_URL, "https://llm.internal/v1")], ENV_DELEGATE_MODEL),
            (&[(ENV_DELEGATE_MODEL, "m")], ENV_DELEGATE_MODEL),
            (&[(ENV_DELEGATE_API_KEY, "s3cret")], ENV_DELEGATE_API_KEY),
            (&[(ENV_DELEGATE_JSON_SCHEMA, "true")], ENV_DELEGATE_JSON_SCHEMA),
            (&[(ENV_DELEGATE_URL, "llm.internal"), (ENV_DELEGATE_MODEL, "m")], ENV_DELEGATE_URL),
            (&[(ENV_DELEGATE_URL, "ftp://llm.internal/"), (ENV_DELEGATE_MODEL, "m")], ENV_DELEGATE_URL),
            (&[(ENV_DELEGATE_URL, "https://u:s3cret@h/"), (ENV_DELEGATE_MODEL, "m")], ENV_DELEGATE_URL),
            (&[(ENV_DELEGATE_URL, "https://h/v1?key=s3cret"), (ENV_DELEGATE_MODEL, "m")], ENV_DELEGATE_URL),
            (
                &[
                    (ENV_DELEGATE_URL, "https://h/v1"),
                    (ENV_DELEGATE_MODEL, "m"),
                    (ENV_DELEGATE_API_KEY, "s3cret\nx-evil: 1"),
                ],
                ENV_DELEGATE_API_KEY,
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
