//! MCP revision of a request, and the parts of its body that its headers mirror.
//!
//! Owns the rule that mirrored headers count only when the version header itself is of the stateless era (MCP
//! 2026-07-28, transports): an older client's headers mean nothing.

use std::borrow::Cow;

use asp_proto::mcp_revision::{Feature, Revision};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::headers::Headers;
use crate::reason::Era;

const FIRST_MODERN: &[u8] = Revision::FIRST_MODERN.as_str().as_bytes();

/// Returns the known revision that a header names.
fn revision(version: &[u8]) -> Option<Revision> {
    std::str::from_utf8(version).ok().and_then(Revision::parse)
}

/// Returns the era of a version. An unknown version counts as modern: only that era can answer it properly.
pub(crate) fn era(version: Option<&[u8]>) -> Era {
    match version {
        Some(version) if revision(version).is_none_or(Revision::is_modern) => Era::Modern,
        _ => Era::Legacy,
    }
}

pub(crate) fn may_batch(version: Option<&[u8]>) -> bool {
    version
        .map_or(Some(Revision::WITHOUT_HEADER), revision)
        .is_some_and(|revision| revision.has(Feature::Batches))
}

/// Returns `Mcp-Method` and the decoded `Mcp-Name`, if the version header makes them count.
pub(crate) fn method_and_name<'a>(headers: &Headers<'a>) -> (Option<Cow<'a, str>>, Option<Cow<'a, str>>) {
    if !headers.protocol_version.is_some_and(is_modern_date) {
        return (None, None);
    }
    let method = headers.mcp_method.and_then(|method| std::str::from_utf8(method).ok()).map(Cow::Borrowed);
    (method, headers.mcp_name.and_then(decode))
}

/// Whether `version` is a date not before the first modern revision; ISO dates compare as text.
fn is_modern_date(version: &[u8]) -> bool {
    let shape = version.len() == FIRST_MODERN.len()
        && version.iter().enumerate().all(|(position, byte)| match position {
            4 | 7 => *byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    shape && version >= FIRST_MODERN
}

/// Decodes `=?base64?…?=`; a value that does not decode names nothing, and the gateway refuses it.
fn decode(value: &[u8]) -> Option<Cow<'_, str>> {
    let value = std::str::from_utf8(value).ok()?;
    match value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?=")) {
        Some(encoded) => String::from_utf8(STANDARD.decode(encoded).ok()?).ok().map(Cow::Owned),
        None => Some(Cow::Borrowed(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_version_is_modern_and_an_absent_one_is_not() {
        assert_eq!(era(None), Era::Legacy);
        assert_eq!(era(Some(b"2025-11-25")), Era::Legacy);
        for modern in [b"2026-07-28".as_slice(), b"v999", b"", b"2025-11-26", b"\xff"] {
            assert_eq!(era(Some(modern)), Era::Modern);
        }
    }

    #[test]
    fn only_the_first_revision_has_batches() {
        assert!(may_batch(None) && may_batch(Some(b"2025-03-26")));
        assert!(!may_batch(Some(b"2025-06-18")) && !may_batch(Some(b"2026-07-28")) && !may_batch(Some(b"")));
    }

    fn mirror<'a>(version: &'a str, name: &'a str) -> (Option<Cow<'a, str>>, Option<Cow<'a, str>>) {
        method_and_name(&Headers {
            protocol_version: Some(version.as_bytes()),
            mcp_method: Some(b"tools/call"),
            mcp_name: Some(name.as_bytes()),
            ..Headers::default()
        })
    }

    #[test]
    fn mirrored_headers_count_from_2026_07_28_on() {
        assert_eq!(mirror("2026-07-28", "echo"), (Some("tools/call".into()), Some("echo".into())));
        assert_eq!(
            mirror("2027-01-01", "=?base64?ZcOkaG8=?="),
            (Some("tools/call".into()), Some("e\u{e4}ho".into()))
        );
        for version in ["2025-11-25", "v999", "9999", "2026-07-27", "2026-07-2x", ""] {
            assert_eq!(mirror(version, "echo"), (None, None), "{version}");
        }
        for bad in ["=?base64?ZQ?=", "=?base64?/w==?=", "=?base64?!?="] {
            assert_eq!(mirror("2026-07-28", bad).1, None, "{bad}");
        }
        assert_eq!(mirror("2026-07-28", "=?base64?").1, Some("=?base64?".into()));
    }
}
