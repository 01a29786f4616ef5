//! URIs, hosts and origins, checked by their text alone.
//!
//! Owns strict parsers without normalisation: texts that are not in canonical form are rejected, so two programs
//! cannot disagree about the host. Sources: RFC 3986, RFC 1123, RFC 6454.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use asp_platform::address::is_public;

const MAX_URI_BYTES: usize = 2048;
/// Schemes that access the machine or run code in a client.
const REFUSED_SCHEMES: [&str; 5] = ["file", "data", "javascript", "vbscript", "blob"];

/// A checked http(s) URL.
pub(super) struct HttpUrl<'a> {
    pub(super) is_https: bool,
    pub(super) host: &'a str,
    pub(super) path: &'a str,
}

/// Checks an absolute URI that may name a resource.
pub(super) fn resource_uri(text: &str) -> Result<(), String> {
    check_characters(text)?;
    let Some((scheme, rest)) = text.split_once(':') else { return Err("the URI has no scheme".into()) };
    if !is_scheme(scheme) {
        return Err(format!("`{scheme}` is not a URI scheme"));
    }
    if REFUSED_SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()) {
        return Err(format!("the scheme `{scheme}` is refused"));
    }
    if rest.is_empty() {
        return Err("the URI has nothing after its scheme".into());
    }
    if let Some(rest) = rest.strip_prefix("//")
        && rest.split(['/', '?', '#']).next().is_some_and(|authority| authority.contains('@'))
    {
        return Err("the URI carries credentials".into());
    }
    Ok(())
}

/// Parses an http or https URL without credentials and fragment, whose host is written plainly.
pub(super) fn http_url(text: &str) -> Result<HttpUrl<'_>, String> {
    check_characters(text)?;
    let (is_https, rest) = if let Some(rest) = text.strip_prefix("https://") {
        (true, rest)
    } else if let Some(rest) = text.strip_prefix("http://") {
        (false, rest)
    } else {
        return Err("the URL does not start with https:// or http://".into());
    };
    if text.contains('#') {
        return Err("the URL has a fragment".into());
    }
    let end = rest.find(['/', '?']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') {
        return Err("the URL carries credentials".into());
    }
    let host = host_of(authority)?;
    Ok(HttpUrl { is_https, host, path })
}

/// Splits `host[:port]` and checks both.
pub(super) fn host_of(authority: &str) -> Result<&str, String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let Some((address, after)) = rest.split_once(']') else {
                return Err("the bracket of the IPv6 address is not closed".into());
            };
            let port = match after.strip_prefix(':') {
                Some(port) => Some(port),
                None if after.is_empty() => None,
                None => return Err(format!("`{after}` after the host is not a port")),
            };
            (address, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    if let Some(port) = port
        && !(port.bytes().all(|byte| byte.is_ascii_digit())
            && !port.starts_with('0')
            && port.parse::<u16>().is_ok())
    {
        return Err(format!("`{port}` is not a port"));
    }
    let is_bracketed = authority.starts_with('[');
    let fits = match is_bracketed {
        true => host.parse::<Ipv6Addr>().is_ok(),
        false => {
            is_host_name(host) || host.parse::<Ipv4Addr>().is_ok_and(|address| address.to_string() == host)
        }
    };
    if fits { Ok(host) } else { Err(format!("`{}` is not a host", super::name::escape(host))) }
}

/// Whether a text is a DNS name of letters, digits and hyphens (IDNs are written in punycode). A numeric last label
/// is rejected: resolvers read `127.1`, `0x7f000001` and `2130706433` as addresses.
pub(super) fn is_host_name(text: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let last = text.rsplit('.').next().unwrap_or(text);
    let is_number = last.bytes().all(|byte| byte.is_ascii_digit())
        || ((last.starts_with("0x") || last.starts_with("0X"))
            && last.bytes().skip(2).all(|byte| byte.is_ascii_hexdigit()));
    (1..=253).contains(&text.len()) && text.split('.').all(is_label) && !is_number
}

/// Whether proxied calls reach a host only through an upstream entry of the operator.
pub(super) fn is_private_host(host: &str) -> bool {
    if let Ok(address) = host.parse::<IpAddr>() {
        return !is_public(address);
    }
    let lower = host.to_ascii_lowercase();
    !lower.contains('.')
        || [".localhost", ".local", ".internal", ".svc"].iter().any(|suffix| lower.ends_with(suffix))
}

/// Whether a text is a web origin: scheme, host, optional port, nothing else (RFC 6454 section 6.2).
pub(super) fn is_origin(text: &str) -> bool {
    http_url(text).is_ok_and(|url| url.path.is_empty() && !text.bytes().any(|byte| byte.is_ascii_uppercase()))
}

fn is_scheme(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.'))
}

/// Checks for RFC 3986 characters and complete percent escapes.
fn check_characters(text: &str) -> Result<(), String> {
    if text.is_empty() || text.len() > MAX_URI_BYTES {
        return Err(format!("the URI has {} bytes, 1 to {MAX_URI_BYTES} are allowed", text.len()));
    }
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#[]@!$&'()*+,;=%".contains(&byte);
    if let Some(bad) = text.chars().find(|c| !u8::try_from(*c).is_ok_and(allowed)) {
        return Err(format!("the character `{}` is not allowed in a URI", bad.escape_debug()));
    }
    let mut parts = text.split('%');
    parts.next();
    let complete = |part: &str| part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
    if parts.all(complete) { Ok(()) } else { Err("a percent escape is not complete".into()) }
}

#[cfg(test)]
mod tests;
