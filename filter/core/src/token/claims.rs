//! The claims of a token whose signature is good, read strictly.
//!
//! Owns types and bounds of the claims (RFC 7519 section 4.1, RFC 9068 section 2.2). `sub`, `iat`, `exp` and
//! the caller's org are required: without `iat` a token could outlive the revocation of its user, without an
//! org it would belong to no tenant. What policy names (org, user, groups, jti) follows [`crate::names`].

use serde_json::{Map, Value};

use super::issuer::Issuer;
use super::refused::Cause;

/// Beyond this a double no longer holds every second, and no clock will ever get there.
const MAX_SECONDS: u64 = 1 << 53;
/// Longest accepted client, scope or audience, in bytes.
const MAX_TEXT_BYTES: usize = 512;
/// Most entries of one list of a token: its groups, its scopes, its audiences. Policy is evaluated for each group; how
/// many bytes they take is bounded by the token's length.
pub const MAX_LISTED: usize = 256;
/// Names [`MAX_LISTED`] for the operator.
const TOO_MANY: &str =
    "has more than 256 entries: have the identity provider leave out those that no policy names";

/// What a signed token claims. Times in Unix seconds.
#[derive(Debug)]
pub(crate) struct Claims {
    pub(crate) org: String,
    pub(crate) user: String,
    pub(crate) groups: Vec<String>,
    pub(crate) scopes: Vec<String>,
    pub(crate) client: String,
    pub(crate) jti: Option<String>,
    pub(crate) audiences: Vec<String>,
    pub(crate) issued_at: u64,
    pub(crate) not_before: u64,
    pub(crate) expires_at: u64,
}

/// Claims that only tokens for the client itself have: of ID tokens (OpenID Connect Core 1.0 sections 2 and 3.3.2.11) and
/// logout tokens (Back-Channel Logout 1.0 section 2.4).
const OF_THE_CLIENT: [&str; 5] = ["nonce", "at_hash", "c_hash", "s_hash", "events"];

/// Refuses what the issuer signed for another use than calling: its header does not tell.
pub fn check_use(claims: &Map<String, Value>) -> Result<(), Cause> {
    let fault = "says that it is no access token";
    if OF_THE_CLIENT.iter().any(|name| claims.contains_key(*name)) {
        return Err(Cause { claim: "nonce, at_hash, c_hash, s_hash or events", fault });
    }
    // Keycloak's own word for what a token is for.
    match claims.get("typ").map(|typ| typ.as_str().unwrap_or_default()) {
        None => Ok(()),
        Some(typ) if typ.eq_ignore_ascii_case("bearer") => Ok(()),
        Some(_) => Err(Cause { claim: "typ", fault }),
    }
}

/// The claim of this name, or where a JSON Pointer leads (RFC 6901).
fn find<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let Some(pointer) = path.strip_prefix('/') else { return claims.get(path) };
    let (first, rest) = match pointer.split_once('/') {
        Some((first, _)) => (first, pointer.get(first.len()..)?),
        None => (pointer, ""),
    };
    claims.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
}

/// Reads the claims; the cause names the claim that is missing, has another type or breaks a bound.
pub(crate) fn read(claims: &Map<String, Value>, issuer: &Issuer) -> Result<Claims, Cause> {
    let subject = required("sub", claims.get("sub"), name)?;
    let at = &issuer.claims;
    let user = match at.user.as_str() {
        "sub" => subject,
        other => required("user", find(claims, other), name)?,
    };
    let client = match at.client.as_str() {
        "" => claims.get("client_id").or_else(|| claims.get("azp")),
        other => find(claims, other),
    };
    // Whoever holds such a token must prove more than that he has it (RFC 7800 section 3.1), which nobody checks here.
    if claims.contains_key("cnf") {
        return Err(Cause {
            claim: "cnf",
            fault: "binds the token to a key: have the issuer give bearer tokens",
        });
    }
    let org = match find(claims, &at.org) {
        None if !at.org_default.is_empty() => at.org_default.clone(),
        org => required("org", org, name)?,
    };
    let or = |found: Option<&Value>, listed: Vec<String>, default: &[String]| match found {
        None => default.to_vec(),
        Some(_) => listed,
    };
    let (groups, scopes) = (find(claims, &at.groups), find(claims, &at.scopes));
    let read = Claims {
        org,
        user,
        groups: or(groups, optional("groups", groups, names)?, &at.groups_default),
        scopes: or(scopes, optional("scope", scopes, words)?, &at.scopes_default),
        client: optional("client_id", client, text)?,
        jti: optional("jti", claims.get("jti"), |value| name(value).map(Some))?,
        audiences: required("aud", claims.get("aud"), audiences)?,
        issued_at: required("iat", claims.get("iat"), seconds)?,
        not_before: optional("nbf", claims.get("nbf"), seconds)?,
        expires_at: required("exp", claims.get("exp"), seconds)?,
    };
    if !issuer.speaks_for(&read.org) {
        return Err(Cause { claim: "org", fault: "is none that this issuer may speak for" });
    }
    match read.expires_at.checked_sub(read.issued_at) {
        Some(lifetime) if lifetime <= issuer.max_lifetime => Ok(read),
        Some(_) => Err(Cause { claim: "exp", fault: "is further from iat than the issuer may set it" }),
        None => Err(Cause { claim: "exp", fault: "is before iat" }),
    }
}

type Read<T> = Result<T, &'static str>;

fn required<T>(
    claim: &'static str,
    value: Option<&Value>,
    read: impl Fn(&Value) -> Read<T>,
) -> Result<T, Cause> {
    let value = value.ok_or(Cause { claim, fault: "is missing" })?;
    read(value).map_err(|fault| Cause { claim, fault })
}

/// Absent is fine, present and wrong is not.
fn optional<T: Default>(
    claim: &'static str,
    value: Option<&Value>,
    read: impl Fn(&Value) -> Read<T>,
) -> Result<T, Cause> {
    match value {
        None => Ok(T::default()),
        Some(value) => read(value).map_err(|fault| Cause { claim, fault }),
    }
}

/// What policy can name.
fn name(value: &Value) -> Read<String> {
    let name = value.as_str().ok_or("is not a string")?;
    match crate::names::fault(name) {
        Some(fault) => Err(fault),
        None => Ok(name.to_owned()),
    }
}

/// A non-empty string that can stand in a log line, a hash input and a key, and that no policy names.
fn text(value: &Value) -> Read<String> {
    let text = value.as_str().ok_or("is not a string")?;
    match (1..=MAX_TEXT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err("is empty, longer than 512 bytes, or holds a control character"),
    }
}

fn names(value: &Value) -> Read<Vec<String>> {
    list(value, name)
}

/// A string or an array of strings.
fn list(value: &Value, read: impl Fn(&Value) -> Read<String>) -> Read<Vec<String>> {
    match value {
        Value::String(_) => Ok(vec![read(value)?]),
        Value::Array(values) if values.len() > MAX_LISTED => Err(TOO_MANY),
        Value::Array(values) => values.iter().map(read).collect(),
        _ => Err("is neither a string nor an array"),
    }
}

/// Space-separated (RFC 8693 section 4.2) or an array.
fn words(value: &Value) -> Read<Vec<String>> {
    match value {
        Value::String(text) if text.chars().any(char::is_control) => Err("holds a control character"),
        Value::String(text) if text.split_ascii_whitespace().nth(MAX_LISTED).is_some() => Err(TOO_MANY),
        Value::String(text) => Ok(text.split_ascii_whitespace().map(str::to_owned).collect()),
        other => list(other, text),
    }
}

/// A string or an array of strings (RFC 7519 section 4.1.3); scheme and host in lower case (RFC 3986
/// section 6.2.2.1), the rest as it is.
fn audiences(value: &Value) -> Read<Vec<String>> {
    let values = list(value, text)?;
    Ok(values.iter().map(|audience| canonical_audience(audience)).collect())
}

/// Lower-cases scheme and authority of a URI; other audiences stay as they are.
pub(crate) fn canonical_audience(audience: &str) -> String {
    let Some((scheme, rest)) = audience.split_once("://") else { return audience.to_owned() };
    let (authority, path) = match rest.find('/') {
        Some(slash) => rest.split_at_checked(slash).unwrap_or((rest, "")),
        None => (rest, ""),
    };
    format!("{}://{}{path}", scheme.to_ascii_lowercase(), authority.to_ascii_lowercase())
}

/// A NumericDate (RFC 7519 section 2): a non-negative number; a fraction is cut off.
fn seconds(value: &Value) -> Read<u64> {
    let fault = "is not a time in seconds since 1970";
    let number = value.as_number().ok_or(fault)?;
    let seconds = match number.as_u64() {
        Some(seconds) => seconds,
        None => {
            let float = number.as_f64().ok_or(fault)?;
            // The cast saturates, so the bound below also refuses what does not fit.
            if float >= 0.0 { float as u64 } else { return Err(fault) }
        }
    };
    if seconds <= MAX_SECONDS { Ok(seconds) } else { Err(fault) }
}
