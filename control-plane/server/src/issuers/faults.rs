//! Every fault of an issuers file, found before anything starts.
//!
//! Owns the rules over several keys or issuers, and asks the edge's own builder about each key alone: what it would
//! refuse later would refuse the whole snapshot.

use std::collections::HashSet;

use asp_proto::snapshot::{self, EdgeSnapshot};
use prost::Message as _;

use super::{Entry, File, Jwks, admin, client};
use crate::catalog::budget;
use crate::trusted_issuer::{DEVELOPMENT_ISS, DEVELOPMENT_NAME};

/// Any origin: the edge wants one to evaluate a snapshot.
const ORIGIN: &str = "http://localhost";

/// Every fault, each once; `dev`: the development issuer is trusted too.
pub(crate) fn of(file: &File, dev: bool) -> Vec<String> {
    let mut found = Vec::new();
    for entry in &file.clients {
        let faults = of_entry(entry, |entry| client(entry).map(drop));
        found.extend(faults.into_iter().map(|fault| format!("client issuer {}: {fault}", entry.name)));
    }
    for entry in &file.admins {
        let faults = of_entry(entry, |entry| admin(entry).map(drop));
        found.extend(faults.into_iter().map(|fault| format!("admin issuer {}: {fault}", entry.name)));
    }
    found.extend(repeated(file, dev));
    let clients = file.clients.iter().filter_map(|entry| client(entry).ok());
    let bytes: usize = clients.map(|issuer| issuer.encoded_len()).sum();
    if bytes > budget::ISSUERS {
        let bound = budget::ISSUERS;
        found.push(format!(
            "the client issuers take {bytes} bytes of an edge snapshot, {bound} is the bound: remove old keys"
        ));
    }
    let mut seen = HashSet::new();
    found.retain(|fault| seen.insert(fault.clone()));
    found
}

/// The faults of an entry, as it is with each of its keys alone.
fn of_entry(entry: &Entry, build: impl Fn(&Entry) -> Result<(), String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut kids = HashSet::new();
    for key in &entry.jwks.keys {
        let mut alone = entry.clone();
        alone.jwks = Jwks { keys: vec![key.clone()] };
        let kid = key.get("kid").and_then(serde_json::Value::as_str).unwrap_or_default();
        if !kid.is_empty() && !kids.insert(kid) {
            found.push(format!("two keys have the kid {kid:?}"));
        }
        let built = build(&alone).and_then(|()| at_the_edge(&alone));
        found.extend(built.err());
    }
    // Too few or too many keys.
    if found.is_empty() {
        found.extend(build(entry).err());
    }
    found
}

/// Whether an edge takes the entry's keys; of an admin issuer too, so that one rule holds for both.
fn at_the_edge(entry: &Entry) -> Result<(), String> {
    let keys = super::keys(entry)?;
    let kids: Vec<String> = keys.iter().map(|key| format!("{:?}", key.kid)).collect();
    let issuer = snapshot::Issuer {
        name: entry.name.clone(),
        iss: entry.iss.clone(),
        keys: keys
            .into_iter()
            .map(|key| snapshot::Key { kid: key.kid, alg: key.alg, jwk: key.jwk.to_string() })
            .collect(),
        ..snapshot::Issuer::default()
    };
    let alone =
        EdgeSnapshot { public_url: ORIGIN.to_owned(), issuers: vec![issuer], ..EdgeSnapshot::default() };
    let evaluated = asp_edge::Snapshot::from_message(alone).map(drop);
    evaluated.map_err(|fault| format!("key {} cannot be used: {fault}", kids.join(", ")))
}

/// Names, issuers and admin keys that are given twice.
fn repeated(file: &File, dev: bool) -> Vec<String> {
    let mut found = Vec::new();
    let mut names: HashSet<&str> = HashSet::new();
    let mut issuers: HashSet<&str> = HashSet::new();
    if dev {
        names.insert(DEVELOPMENT_NAME);
        issuers.insert(DEVELOPMENT_ISS);
    }
    for entry in &file.clients {
        if !names.insert(&entry.name) {
            found.push(format!("client issuer {}: another client issuer has this name", entry.name));
        }
        if !issuers.insert(&entry.iss) {
            found.push(format!(
                "client issuer {}: another client issuer has the iss {}",
                entry.name, entry.iss
            ));
        }
    }
    // An admin token's key is found by its kid alone.
    let mut kids: HashSet<&str> = HashSet::new();
    for entry in &file.admins {
        let own: HashSet<&str> = entry
            .jwks
            .keys
            .iter()
            .filter_map(|key| key.get("kid").and_then(serde_json::Value::as_str))
            .collect();
        for kid in own {
            if !kids.insert(kid) {
                found.push(format!("admin issuer {}: another admin issuer has a key {kid:?}", entry.name));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::testkit::TestIssuer;

    fn ec_key(kid: &str) -> Value {
        let mut key = TestIssuer::new().jwk().clone();
        key["kid"] = json!(kid);
        key
    }

    fn entry(name: &str, algs: &[&str], keys: &[Value]) -> Value {
        json!({
            "name": name, "iss": format!("https://{name}.example"), "algs": algs, "jwks": { "keys": keys },
        })
    }

    fn faults(file: &Value, dev: bool) -> Vec<String> {
        of(&serde_json::from_value(file.clone()).unwrap(), dev)
    }

    fn rsa(bits: usize) -> Value {
        use base64::Engine as _;
        let modulus = base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(vec![0x81; bits / 8]);
        json!({ "kty": "RSA", "kid": format!("rsa-{bits}"), "alg": "RS256", "n": modulus, "e": "AQAB" })
    }

    #[test]
    fn a_good_file_has_no_fault() {
        let login = entry("login", &["ES256", "RS256"], &[ec_key("a"), rsa(2048)]);
        let ops = entry("ops", &["ES256"], &[ec_key("a")]);
        assert_eq!(faults(&json!({ "clients": [login], "admins": [ops] }), true), [""; 0]);
    }

    #[test]
    fn every_fault_is_found_in_one_go() {
        let mut encrypting = ec_key("enc");
        encrypting["use"] = json!("enc");
        let keys = [rsa(1024), encrypting, ec_key("with space"), ec_key("twice"), ec_key("twice")];
        let clients = [entry("login", &["ES256", "RS256"], &keys), entry("login", &["ES256"], &[])];
        let admins = [
            entry("ops", &["ES256"], &[ec_key("x")]),
            entry("sre", &["ES256", "RS256"], &[ec_key("x"), rsa(1024)]),
        ];
        let found = faults(&json!({ "clients": clients, "admins": admins }), false);
        let text = found.join("\n");
        for part in [
            "login: key \"rsa-1024\" cannot be used",
            "1024 bits",
            "key \"enc\" cannot be used",
            "key \"with space\" cannot be used",
            "two keys have the kid \"twice\"",
            "jwks must have 1 to 50 keys",
            "another client issuer has this name",
            "another client issuer has the iss",
            "sre: another admin issuer has a key \"x\"",
            "sre: key \"rsa-1024\" cannot be used",
        ] {
            assert!(text.contains(part), "{part} is missing in:\n{text}");
        }
    }

    #[test]
    fn the_development_issuer_keeps_its_name_in_development() {
        let mut twin = entry("dev", &["ES256"], &[ec_key("a")]);
        twin["iss"] = json!("asp-dev");
        let file = json!({ "clients": [twin] });
        assert_eq!(faults(&file, true).len(), 2);
        assert_eq!(faults(&file, false), [""; 0]);
    }
}
