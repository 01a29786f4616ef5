//! Tokens from recipes, so that no vector holds an expired one.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Keys;

/// Recipe for a token. Defaults: a valid token of org `acme`, user `alice`, signed by `dev`.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Recipe {
    /// Claims that override the defaults; `null` removes one. Strings `now`, `now+N`, `now-N` become numbers, and
    /// `${public_url}` the public URL.
    pub claims: Map<String, Value>,
    /// Header members that override the defaults; `null` removes one.
    pub header: Map<String, Value>,
    /// Name of the key that signs; `none` for an empty signature.
    pub sign: Option<String>,
    /// Damage to the finished token: `""`, `flip_signature`, `flip_claims`, `zero_signature`, `pad`, `trailing_bits`,
    /// `two_segments`, `four_segments`, `json`, `duplicate_claim`, `duplicate_header`.
    pub spoil: String,
    /// Length in bytes of a filler claim, to make the token long.
    pub filler: usize,
}

/// Makes the token; `now` is Unix seconds.
pub fn mint(recipe: &Recipe, keys: &Keys, now: u64, public_url: &str) -> String {
    let signer = recipe.sign.as_deref().unwrap_or("dev");
    let alg = if signer == "none" { "none" } else { keys.alg(signer) };
    let mut header = json!({"alg": alg, "typ": "at+jwt", "kid": signer});
    let mut claims = json!({
        "iss": "asp-dev", "aud": public_url, "sub": "alice", "org": "acme", "groups": ["staff"],
        "client_id": "cli", "jti": "jti-1", "iat": now - 60, "exp": now + 600,
    });
    overlay(&mut header, &recipe.header, now, public_url);
    overlay(&mut claims, &recipe.claims, now, public_url);
    if recipe.filler > 0 {
        claims["filler"] = json!("x".repeat(recipe.filler));
    }
    let (header, claims) = match recipe.spoil.as_str() {
        "duplicate_header" => (doubled(&header, "alg"), claims.to_string()),
        "duplicate_claim" => (header.to_string(), doubled(&claims, "sub")),
        _ => (header.to_string(), claims.to_string()),
    };
    let signed = format!("{}.{}", URL_SAFE_NO_PAD.encode(&header), URL_SAFE_NO_PAD.encode(&claims));
    let signature = match signer {
        "none" => Vec::new(),
        name => keys.sign(name, signed.as_bytes()),
    };
    corrupt(&recipe.spoil, &signed, &claims, signature)
}

fn overlay(base: &mut Value, over: &Map<String, Value>, now: u64, public_url: &str) {
    let base = base.as_object_mut().expect("an object");
    for (name, value) in over {
        match value {
            Value::Null => drop(base.remove(name)),
            value => drop(base.insert(name.clone(), fill_in(value, now, public_url))),
        }
    }
}

fn fill_in(value: &Value, now: u64, public_url: &str) -> Value {
    match value {
        Value::String(text) => match text.strip_prefix("now").map(|shift| (shift, shift.parse::<i64>())) {
            Some(("", _)) => json!(now),
            Some((_, Ok(shift))) => json!(now as i64 + shift),
            _ => json!(text.replace("${public_url}", public_url)),
        },
        Value::Array(values) => values.iter().map(|value| fill_in(value, now, public_url)).collect(),
        other => other.clone(),
    }
}

/// Returns the object's text with one member written twice.
fn doubled(object: &Value, member: &str) -> String {
    let text = object.to_string();
    let inner = text.strip_prefix('{').unwrap_or_default();
    format!("{{\"{member}\":{},{inner}", object[member])
}

fn corrupt(how: &str, signed: &str, claims: &str, mut signature: Vec<u8>) -> String {
    let text = |signature: &[u8]| URL_SAFE_NO_PAD.encode(signature);
    let good = format!("{signed}.{}", text(&signature));
    let (header, body) = signed.split_once('.').unwrap_or_default();
    match how {
        "" | "duplicate_claim" | "duplicate_header" => good,
        "flip_signature" => {
            if let Some(byte) = signature.get_mut(10) {
                *byte ^= 1;
            }
            format!("{signed}.{}", text(&signature))
        }
        "flip_claims" => {
            let claims = URL_SAFE_NO_PAD.encode(claims.replace("alice", "mallo"));
            format!("{header}.{claims}.{}", text(&signature))
        }
        "zero_signature" => format!("{signed}.{}", text(&vec![0; signature.len()])),
        "pad" => format!("{good}=="),
        // 64 bytes leave four spare bits in the last character.
        "trailing_bits" => {
            let last = good.chars().last().unwrap_or_default();
            let next = if last.is_ascii_alphabetic() { (last as u8 + 1) as char } else { 'B' };
            format!("{}{next}", good.trim_end_matches(last))
        }
        "two_segments" => signed.to_owned(),
        "four_segments" => format!("{good}.e30"),
        "json" => format!(
            "{{\"protected\":\"{header}\",\"payload\":\"{body}\",\"signature\":\"{}\"}}",
            text(&signature)
        ),
        other => panic!("no way to spoil a token is called {other}"),
    }
}
