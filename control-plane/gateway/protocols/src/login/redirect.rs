//! Redirect targets that a client may use.
//!
//! Keeps true: a native app on the user's own machine may choose its port (RFC 8252 section 7.3); plain http is allowed
//! only there; every other redirect is compared as text (RFC 9700 section 4.1.3).

use reqwest::Url;

/// Longest redirect, in bytes.
const MAX_BYTES: usize = 1_024;
/// Default patterns if the operator lists none.
const LOOPBACK: [&str; 3] = ["http://127.0.0.1/*", "http://localhost/*", "http://[::1]/*"];

/// Whether the operator's list allows this redirect.
pub(super) fn is_listed(listed: &[String], redirect: &str) -> bool {
    let Some(redirect) = comparable(redirect) else { return false };
    let mut patterns: Vec<&str> = listed.iter().map(String::as_str).collect();
    if patterns.is_empty() {
        patterns.extend(LOOPBACK);
    }
    patterns.into_iter().any(|pattern| match pattern.strip_suffix('*') {
        // A prefix must reach into the path, or it would match other hosts as well.
        Some(prefix) => has_path(prefix) && redirect.starts_with(prefix),
        None => comparable(pattern).is_some_and(|pattern| pattern == redirect),
    })
}

/// Whether this is the redirect that a client registered; on the user's machine, any port matches.
pub(super) fn is_registered(registered: &str, redirect: &str) -> bool {
    registered == redirect
        || (is_loopback(redirect)
            && comparable(registered).is_some_and(|own| Some(own) == comparable(redirect)))
}

fn is_loopback(redirect: &str) -> bool {
    Url::parse(redirect).is_ok_and(|url| {
        url.scheme() == "http" && matches!(url.host_str(), Some("127.0.0.1" | "localhost" | "[::1]"))
    })
}

fn has_path(prefix: &str) -> bool {
    prefix.split_once("://").is_some_and(|(_, rest)| rest.contains('/'))
}

/// Returns the form used for comparison: on the user's machine without its port. `None` if it is not an acceptable
/// redirect.
fn comparable(redirect: &str) -> Option<String> {
    // Rejects what a browser would parse differently.
    let is_plain =
        redirect.len() <= MAX_BYTES && redirect.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if !is_plain || redirect.contains('#') {
        return None;
    }
    let mut url = Url::parse(redirect).ok()?;
    if !url.username().is_empty() || url.password().is_some() {
        return None;
    }
    match url.scheme() {
        "https" => Some(url.into()),
        "http" if is_loopback(redirect) => {
            url.set_port(None).ok()?;
            Some(url.into())
        }
        "http" | "javascript" | "data" | "file" | "vbscript" | "blob" | "about" | "ws" | "wss" | "ftp" => {
            None
        }
        // An app's own scheme (RFC 8252 section 7.1), if it is listed.
        _ => Some(url.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_default_a_client_is_sent_back_to_the_users_own_machine_only() {
        for good in ["http://127.0.0.1:49152/callback", "http://localhost/cb?x=1", "http://[::1]:3000/"] {
            assert!(is_listed(&[], good), "{good}");
        }
        for bad in [
            "https://evil.example/cb",
            "http://127.0.0.1.evil.example/cb",
            "http://localhost.evil.example/",
            "http://127.0.0.1@evil.example/",
            "http://evil.example/http://127.0.0.1/",
            "http://user@127.0.0.1/cb",
            "http://127.0.0.1/cb#x",
            "http://127.0.0.1\\@evil.example/",
            "javascript:alert(1)//127.0.0.1/",
            "data:text/html,x",
            "app://callback",
            "",
            "/callback",
        ] {
            assert!(!is_listed(&[], bad), "{bad}");
        }
    }

    #[test]
    fn what_is_listed_is_exact_or_a_prefix_that_ends_in_a_path() {
        let listed =
            ["https://app.example/cb".to_owned(), "https://ide.example/login/*".into(), "app://cb".into()];
        for good in ["https://app.example/cb", "https://ide.example/login/7", "app://cb"] {
            assert!(is_listed(&listed, good), "{good}");
        }
        for bad in [
            "https://app.example/cb2",
            "https://app.example/cb?x",
            "https://ide.example/other",
            "https://ide.example/login/../other",
            "http://127.0.0.1/cb",
            "app://cb2",
        ] {
            assert!(!is_listed(&listed, bad), "{bad}");
        }
        assert!(!is_listed(&["https://app.example*".to_owned()], "https://app.example.evil.example/"));
    }

    #[test]
    fn a_port_is_free_on_the_users_machine_and_nowhere_else() {
        assert!(is_registered("http://127.0.0.1:1/cb", "http://127.0.0.1:2/cb"));
        assert!(!is_registered("http://127.0.0.1:1/cb", "http://localhost:1/cb"));
        assert!(!is_registered("http://127.0.0.1:1/cb", "http://127.0.0.1:1/other"));
        assert!(!is_registered("https://a.example/cb", "https://a.example:444/cb"));
        assert!(is_registered("app://cb", "app://cb"));
    }
}
