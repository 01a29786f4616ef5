//! The trusted issuers of clients' and admins' tokens.
//!
//! They are defined in the operator's file (`ASP_ISSUERS`, JSON) or, through the admin API, in the store, in the same
//! form ([`document::Document`]):
//!
//! ```json
//! {"clients": [{"name": "login", "iss": "https://login.example.com", "jwksUri": "https://login.example.com/keys",
//!               "claims": {"org": "tenant"}, "orgs": ["acme", "acme-*"]}],
//!  "admins":  [{"name": "ops", "iss": "https://ops.example.com", "jwks": {"keys": [...]}, "algs": ["ES256"],
//!               "claims": {"user": "email", "role": "asp_role"}}]}
//! ```
//!
//! `orgs` are the orgs for which an issuer may issue tokens: names, `prefix*` or `*`. Only a single client issuer in
//! the file may omit them; of several, each must name them, because an issuer without them can act for every org. An
//! admin issuer with `orgs` gives roles only in those, and platform roles only with `*`.
//!
//! Keeps true: one key, one algorithm (RFC 8725 section 3.1); only public, asymmetric keys; every fault of the file is
//! found before anything starts.

pub mod admin_role;
mod clock;
mod compile;
pub mod document;
pub mod faults;
pub mod fetch;
mod keys;
mod metadata;
pub mod preset;
pub mod refresh;
pub mod trial;
pub mod trust;
pub mod trusted_issuer;

use std::path::Path;

use document::File;

/// Maximum number of issuers in a file.
const MAX_ISSUERS: usize = 100;

/// Reason why the file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum IssuersError {
    #[error("{path}: {source}")]
    Io { path: String, source: std::io::Error },
    #[error("{path}: {fault}")]
    Syntax { path: String, fault: String },
    #[error("{path}: {}", faults.join("; "))]
    Faults { path: String, faults: Vec<String> },
}

/// Returns every fault of the file; `dev`: the development issuer is trusted, too.
pub fn faults(path: &Path, dev: bool) -> Vec<String> {
    match file(path) {
        Ok(file) => {
            let lists = if dev { Vec::new() } else { faults::audiences_without_for(&file) };
            faults::of(&file, dev).into_iter().chain(lists).collect()
        }
        Err(error) => vec![error.to_string()],
    }
}

/// Reads the file without checking its issuers.
pub fn file(path: &Path) -> Result<File, IssuersError> {
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
pub fn read(path: &Path) -> Result<File, IssuersError> {
    let file = file(path)?;
    let faults = faults::of(&file, false);
    if faults.is_empty() {
        return Ok(file);
    }
    Err(IssuersError::Faults { path: path.display().to_string(), faults })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use asp_edge::testkit::SigningKey;
    use asp_store::control::{ControlState, IssuerRecord, Side};
    use serde_json::{Value, json};

    use super::trust::{InForce, StaticIssuers, Trust};
    use super::*;

    fn public_key() -> Value {
        SigningKey::es256().jwk_named("test")
    }

    fn read_value(value: &Value) -> Result<Arc<InForce>, IssuersError> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("issuers.json");
        std::fs::write(&path, value.to_string()).unwrap();
        let trust = Trust::new(StaticIssuers { file: read(&path)?, ..StaticIssuers::default() });
        assert!(trust.take(&ControlState::default(), 0).is_empty());
        Ok(trust.in_force())
    }

    fn entry() -> Value {
        json!({
            "name": "login", "iss": "https://login.example.com", "algs": ["ES256"],
            "jwks": {"keys": [public_key()]}, "claims": {"org": "tenant"}, "maxLifetimeSeconds": 3600
        })
    }

    #[test]
    fn what_was_read_earlier_takes_nothing_back() {
        let trust = Trust::new(StaticIssuers::default());
        let document = json!({ "iss": "https://login.example.com", "orgs": ["acme"] }).to_string();
        let name = "login".to_owned();
        let record = IssuerRecord { side: Side::Clients, name, document, revision: 8, updated_at: 0 };
        let of = |revision, issuers| ControlState { revision, issuers, ..ControlState::default() };
        trust.take(&of(8, vec![record]), 0);
        trust.take(&of(7, Vec::new()), 0);
        assert_eq!(trust.in_force().names().into_keys().collect::<Vec<_>>(), ["login"]);
        trust.take(&of(9, Vec::new()), 0);
        assert!(trust.in_force().names().is_empty());
    }

    #[test]
    fn servers_are_judged_again_when_an_issuer_lists_other_audiences() {
        let trust = Trust::new(StaticIssuers::default());
        let names = |revision: u64, member: &str, audiences: Value| {
            let mut document = json!({ "iss": "https://login.example.com", "orgs": ["acme"] });
            document[member] = audiences;
            let (name, document) = ("login".to_owned(), document.to_string());
            let record = IssuerRecord { side: Side::Clients, name, document, revision, updated_at: 0 };
            let issuers = vec![record];
            trust.take(&ControlState { revision, issuers, ..ControlState::default() }, 0);
            trust.in_force().names()
        };
        let listed = names(1, "audiences", json!(["shop"]));
        assert_ne!(names(2, "audiences", json!(["shop", "till"])), listed);
        assert_ne!(names(3, "audiences", json!([])), listed);
        assert_ne!(names(4, "serverAudiences", json!({ "shop": ["shop"] })), listed);
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
    fn an_audience_names_the_primitives_that_get_its_tokens() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("issuers.json");
        let write = |audience: Value| {
            let mut entry = entry();
            entry["exchange"] = json!({
                "credential": "kc", "url": "https://login.example.com/token", "audiences": { "crm": audience } });
            std::fs::write(&path, json!({ "clients": [entry] }).to_string()).unwrap();
        };
        let primitives = |dev: bool| {
            let trust =
                Trust::new(StaticIssuers { file: read(&path).unwrap(), dev, ..StaticIssuers::default() });
            let access = trust.in_force().access[0].clone();
            access.exchange.unwrap().audiences[0].primitives.clone()
        };
        let origins = json!(["https://crm.example.com"]);
        for silent in [origins.clone(), json!({ "origins": origins })] {
            write(silent);
            let found = faults(&path, false);
            let line = found.first().map(String::as_str).unwrap_or_default();
            assert!(
                line.contains(r#""crm":{"origins":["https://crm.example.com"],"for":["SERVER/PRIMITIVE"]}"#),
                "{line}"
            );
            assert_eq!((found.len(), faults(&path, true)), (1, Vec::new()));
            assert_eq!((primitives(false), primitives(true)), (Vec::new(), vec!["*".to_owned()]));
        }
        write(json!({ "origins": origins, "for": ["crm/*"] }));
        assert_eq!(
            (faults(&path, false), primitives(false), primitives(true)),
            (Vec::new(), vec!["crm/*".to_owned()], vec!["crm/*".to_owned()],)
        );
        for bad in
            [json!({ "origins": origins, "for": ["crm"] }), json!({ "origins": ["crm"], "for": ["*"] })]
        {
            write(bad.clone());
            assert_eq!(faults(&path, true).len(), 1, "{bad}");
        }
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
        assert!(silent.contains("client issuer b") && silent.contains("each must say in `orgs`"), "{silent}");
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
        assert!(with(&|e| e["jwksUri"] = json!("https://x.example/k")).contains("exclude each other"));
        let off_curve = |e: &mut Value| e["jwks"]["keys"][0]["y"] = e["jwks"]["keys"][0]["x"].clone();
        assert!(with(&off_curve).contains("not a point on the curve of ES256"));
        let symmetric = json!({ "kty": "oct", "kid": "s", "k": "c2VjcmV0", "alg": "HS256" });
        assert!(with(&|e| e["jwks"]["keys"][0] = symmetric.clone()).contains("private member `k`"));
    }
}
