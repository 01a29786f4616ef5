//! The client's certificate as reported by Envoy: an `x-forwarded-client-cert` header with one element, which Envoy
//! writes itself (`forward_client_cert_details: SANITIZE_SET`).
//!
//! Owns: parsing the header. Refuses: everything that Envoy does not write in this mode: several elements, which stem
//! from several hops; an unknown key, or one out of order or repeated; a quote within a value. Whether the header is
//! trusted at all is decided elsewhere ([`super::proof`]). Envoy writes URIs and DNS names as they are in the
//! certificate, without quotes. A name with a comma, a semicolon or a quote must not be read as something else, so the
//! order of keys is checked, and a URI followed by others identifies nobody. Source: Envoy's documentation of HTTP
//! headers, `x-forwarded-client-cert`.

/// Longest value, in bytes; Envoy may be configured to include the certificate in URL-encoded PEM.
pub(crate) const MAX_BYTES: usize = 16 * 1024;
/// Maximum number of pairs; each name of a certificate is one.
pub(crate) const MAX_PAIRS: usize = 64;
/// Number of hex digits in a SHA-256 digest.
const DIGITS: usize = 64;

/// A certificate that a client presented, with proof that it holds the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClientCertificate {
    /// SHA-256 of the certificate's DER.
    pub(crate) fingerprint: [u8; 32],
    /// The URI, if there is exactly one and no pair follows it.
    pub(crate) uri: Option<String>,
    /// Everything that reads as a URI of the certificate. These identify nobody; they can only exclude others from
    /// using it.
    pub(crate) all_uris: Vec<String>,
}

/// The fault in a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HeaderFault {
    #[error("it is longer than {MAX_BYTES} bytes, or has characters other than visible ASCII and spaces")]
    Bytes,
    #[error("it has more than {MAX_PAIRS} pairs")]
    Pairs,
    #[error("it has several elements: it went through more than one hop")]
    Elements,
    #[error("a quote is missing or misplaced")]
    Quotes,
    #[error("a pair has no `=`, or a key that Envoy does not write there")]
    Key,
    #[error("it has no hash of 64 hex digits")]
    Hash,
}

/// Keys in the order in which Envoy writes them.
const KEYS: [&str; 7] = ["By", "Hash", "Cert", "Chain", "Subject", "URI", "DNS"];
/// Keys that may be repeated.
const REPEATED: [&str; 3] = ["By", "URI", "DNS"];
/// The keys whose values are quoted.
const QUOTED: [&str; 3] = ["Cert", "Chain", "Subject"];

pub(crate) fn parse(value: &[u8]) -> Result<ClientCertificate, HeaderFault> {
    let is_text = value.iter().all(|byte| byte.is_ascii_graphic() || *byte == b' ');
    let text = std::str::from_utf8(value).ok().filter(|_| is_text && value.len() <= MAX_BYTES);
    let mut rest = text.ok_or(HeaderFault::Bytes)?;
    let mut place = 0;
    let mut hash = None;
    let mut uris = Vec::new();
    let mut last = "";
    for _ in 0..MAX_PAIRS {
        let (key, value, after) = pair(rest)?;
        place = self::place(key, last, place)?;
        last = key;
        match key {
            "Hash" => hash = Some(fingerprint(value).ok_or(HeaderFault::Hash)?),
            "URI" => uris.push(value),
            _ => {}
        }
        let Some(after) = after else {
            let uri = match (uris.as_slice(), last) {
                // Envoy writes an empty URI for a certificate without one.
                ([uri], "URI") if !uri.is_empty() => Some((*uri).to_owned()),
                _ => None,
            };
            let all_uris = uris.into_iter().map(str::to_owned).collect();
            return Ok(ClientCertificate { fingerprint: hash.ok_or(HeaderFault::Hash)?, uri, all_uris });
        };
        rest = after;
    }
    Err(HeaderFault::Pairs)
}

/// Returns the index of this key in [`KEYS`], if it may follow `last`.
fn place(key: &str, last: &str, before: usize) -> Result<usize, HeaderFault> {
    let found = KEYS.iter().position(|known| *known == key).ok_or(HeaderFault::Key)?;
    let is_next = last.is_empty() || found > before || (found == before && REPEATED.contains(&key));
    is_next.then_some(found).ok_or(HeaderFault::Key)
}

/// Returns the first pair and the text after its semicolon.
fn pair(text: &str) -> Result<(&str, &str, Option<&str>), HeaderFault> {
    let (key, rest) = text.split_once('=').ok_or(HeaderFault::Key)?;
    let (value, after) = match QUOTED.contains(&key) {
        true => {
            let quoted = rest.strip_prefix('"').ok_or(HeaderFault::Quotes)?;
            let end = closing_quote(quoted).ok_or(HeaderFault::Quotes)?;
            let (value, after) = quoted.split_at_checked(end).ok_or(HeaderFault::Quotes)?;
            (value, after.strip_prefix('"').ok_or(HeaderFault::Quotes)?)
        }
        false => {
            let end = rest.find([';', ',']).unwrap_or(rest.len());
            let (value, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
            if value.contains('"') {
                return Err(HeaderFault::Quotes);
            }
            (value, after)
        }
    };
    match after.chars().next() {
        None => Ok((key, value, None)),
        Some(';') => Ok((key, value, after.strip_prefix(';'))),
        Some(',') => Err(HeaderFault::Elements),
        Some(_) => Err(HeaderFault::Quotes),
    }
}

/// Returns the position of the first unescaped quote.
fn closing_quote(text: &str) -> Option<usize> {
    let mut is_escaped = false;
    text.bytes().position(|byte| {
        let ends = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        ends
    })
}

fn fingerprint(hex: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = hex.chars().map_while(|digit| digit.to_digit(16)?.try_into().ok()).collect();
    if hex.len() != DIGITS || digits.len() != DIGITS {
        return None;
    }
    let bytes: Vec<u8> = digits.as_chunks::<2>().0.iter().map(|[high, low]| (high << 4) | low).collect();
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";
    const URI: &str = "spiffe://example.org/press-7";

    fn read(text: &str) -> Result<Option<String>, HeaderFault> {
        let certificate = parse(text.as_bytes())?;
        assert_eq!((certificate.fingerprint[0], certificate.fingerprint[31]), (0x0a, 0xf9));
        Ok(certificate.uri)
    }

    #[test]
    fn what_envoy_writes_is_read() {
        let by = "By=spiffe://example.org/asp/envoy/0";
        for (text, uri) in [
            (format!("Hash={HASH}"), None),
            (format!("{by};Hash={HASH}"), None),
            (format!("{by};{by};Hash={HASH}"), None),
            (format!("Hash={HASH};URI="), None),
            (format!("{by};Hash={HASH};URI={URI}"), Some(URI)),
            (format!("Hash={HASH};URI={URI}?a=b"), Some("spiffe://example.org/press-7?a=b")),
            (format!("Hash={HASH};Subject=\"\";URI={URI}"), Some(URI)),
            (format!("Hash={HASH};Subject=\"CN=a, O=\\\"b;c\\\",OU=d\\\\\";URI={URI}"), Some(URI)),
            (
                format!("Hash={HASH};Cert=\"-----BEGIN%20\";Chain=\"-----\";Subject=\"CN=a\";URI={URI}"),
                Some(URI),
            ),
            (format!("Hash={}", HASH.to_uppercase()), None),
        ] {
            assert_eq!(read(&text), Ok(uri.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn a_uri_that_is_not_the_only_name_after_all_others_names_nobody() {
        for text in [
            format!("Hash={HASH};URI={URI};URI=spiffe://example.org/b"),
            format!("Hash={HASH};URI={URI};URI={URI}"),
            format!("Hash={HASH};URI={URI};DNS=a.example.org"),
            format!("Hash={HASH};URI={URI};DNS="),
            format!("Hash={HASH};URI={URI};URI="),
        ] {
            assert_eq!(read(&text), Ok(None), "{text}");
            assert!(parse(text.as_bytes()).unwrap().all_uris.contains(&URI.to_owned()), "{text}");
        }
    }

    #[test]
    fn what_envoy_does_not_write_is_refused() {
        let good = format!("Hash={HASH};URI={URI}");
        let long = format!("Hash={HASH};Subject=\"{}\"", "a".repeat(MAX_BYTES));
        let many = format!("{}Hash={HASH}", "By=a;".repeat(MAX_PAIRS));
        for (text, fault) in [
            ("", HeaderFault::Key),
            (" ", HeaderFault::Key),
            ("Hash", HeaderFault::Key),
            ("=", HeaderFault::Key),
            (&format!("URI={URI}"), HeaderFault::Hash),
            ("Hash=", HeaderFault::Hash),
            (&format!("Hash={}", &HASH[1..]), HeaderFault::Hash),
            (&format!("Hash={HASH}0"), HeaderFault::Hash),
            (&format!("Hash={}g", &HASH[1..]), HeaderFault::Hash),
            (&format!("Hash=+{}", &HASH[1..]), HeaderFault::Hash),
            (&format!("hash={HASH}"), HeaderFault::Key),
            (&format!(" Hash={HASH}"), HeaderFault::Key),
            (&format!("Hash ={HASH}"), HeaderFault::Key),
            (&format!("Hash={HASH} "), HeaderFault::Hash),
            (&format!("{good};"), HeaderFault::Key),
            (&format!(";{good}"), HeaderFault::Key),
            (&format!("Hash={HASH};;URI={URI}"), HeaderFault::Key),
            (&format!("Hash={HASH};Hash={HASH}"), HeaderFault::Key),
            (&format!("{good};Hash={HASH}"), HeaderFault::Key),
            (&format!("URI={URI};Hash={HASH}"), HeaderFault::Key),
            (&format!("Hash={HASH};By=a"), HeaderFault::Key),
            (&format!("Hash={HASH};Subject=\"a\";Subject=\"b\""), HeaderFault::Key),
            (&format!("Hash={HASH};Email=a"), HeaderFault::Key),
            (&format!("{good},{good}"), HeaderFault::Elements),
            (&format!("{good},"), HeaderFault::Elements),
            (&format!(",{good}"), HeaderFault::Key),
            (&format!("Hash={HASH};Subject=\"a\",Hash={HASH}"), HeaderFault::Elements),
            (&format!("Hash={HASH};Subject=\"a"), HeaderFault::Quotes),
            (&format!("Hash={HASH};Subject=\"a\\\""), HeaderFault::Quotes),
            (&format!("Hash={HASH};Subject=\"a\"b"), HeaderFault::Quotes),
            (&format!("Hash={HASH};Subject=a\"b"), HeaderFault::Quotes),
            (&format!("Hash={HASH};URI=\"{URI}"), HeaderFault::Quotes),
            (&format!("Hash={HASH};URI=\"{URI}\""), HeaderFault::Quotes),
            (&format!("Hash=\"{HASH}\""), HeaderFault::Quotes),
            (&format!("Hash={HASH};Subject=CN=a"), HeaderFault::Quotes),
            (&format!("Hash={HASH};Subject="), HeaderFault::Quotes),
            (&format!("Hash={HASH};URI={URI}\""), HeaderFault::Quotes),
            (&format!("Hash={HASH};URI={URI}\t"), HeaderFault::Bytes),
            (&format!("Hash={HASH};URI={URI}\u{e9}"), HeaderFault::Bytes),
            (&format!("Hash={HASH};URI={URI}\0"), HeaderFault::Bytes),
            (&long, HeaderFault::Bytes),
            (&many, HeaderFault::Pairs),
        ] {
            assert_eq!(parse(text.as_bytes()), Err(fault), "{text:.120}");
        }
        assert_eq!(parse(b"Hash=\xff"), Err(HeaderFault::Bytes));
    }
}
