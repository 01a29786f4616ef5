//! Media types and the decoding of bodies by them (RFC 9110 sections 8.3.1, 8.3.2 and 12.5.1).
//!
//! Keeps true: types are compared case-insensitively, with or without parameters; bytes become text only if every one
//! of them decodes in the declared charset, so that no data is replaced.

use encoding_rs::{Encoding, UTF_8};
use http::HeaderMap;
use http::header::{ACCEPT, CONTENT_TYPE};

/// Textual types below `application/` (RFC 9110 leaves it to the registrations).
const TEXTS: [&str; 12] = [
    "application/x-ndjson",
    "application/ndjson",
    "application/jsonl",
    "application/x-jsonlines",
    "application/json-seq",
    "application/xml",
    "application/yaml",
    "application/x-yaml",
    "application/javascript",
    "application/graphql",
    "application/sql",
    "application/x-www-form-urlencoded",
];

/// Words of subtypes below `application/` whose bytes are never treated as text, even if they are printable: encodings,
/// archives, documents and certificates.
const BINARY: &str = "octet cbor cose msgpack messagepack protobuf proto grpc bson ubjson smile ion avro thrift flatbuffers \
    parquet arrow sqlite3 wasm zip gzip zstd bzip2 xz tar 7z rar archive pdf msword excel powerpoint \
    officedocument opendocument der asn1 pkcs7 pkcs8 pkcs10 pkcs12";

/// The media type of a message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MediaType {
    /// `type/subtype` in lower case; empty if none was declared.
    pub essence: String,
    charset: Option<String>,
}

impl MediaType {
    /// Returns the type declared by the headers.
    pub fn of(headers: &HeaderMap) -> MediaType {
        headers.get(CONTENT_TYPE).map_or_else(MediaType::default, |value| {
            MediaType::parse(&String::from_utf8_lossy(value.as_bytes()))
        })
    }

    pub fn parse(text: &str) -> MediaType {
        let mut parts = text.split(';').map(str::trim);
        let essence = parts.next().unwrap_or_default().to_ascii_lowercase();
        let charset = parts.filter_map(|parameter| parameter.split_once('=')).find_map(|(name, value)| {
            name.trim().eq_ignore_ascii_case("charset").then(|| value.trim().trim_matches('"').to_owned())
        });
        MediaType { essence, charset }
    }

    pub fn is(&self, essence: &str) -> bool {
        self.essence == essence
    }

    /// Whether its subtype contains the word `json` (`json`, `problem+json`, `x-amz-json-1.1`). A JSON sequence does
    /// not count, as it is several texts.
    pub fn is_json(&self) -> bool {
        self.words().any(|word| word == "json") && !self.essence.ends_with("json-seq")
    }

    /// Returns the words of the subtype.
    fn words(&self) -> impl Iterator<Item = &str> {
        let subtype = self.essence.split_once('/').map_or("", |(_, subtype)| subtype);
        subtype.split(|c: char| !c.is_ascii_alphanumeric())
    }

    /// Whether its bytes are to be read as text.
    pub fn is_text(&self) -> bool {
        self.is_json()
            || self.essence.starts_with("text/")
            || self.essence.ends_with("+xml") && !self.essence.starts_with("image/")
            || self.essence.ends_with("+yaml")
            || self.essence.ends_with("+json-seq")
            || TEXTS.contains(&self.essence.as_str())
    }

    /// Returns the bytes as text if the type is textual. For an unknown type below `application/`, the bytes are text
    /// if they are UTF-8 without control characters.
    pub fn text(&self, bytes: &[u8]) -> Option<String> {
        if self.is_text() {
            return self.decode(bytes);
        }
        let is_binary = self.words().any(|word| BINARY.split(' ').any(|binary| binary == word));
        let may_be_text = self.essence.starts_with("application/") && !is_binary;
        let text = std::str::from_utf8(bytes).ok().filter(|_| may_be_text)?;
        let is_control = |c: char| c.is_control() && !matches!(c, '\t' | '\n' | '\r');
        (!text.contains(is_control)).then(|| text.to_owned())
    }

    /// Decodes the bytes in the declared charset, by default UTF-8; `None` if they are not valid in it.
    pub fn decode(&self, bytes: &[u8]) -> Option<String> {
        let named = self.charset.as_deref().and_then(|label| Encoding::for_label(label.as_bytes()));
        // A byte order mark takes precedence over a header (WHATWG Encoding, decode).
        let (encoding, text) = match Encoding::for_bom(bytes) {
            Some((encoding, mark)) => (encoding, bytes.get(mark..).unwrap_or_default()),
            None => (named.unwrap_or(UTF_8), bytes),
        };
        let decoded = encoding.decode_without_bom_handling_and_without_replacement(text);
        let as_utf8 = || std::str::from_utf8(text).ok().map(str::to_owned);
        decoded.map(|text| text.into_owned()).or_else(as_utf8)
    }
}

/// Whether a client accepts this type. Without an `Accept` header, or with an unreadable one, it accepts none.
pub fn accepts(headers: &HeaderMap, essence: &str) -> bool {
    let kind = essence.split('/').next().unwrap_or_default();
    let ranges = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    // The most specific range decides (RFC 9110 section 12.5.1).
    let best = ranges.flat_map(|value| value.split(',')).filter_map(|range| {
        let mut parts = range.split(';').map(str::trim);
        let named = parts.next().unwrap_or_default().to_ascii_lowercase();
        let rank = match named.split_once('/')? {
            _ if named == essence => 2,
            (of, "*") if of == kind => 1,
            ("*", "*") => 0,
            _ => return None,
        };
        let weight = parts.filter_map(|parameter| parameter.split_once('=')).find_map(|(name, value)| {
            name.trim().eq_ignore_ascii_case("q").then(|| value.trim().parse::<f32>().unwrap_or(0.0))
        });
        Some((rank, weight.unwrap_or(1.0) > 0.0))
    });
    best.max_by_key(|(rank, _)| *rank).is_some_and(|(_, takes)| takes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_compared_without_case_and_parameters() {
        for (text, json, plain) in [
            ("application/json", true, true),
            ("Application/JSON ; charset=\"UTF-8\"", true, true),
            ("application/vnd.api+JSON", true, true),
            ("application/problem+json;x=1", true, true),
            ("Text/Plain", false, true),
            ("application/x-ndjson", false, true),
            ("application/soap+xml", false, true),
            ("image/svg+xml", false, false),
            ("image/png", false, false),
            ("application/notjson", false, false),
            ("application/x-amz-json-1.1", true, true),
            ("application/x-json", true, true),
            ("application/vnd.example.json; v=2", true, true),
            ("text/x-json", true, true),
            ("application/json-seq", false, true),
            ("application/jsonl", false, true),
            ("application/json5", false, false),
            ("json", false, false),
            ("application/toml", false, false),
            ("", false, false),
        ] {
            let kind = MediaType::parse(text);
            assert_eq!((kind.is_json(), kind.is_text()), (json, plain), "{text}");
        }
    }

    #[test]
    fn text_is_read_in_its_charset_and_bytes_are_never_replaced() {
        for (kind, bytes, text) in [
            ("text/plain", &b"gr\xc3\xbc\xc3\x9fe"[..], Some("grüße")),
            ("text/plain; charset=iso-8859-1", b"gr\xfc\xdfe", Some("grüße")),
            ("text/plain; Charset=\"Windows-1252\"", b"\x80", Some("€")),
            ("text/plain; charset=utf-16le", b"h\0i\0", Some("hi")),
            ("text/plain; charset=Shift_JIS", b"\x82\xa0", Some("あ")),
            ("text/plain; charset=iso-8859-1", b"\xef\xbb\xbf\xc3\xbc", Some("ü")),
            ("application/json", b"\xef\xbb\xbf{}", Some("{}")),
            ("application/json", b"\xff\xfe{\0}\0", Some("{}")),
            ("text/plain; charset=nonsense", b"ok", Some("ok")),
            ("text/plain; charset=us-ascii", b"\xc3\xbc", Some("Ã¼")),
            ("text/plain", b"\xff\x00\x01", None),
            ("text/plain; charset=utf-8", b"\x89PNG", None),
        ] {
            assert_eq!(MediaType::parse(kind).decode(bytes).as_deref(), text, "{kind} {bytes:?}");
        }
    }

    #[test]
    fn bytes_of_an_unknown_application_type_are_text_where_they_are_plain() {
        for (kind, bytes, is_text) in [
            ("application/cbor", &b"\x63abc"[..], false),
            ("application/senml+cbor; charset=utf-8", b"abc", false),
            ("application/vnd.msgpack", b"abc", false),
            ("application/x-protobuf", b"abc", false),
            ("application/epub+zip", b"abc", false),
            ("application/vnd.ms-excel", b"abc", false),
            ("application/pkcs7-mime", b"abc", false),
            ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", b"abc", false),
            ("application/geo+json-seq", b"\x1e{}\n", true),
            ("application/toml", b"a = \"gr\xc3\xbc\xc3\x9fe\"\r\n\tb = 1\n", true),
            ("application/x-javascript", b"go();", true),
            ("application/vnd.example", b"words", true),
            ("application/toml", b"gr\xfc\xdfe", false),
            ("application/toml", b"a\x00", false),
            ("application/toml", b"\x1b[1m", false),
            ("application/toml", b"\xc2\x85", false),
            ("application/octet-stream", b"words", false),
            ("application/pdf", b"%PDF-1.7", false),
            ("font/woff2", b"words", false),
            ("image/svg+xml", b"<svg/>", false),
            ("text/plain; charset=iso-8859-1", b"gr\xfc\xdfe", true),
        ] {
            assert_eq!(MediaType::parse(kind).text(bytes).is_some(), is_text, "{kind} {bytes:?}");
        }
    }

    #[test]
    fn a_client_takes_what_its_most_specific_range_says() {
        for (accept, takes) in [
            ("text/event-stream", true),
            ("TEXT/EVENT-STREAM", true),
            ("application/json, Text/Event-Stream;q=0.5", true),
            ("text/*", true),
            ("*/*;q=0.1", true),
            ("*/*, text/event-stream;q=0", false),
            ("text/event-stream;Q=0.000", false),
            ("application/json", false),
            ("text/event-streams", false),
            ("text/html", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(ACCEPT, accept.parse().unwrap())]);
            assert_eq!(accepts(&headers, "text/event-stream"), takes, "{accept}");
        }
        assert!(!accepts(&HeaderMap::new(), "text/event-stream"));
    }
}
