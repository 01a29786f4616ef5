//! The operator's credentials by name (`ASP_CREDENTIALS`, a JSON file): how gateways prove themselves to services.
//!
//! ```json
//! {"kc": {"origin": "https://login.example.com", "basic": {"user": "gateway", "passwordFile": "/run/secrets/kc"}},
//!  "crm": {"origin": "https://crm.example.com", "bearerFile": "/run/secrets/crm"},
//!  "maps": {"origin": "https://maps.example.com", "header": {"name": "x-api-key", "valueFile": "/run/secrets/maps"}}}
//! ```
//!
//! Keeps true: a secret stands in a file of its own, is read once and prints as `***`; no fault repeats it; each belongs
//! to one origin.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use asp_gateway::issuers::credentials::{Credential, Credentials, Kind};
use secrecy::SecretString;
use serde::Deserialize;

use super::source::{Reader, is_origin};

pub const ENV_CREDENTIALS: &str = "ASP_CREDENTIALS";

/// Credentials of one file, and bytes of a secret: it is a line.
const MAX_CREDENTIALS: usize = 1_000;
const MAX_SECRET: u64 = 16 << 10;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    origin: String,
    bearer_file: Option<PathBuf>,
    basic: Option<Basic>,
    header: Option<Header>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Basic {
    user: String,
    password_file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Header {
    name: String,
    value_file: PathBuf,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Credentials {
    let Some(path) = reader.optional(ENV_CREDENTIALS) else { return Credentials::default() };
    let entries = std::fs::read_to_string(&path).map_err(|error| error.to_string()).and_then(|text| {
        serde_json::from_str::<BTreeMap<String, Entry>>(&text).map_err(|error| error.to_string())
    });
    let entries = match entries {
        Ok(entries) if entries.len() <= MAX_CREDENTIALS => entries,
        Ok(_) => {
            reader.fault(ENV_CREDENTIALS, format!("{path}: more than {MAX_CREDENTIALS} credentials"));
            return Credentials::default();
        }
        Err(fault) => {
            reader.fault(ENV_CREDENTIALS, format!("{path}: {fault}"));
            return Credentials::default();
        }
    };
    let mut named = HashMap::new();
    for (name, entry) in entries {
        match credential(entry) {
            Ok(credential) => drop(named.insert(name, credential)),
            Err(fault) => reader.fault(ENV_CREDENTIALS, format!("{path}: {name}: {fault}")),
        }
    }
    Credentials::new(named)
}

fn credential(entry: Entry) -> Result<Credential, String> {
    let Entry { origin, bearer_file, basic, header } = entry;
    if !is_origin(&origin) {
        return Err(format!("origin must be http(s)://host[:port], not `{origin}`"));
    }
    let kind = match (bearer_file, basic, header) {
        (Some(file), None, None) => Kind::Bearer(secret(&file)?),
        (None, Some(Basic { user, password_file }), None) => {
            Kind::Basic { user, password: secret(&password_file)? }
        }
        (None, None, Some(Header { name, value_file })) => {
            http::HeaderName::try_from(name.as_str())
                .map_err(|_| format!("`{name}` is no name of a header"))?;
            Kind::Header { name, value: secret(&value_file)? }
        }
        _ => return Err("give one of bearerFile, basic and header".into()),
    };
    Ok(Credential { origin, kind })
}

/// The file's one line. No fault repeats it.
fn secret(path: &Path) -> Result<SecretString, String> {
    let at = |fault: &dyn std::fmt::Display| format!("{}: {fault}", path.display());
    let size = std::fs::metadata(path).map_err(|error| at(&error))?.len();
    if size > MAX_SECRET {
        return Err(at(&format!("a secret has at most {MAX_SECRET} bytes")));
    }
    let text = std::fs::read_to_string(path).map_err(|error| at(&error))?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() || !text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Err(at(&"a secret is one line of visible ASCII"));
    }
    Ok(SecretString::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_one_line_of_a_file_and_in_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "s3cret\n").unwrap();
        let entry = |value: serde_json::Value| credential(serde_json::from_value(value).unwrap());
        let good = entry(serde_json::json!({ "origin": "https://a.example", "bearerFile": path })).unwrap();
        assert!(!format!("{good:?}").contains("s3cret"));
        std::fs::write(&path, "s3cret\nmore").unwrap();
        let fault =
            entry(serde_json::json!({ "origin": "https://a.example", "bearerFile": path })).unwrap_err();
        assert!(fault.contains("one line") && !fault.contains("s3cret"), "{fault}");
        for bad in [
            serde_json::json!({ "origin": "https://a.example" }),
            serde_json::json!({ "origin": "https://a.example/path", "bearerFile": path }),
            serde_json::json!({ "origin": "https://a.example", "bearerFile": "/nowhere/x" }),
            serde_json::json!({ "origin": "https://a.example", "header": { "name": "a b", "valueFile": path } }),
        ] {
            assert!(entry(bad.clone()).is_err(), "{bad}");
        }
    }
}
