//! Parts of requests, refused with a problem document: parameters of paths and queries, preconditions, and bodies. A body
//! is JSON or YAML, bounded in bytes and time and decoded to one type; its problem document has the position of the fault.
//! For preconditions, a resource's ETag is the revision of its last change.

use std::time::Duration;

use asp_store::control::Precondition;
use axum::Json;
use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, Uri, header};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::in_flight;
use super::problem::{Code, Problem, Result};

/// Maximum time from a request's headers to the end of its body: 4 MiB at some 70 KB per second.
const WITHIN: Duration = Duration::from_secs(60);

/// Middleware that refuses a NUL in the path or the query: PostgreSQL cannot hold one, and no name has one.
pub async fn refuse_nul(request: Request, next: Next) -> Response {
    if has_nul(request.uri()) {
        return Problem::params("neither the path nor a parameter may have a NUL (%00)").into_response();
    }
    next.run(request).await
}

/// Whether the path or the query has a NUL. A URI has it only in its percent-encoding (RFC 3986 section 2.1).
fn has_nul(uri: &Uri) -> bool {
    uri.path().contains("%00") || uri.query().is_some_and(|query| query.contains("%00"))
}

/// The parameters of a path; a name that is not text gets 404.
pub struct Path<T>(pub T);

/// The parameters of a query.
pub struct Query<T>(pub T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Path<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Path<T>> {
        let read = axum::extract::Path::from_request_parts(parts, state).await;
        read.map(|axum::extract::Path(read)| Path(read)).map_err(|_| Problem::not_found())
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Query<T>> {
        let read = axum::extract::Query::try_from_uri(&parts.uri);
        read.map(|axum::extract::Query(read)| Query(read)).map_err(|fault| Problem::params(fault.body_text()))
    }
}

/// Syntax of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Syntax {
    Json,
    Yaml,
}

/// A decoded body.
pub struct Body<T>(pub T);

/// Text of a body, for resources that parse it themselves.
pub struct Text {
    pub syntax: Syntax,
    pub text: String,
}

impl<S: Send + Sync> FromRequest<S> for Text {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Text> {
        let syntax = syntax(request.headers())?;
        in_flight::add_body(&request)?;
        let read = tokio::time::timeout(WITHIN, Bytes::from_request(request, state)).await;
        let read = read.map_err(|_| {
            let detail = format!("the body did not arrive within {} seconds", WITHIN.as_secs());
            Problem::new(Code::InvalidBody, detail)
        })?;
        let bytes = read.map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                Problem::new(Code::BodyTooLarge, format!("at most {} bytes", super::MAX_BODY))
            } else {
                Problem::new(Code::InvalidBody, "the body could not be read")
            }
        })?;
        let text =
            String::from_utf8(bytes.into()).map_err(|_| Problem::new(Code::InvalidBody, "not UTF-8"))?;
        Ok(Text { syntax, text })
    }
}

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Body<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Body<T>> {
        Text::from_request(request, state).await?.decode().map(Body)
    }
}

impl Text {
    /// Decodes the text; the error has the position of the fault.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T> {
        let decoded = match self.syntax {
            Syntax::Json => serde_json::from_str(&self.text).map_err(|error| error.to_string()),
            // Its default budget bounds aliases, depth and nodes; duplicate keys are errors.
            Syntax::Yaml => {
                serde_saphyr::from_str(&self.text).map_err(|error| first_line(&error.to_string()))
            }
        };
        decoded.map_err(|fault| Problem::new(Code::InvalidBody, fault))
    }
}

fn first_line(text: &str) -> String {
    text.lines().next().unwrap_or_default().to_owned()
}

/// Determines the syntax from the content type. Anything but JSON and YAML is refused, including forms and plain text,
/// which a web page can send without a CORS preflight.
fn syntax(headers: &HeaderMap) -> Result<Syntax> {
    let value = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/json" => Ok(Syntax::Json),
        "application/yaml" | "application/x-yaml" | "text/yaml" => Ok(Syntax::Yaml),
        _ => Err(Problem::new(Code::UnsupportedMediaType, "send application/json or application/yaml")),
    }
}

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
    use axum::body::Body as RawBody;
    use futures::stream;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_body_that_does_not_arrive_is_waited_for_a_minute() {
        let trickle = stream::unfold((), |()| async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            Some((Ok::<_, std::io::Error>(Bytes::from_static(b" ")), ()))
        });
        let request = http::Request::builder().header(header::CONTENT_TYPE, "application/json");
        let request = request.body(RawBody::from_stream(trickle)).unwrap();
        let began = tokio::time::Instant::now();
        let refused = Text::from_request(request, &()).await.err().unwrap();
        assert_eq!((refused.code(), began.elapsed().as_secs()), (Code::InvalidBody, WITHIN.as_secs()));
    }

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
