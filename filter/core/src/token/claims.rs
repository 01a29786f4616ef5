//! The claims of a token whose signature is good, read strictly.
//!
//! Owns types and bounds of the claims (RFC 7519 section 4.1, RFC 9068 section 2.2). `sub`, `iat`, `exp` and
//! the caller's org are required: without `iat` a token could outlive the revocation of its user, without an
//! org it would belong to no tenant.

use serde_json::{Map, Value};

use super::issuer::Issuer;

/// Beyond this a double no longer holds every second, and no clock will ever get there.
const MAX_SECONDS: u64 = 1 << 53;
/// Longest accepted org, user, client, jti, group or scope, in bytes.
const MAX_NAME_BYTES: usize = 512;

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

/// `None` when a claim is missing, has another type or breaks a bound.
pub(crate) fn read(claims: &Map<String, Value>, issuer: &Issuer) -> Option<Claims> {
    let subject = name(claims.get("sub")?)?;
    let user = match issuer.claims.user.as_str() {
        "sub" => subject,
        other => name(claims.get(other)?)?,
    };
    let read = Claims {
        org: name(claims.get(&issuer.claims.org)?)?,
        user,
        groups: optional(claims.get(&issuer.claims.groups), names)?.unwrap_or_default(),
        scopes: optional(claims.get(&issuer.claims.scopes), words)?.unwrap_or_default(),
        client: optional(claims.get("client_id").or_else(|| claims.get("azp")), name)?.unwrap_or_default(),
        jti: optional(claims.get("jti"), name)?,
        audiences: audiences(claims.get("aud")?)?,
        issued_at: seconds(claims.get("iat")?)?,
        not_before: optional(claims.get("nbf"), seconds)?.unwrap_or_default(),
        expires_at: seconds(claims.get("exp")?)?,
    };
    let lifetime = read.expires_at.checked_sub(read.issued_at)?;
    (lifetime <= issuer.max_lifetime).then_some(read)
}

/// Absent is fine, present and wrong is not.
fn optional<T>(value: Option<&Value>, read: impl Fn(&Value) -> Option<T>) -> Option<Option<T>> {
    match value {
        None => Some(None),
        Some(value) => read(value).map(Some),
    }
}

/// A non-empty string that can stand in a log line, a hash input and a key.
fn name(value: &Value) -> Option<String> {
    let text = value.as_str()?;
    let fits = (1..=MAX_NAME_BYTES).contains(&text.len()) && !text.chars().any(char::is_control);
    fits.then(|| text.to_owned())
}

fn names(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(_) => Some(vec![name(value)?]),
        Value::Array(values) => values.iter().map(name).collect(),
        _ => None,
    }
}

/// Space-separated (RFC 8693 section 4.2) or an array.
fn words(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::String(text) if text.chars().any(char::is_control) => None,
        Value::String(text) => Some(text.split_ascii_whitespace().map(str::to_owned).collect()),
        other => names(other),
    }
}

/// A string or an array of strings (RFC 7519 section 4.1.3); scheme and host in lower case (RFC 3986
/// section 6.2.2.1), the rest as it is.
fn audiences(value: &Value) -> Option<Vec<String>> {
    let values = names(value)?;
    Some(values.iter().map(|audience| canonical_audience(audience)).collect())
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
fn seconds(value: &Value) -> Option<u64> {
    let number = value.as_number()?;
    let seconds = match number.as_u64() {
        Some(seconds) => seconds,
        None => {
            let float = number.as_f64()?;
            // The cast saturates, so the bound below also refuses what does not fit.
            if float >= 0.0 { float as u64 } else { return None }
        }
    };
    (seconds <= MAX_SECONDS).then_some(seconds)
}
