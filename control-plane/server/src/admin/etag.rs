//! Optimistic concurrency: a resource's ETag is the revision of its last change.

use asp_store::control::Precondition;
use axum::Json;
use axum::response::{IntoResponse, Response};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::Serialize;

use super::problem::{Problem, Result};

/// Reads `If-Match` and `If-None-Match: *` (RFC 9110 section 13.1).
pub fn precondition(headers: &HeaderMap) -> Result<Precondition> {
    let read = |name: HeaderName| {
        headers.get(name).map(|value| value.to_str().unwrap_or_default().trim().to_owned())
    };
    match (read(header::IF_MATCH), read(header::IF_NONE_MATCH)) {
        (None, None) => Ok(Precondition::None),
        (Some(value), None) if value == "*" => Ok(Precondition::Exists),
        (Some(value), None) => match revision(&value) {
            Some(revision) => Ok(Precondition::At(revision)),
            None => Err(Problem::params("If-Match must be one ETag of this API, or *")),
        },
        (None, Some(value)) if value == "*" => Ok(Precondition::Absent),
        (None, Some(_)) => Err(Problem::params("If-None-Match must be *")),
        (Some(_), Some(_)) => Err(Problem::params("If-Match and If-None-Match exclude each other")),
    }
}

fn revision(tag: &str) -> Option<u64> {
    tag.strip_prefix('"')?.strip_suffix('"')?.parse().ok()
}

/// Returns a JSON response with the resource's ETag; revision 0 has none.
pub fn tagged(revision: u64, body: impl Serialize) -> Response {
    let mut response = Json(body).into_response();
    if revision > 0
        && let Ok(value) = HeaderValue::from_str(&format!("\"{revision}\""))
    {
        response.headers_mut().insert(header::ETAG, value);
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(pairs: &[(HeaderName, &str)]) -> Option<Precondition> {
        let headers = pairs.iter().map(|(name, value)| (name.clone(), HeaderValue::from_str(value).unwrap()));
        precondition(&headers.collect()).ok()
    }

    #[test]
    fn preconditions_are_one_etag_or_a_star() {
        assert_eq!(read(&[]), Some(Precondition::None));
        assert_eq!(read(&[(header::IF_MATCH, "\"17\"")]), Some(Precondition::At(17)));
        assert_eq!(read(&[(header::IF_MATCH, "*")]), Some(Precondition::Exists));
        assert_eq!(read(&[(header::IF_NONE_MATCH, "*")]), Some(Precondition::Absent));
        assert_eq!(read(&[(header::IF_MATCH, "W/\"17\"")]), None);
        assert_eq!(read(&[(header::IF_MATCH, "17")]), None);
        assert_eq!(read(&[(header::IF_NONE_MATCH, "\"17\"")]), None);
    }
}
