//! The key that leads a client's requests to the same replica (ADR 2).
//!
//! Owns the choice of K: the session's, else the cookie's, else fresh. K is a hint and proves nothing: a
//! forged one only picks a replica, and malformed ones are ignored.

/// Name of the cookie that carries K for clients with a cookie jar.
pub(crate) const COOKIE: &[u8] = b"asp-affinity";
/// Header towards the gateway; Envoy hashes it.
pub(crate) const HEADER: &str = "x-asp-affinity";

/// K: 16 lower-case hex digits.
pub(crate) fn key(session_id: Option<&[u8]>, cookie: Option<&[u8]>, random: [u8; 8]) -> String {
    session_id
        .and_then(of_session)
        .or_else(|| cookie.and_then(well_formed))
        .unwrap_or_else(|| format!("{:016x}", u64::from_be_bytes(random)))
}

/// The K of a session id `v1.<K>.<sealed>`; `None` for an id that is not of that form.
fn of_session(session_id: &[u8]) -> Option<String> {
    let (key, sealed) = session_id.strip_prefix(b"v1.")?.split_at_checked(16)?;
    match sealed.strip_prefix(b".") {
        Some(sealed) if !sealed.is_empty() => well_formed(key),
        _ => None,
    }
}

fn well_formed(key: &[u8]) -> Option<String> {
    let hex = key.len() == 16 && key.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    hex.then(|| String::from_utf8_lossy(key).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: [u8; 8] = [0, 1, 2, 3, 0xfc, 0xfd, 0xfe, 0xff];
    const FRESH: &str = "00010203fcfdfeff";

    #[test]
    fn the_session_wins_over_the_cookie_and_the_cookie_over_a_fresh_key() {
        let session = b"v1.00000000000000aa.c2VhbGVk".as_slice();
        let cookie = b"00000000000000bb".as_slice();
        assert_eq!(key(Some(session), Some(cookie), RANDOM), "00000000000000aa");
        assert_eq!(key(None, Some(cookie), RANDOM), "00000000000000bb");
        assert_eq!(key(None, None, RANDOM), FRESH);
    }

    #[test]
    fn malformed_values_are_ignored() {
        for session in [
            "",
            "v1.",
            "v1.00000000000000aa",
            "v1.00000000000000aa.",
            "v1.00000000000000AA.x",
            "v2.00000000000000aa.x",
        ] {
            assert_eq!(key(Some(session.as_bytes()), None, RANDOM), FRESH, "{session}");
        }
        for cookie in ["", "00000000000000b", "00000000000000bbb", "00000000000000bB", "zz"] {
            assert_eq!(key(None, Some(cookie.as_bytes()), RANDOM), FRESH, "{cookie}");
        }
        assert_eq!(key(Some(b"v1.00000000000000a\xff.x"), Some(b"\xff"), RANDOM), FRESH);
    }
}
