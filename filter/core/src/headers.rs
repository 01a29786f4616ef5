//! One pass over the client's headers: collects those that the evaluation reads and those to remove.
//!
//! Owns the list of headers that may appear only once and the removal of every internal header (I-9). A repeated
//! security header is refused rather than resolved: components behind the edge might pick another value. Envoy joins
//! some repeated headers with a comma before a filter sees them, so a comma in a header without a list form counts as a
//! repetition.

use crate::{affinity, region};

/// Prefix of the headers that exist only between the edge and the gateway.
const INTERNAL_PREFIX: &str = "x-asp-";
/// Client address as its Envoy sees it, `ip:port`: a hint for budgets, set on requests whose caller the edge does not
/// know.
pub const PEER_HEADER: &str = "x-asp-peer";

/// Envoy's header about the certificate that its client presented.
const CERTIFICATE: &str = "x-forwarded-client-cert";

/// Headers whose grammar has no comma.
const WITHOUT_COMMA: [&str; 4] = ["host", "origin", "authorization", "content-type"];
/// List headers, which may be repeated; the last value counts, and only in a preflight.
const LISTS: [&str; 2] = ["access-control-request-method", "access-control-request-headers"];

/// Headers that the evaluation reads. Values are raw bytes without surrounding white space.
#[derive(Debug, Default)]
pub(crate) struct Headers<'a> {
    pub(crate) method: &'a [u8],
    pub(crate) path: &'a [u8],
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) origin: Option<&'a [u8]>,
    pub(crate) authorization: Option<&'a [u8]>,
    pub(crate) content_type: Option<&'a [u8]>,
    pub(crate) content_length: Option<&'a [u8]>,
    pub(crate) session_id: Option<&'a [u8]>,
    pub(crate) protocol_version: Option<&'a [u8]>,
    pub(crate) mcp_method: Option<&'a [u8]>,
    pub(crate) mcp_name: Option<&'a [u8]>,
    pub(crate) affinity_cookie: Option<&'a [u8]>,
    /// The client's certificate as Envoy describes it. It proves nothing here; it tells credentials apart.
    pub(crate) certificate: Option<&'a [u8]>,
    pub(crate) preflight_method: Option<&'a [u8]>,
    pub(crate) preflight_headers: Option<&'a [u8]>,
    /// Set by the edge of another region that has passed the request on.
    pub(crate) home_region: Option<&'a [u8]>,
    /// Names of the client's internal headers, to be removed.
    pub(crate) internal: Vec<String>,
    /// Whether a header that may appear once appeared twice.
    pub(crate) repeated: bool,
}

impl<'a> Headers<'a> {
    pub(crate) fn read<N: AsRef<str>, V: AsRef<[u8]>>(headers: &'a [(N, V)]) -> Headers<'a> {
        let mut view = Headers::default();
        let mut authority = None;
        for (name, value) in headers {
            let value = value.as_ref().trim_ascii();
            match name.as_ref() {
                ":method" => view.method = value,
                ":path" => view.path = value,
                ":authority" => authority = Some(value),
                "cookie" => view.cookies(value),
                CERTIFICATE => view.certificate = Some(value),
                name if name.starts_with(INTERNAL_PREFIX) => {
                    if !view.internal.iter().any(|known| known == name) {
                        view.internal.push(name.to_owned());
                    }
                }
                name => view.once(name, value),
            }
        }
        view.merge_authority(authority);
        view
    }

    /// Returns the declared length of the body.
    pub(crate) fn declared_length(&self) -> Option<u64> {
        let digits = std::str::from_utf8(self.content_length?).ok()?;
        // A number too large for 64 bits exceeds every limit.
        let plain = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| digits.parse().unwrap_or(u64::MAX))
    }

    /// Whether the media type is `application/json`, with any parameters (RFC 9110 section 8.3.1).
    pub(crate) fn is_json(&self) -> bool {
        let media_type = self.content_type.and_then(|value| value.split(|byte| *byte == b';').next());
        media_type.is_some_and(|media_type| media_type.trim_ascii().eq_ignore_ascii_case(b"application/json"))
    }

    /// Stores a header that may appear once; ignores headers that nothing reads.
    fn once(&mut self, name: &str, value: &'a [u8]) {
        let slot = match name {
            "host" => &mut self.host,
            "origin" => &mut self.origin,
            "authorization" => &mut self.authorization,
            "content-type" => &mut self.content_type,
            "content-length" => &mut self.content_length,
            "mcp-session-id" => &mut self.session_id,
            "mcp-protocol-version" => &mut self.protocol_version,
            "mcp-method" => &mut self.mcp_method,
            "mcp-name" => &mut self.mcp_name,
            "access-control-request-method" => &mut self.preflight_method,
            "access-control-request-headers" => &mut self.preflight_headers,
            region::HOME_HEADER => &mut self.home_region,
            _ => return,
        };
        self.repeated |= slot.replace(value).is_some() && !LISTS.contains(&name);
        self.repeated |= WITHOUT_COMMA.contains(&name) && value.contains(&b',');
    }

    fn cookies(&mut self, header: &'a [u8]) {
        for pair in header.split(|byte| *byte == b';') {
            let pair = pair.trim_ascii();
            if let Some(value) = pair.strip_prefix(affinity::COOKIE).and_then(|rest| rest.strip_prefix(b"="))
            {
                self.repeated |= self.affinity_cookie.replace(value).is_some();
            }
        }
    }

    /// Merges `:authority` into `host`. HTTP/2 may carry both; they must agree (RFC 9113 section 8.3.1).
    fn merge_authority(&mut self, authority: Option<&'a [u8]>) {
        let Some(authority) = authority else { return };
        self.repeated |= authority.contains(&b',');
        self.repeated |= self.host.is_some_and(|host| !host.eq_ignore_ascii_case(authority));
        self.host = Some(authority);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(pairs: &[(&str, &str)]) -> Vec<(String, Vec<u8>)> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec())).collect()
    }

    #[test]
    fn a_security_header_given_twice_is_seen() {
        for name in [
            "host",
            "origin",
            "authorization",
            "content-type",
            "mcp-session-id",
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "content-length",
        ] {
            let headers = list(&[(name, "a"), (name, "a")]);
            assert!(Headers::read(&headers).repeated, "{name}");
            let headers = list(&[(name, "a")]);
            assert!(!Headers::read(&headers).repeated, "{name}");
        }
    }

    #[test]
    fn a_repetition_that_envoy_joined_is_seen() {
        for name in [":authority", "host", "origin", "authorization", "content-type"] {
            let headers = list(&[(name, "a,a")]);
            assert!(Headers::read(&headers).repeated, "{name}");
        }
        let headers = list(&[("mcp-name", "a,b"), ("accept", "a,b")]);
        assert!(!Headers::read(&headers).repeated);
    }

    #[test]
    fn authority_and_host_must_agree() {
        let headers = list(&[(":authority", "A:1"), ("host", "a:1")]);
        assert!(!Headers::read(&headers).repeated);
        let headers = list(&[(":authority", "a"), ("host", "b")]);
        assert!(Headers::read(&headers).repeated);
    }

    /// Invariant I-9.
    #[test]
    fn every_internal_header_is_listed_once_for_removal() {
        let headers =
            list(&[("x-asp-route", "a"), ("x-asp-route", "b"), ("x-asp-zzz", ""), ("x-other", "c")]);
        assert_eq!(Headers::read(&headers).internal, ["x-asp-route", "x-asp-zzz"]);
    }

    #[test]
    fn our_cookie_is_found_among_others_and_refused_twice() {
        let headers = list(&[("cookie", "a=b; asp-affinity=k; asp-affinity2=x"), ("cookie", "c=d")]);
        let view = Headers::read(&headers);
        assert_eq!((view.affinity_cookie, view.repeated), (Some(b"k".as_slice()), false));
        let headers = list(&[("cookie", "asp-affinity=k"), ("cookie", "asp-affinity=j")]);
        assert!(Headers::read(&headers).repeated);
    }
}
