//! Every fault of an issuers file, found before anything starts.
//!
//! Owns the rules across several keys or issuers, and checks each key alone with the edge's own builder: a key that the
//! edge rejects later would make it reject the whole snapshot.

use std::collections::HashSet;

use asp_platform::operator_list::PLACEHOLDER;
use asp_store::control::Side;
use prost::Message as _;
use serde_json::{Value, json};

use super::document::{Document, ExchangeAudience, File, KeySet};
use super::{compile, keys};
use crate::trusted_issuer::{DEVELOPMENT_ISS, DEVELOPMENT_NAME};

/// Maximum bytes of client issuers in an edge snapshot, which every Envoy worker copies.
pub const ISSUERS_BYTES: usize = 256 * 1024;

/// Returns every fault once; `dev`: the development issuer is trusted, too.
pub(crate) fn of(file: &File, dev: bool) -> Vec<String> {
    let mut found = Vec::new();
    let sides = [(Side::Clients, "client", &file.clients), (Side::Admins, "admin", &file.admins)];
    for (side, word, documents) in sides {
        for document in documents {
            let faults = of_document(side, document);
            found.extend(faults.into_iter().map(|fault| format!("{word} issuer {}: {fault}", document.name)));
        }
    }
    found.extend(duplicates(file, dev));
    if file.clients.len() > 1 {
        let silent = file.clients.iter().filter(|document| document.orgs.is_empty());
        found.extend(silent.map(|document| {
            let fault = "of several client issuers each must say in `orgs` for which orgs it speaks";
            format!("client issuer {}: {fault}", document.name)
        }));
    }
    let bytes: usize = file.clients.iter().map(bytes).sum();
    if bytes > ISSUERS_BYTES {
        found.push(format!(
            "the client issuers take {bytes} bytes of an edge snapshot, {ISSUERS_BYTES} is the limit: remove old keys"
        ));
    }
    let mut seen = HashSet::new();
    found.retain(|fault| seen.insert(fault.clone()));
    found
}

/// Returns the audiences of token exchange that do not name their primitives, each with the member to paste.
pub(super) fn audiences_without_for(file: &File) -> Vec<String> {
    let lists = file.clients.iter().flat_map(|document| {
        let lines = list_faults(document).into_iter();
        lines.map(|line| format!("client issuer {}: {line}", document.name))
    });
    lists.collect()
}

/// Returns the same for one issuer.
pub fn list_faults(document: &Document) -> Vec<String> {
    let audiences = document.exchange.iter().flat_map(|exchange| &exchange.audiences);
    let silent = audiences.filter(|(_, audience)| audience.primitives().is_none());
    let line = |(name, audience): (&String, &ExchangeAudience)| {
        let member = json!({ name: { "origins": audience.origins(), "for": [PLACEHOLDER] } }).to_string();
        let member = member.trim_start_matches('{').strip_suffix('}').unwrap_or(&member).to_owned();
        format!(
            "exchange.audiences.{name} does not name the primitives it serves; complete and paste \
             (docs/operator-lists.md): {member}"
        )
    };
    silent.map(line).collect()
}

/// Returns the bytes of a client issuer in an edge snapshot.
fn bytes(document: &Document) -> usize {
    let keys = document.jwks.as_ref().and_then(|jwks| keys::read_keys(document, &jwks.keys).ok());
    compile::client(document, &keys.unwrap_or_default()).map_or(0, |issuer| issuer.encoded_len())
}

/// Returns the faults of a document, checked with each of its keys alone.
pub fn of_document(side: Side, document: &Document) -> Vec<String> {
    let mut found = Vec::new();
    let mut kids = HashSet::new();
    for key in document.jwks.iter().flat_map(|jwks| &jwks.keys) {
        let mut alone = document.clone();
        alone.jwks = Some(KeySet { keys: vec![key.clone()] });
        let kid = key.get("kid").and_then(Value::as_str).unwrap_or_default();
        if !kid.is_empty() && !kids.insert(kid) {
            found.push(format!("two keys have the kid {kid:?}"));
        }
        found.extend(compile_document(side, &alone).err());
    }
    // Finds too few, too many or missing keys.
    if found.is_empty() {
        found.extend(compile_document(side, document).err());
    }
    found
}

/// Compiles the document. An admin issuer's keys are checked by an edge, too, so that one rule holds for both kinds.
fn compile_document(side: Side, document: &Document) -> Result<(), String> {
    let keys = match &document.jwks {
        Some(jwks) => keys::read_keys(document, &jwks.keys)?,
        None => Vec::new(),
    };
    match side {
        Side::Clients => drop(compile::client(document, &keys)?),
        Side::Admins => drop(compile::admin(document, &keys)?),
    }
    keys::check_edge_accepts(&document.name, &document.iss, &keys)
}

/// Returns the names and `iss` values that occur twice.
fn duplicates(file: &File, dev: bool) -> Vec<String> {
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
    let mut admins: HashSet<&str> = HashSet::new();
    for entry in &file.admins {
        if !admins.insert(&entry.iss) {
            found
                .push(format!("admin issuer {}: another admin issuer has the iss {}", entry.name, entry.iss));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use asp_edge::testkit::SigningKey;
    use serde_json::{Value, json};

    use super::*;

    fn ec_key(kid: &str) -> Value {
        SigningKey::es256().jwk_named(kid)
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
        let mut admins = [
            entry("ops", &["ES256"], &[ec_key("x")]),
            entry("sre", &["ES256", "RS256"], &[ec_key("x"), rsa(1024)]),
        ];
        admins[1]["iss"] = admins[0]["iss"].clone();
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
            "sre: another admin issuer has the iss https://ops.example",
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
