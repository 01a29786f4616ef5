//! The operator's credentials by name (`ASP_CREDENTIALS`, a JSON file): how gateways authenticate to services.
//!
//! ```json
//! {"kc": {"origin": "https://login.example.com", "basic": {"user": "gateway", "passwordFile": "/run/secrets/kc"}},
//!  "crm": {"origin": "https://crm.example.com", "bearerFile": "/run/secrets/crm"},
//!  "maps": {"origin": "https://maps.example.com", "for": ["maps/*"],
//!           "header": {"name": "x-api-key", "valueFile": "/run/secrets/maps"}},
//!  "erp": {"origin": "https://erp.example.com", "for": ["*"], "oauthClient": {"clientId": "gateway",
//!          "clientSecretFile": "/run/secrets/erp", "tokenUrl": "https://login.example.com/token", "scopes": ["orders"]}}}
//! ```
//!
//! Keeps true: each secret is in a file of its own, is read once and prints as `***`; no fault repeats it; each belongs to one
//! origin.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use asp_command::environment::Environment;
use asp_command::failure::SettingFault;
use asp_identity::issuers::credentials::{Credential, Kind, NamedCredentials, OauthClient};
use asp_platform::secret::Secret;
use serde::Deserialize;

use super::source::Checks;
use super::values::{is_origin, small_file};

pub const ENV_CREDENTIALS: &str = "ASP_CREDENTIALS";

/// Maximum number of credentials in the file, and maximum size in bytes of a secret, which is one line.
const MAX_CREDENTIALS: usize = 1_000;
const MAX_SECRET: u64 = 16 << 10;
/// Maximum number of scopes, and of primitives, of one credential.
const MAX_LIST: usize = 256;
/// Headers that belong to the message or the connection (RFC 9110), or to a client, and that a credential may not set.
const FRAMING: [&str; 9] = [
    "connection",
    "content-length",
    "content-type",
    "cookie",
    "host",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct CredentialEntry {
    origin: String,
    bearer_file: Option<PathBuf>,
    basic: Option<Basic>,
    header: Option<HeaderEntry>,
    oauth_client: Option<OauthClientEntry>,
    /// Primitives that may use it; `primitives` is the former name of the member.
    #[serde(rename = "for", alias = "primitives")]
    patterns: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Basic {
    user: String,
    password_file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct HeaderEntry {
    name: String,
    value_file: PathBuf,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct OauthClientEntry {
    client_id: String,
    client_secret_file: PathBuf,
    token_url: String,
    #[serde(default)]
    scopes: Vec<String>,
    audience: Option<String>,
}

/// Reads the credentials that the environment names, for commands.
pub fn from_environment(environment: &dyn Environment) -> Result<NamedCredentials, Vec<SettingFault>> {
    let mut checks = Checks::new(environment, false);
    let path = environment.get(ENV_CREDENTIALS).map(PathBuf::from);
    let named = read(&mut checks, path.as_deref());
    checks.finish(Some(named))
}

pub(super) fn read(checks: &mut Checks<'_>, path: Option<&Path>) -> NamedCredentials {
    let Some(path) = path else { return NamedCredentials::default() };
    let file = path.display();
    let entries = std::fs::read_to_string(path).map_err(|error| error.to_string()).and_then(|text| {
        serde_json::from_str::<BTreeMap<String, CredentialEntry>>(&text).map_err(|error| error.to_string())
    });
    let entries = match entries {
        Ok(entries) if entries.len() <= MAX_CREDENTIALS => entries,
        Ok(_) => {
            checks.fault(ENV_CREDENTIALS, format!("{file}: more than {MAX_CREDENTIALS} credentials"));
            return NamedCredentials::default();
        }
        Err(fault) => {
            checks.fault(ENV_CREDENTIALS, format!("{file}: {fault}"));
            return NamedCredentials::default();
        }
    };
    let mut named = NamedCredentials::new();
    for (name, entry) in entries {
        let patterns = entry.patterns.clone();
        match credential(entry) {
            Ok(mut credential) => {
                credential.primitives = checks.primitives_of(ENV_CREDENTIALS, &name, patterns);
                named.insert(name, credential);
            }
            Err(fault) => checks.fault(ENV_CREDENTIALS, format!("{file}: {name}: {fault}")),
        }
    }
    named
}

fn credential(entry: CredentialEntry) -> Result<Credential, String> {
    let CredentialEntry { origin, bearer_file, basic, header, oauth_client, patterns } = entry;
    let primitives = patterns.unwrap_or_default();
    if !is_origin(&origin) {
        return Err(format!("origin must be http(s)://host[:port], not `{origin}`"));
    }
    if primitives.len() > MAX_LIST {
        return Err(format!("for has more than {MAX_LIST} entries"));
    }
    let kind = match (bearer_file, basic, header, oauth_client) {
        (Some(file), None, None, None) => Kind::Bearer(secret(&file)?),
        (None, Some(Basic { user, password_file }), None, None) => {
            if user.contains(':') || user.chars().any(char::is_control) {
                return Err("the user of `basic` holds a colon or a control character".into());
            }
            Kind::Basic { user, password: secret(&password_file)? }
        }
        (None, None, Some(HeaderEntry { name, value_file }), None) => {
            let known = http::HeaderName::try_from(name.as_str());
            let known = known.map_err(|_| format!("`{name}` is not a valid header name"))?;
            if FRAMING.contains(&known.as_str()) {
                return Err(format!("the header `{name}` belongs to the message and cannot be a credential"));
            }
            Kind::Header { name, value: secret(&value_file)? }
        }
        (None, None, None, Some(client)) => Kind::Client(oauth(client)?),
        _ => return Err("give one of bearerFile, basic, header and oauthClient".into()),
    };
    let credential = Credential { origin, primitives, kind };
    credential.check()?;
    Ok(credential)
}

fn oauth(client: OauthClientEntry) -> Result<OauthClient, String> {
    let OauthClientEntry { client_id, client_secret_file, token_url, scopes, audience } = client;
    let url: Option<http::Uri> = token_url.parse().ok();
    let is_url = url.is_some_and(|url| {
        matches!(url.scheme_str(), Some("https" | "http"))
            && url.authority().is_some_and(|at| !at.as_str().contains('@'))
    });
    if !is_url {
        return Err(format!("oauthClient.tokenUrl: `{token_url}` is not an http(s) URL"));
    }
    // RFC 6749 appendix A.4: a scope is visible ASCII without quotes and backslashes.
    let is_scope = |scope: &String| {
        !scope.is_empty() && scope.bytes().all(|b| (0x21..0x7f).contains(&b) && b != b'"' && b != b'\\')
    };
    if client_id.is_empty() || scopes.len() > MAX_LIST || !scopes.iter().all(is_scope) {
        return Err("oauthClient needs a clientId, and at most 256 scopes of visible ASCII".into());
    }
    Ok(OauthClient { token_url, id: client_id, secret: secret(&client_secret_file)?, scopes, audience })
}

/// Reads the only line of the file. No fault repeats it.
fn secret(path: &Path) -> Result<Secret, String> {
    let at = |fault: String| format!("{}: {fault}", path.display());
    let too_large = format!("a secret has at most {MAX_SECRET} bytes");
    let text = small_file(path, MAX_SECRET, &too_large).map_err(at)?;
    let text = text.trim_end_matches(['\r', '\n']);
    if text.is_empty() || !text.bytes().all(|byte| (0x20..0x7f).contains(&byte)) {
        return Err(at("a secret is one line of visible ASCII".into()));
    }
    Ok(Secret::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oauth_client(token_url: &str, secret: &Path) -> serde_json::Value {
        serde_json::json!({ "origin": "https://a.example", "oauthClient": {
            "clientId": "gw", "clientSecretFile": secret, "tokenUrl": token_url, "scopes": ["a"] } })
    }

    #[test]
    fn a_secret_is_one_line_of_a_file_and_in_no_fault() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, "s3cret\n").unwrap();
        let entry = |value: serde_json::Value| credential(serde_json::from_value(value).unwrap());
        let good = entry(serde_json::json!({ "origin": "https://a.example", "bearerFile": path })).unwrap();
        assert!(!format!("{good:?}").contains("s3cret"));
        for key in ["for", "primitives"] {
            let listed =
                serde_json::json!({ "origin": "https://a.example", "bearerFile": path, key: ["a/x*"] });
            assert_eq!(entry(listed).unwrap().primitives, ["a/x*"], "{key}");
        }
        assert!(entry(oauth_client("https://login.example/token", &path)).is_ok());
        std::fs::write(&path, "s3cret\nmore").unwrap();
        let fault =
            entry(serde_json::json!({ "origin": "https://a.example", "bearerFile": path })).unwrap_err();
        assert!(fault.contains("one line") && !fault.contains("s3cret"), "{fault}");
        std::fs::write(&path, "s3cret").unwrap();
        for bad in [
            serde_json::json!({ "origin": "https://a.example" }),
            serde_json::json!({ "origin": "https://a.example/path", "bearerFile": path }),
            serde_json::json!({ "origin": "https://a.example", "bearerFile": "/nowhere/x" }),
            serde_json::json!({ "origin": "https://a.example", "header": { "name": "a b", "valueFile": path } }),
            serde_json::json!({ "origin": "https://a.example", "header": { "name": "Host", "valueFile": path } }),
            serde_json::json!({ "origin": "https://a.example", "basic": { "user": "a:b", "passwordFile": path } }),
            serde_json::json!({ "origin": "https://a.example", "bearerFile": path, "primitives": ["a/x*b"] }),
            serde_json::json!({ "origin": "https://a.example", "bearerFile": path, "primitives": ["notes.read"] }),
            serde_json::json!({ "origin": "https://a.example", "bearerFile": path, "primitives": ["a*/b"] }),
            serde_json::json!({ "origin": "https://a.example", "bearerFile": path, "for": ["a*/b"] }),
            oauth_client("ftp://login.example/token", &path),
            oauth_client("https://u:p@login.example/token", &path),
            oauth_client("token", &path),
        ] {
            assert!(entry(bad.clone()).is_err(), "{bad}");
        }
    }
}
