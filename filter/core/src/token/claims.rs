//! The claims of a token whose signature is valid, read strictly.
//!
//! Owns types and bounds of the claims (RFC 7519 section 4.1, RFC 9068 section 2.2). `sub`, `iat`, `exp` and the
//! caller's org are required: without `iat` a token could survive the revocation of its user, without an org it would
//! belong to no tenant. The names that policy refers to (org, user, groups, jti) follow [`crate::names`].

use serde_json::{Map, Value};

use super::issuer::Issuer;
use super::refusal::Cause;

/// Largest accepted time: beyond this a double cannot represent every second, and no clock will ever get there.
const MAX_SECONDS: u64 = 1 << 53;
/// Maximum length of a client, scope or audience, in bytes.
const MAX_TEXT_BYTES: usize = 512;
/// Maximum number of entries in one list of a token: its groups, its scopes, its audiences. Policy is evaluated for
/// each group; the token's length bounds their size in bytes.
pub const MAX_LISTED: usize = 256;
/// Fault for the operator if [`MAX_LISTED`] is exceeded.
const TOO_MANY: &str =
    "has more than 256 entries: configure the identity provider to leave out those that no policy names";

/// Claims of a signed token. Times are in Unix seconds.
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

/// Claims that only tokens for the client itself have: ID tokens (OpenID Connect Core 1.0 sections 2 and 3.3.2.11) and
/// logout tokens (Back-Channel Logout 1.0 section 2.4).
const OF_THE_CLIENT: [&str; 5] = ["nonce", "at_hash", "c_hash", "s_hash", "events"];

/// Rejects a token that the issuer signed for a purpose other than calls, if its header does not tell.
pub fn check_use(claims: &Map<String, Value>) -> Result<(), Cause> {
    let fault = "marks it as something other than an access token";
    if OF_THE_CLIENT.iter().any(|name| claims.contains_key(*name)) {
        return Err(Cause { claim: "nonce, at_hash, c_hash, s_hash or events", fault });
    }
    // Keycloak states the purpose of a token in this claim.
    match claims.get("typ").map(|typ| typ.as_str().unwrap_or_default()) {
        None => Ok(()),
        Some(typ) if typ.eq_ignore_ascii_case("bearer") => Ok(()),
        Some(_) => Err(Cause { claim: "typ", fault }),
    }
}

/// Returns the claim of this name, or the value at a JSON Pointer (RFC 6901).
fn find<'a>(claims: &'a Map<String, Value>, path: &str) -> Option<&'a Value> {
    let Some(pointer) = path.strip_prefix('/') else { return claims.get(path) };
    let (first, rest) = match pointer.split_once('/') {
        Some((first, _)) => (first, pointer.get(first.len()..)?),
        None => (pointer, ""),
    };
    claims.get(&first.replace("~1", "/").replace("~0", "~"))?.pointer(rest)
}

/// Reads the claims; the cause names the claim that is missing, has the wrong type or breaks a bound.
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
    // The holder of such a token must prove possession of a key (RFC 7800 section 3.1), which is not checked here.
    if claims.contains_key("cnf") {
        return Err(Cause {
            claim: "cnf",
            fault: "binds the token to a key: configure the issuer to issue bearer tokens",
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
        return Err(Cause { claim: "org", fault: "is not an org that this issuer may speak for" });
    }
    match read.expires_at.checked_sub(read.issued_at) {
        Some(lifetime) if lifetime <= issuer.max_lifetime => Ok(read),
        Some(_) => {
            Err(Cause { claim: "exp", fault: "is later after iat than the issuer's maximum lifetime allows" })
        }
        None => Err(Cause { claim: "exp", fault: "is before iat" }),
    }
}

type ClaimResult<T> = Result<T, &'static str>;

fn required<T>(
    claim: &'static str,
    value: Option<&Value>,
    read: impl Fn(&Value) -> ClaimResult<T>,
) -> Result<T, Cause> {
    let value = value.ok_or(Cause { claim, fault: "is missing" })?;
    read(value).map_err(|fault| Cause { claim, fault })
}

/// Reads a claim that may be absent but not wrong.
fn optional<T: Default>(
    claim: &'static str,
    value: Option<&Value>,
    read: impl Fn(&Value) -> ClaimResult<T>,
) -> Result<T, Cause> {
    match value {
        None => Ok(T::default()),
        Some(value) => read(value).map_err(|fault| Cause { claim, fault }),
    }
}

/// Reads a name that policy can refer to.
fn name(value: &Value) -> ClaimResult<String> {
    let name = value.as_str().ok_or("is not a string")?;
    match crate::names::fault(name) {
        Some(fault) => Err(fault),
        None => Ok(name.to_owned()),
    }
}

/// Reads a non-empty string that is safe in a log line, a hash input and a key; policy does not refer to it.
fn text(value: &Value) -> ClaimResult<String> {
    let text = value.as_str().ok_or("is not a string")?;
    match (1..=MAX_TEXT_BYTES).contains(&text.len()) && !text.chars().any(char::is_control) {
        true => Ok(text.to_owned()),
        false => Err("is empty, longer than 512 bytes, or contains a control character"),
    }
}

fn names(value: &Value) -> ClaimResult<Vec<String>> {
    list(value, name)
}

/// Reads a string or an array of strings.
fn list(value: &Value, read: impl Fn(&Value) -> ClaimResult<String>) -> ClaimResult<Vec<String>> {
    match value {
        Value::String(_) => Ok(vec![read(value)?]),
        Value::Array(values) if values.len() > MAX_LISTED => Err(TOO_MANY),
        Value::Array(values) => values.iter().map(read).collect(),
        _ => Err("is neither a string nor an array"),
    }
}

/// Reads space-separated words (RFC 8693 section 4.2) or an array.
fn words(value: &Value) -> ClaimResult<Vec<String>> {
    match value {
        Value::String(text) if text.chars().any(char::is_control) => Err("contains a control character"),
        Value::String(text) if text.split_ascii_whitespace().nth(MAX_LISTED).is_some() => Err(TOO_MANY),
        Value::String(text) => Ok(text.split_ascii_whitespace().map(str::to_owned).collect()),
        other => list(other, text),
    }
}

/// Reads a string or an array of strings (RFC 7519 section 4.1.3); scheme and host become lower case (RFC 3986 section
/// 6.2.2.1), the rest stays as it is.
fn audiences(value: &Value) -> ClaimResult<Vec<String>> {
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

/// Reads a NumericDate (RFC 7519 section 2): a non-negative number; a fraction is truncated.
fn seconds(value: &Value) -> ClaimResult<u64> {
    let fault = "is not a time in seconds since 1970";
    let number = value.as_number().ok_or(fault)?;
    let seconds = match number.as_u64() {
        Some(seconds) => seconds,
        None => {
            let float = number.as_f64().ok_or(fault)?;
            // The cast saturates, so the bound below also rejects values that do not fit.
            if float >= 0.0 { float as u64 } else { return Err(fault) }
        }
    };
    if seconds <= MAX_SECONDS { Ok(seconds) } else { Err(fault) }
}
