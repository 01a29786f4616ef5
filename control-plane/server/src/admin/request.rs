//! Parts of requests, refused with a problem document: parameters of paths and queries, and bodies. A body is JSON or
//! YAML, bounded in bytes and time and decoded to one type; its problem document has the position of the fault.

use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use http::request::Parts;
use http::{HeaderMap, StatusCode, header};
use serde::de::DeserializeOwned;

use super::in_flight;
use super::problem::{Code, Problem, Result};

/// Maximum time from a request's headers to the end of its body: 4 MiB at some 70 KB per second.
const WITHIN: Duration = Duration::from_secs(60);

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
}
