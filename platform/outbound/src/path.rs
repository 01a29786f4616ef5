//! Whether the path of a request stays at or below a path that the operator allows.
//!
//! Keeps true: however often a service decodes a path on its way to a file or a route, the result stays below:
//! percent-encoding is undone as long as there is any, `\\` counts as `/`, parameters of a segment (`..;x`) are cut
//! off, and any remaining dot segment is refused.

/// Maximum number of times that a path is decoded; one that is still encoded after that is refused.
const MAX_ROUNDS: usize = 4;

/// Whether `path`, in the form of a URL, is `prefix` or lies below it.
pub fn is_below(path: &str, prefix: &str) -> bool {
    let prefix = prefix.trim_end_matches('/');
    if prefix.is_empty() {
        return true;
    }
    let Some(decoded) = decoded(path.as_bytes()) else { return false };
    let slashed: Vec<u8> = decoded.iter().map(|byte| if *byte == b'\\' { b'/' } else { *byte }).collect();
    let is_plain = !slashed.iter().any(u8::is_ascii_control);
    is_plain
        && !slashed.split(|byte| *byte == b'/').any(is_dots)
        && starts_with(path.as_bytes(), prefix.as_bytes())
        && starts_with(&slashed, prefix.as_bytes())
}

/// Whether `path` begins with `prefix`, which must end at the end of a segment.
fn starts_with(path: &[u8], prefix: &[u8]) -> bool {
    path.strip_prefix(prefix).is_some_and(|rest| matches!(rest.first(), None | Some(b'/')))
}

fn is_dots(segment: &[u8]) -> bool {
    let name = segment.split(|byte| *byte == b';').next().unwrap_or_default();
    matches!(name, b"." | b"..")
}

fn decoded(path: &[u8]) -> Option<Vec<u8>> {
    let mut path = path.to_vec();
    for _ in 0..MAX_ROUNDS {
        let next = decoded_once(&path);
        if next == path {
            return Some(path);
        }
        path = next;
    }
    None
}

fn decoded_once(path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, after)) = rest.split_first() {
        let byte = match (first, after) {
            (b'%', [high, low, ..]) => digit(*high).zip(digit(*low)).map(|(high, low)| high << 4 | low),
            _ => None,
        };
        out.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { after.get(2..).unwrap_or_default() } else { after };
    }
    out
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_below_and_ways_around() {
        for (path, below) in [
            ("/v1", true),
            ("/v1/", true),
            ("/v1/a/b", true),
            ("/v1/a%20b", true),
            ("/v1/a%2Fb", true),
            ("/v1/100%25", true),
            ("/v1/%", true),
            ("/v1/a..b/...", true),
            ("/v1//a", true),
            ("/v10", false),
            ("/V1/a", false),
            ("/", false),
            ("", false),
            ("//v1/a", false),
            ("/admin", false),
            ("/v1/../admin", false),
            ("/v1/./a", false),
            ("/v1/..", false),
            ("/v1/%2e%2e/admin", false),
            ("/v1/.%2E/admin", false),
            ("/v1/..%2fadmin", false),
            ("/v1/a%2f..%2f..%2fadmin", false),
            ("/v1/%252e%252e/admin", false),
            ("/v1/%25252e%25252e/admin", false),
            ("/v1/%2525252525252e./admin", false),
            ("/v1/..\\admin", false),
            ("/v1/..%5cadmin", false),
            ("/v1\\..\\admin", false),
            ("/v1/..;/admin", false),
            ("/v1/..;a=b/admin", false),
            ("/v1/..%3b/admin", false),
            ("/v1/a%00", false),
            ("/v1/a%0d%0ax", false),
            ("/%76%31/a", false),
            ("/v1%2f..", false),
        ] {
            assert_eq!(is_below(path, "/v1"), below, "{path}");
            assert_eq!(is_below(path, "/v1/"), below, "{path} below /v1/");
        }
        for path in ["/", "/a/../b", "/%2e%2e"] {
            assert!(is_below(path, "/") && is_below(path, ""), "{path}: no prefix, no rule");
        }
    }
}
