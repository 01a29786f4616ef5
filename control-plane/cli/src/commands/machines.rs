//! `asp machines`: the keys and certificates that an org's machines call with.
//!
//! Keeps true: a key is printed alone on standard output, once, so that only the key goes into a file. Decides nothing
//! itself: the API does, and its refusal is shown.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, anyhow};
use asp_command::environment::ProcessEnvironment;
use asp_command::failure::Failure;
use asp_command::print;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::answer::{self, number, texts};
use super::client::{AdminClient, api_path, block_on};
use super::token::parse_ttl;
use crate::args::machines::{
    BoundArgs, CertificatesCommand, CreateKeyArgs, IdArgs, KeysCommand, MachinesCommand, OrgArgs,
    RegisterArgs, RotateKeyArgs, TermsArgs,
};

const KEYS: &str = "keys";
const CERTIFICATES: &str = "certificates";
/// Markers of a certificate in a PEM file (RFC 7468).
const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// Runs one of the commands.
pub fn run(command: &MachinesCommand) -> Result<(), Failure> {
    match command {
        MachinesCommand::Keys(KeysCommand::List(args)) => list(args, KEYS),
        MachinesCommand::Keys(KeysCommand::Create(args)) => create(args),
        MachinesCommand::Keys(KeysCommand::Rotate(args)) => rotate(args),
        MachinesCommand::Keys(KeysCommand::Revoke(args)) => revoke(args, KEYS),
        MachinesCommand::Bound(args) => bound(args),
        MachinesCommand::Certificates(CertificatesCommand::List(args)) => list(args, CERTIFICATES),
        MachinesCommand::Certificates(CertificatesCommand::Register(args)) => register(args),
        MachinesCommand::Certificates(CertificatesCommand::Revoke(args)) => revoke(args, CERTIFICATES),
    }
}

fn path(org: &str, kind: &str) -> String {
    api_path(&["api", "machines", "orgs", org, kind])
}

/// Applies the requested changes, if any, and shows what machines of an org may have.
fn bound(args: &BoundArgs) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let path = path(&args.org, "bound");
    let answer = block_on(async {
        let read = api.get(&path).await?;
        let etag = read.etag.clone();
        let stored = read.accepted()?;
        match changed_bound(args, &stored) {
            // If another admin has changed it since, the API rejects this change.
            Some(wanted) => api.put_if_match(&path, &wanted, etag.as_deref()).await?.accepted(),
            None => Ok(stored),
        }
    })?;
    let parts = [("groups", "groups"), ("scopes", "scopes"), ("beyond", "beyond the bound, opens nothing")];
    let lines = parts.map(|(key, what)| {
        let names = Vec::from_iter(listed(&answer, key)).join(" ");
        format!("{what}: {}", if names.is_empty() { "none" } else { &names })
    });
    answer::show(&answer, args.json, &lines.join("\n"));
    Ok(())
}

/// Returns the bound with the allowed entries added and the withdrawn ones removed; `None` if no change is requested.
fn changed_bound(args: &BoundArgs, stored: &Value) -> Option<Value> {
    let BoundArgs { allow_group, allow_scope, withdraw_group, withdraw_scope, .. } = args;
    let is_asked =
        [allow_group, allow_scope, withdraw_group, withdraw_scope].iter().any(|list| !list.is_empty());
    let with = |key: &str, allowed: &[String], withdrawn: &[String]| {
        let mut all = listed(stored, key);
        all.extend(allowed.iter().cloned());
        all.retain(|name| !withdrawn.contains(name));
        all
    };
    let groups = with("groups", allow_group, withdraw_group);
    let scopes = with("scopes", allow_scope, withdraw_scope);
    is_asked.then(|| json!({ "groups": groups, "scopes": scopes }))
}

fn listed(answer: &Value, key: &str) -> BTreeSet<String> {
    texts(answer, key).into_iter().map(str::to_owned).collect()
}

fn list(args: &OrgArgs, kind: &str) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let all = block_on(async { api.get(&path(&args.org, kind)).await?.accepted() })?;
    answer::rows(&all, args.json, line);
    Ok(())
}

/// Formats a key or certificate: id, machine and expiry, then its identification, groups and scopes.
fn line(one: &Value) -> String {
    let text = |key: &str| one.get(key).and_then(Value::as_str);
    let ends = number(one, "expiresAt") / 1_000;
    let mut line = format!("{} {} until {ends}", text("id").unwrap_or("-"), text("machine").unwrap_or("-"));
    for key in ["fingerprint", "uri"] {
        line.extend(text(key).map(|name| format!(" {key}={name}")));
    }
    if text("fingerprint").is_some() && one.get("proved") != Some(&json!(true)) {
        line.push_str(" without proof of its key");
    }
    for key in ["groups", "scopes"] {
        let words = texts(one, key).join(",");
        if !words.is_empty() {
            line.push_str(&format!(" {key}={words}"));
        }
    }
    line
}

fn create(args: &CreateKeyArgs) -> Result<(), Failure> {
    let body = terms(&args.terms)?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    let made =
        block_on(async { api.post(&path(&args.terms.org, KEYS), &Value::Object(body)).await?.accepted() })?;
    show_key(&made, args.json)
}

fn rotate(args: &RotateKeyArgs) -> Result<(), Failure> {
    let ttl = args.ttl.as_deref().map(seconds).transpose()?;
    let api = AdminClient::new(&ProcessEnvironment)?;
    let path = path(&args.org, KEYS);
    let made = block_on(async {
        let all = api.get(&path).await?.accepted()?;
        let body = successor_request(&all, &args.id, ttl).with_context(|| {
            format!(
                "{} has no key {}; `asp machines keys list {}` lists its keys",
                args.org, args.id, args.org
            )
        })?;
        api.post(&path, &body).await?.accepted()
    })?;
    show_key(&made, args.json)?;
    let way_on = format!(
        "the key {} is good until it ends, or `asp machines keys revoke {} {}`",
        args.id, args.org, args.id
    );
    print::note(&way_on);
    Ok(())
}

/// Returns the API request for the key that succeeds the one with this id.
fn successor_request(all: &Value, id: &str, ttl: Option<u64>) -> Option<Value> {
    let before = all.as_array()?.iter().find(|key| key.get("id").and_then(Value::as_str) == Some(id))?;
    let lives = number(before, "expiresAt").saturating_sub(number(before, "createdAt")) / 1_000;
    Some(json!({
        "machine": before.get("machine")?,
        "groups": before.get("groups")?,
        "scopes": before.get("scopes")?,
        "ttlSeconds": ttl.unwrap_or(lives),
    }))
}

fn show_key(made: &Value, as_json: bool) -> Result<(), Failure> {
    if as_json {
        print::json(made);
        return Ok(());
    }
    let key = made.get("key").and_then(Value::as_str).ok_or_else(|| anyhow!("the answer has no key"))?;
    print::line(key);
    print::note(&format!("made, and not shown again: {}", line(made)));
    Ok(())
}

fn register(args: &RegisterArgs) -> Result<(), Failure> {
    let mut body = terms(&args.terms)?;
    let mut say = |name: &str, value: Value| body.insert(name.to_owned(), value);
    match (&args.certificate, &args.key, &args.fingerprint, &args.uri) {
        (Some(file), Some(key), ..) => {
            let der = certificate(file)?;
            say("proof", proof(args, key, &der)?);
            say("certificate", format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(der)).into());
        }
        (Some(file), None, ..) => {
            say("fingerprint", fingerprint(&certificate(file)?).into());
        }
        (_, _, Some(fingerprint), _) => {
            say("fingerprint", fingerprint.as_str().into());
        }
        (_, _, _, Some(uri)) => {
            say("uri", uri.as_str().into());
        }
        _ => return Err(Failure::bad("asp machines", "name a --certificate, --fingerprint or --uri")),
    }
    let api = AdminClient::new(&ProcessEnvironment)?;
    let path = path(&args.terms.org, CERTIFICATES);
    let known = block_on(async { api.post(&path, &Value::Object(body)).await?.accepted() })?;
    answer::show(&known, args.json, &format!("registered: {}", line(&known)));
    Ok(())
}

fn revoke(args: &IdArgs, kind: &str) -> Result<(), Failure> {
    let api = AdminClient::new(&ProcessEnvironment)?;
    let path = api_path(&["api", "machines", "orgs", &args.org, kind, &args.id]);
    block_on(async { api.delete(&path).await?.accepted() })?;
    let words = format!("revoked ({}); gateways have it within a second", args.id);
    answer::show(&json!({ "revoked": args.id }), args.json, &words);
    Ok(())
}

fn terms(terms: &TermsArgs) -> Result<Map<String, Value>, Failure> {
    let mut body = Map::new();
    body.insert("machine".into(), terms.machine.as_str().into());
    body.insert("groups".into(), json!(terms.groups));
    body.insert("scopes".into(), json!(terms.scopes));
    if let Some(ttl) = &terms.ttl {
        body.insert("ttlSeconds".into(), seconds(ttl)?.into());
    }
    Ok(body)
}

fn seconds(text: &str) -> Result<u64, Failure> {
    let bad = || Failure::bad("--ttl", format!("`{text}` is not a duration: write 15m, 1h or 30d"));
    parse_ttl(text).map(|ttl| ttl.as_secs()).ok_or_else(bad)
}

/// Returns a signature by the certificate's key, made now.
fn proof(args: &RegisterArgs, key: &Path, der: &[u8]) -> Result<Value, Failure> {
    let pem = std::fs::read(key).with_context(|| format!("read {}", key.display()))?;
    let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let statement = asp_peer::statement(&args.terms.org, &args.terms.machine, &fingerprint(der), at);
    let signature = asp_peer::sign(&pem, &statement)
        .map_err(|fault| Failure::bad("--key", format!("{}: {fault}", key.display())))?;
    Ok(json!({ "at": at, "signature": STANDARD.encode(signature) }))
}

fn fingerprint(der: &[u8]) -> String {
    Sha256::digest(der).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the first certificate in the file, in DER.
fn certificate(file: &Path) -> Result<Vec<u8>, Failure> {
    let bytes = std::fs::read(file).with_context(|| format!("read {}", file.display()))?;
    let bad = |fault: &str| Failure::bad("--certificate", format!("{}: {fault}", file.display()));
    Ok(match std::str::from_utf8(&bytes) {
        // DER (X.690) of a certificate starts with the byte of a sequence longer than 127 bytes, which is never valid text.
        Err(_) => bytes,
        Ok(text) => {
            let body = text.split_once(BEGIN).and_then(|(_, rest)| rest.split_once(END));
            let (body, _) = body.ok_or_else(|| bad("it contains no certificate"))?;
            let body: String = body.split_whitespace().collect();
            STANDARD.decode(body).map_err(|error| bad(&error.to_string()))?
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_key_is_the_same_machines_and_lives_as_long() {
        let all = json!([
            { "id": "a", "machine": "arm", "groups": [], "scopes": [], "createdAt": 0, "expiresAt": 1 },
            { "id": "b", "machine": "press", "groups": ["g"], "scopes": ["s"], "createdAt": 5_000, "expiresAt": 65_000 },
        ]);
        let same = json!({ "machine": "press", "groups": ["g"], "scopes": ["s"], "ttlSeconds": 60 });
        assert_eq!(successor_request(&all, "b", None), Some(same));
        assert_eq!(successor_request(&all, "b", Some(7)).unwrap()["ttlSeconds"], 7);
        assert_eq!(successor_request(&all, "c", None), None);
    }

    #[test]
    fn a_certificate_is_the_same_in_either_form_and_a_key_is_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, bytes: &[u8]| {
            let path = directory.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            path
        };
        let der = [0x30, 0x82, 0xff, 0xfe];
        let pem = format!("about it\n{BEGIN}\n{}\n{END}\n{BEGIN}\nAAAA\n{END}\n", STANDARD.encode(der));
        assert_eq!(certificate(&file("der", &der)).unwrap(), der);
        assert_eq!(certificate(&file("pem", pem.as_bytes())).unwrap(), der);
        let key = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
        for bad in [key.to_owned(), String::new(), format!("{BEGIN}\n%%\n{END}"), BEGIN.to_owned()] {
            assert!(
                matches!(certificate(&file("bad", bad.as_bytes())), Err(Failure::Configuration(_))),
                "{bad}"
            );
        }
    }

    #[test]
    fn a_line_says_what_it_is_known_by() {
        let one = json!({ "id": "a", "machine": "press", "uri": "urn:a", "groups": ["g", "h"], "scopes": [],
            "expiresAt": 9_000 });
        assert_eq!(line(&one), "a press until 9 uri=urn:a groups=g,h");
        let by_hash = |proved: bool| {
            line(
                &json!({ "id": "a", "machine": "press", "fingerprint": "ab", "proved": proved, "expiresAt": 9_000 }),
            )
        };
        assert_eq!(by_hash(true), "a press until 9 fingerprint=ab");
        assert_eq!(by_hash(false), "a press until 9 fingerprint=ab without proof of its key");
    }
}
