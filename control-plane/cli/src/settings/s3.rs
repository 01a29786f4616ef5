//! The object store that gateways and control planes share.
//!
//! Keeps true: credentials come only from the environment, print as `***`, and are not repeated by any fault.

use std::time::Duration;

use asp_platform::address;
use asp_platform::secret::Secret;

use super::source::Reader;

pub const ENV_S3_URL: &str = "ASP_S3_URL";
pub const ENV_S3_REGION: &str = "ASP_S3_REGION";
pub const ENV_S3_ACCESS_KEY_ID: &str = "ASP_S3_ACCESS_KEY_ID";
pub const ENV_S3_SECRET_ACCESS_KEY: &str = "ASP_S3_SECRET_ACCESS_KEY";
pub const ENV_S3_SESSION_TOKEN: &str = "ASP_S3_SESSION_TOKEN";
pub const ENV_S3_SIGNED_URLS: &str = "ASP_S3_SIGNED_URLS";
pub const ENV_S3_PUBLIC_ORIGIN: &str = "ASP_S3_PUBLIC_ORIGIN";

/// Default region; most stores other than Amazon's accept it.
const REGION: &str = "us-east-1";
/// Bounds of a signed URL's lifetime in seconds: long enough to start the download, too short to be worth keeping.
const SHORTEST: u64 = 10;
const LONGEST: u64 = 3_600;
/// Maximum length of a key in bytes.
const MAX_KEY: usize = 4_096;

/// An object store and its use.
#[derive(Clone, Debug)]
pub struct S3Section {
    /// `http(s)://host[:port]/bucket[/prefix]`
    pub url: String,
    pub region: String,
    pub access_key: String,
    pub secret_key: Secret,
    /// Token of temporary credentials.
    pub session_token: Option<Secret>,
    pub signed_urls: Option<SignedUrls>,
}

/// Settings of the signed URLs that clients get for large objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedUrls {
    /// Origin at which clients reach the store; `None`: that of the store's URL.
    pub origin: Option<String>,
    pub life: Duration,
}

pub(super) fn read(reader: &mut Reader<'_>) -> Option<S3Section> {
    let region = reader.optional(ENV_S3_REGION);
    let access_key = reader.optional(ENV_S3_ACCESS_KEY_ID);
    let secret_key = reader.optional(ENV_S3_SECRET_ACCESS_KEY).map(Secret::new);
    let session_token = reader.optional(ENV_S3_SESSION_TOKEN).map(Secret::new);
    let signed_urls = signed_urls(reader);
    let Some(url) = reader.shared(ENV_S3_URL) else {
        for (name, is_given) in [
            (ENV_S3_REGION, region.is_some()),
            (ENV_S3_ACCESS_KEY_ID, access_key.is_some()),
            (ENV_S3_SECRET_ACCESS_KEY, secret_key.is_some()),
            (ENV_S3_SESSION_TOKEN, session_token.is_some()),
            (ENV_S3_SIGNED_URLS, signed_urls.is_some()),
        ] {
            if is_given {
                reader.fault(name, format!("means nothing without {ENV_S3_URL}"));
            }
        }
        return None;
    };
    if let Some(fault) = fault_of(&url) {
        reader.fault(ENV_S3_URL, fault);
    }
    let region = region.unwrap_or_else(|| REGION.to_owned());
    if region.is_empty() || !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        reader.fault(ENV_S3_REGION, "must be a region's name: letters, digits and `-`");
    }
    for (name, key) in [
        (ENV_S3_ACCESS_KEY_ID, access_key.as_deref()),
        (ENV_S3_SECRET_ACCESS_KEY, secret_key.as_ref().map(Secret::expose)),
    ] {
        match key {
            None => reader.fault(name, format!("is required with {ENV_S3_URL}")),
            Some(key) => check_key(reader, name, key),
        }
    }
    if let Some(token) = &session_token {
        check_key(reader, ENV_S3_SESSION_TOKEN, token.expose());
    }
    // A missing key is reported already; this only lets other faults be found too.
    let access_key = access_key.unwrap_or_default();
    let secret_key = secret_key.unwrap_or_else(|| Secret::new(String::new()));
    Some(S3Section { url, region, access_key, secret_key, session_token, signed_urls })
}

/// Rejects a key with other than printable characters, such as a line end from a file.
fn check_key(reader: &mut Reader<'_>, name: &str, key: &str) {
    if key.len() > MAX_KEY || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
        reader.fault(name, "must be printable without spaces and line ends");
    }
}

#[cfg(feature = "cluster")]
fn fault_of(url: &str) -> Option<String> {
    asp_store::s3::check(url).err().map(|error| error.to_string())
}

#[cfg(not(feature = "cluster"))]
fn fault_of(_url: &str) -> Option<String> {
    Some("is for programs that were built with the feature `cluster`, unlike this one".to_owned())
}

fn signed_urls(reader: &mut Reader<'_>) -> Option<SignedUrls> {
    let origin = reader.origin(ENV_S3_PUBLIC_ORIGIN);
    let text = reader.optional(ENV_S3_SIGNED_URLS).filter(|text| text != "off");
    let Some(text) = text else {
        if origin.is_some() {
            reader.fault(ENV_S3_PUBLIC_ORIGIN, format!("means nothing without {ENV_S3_SIGNED_URLS}"));
        }
        return None;
    };
    let seconds = text.parse::<u64>().ok().filter(|seconds| (SHORTEST..=LONGEST).contains(seconds));
    if seconds.is_none() {
        let must = format!("must be `off`, or how long a URL can be used: {SHORTEST} to {LONGEST} seconds");
        reader.fault(ENV_S3_SIGNED_URLS, must);
    }
    Some(SignedUrls { origin, life: Duration::from_secs(seconds.unwrap_or(SHORTEST)) })
}

impl S3Section {
    /// Checks rules that depend on other settings: encryption, and reachability for clients.
    pub(super) fn check(&self, reader: &mut Reader<'_>, (dev, mesh): (bool, bool)) {
        if dev {
            return;
        }
        if is_plain(&self.url) && !address::is_this_machine(host(&self.url)) && !mesh {
            let message =
                "must be https: what is stored would be in clear on the network (or ASP_PEER_PLAINTEXT=mesh)";
            reader.fault(ENV_S3_URL, message);
        }
        let Some(signed_urls) = &self.signed_urls else { return };
        let (name, origin) = match &signed_urls.origin {
            Some(origin) => (ENV_S3_PUBLIC_ORIGIN, origin),
            None => (ENV_S3_URL, &self.url),
        };
        if is_plain(origin) || !may_be_public(origin) {
            let message = format!(
                "is where clients go with {ENV_S3_SIGNED_URLS}: it must be https and no private address. Name the origin that \
                 they reach in {ENV_S3_PUBLIC_ORIGIN}, or leave {ENV_S3_SIGNED_URLS} off"
            );
            reader.fault(name, message);
        }
    }
}

fn is_plain(url: &str) -> bool {
    url.starts_with("http://")
}

/// Returns the host of a URL, without port and brackets.
fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.strip_prefix('[') {
        Some(six) => six.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    }
}

/// Whether a client outside of this network may be able to reach the host. Names are not resolved, so they may.
fn may_be_public(url: &str) -> bool {
    let host = host(url);
    match host.parse() {
        Ok(address) => address::is_public(address),
        Err(_) => !address::is_this_machine(host),
    }
}

#[cfg(all(test, feature = "cluster"))]
mod tests {
    use std::collections::BTreeMap;

    use super::super::database::ENV_DATABASE_URL;
    use super::super::gateway::ENV_SEAL_KEY;
    use super::super::tls::ENV_PEER_PLAINTEXT;
    use super::super::{ENV_PUBLIC_URL, Settings};
    use super::*;
    use crate::args::ServeArgs;

    const GOOD: [(&str, &str); 6] = [
        (ENV_PUBLIC_URL, "https://mcp.example.com"),
        (ENV_SEAL_KEY, "0123456789abcdef0123456789abcdef"),
        (ENV_DATABASE_URL, "postgres://asp@db/asp"),
        (ENV_S3_URL, "https://s3.example.com/asp-files/prod"),
        (ENV_S3_ACCESS_KEY_ID, "AKIAEXAMPLE"),
        (ENV_S3_SECRET_ACCESS_KEY, "hunter2/hunter2"),
    ];

    fn faults(more: &[(&'static str, &'static str)], less: &[&str]) -> Vec<String> {
        let mut environment: BTreeMap<&str, &str> = GOOD.into_iter().chain(more.iter().copied()).collect();
        environment.retain(|name, _| !less.contains(name));
        match Settings::read(&ServeArgs::default(), &environment) {
            Ok(settings) => {
                assert!(!format!("{settings:?}").contains("hunter2"), "secrets print as ***");
                Vec::new()
            }
            Err(faults) => {
                assert!(!format!("{faults:?}").contains("hunter2"), "no secret in a fault");
                faults.into_iter().map(|fault| fault.name).collect()
            }
        }
    }

    #[test]
    fn a_store_needs_a_url_credentials_and_postgresql() {
        assert!(faults(&[], &[]).is_empty());
        assert_eq!(faults(&[], &[ENV_S3_ACCESS_KEY_ID]), [ENV_S3_ACCESS_KEY_ID]);
        assert_eq!(
            faults(&[], &[ENV_S3_ACCESS_KEY_ID, ENV_S3_SECRET_ACCESS_KEY]),
            [ENV_S3_ACCESS_KEY_ID, ENV_S3_SECRET_ACCESS_KEY]
        );
        assert_eq!(faults(&[], &[ENV_S3_URL]), [ENV_S3_ACCESS_KEY_ID, ENV_S3_SECRET_ACCESS_KEY]);
        assert_eq!(
            faults(&[(ENV_S3_URL, "https://root:hunter2@s3.example.com/asp-files")], &[]),
            [ENV_S3_URL]
        );
        assert_eq!(faults(&[(ENV_S3_SECRET_ACCESS_KEY, "hunter2\n")], &[]), [ENV_S3_SECRET_ACCESS_KEY]);
        assert_eq!(faults(&[], &[ENV_DATABASE_URL]), [ENV_S3_URL], "a quota is held by PostgreSQL");
        assert_eq!(
            faults(&[], &[ENV_DATABASE_URL, ENV_S3_ACCESS_KEY_ID]),
            [ENV_S3_ACCESS_KEY_ID, ENV_S3_URL],
            "all of it in one go"
        );
    }

    #[test]
    fn what_is_stored_is_not_in_clear_beyond_this_machine() {
        let plain = (ENV_S3_URL, "http://s3.example.com/asp-files");
        assert_eq!(faults(&[plain], &[]), [ENV_S3_URL]);
        assert!(faults(&[plain, (ENV_PEER_PLAINTEXT, "mesh")], &[]).is_empty());
        for here in ["http://127.0.0.1:9000/asp-files", "http://[::ffff:127.0.0.1]:9000/asp-files"] {
            assert!(faults(&[(ENV_S3_URL, here)], &[]).is_empty(), "{here}");
        }
    }

    #[test]
    fn signed_urls_lead_where_clients_can_go() {
        let on = (ENV_S3_SIGNED_URLS, "300");
        let private = (ENV_S3_URL, "https://10.0.0.7:9000/asp-files");
        assert!(faults(&[on], &[]).is_empty());
        assert!(faults(&[private], &[]).is_empty());
        assert_eq!(faults(&[on, private], &[]), [ENV_S3_URL]);
        assert!(faults(&[on, private, (ENV_S3_PUBLIC_ORIGIN, "https://files.example.com")], &[]).is_empty());
        for origin in [
            "http://files.example.com",
            "https://[fd00::1]",
            "https://localhost:9000",
            "https://169.254.169.254",
        ] {
            assert_eq!(
                faults(&[on, (ENV_S3_PUBLIC_ORIGIN, origin)], &[]),
                [ENV_S3_PUBLIC_ORIGIN],
                "{origin}"
            );
        }
        assert_eq!(
            faults(&[(ENV_S3_PUBLIC_ORIGIN, "https://files.example.com")], &[]),
            [ENV_S3_PUBLIC_ORIGIN]
        );
        for life in ["on", "5", "86400"] {
            assert_eq!(faults(&[(ENV_S3_SIGNED_URLS, life)], &[]), [ENV_S3_SIGNED_URLS], "{life}");
        }
    }
}
