//! Affinity key that routes a client's requests to the same replica (ADR 2).
//!
//! Owns the choice of the key K: the session's, else the cookie's, else a fresh one. K is a hint and proves nothing: a
//! forged one only picks a replica, and malformed ones are ignored. All requests for one REST call go to the replica
//! that began it, as long as the set of replicas does not change. The id of a task of A2A is chosen by the replica that
//! began it, so all later requests for the task go to one replica, which may be another one.

use sha2::{Digest, Sha256};

use crate::caller::Caller;

/// Name of the cookie that carries K for clients with a cookie jar.
pub(crate) const COOKIE: &[u8] = b"asp-affinity";
/// Request header that carries K to the gateway; Envoy hashes it.
pub(crate) const HEADER: &str = "x-asp-affinity";

/// Returns K: 16 lower-case hex digits.
pub(crate) fn key(session_id: Option<&[u8]>, cookie: Option<&[u8]>, random: [u8; 8]) -> String {
    session_id
        .and_then(of_session)
        .or_else(|| cookie.and_then(well_formed))
        .unwrap_or_else(|| format!("{:016x}", u64::from_be_bytes(random)))
}

/// Returns the K of a session id `v1.<K>.<sealed>`; `None` for an id in another form.
fn of_session(session_id: &[u8]) -> Option<String> {
    let (key, sealed) = session_id.strip_prefix(b"v1.")?.split_at_checked(16)?;
    match sealed.strip_prefix(b".") {
        Some(sealed) if !sealed.is_empty() => well_formed(key),
        _ => None,
    }
}

/// Returns the K of a request for a REST call, derived from its caller, server and call id. `path` is a REST path.
pub(crate) fn of_call(caller: Option<&Caller>, path: &[u8]) -> Option<String> {
    let path = path.split(|byte| *byte == b'?').next()?;
    let mut segments = path.split(|byte| *byte == b'/').skip(1);
    let server = segments.next()?;
    // Skips `rest`, `tools` and the name of the tool.
    let id = segments.nth(3).filter(|calls| *calls == b"calls").and_then(|_| segments.next())?;
    Some(of_id(caller, server, id))
}

/// Returns the K of a request of A2A, derived from its caller, server and task, or else its context.
pub(crate) fn of_task(caller: Option<&Caller>, server: &str, task: &[u8]) -> String {
    of_id(caller, server.as_bytes(), task)
}

/// Returns the id of the task in a path of A2A's REST binding, `/<server>/a2a/[v1/]tasks/<id>[:<verb>]/…`.
pub(crate) fn task_in_path(path: &[u8]) -> Option<&[u8]> {
    let path = path.split(|byte| *byte == b'?').next()?;
    let mut segments = path.split(|byte| *byte == b'/').skip(3).skip_while(|segment| *segment == b"v1");
    let id = (segments.next()? == b"tasks").then(|| segments.next()).flatten()?;
    let id =
        [b":cancel".as_slice(), b":subscribe"].iter().find_map(|verb| id.strip_suffix(*verb)).unwrap_or(id);
    (!id.is_empty()).then_some(id)
}

fn of_id(caller: Option<&Caller>, server: &[u8], id: &[u8]) -> String {
    let (org, user) = caller.map_or(("", ""), |caller| (caller.org.as_str(), caller.user.as_str()));
    let mut hasher = Sha256::new();
    for part in [org.as_bytes(), user.as_bytes(), server, id] {
        hasher.update((part.len() as u64).to_be_bytes());
        hasher.update(part);
    }
    hasher.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect()
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
    fn all_requests_for_one_call_have_one_key() {
        let key = of_call(None, b"/demo/rest/tools/echo/calls/7").unwrap();
        assert_eq!(well_formed(key.as_bytes()), Some(key.clone()));
        assert_eq!(of_call(None, b"/demo/rest/tools/echo/calls/7/advance?a=b"), Some(key.clone()));
        for other in [b"/demo/rest/tools/echo/calls/8".as_slice(), b"/shop/rest/tools/echo/calls/7"] {
            assert_ne!(of_call(None, other), Some(key.clone()));
        }
        for path in
            [b"/demo/rest/tools/echo/calls".as_slice(), b"/demo/rest/openapi.json", b"/demo/rest/a/b/c/d"]
        {
            assert_eq!(of_call(None, path), None);
        }
    }

    #[test]
    fn all_requests_for_one_task_have_one_key_over_each_binding() {
        let task = |path: &str| task_in_path(path.as_bytes()).map(<[u8]>::to_vec);
        for path in [
            "/demo/a2a/tasks/7",
            "/demo/a2a/tasks/7/",
            "/demo/a2a/tasks/7?historyLength=1",
            "/demo/a2a/tasks/7:cancel",
            "/demo/a2a/tasks/7:subscribe",
            "/demo/a2a/v1/tasks/7:subscribe",
            "/demo/a2a/tasks/7/pushNotificationConfigs/c",
        ] {
            assert_eq!(task(path).as_deref(), Some(b"7".as_slice()), "{path}");
        }
        for path in [
            "/demo/a2a/tasks",
            "/demo/a2a/tasks/",
            "/demo/a2a/message:send",
            "/demo/a2a/v1/card",
            "/demo/a2a",
        ] {
            assert_eq!(task(path), None, "{path}");
        }
        let key = of_task(None, "demo", b"7");
        assert_eq!(well_formed(key.as_bytes()), Some(key.clone()));
        assert_ne!(of_task(None, "shop", b"7"), key);
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
