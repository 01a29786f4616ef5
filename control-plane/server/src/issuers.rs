//! The issuers an operator trusts (`ASP_ISSUERS`, a JSON file): whose tokens clients and admins may bring.
//!
//! ```json
//! {"clients": [{"name": "login", "iss": "https://login.example.com", "jwks": {"keys": [...]},
//!               "algs": ["RS256"], "audiences": [], "claims": {"org": "tenant"}, "maxLifetimeSeconds": 3600,
//!               "orgs": ["acme", "acme-*"]}],
//!  "admins":  [{"name": "ops", "iss": "https://ops.example.com", "jwks": {"keys": [...]}, "algs": ["ES256"],
//!               "claims": {"user": "email", "role": "asp_role"}}]}
//! ```
//!
//! `orgs` are the orgs an issuer may speak for: names, `prefix*` or `*`. One issuer alone may leave them out; of several,
//! each client issuer must say them, because whoever may name any org can act for every tenant. An admin issuer with
//! `orgs` gives roles in those only, and platform roles only with `*`.
//!
//! Keeps true: one key, one algorithm (RFC 8725 section 3.1); only public, asymmetric keys; every fault of
//! the file is found before anything starts.

mod faults;

use std::path::Path;
use std::sync::Arc;

use asp_edge::names;
use asp_proto::snapshot;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ParsedPublicKey};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

use crate::trusted_issuer::{IssuerRules, MAX_TTL, TrustedIssuer};

/// Issuers and keys of one file, at most.
const MAX_ISSUERS: usize = 100;
const MAX_KEYS: usize = 50;
/// Members of a JWK that are private (RFC 7518 section 6): such a key has no place here.
const PRIVATE_MEMBERS: [&str; 8] = ["d", "p", "q", "dp", "dq", "qi", "oth", "k"];

/// The file is missing or wrong.
#[derive(Debug, thiserror::Error)]
pub enum IssuersError {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("{path}: {fault}")]
    Syntax { path: String, fault: String },
    #[error("{path}: {}", faults.join("; "))]
    Faults { path: String, faults: Vec<String> },
    #[error("{path}: issuer {issuer}: {fault}")]
    Issuer { path: String, issuer: String, fault: String },
}

/// What the file says.
#[derive(Default)]
pub struct Issuers {
    pub clients: Vec<snapshot::Issuer>,
    pub admins: Vec<TrustedIssuer>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    clients: Vec<Entry>,
    #[serde(default)]
    admins: Vec<Entry>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct Entry {
    name: String,
    iss: String,
    jwks: Jwks,
    algs: Vec<String>,
    #[serde(default)]
    typ: Vec<String>,
    #[serde(default)]
    audiences: Vec<String>,
    #[serde(default)]
    claims: Claims,
    max_lifetime_seconds: Option<u64>,
    #[serde(default)]
    orgs: Vec<String>,
}

#[derive(Clone, Deserialize)]
struct Jwks {
    keys: Vec<Value>,
}

#[derive(Clone, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Claims {
    org: String,
    user: String,
    groups: String,
    scopes: String,
    /// Of an admin issuer.
    role: String,
}

/// Every fault of the file; `dev`: the development issuer is trusted beside it.
pub fn faults(path: &Path, dev: bool) -> Vec<String> {
    match file(path) {
        Ok(file) => faults::of(&file, dev),
        Err(error) => vec![error.to_string()],
    }
}

fn file(path: &Path) -> Result<File, IssuersError> {
    let shown = path.display().to_string();
    let text =
        std::fs::read_to_string(path).map_err(|source| IssuersError::Io { path: shown.clone(), source })?;
    let syntax = |fault: String| IssuersError::Syntax { path: shown.clone(), fault };
    let file: File = serde_json::from_str(&text).map_err(|error| syntax(error.to_string()))?;
    if file.clients.len() + file.admins.len() > MAX_ISSUERS {
        return Err(syntax(format!("more than {MAX_ISSUERS} issuers")));
    }
    Ok(file)
}

/// Reads and checks the file.
pub fn read(path: &Path) -> Result<Issuers, IssuersError> {
    let file = file(path)?;
    let shown = path.display().to_string();
    let faults = faults::of(&file, false);
    if !faults.is_empty() {
        return Err(IssuersError::Faults { path: shown, faults });
    }
    let fail = |entry: &Entry, fault: String| IssuersError::Issuer {
        path: shown.clone(),
        issuer: entry.name.clone(),
        fault,
    };
    let mut issuers = Issuers::default();
    for entry in &file.clients {
        if file.clients.len() > 1 && entry.orgs.is_empty() {
            let fault = "of several client issuers each must say in `orgs` for which orgs it speaks";
            return Err(fail(entry, fault.into()));
        }
        issuers.clients.push(client(entry).map_err(|fault| fail(entry, fault))?);
    }
    for entry in &file.admins {
        issuers.admins.extend(admin(entry).map_err(|fault| fail(entry, fault))?);
    }
    Ok(issuers)
}

fn client(entry: &Entry) -> Result<snapshot::Issuer, String> {
    let keys = keys(entry)?;
    if !entry.claims.role.is_empty() {
        return Err("claims.role is for admin issuers".into());
    }
    Ok(snapshot::Issuer {
        name: entry.name.clone(),
        iss: entry.iss.clone(),
        keys: keys
            .into_iter()
            .map(|key| snapshot::Key { kid: key.kid, alg: key.alg, jwk: key.jwk.to_string() })
            .collect(),
        typ: entry.typ.iter().map(|typ| typ.to_ascii_lowercase()).collect(),
        audiences: entry.audiences.clone(),
        claims: Some(snapshot::ClaimNames {
            org: entry.claims.org.clone(),
            user: entry.claims.user.clone(),
            groups: entry.claims.groups.clone(),
            scopes: entry.claims.scopes.clone(),
        }),
        max_lifetime_seconds: lifetime(entry)?,
        orgs: orgs(entry)?,
    })
}

fn lifetime(entry: &Entry) -> Result<u64, String> {
    let lifetime = entry.max_lifetime_seconds.unwrap_or(MAX_TTL.as_secs());
    if lifetime == 0 || lifetime > MAX_TTL.as_secs() {
        return Err(format!("maxLifetimeSeconds must be from 1 to {}", MAX_TTL.as_secs()));
    }
    Ok(lifetime)
}

fn orgs(entry: &Entry) -> Result<Vec<String>, String> {
    let fault = |org: &String| names::pattern_fault(org).map(|fault| format!("orgs: `{org}` {fault}"));
    match entry.orgs.iter().find_map(fault) {
        Some(fault) => Err(fault),
        None => Ok(entry.orgs.clone()),
    }
}

fn admin(entry: &Entry) -> Result<Vec<TrustedIssuer>, String> {
    let Claims { org, user, groups, scopes, role } = &entry.claims;
    if [org, groups, scopes].iter().any(|name| !name.is_empty()) {
        return Err(
            "an admin token has a name and a role: only claims.user and claims.role can be set".into()
        );
    }
    let or = |text: &str, default: String| if text.is_empty() { default } else { text.to_owned() };
    let mut rules = IssuerRules::of(&entry.iss);
    if !entry.typ.is_empty() {
        rules.typ = entry.typ.iter().map(|typ| typ.to_ascii_lowercase()).collect();
    }
    rules.audiences.extend(entry.audiences.iter().cloned());
    rules.user_claim = or(user, rules.user_claim);
    rules.role_claim = or(role, rules.role_claim);
    rules.max_lifetime = lifetime(entry)?;
    rules.orgs = orgs(entry)?;
    let rules = Arc::new(rules);
    let trusted = |key: Key| TrustedIssuer {
        kid: key.kid,
        algorithm: key.algorithm,
        key: key.decoding,
        rules: Arc::clone(&rules),
    };
    Ok(keys(entry)?.into_iter().map(trusted).collect())
}

struct Key {
    kid: String,
    alg: String,
    algorithm: Algorithm,
    jwk: Value,
    decoding: DecodingKey,
}

fn keys(entry: &Entry) -> Result<Vec<Key>, String> {
    if entry.name.is_empty() || entry.iss.is_empty() {
        return Err("name and iss must not be empty".into());
    }
    if entry.jwks.keys.is_empty() || entry.jwks.keys.len() > MAX_KEYS {
        return Err(format!("jwks must have 1 to {MAX_KEYS} keys"));
    }
    entry.jwks.keys.iter().map(|jwk| key(entry, jwk)).collect()
}

fn key(entry: &Entry, value: &Value) -> Result<Key, String> {
    let text = |name: &str| value.get(name).and_then(Value::as_str);
    let kid = text("kid").filter(|kid| !kid.is_empty()).ok_or("a key has no kid")?.to_owned();
    if let Some(member) = PRIVATE_MEMBERS.iter().find(|member| value.get(**member).is_some()) {
        return Err(format!("key {kid} has the private member `{member}`: give the public key"));
    }
    // A key without `alg` takes the issuer's only one.
    let alg = match (text("alg"), entry.algs.as_slice()) {
        (Some(alg), algs) if algs.iter().any(|allowed| allowed == alg) => alg.to_owned(),
        (None, [only]) => only.clone(),
        _ => return Err(format!("key {kid} must name one of the issuer's algs")),
    };
    let algorithm = algorithm(&alg).ok_or_else(|| format!("alg {alg} is not supported"))?;
    let unusable = |error: &dyn std::fmt::Display| format!("key {kid} cannot be used: {error}");
    let jwk: Jwk = serde_json::from_value(value.clone()).map_err(|error| unusable(&error))?;
    let decoding = DecodingKey::from_jwk(&jwk).map_err(|error| unusable(&error))?;
    if decoding.family() != algorithm.family() {
        return Err(format!("key {kid} does not fit alg {alg}"));
    }
    if !is_on_its_curve(algorithm, &decoding) {
        return Err(format!("key {kid} cannot be used: x and y are no point of the curve of {alg}"));
    }
    Ok(Key { kid, alg, algorithm, jwk: value.clone(), decoding })
}

/// Whether an elliptic key is a point of its algorithm's curve (RFC 7518 section 6.2): no signature ever fits another.
fn is_on_its_curve(algorithm: Algorithm, key: &DecodingKey) -> bool {
    let curve = match algorithm {
        Algorithm::ES256 => &ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &ECDSA_P384_SHA384_FIXED,
        _ => return true,
    };
    key.try_get_as_bytes().is_ok_and(|point| ParsedPublicKey::new(curve, point).is_ok())
}

/// What the edge accepts (`snapshot.proto`, `Key.alg`).
fn algorithm(name: &str) -> Option<Algorithm> {
    match name {
        "RS256" => Some(Algorithm::RS256),
        "RS384" => Some(Algorithm::RS384),
        "RS512" => Some(Algorithm::RS512),
        "ES256" => Some(Algorithm::ES256),
        "ES384" => Some(Algorithm::ES384),
        "EdDSA" => Some(Algorithm::EdDSA),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::testkit::TestIssuer;

    fn public_key() -> Value {
        TestIssuer::new().jwk().clone()
    }

    fn read_value(value: &Value) -> Result<Issuers, IssuersError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("issuers.json");
        std::fs::write(&path, value.to_string()).unwrap();
        read(&path)
    }

    fn entry() -> Value {
        json!({
            "name": "login", "iss": "https://login.example.com", "algs": ["ES256"],
            "jwks": {"keys": [public_key()]}, "claims": {"org": "tenant"}, "maxLifetimeSeconds": 3600
        })
    }

    #[test]
    fn clients_and_admins_have_issuers_of_their_own() {
        let mut ops = entry();
        ops["claims"] = json!({});
        let issuers = read_value(&json!({ "clients": [entry()], "admins": [ops] })).unwrap();
        let client = &issuers.clients[0];
        assert_eq!((client.max_lifetime_seconds, client.keys[0].alg.as_str()), (3_600, "ES256"));
        assert_eq!(client.claims.as_ref().unwrap().org, "tenant");
        assert_eq!(issuers.admins[0].rules.iss, "https://login.example.com");
    }

    #[test]
    fn several_client_issuers_each_say_for_which_orgs_they_speak() {
        let named = |name: &str, orgs: Value| {
            let mut entry = entry();
            entry["name"] = json!(name);
            entry["iss"] = json!(format!("https://{name}.example.com"));
            entry["orgs"] = orgs;
            entry
        };
        let alone = read_value(&json!({ "clients": [named("a", json!([]))] })).unwrap();
        assert!(alone.clients[0].orgs.is_empty());
        let two =
            |orgs: Value| read_value(&json!({ "clients": [named("a", json!(["acme"])), named("b", orgs)] }));
        let silent = two(json!([])).err().unwrap().to_string();
        assert!(silent.contains("issuer b") && silent.contains("each must say in `orgs`"), "{silent}");
        assert_eq!(two(json!(["team-*", "Acme Holding"])).unwrap().clients[1].orgs.len(), 2);
        for bad in ["", "a*b", "acme "] {
            assert!(two(json!([bad])).err().unwrap().to_string().contains("orgs: `"), "{bad}");
        }
    }

    #[test]
    fn what_is_said_of_an_admin_issuer_is_a_rule_or_a_fault() {
        let with = |member: &str, value: Value| {
            let mut changed = entry();
            changed["claims"] = json!({});
            changed[member] = value;
            read_value(&json!({ "admins": [changed] }))
        };
        let rules = |member: &str, value: Value| Arc::clone(&with(member, value).unwrap().admins[0].rules);
        assert_eq!(rules("maxLifetimeSeconds", json!(900)).max_lifetime, 900);
        assert_eq!(rules("typ", json!(["JWT"])).typ, ["jwt"]);
        assert_eq!(rules("audiences", json!(["urn:ops"])).audiences, ["asp-admin", "urn:ops"]);
        assert_eq!(rules("claims", json!({"role": "asp_role"})).role_claim, "asp_role");
        assert_eq!(rules("orgs", json!(["acme"])).orgs, ["acme"]);
        for (member, value) in [
            ("maxLifetimeSeconds", json!(2_592_000)),
            ("claims", json!({"org": "tenant"})),
            ("orgs", json!(["*a"])),
        ] {
            assert!(with(member, value).is_err(), "{member}");
        }
        let mut client = entry();
        client["claims"]["role"] = json!("asp_role");
        assert!(read_value(&json!({ "clients": [client] })).is_err());
    }

    #[test]
    fn a_key_that_is_private_nameless_or_of_another_algorithm_is_refused() {
        let with = |change: &dyn Fn(&mut Value)| {
            let mut changed = entry();
            change(&mut changed);
            let error = read_value(&json!({ "clients": [changed] })).err().unwrap();
            error.to_string()
        };
        assert!(with(&|e| e["jwks"]["keys"][0]["d"] = json!("x")).contains("private member `d`"));
        assert!(with(&|e| e["jwks"]["keys"][0]["kid"] = json!("")).contains("no kid"));
        assert!(with(&|e| e["algs"] = json!(["RS256"])).contains("must name one of"));
        assert!(with(&|e| e["jwks"]["keys"] = json!([])).contains("1 to 50 keys"));
        assert!(with(&|e| e["maxLifetimeSeconds"] = json!(100_000)).contains("maxLifetimeSeconds"));
        assert!(with(&|e| e["jwks_uri"] = json!("x")).contains("unknown field"));
        let off_curve = |e: &mut Value| e["jwks"]["keys"][0]["y"] = e["jwks"]["keys"][0]["x"].clone();
        assert!(with(&off_curve).contains("no point of the curve of ES256"));
        let symmetric = json!({ "kty": "oct", "kid": "s", "k": "c2VjcmV0", "alg": "HS256" });
        assert!(with(&|e| e["jwks"]["keys"][0] = symmetric.clone()).contains("private member `k`"));
    }
}
