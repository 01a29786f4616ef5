//! The object store that gateways and control planes share.
//!
//! Keeps true: credentials come only from the environment, print as `***`, and are not repeated by any fault.

use std::time::Duration;

use asp_platform::address;
use asp_platform::secret::Secret;
use clap::Args;

use super::Settings;
use super::database::Database;
use super::source::Checks;
use super::values::origin;

/// Bounds of a signed URL's lifetime in seconds: long enough to start the download, too short to be worth keeping.
const SHORTEST: u64 = 10;
const LONGEST: u64 = 3_600;
/// Maximum length of a key in bytes.
const MAX_KEY: usize = 4_096;

/// Settings of the object store
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Object store")]
pub struct S3Section {
    /// Object store that all gateways and control planes share, for artifacts and packages:
    /// `http(s)://<host>[:<port>]/<bucket>[/<prefix>]`, path style; requires PostgreSQL (docs/object-store.md)
    /// [default: files in the state directory]
    #[arg(long, env = "ASP_S3_URL", value_parser = store_url)]
    pub url: Option<String>,
    /// Id of the access key (required with `ASP_S3_URL`)
    #[arg(long, env = "ASP_S3_ACCESS_KEY_ID", hide_env_values = true, value_parser = key)]
    pub access_key: Option<Secret>,
    /// Secret of the access key (required with `ASP_S3_URL`)
    #[arg(long, env = "ASP_S3_SECRET_ACCESS_KEY", hide_env_values = true, value_parser = key)]
    pub secret_key: Option<Secret>,
    /// Token of temporary credentials
    #[arg(long, env = "ASP_S3_SESSION_TOKEN", hide_env_values = true, value_parser = key)]
    pub session_token: Option<Secret>,
    /// Region of the store [default: us-east-1]
    #[arg(long, env = "ASP_S3_REGION", value_parser = region)]
    region: Option<String>,
    /// Lifetime in seconds, 10 to 3600, of the signed URLs with which clients fetch large objects from the store
    #[arg(long, env = "ASP_S3_SIGNED_URLS", default_value = "off", value_parser = life)]
    signed_urls: Duration,
    /// Origin `https://<host>[:<port>]` at which clients reach the store [default: that of `ASP_S3_URL`]
    #[arg(long, env = "ASP_S3_PUBLIC_ORIGIN", value_parser = origin)]
    pub public_origin: Option<String>,
}

impl S3Section {
    /// Region, by default one that most stores other than Amazon's accept.
    pub fn region(&self) -> &str {
        self.region.as_deref().unwrap_or("us-east-1")
    }

    /// Lifetime of the URLs that clients get for large objects; `None`: they get none.
    pub fn signed_urls(&self) -> Option<Duration> {
        Some(self.signed_urls).filter(|life| !life.is_zero())
    }

    /// Checks that settings of a store are complete, and that there are none without a store.
    pub(super) fn check_parts(&self, checks: &mut Checks<'_>) {
        let signed_urls = self.signed_urls().is_some();
        if !signed_urls {
            checks.without("ASP_S3_SIGNED_URLS", &[("ASP_S3_PUBLIC_ORIGIN", self.public_origin.is_some())]);
        }
        let keys = [
            ("ASP_S3_ACCESS_KEY_ID", self.access_key.is_some()),
            ("ASP_S3_SECRET_ACCESS_KEY", self.secret_key.is_some()),
        ];
        if self.url.is_none() {
            checks.without("ASP_S3_URL", &[("ASP_S3_REGION", self.region.is_some())]);
            checks.without("ASP_S3_URL", &keys);
            checks.without("ASP_S3_URL", &[("ASP_S3_SESSION_TOKEN", self.session_token.is_some())]);
            checks.without("ASP_S3_URL", &[("ASP_S3_SIGNED_URLS", signed_urls)]);
            return;
        }
        for (name, _) in keys.iter().filter(|(_, is_given)| !is_given) {
            checks.fault(name, "is required with ASP_S3_URL");
        }
    }

    /// Checks rules that depend on other settings: PostgreSQL, encryption, and reachability for clients.
    pub(super) fn check(&self, checks: &mut Checks<'_>, settings: &Settings) {
        let Some(url) = &self.url else { return };
        if !matches!(settings.database, Database::Postgres(_)) {
            let message =
                "needs PostgreSQL in ASP_DATABASE_URL, which says what is there and holds the quotas";
            checks.fault("ASP_S3_URL", message);
        }
        if settings.dev {
            return;
        }
        if is_plain(url) && !address::is_this_machine(host(url)) && !settings.in_mesh() {
            let message =
                "must be https: what is stored would be in clear on the network (or ASP_PEER_PLAINTEXT=mesh)";
            checks.fault("ASP_S3_URL", message);
        }
        let (name, origin) = match &self.public_origin {
            Some(origin) => ("ASP_S3_PUBLIC_ORIGIN", origin),
            None => ("ASP_S3_URL", url),
        };
        if self.signed_urls().is_some() && (is_plain(origin) || !may_be_public(origin)) {
            let message = "is where clients go with ASP_S3_SIGNED_URLS: it must be https and no private address. Name the \
                           origin that they reach in ASP_S3_PUBLIC_ORIGIN, or leave ASP_S3_SIGNED_URLS off";
            checks.fault(name, message);
        }
    }
}

/// Parses a key. Rejects other than printable characters, such as a line end from a file.
fn key(text: &str) -> Result<Secret, &'static str> {
    if text.len() > MAX_KEY || !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("must be printable without spaces and line ends");
    }
    Ok(Secret::new(text.to_owned()))
}

fn region(text: &str) -> Result<String, &'static str> {
    match text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-') {
        true => Ok(text.to_owned()),
        false => Err("must be a region's name: letters, digits and `-`"),
    }
}

#[cfg(feature = "cluster")]
fn store_url(text: &str) -> Result<String, String> {
    asp_store::s3::check(text).map(|_| text.to_owned()).map_err(|error| error.to_string())
}

#[cfg(not(feature = "cluster"))]
fn store_url(_: &str) -> Result<String, &'static str> {
    Err("is for programs that were built with the feature `cluster`, unlike this one")
}

/// Parses the lifetime of signed URLs; zero: there are none.
fn life(text: &str) -> Result<Duration, String> {
    if text == "off" {
        return Ok(Duration::ZERO);
    }
    let seconds = text.parse::<u64>().ok().filter(|seconds| (SHORTEST..=LONGEST).contains(seconds));
    let must = || format!("must be `off`, or how long a URL can be used: {SHORTEST} to {LONGEST} seconds");
    seconds.map(Duration::from_secs).ok_or_else(must)
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

    use super::*;
    use crate::args::ServeArgs;

    const GOOD: [(&str, &str); 6] = [
        ("ASP_PUBLIC_URL", "https://mcp.example.com"),
        ("ASP_SEAL_KEY", "0123456789abcdef0123456789abcdef"),
        ("ASP_DATABASE_URL", "postgres://asp@db/asp"),
        ("ASP_S3_URL", "https://s3.example.com/asp-files/prod"),
        ("ASP_S3_ACCESS_KEY_ID", "AKIAEXAMPLE"),
        ("ASP_S3_SECRET_ACCESS_KEY", "hunter2/hunter2"),
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
        assert_eq!(faults(&[], &["ASP_S3_ACCESS_KEY_ID"]), ["ASP_S3_ACCESS_KEY_ID"]);
        assert_eq!(
            faults(&[], &["ASP_S3_ACCESS_KEY_ID", "ASP_S3_SECRET_ACCESS_KEY"]),
            ["ASP_S3_ACCESS_KEY_ID", "ASP_S3_SECRET_ACCESS_KEY"]
        );
        assert_eq!(faults(&[], &["ASP_S3_URL"]), ["ASP_S3_ACCESS_KEY_ID", "ASP_S3_SECRET_ACCESS_KEY"]);
        assert_eq!(
            faults(&[("ASP_S3_URL", "https://root:hunter2@s3.example.com/asp-files")], &[]),
            ["ASP_S3_URL"]
        );
        assert_eq!(faults(&[("ASP_S3_SECRET_ACCESS_KEY", "hunter2\n")], &[]), ["ASP_S3_SECRET_ACCESS_KEY"]);
        assert_eq!(faults(&[], &["ASP_DATABASE_URL"]), ["ASP_S3_URL"], "a quota is held by PostgreSQL");
        assert_eq!(
            faults(&[], &["ASP_DATABASE_URL", "ASP_S3_ACCESS_KEY_ID"]),
            ["ASP_S3_ACCESS_KEY_ID", "ASP_S3_URL"],
            "all of it in one go"
        );
    }

    #[test]
    fn a_key_that_cannot_be_printed_is_refused_plainly() {
        assert_eq!(key("AKIA EXAMPLE").unwrap_err(), "must be printable without spaces and line ends");
        assert_eq!(key(&"a".repeat(MAX_KEY)).unwrap().expose().len(), MAX_KEY);
        assert!(key(&"a".repeat(MAX_KEY + 1)).is_err());
    }

    #[test]
    fn what_is_stored_is_not_in_clear_beyond_this_machine() {
        let plain = ("ASP_S3_URL", "http://s3.example.com/asp-files");
        assert_eq!(faults(&[plain], &[]), ["ASP_S3_URL"]);
        assert!(faults(&[plain, ("ASP_PEER_PLAINTEXT", "mesh")], &[]).is_empty());
        for here in ["http://127.0.0.1:9000/asp-files", "http://[::ffff:127.0.0.1]:9000/asp-files"] {
            assert!(faults(&[("ASP_S3_URL", here)], &[]).is_empty(), "{here}");
        }
    }

    #[test]
    fn signed_urls_lead_where_clients_can_go() {
        let on = ("ASP_S3_SIGNED_URLS", "300");
        let private = ("ASP_S3_URL", "https://10.0.0.7:9000/asp-files");
        assert!(faults(&[on], &[]).is_empty());
        assert!(faults(&[private], &[]).is_empty());
        assert_eq!(faults(&[on, private], &[]), ["ASP_S3_URL"]);
        assert!(
            faults(&[on, private, ("ASP_S3_PUBLIC_ORIGIN", "https://files.example.com")], &[]).is_empty()
        );
        for origin in [
            "http://files.example.com",
            "https://[fd00::1]",
            "https://localhost:9000",
            "https://169.254.169.254",
        ] {
            assert_eq!(
                faults(&[on, ("ASP_S3_PUBLIC_ORIGIN", origin)], &[]),
                ["ASP_S3_PUBLIC_ORIGIN"],
                "{origin}"
            );
        }
        assert_eq!(
            faults(&[("ASP_S3_PUBLIC_ORIGIN", "https://files.example.com")], &[]),
            ["ASP_S3_PUBLIC_ORIGIN"]
        );
        for life in ["on", "5", "86400"] {
            assert_eq!(faults(&[("ASP_S3_SIGNED_URLS", life)], &[]), ["ASP_S3_SIGNED_URLS"], "{life}");
        }
    }
}
