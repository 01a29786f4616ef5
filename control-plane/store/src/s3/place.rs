//! Location of a store, parsed from one URL: `http(s)://host[:port]/bucket[/prefix]`.
//!
//! Keeps true: it contains no credentials, and errors repeat none that a URL contains.

use url::Url;

/// Length of a bucket's name (S3, "General purpose bucket naming rules").
const BUCKET: std::ops::RangeInclusive<usize> = 3..=63;
/// Maximum length of a prefix in bytes: an S3 key has at most 1,024.
const MAX_PREFIX: usize = 256;

/// Fault of a store's URL. Does not repeat the URL, which may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("must be http(s)://host[:port]/bucket[/prefix], without user, query and fragment")]
    Form,
    #[error("names no bucket: the host must be followed by 3 to 63 of a-z, 0-9, `.` and `-`")]
    Bucket,
    #[error(
        "has a prefix with characters other than letters, digits, `.`, `_`, `-` and `/`, or one that is too long"
    )]
    Prefix,
}

/// A bucket and a prefix in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreLocation {
    pub(super) endpoint: Url,
    pub(super) bucket: String,
    /// Key prefix: empty, or ends with `/`.
    pub(super) prefix: String,
}

impl StoreLocation {
    /// Whether connections are unencrypted.
    pub fn is_plain(&self) -> bool {
        self.endpoint.scheme() == "http"
    }

    /// Returns the host as written in the URL.
    pub fn host(&self) -> &str {
        self.endpoint.host_str().unwrap_or_default()
    }
}

/// Parses a URL, without connecting.
pub fn check(url: &str) -> Result<StoreLocation, BadUrl> {
    let mut endpoint = Url::parse(url).map_err(|_| BadUrl::Form)?;
    let is_plain = matches!(endpoint.scheme(), "http" | "https")
        && endpoint.host_str().is_some_and(|host| !host.is_empty())
        && endpoint.username().is_empty()
        && endpoint.password().is_none()
        && endpoint.query().is_none()
        && endpoint.fragment().is_none();
    if !is_plain {
        return Err(BadUrl::Form);
    }
    // From the original text, because the parser resolves `..`.
    let path = url.split_once("://").and_then(|(_, rest)| rest.split_once('/')).map_or("", |(_, path)| path);
    let path = path.trim_end_matches('/');
    let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
    let of_bucket = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-".contains(&byte);
    if !BUCKET.contains(&bucket.len()) || !bucket.bytes().all(of_bucket) || bucket.contains("..") {
        return Err(BadUrl::Bucket);
    }
    let of_prefix = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let is_segment = |segment: &str| !matches!(segment, "" | "." | "..") && segment.bytes().all(of_prefix);
    if !prefix.is_empty() && (prefix.len() > MAX_PREFIX || !prefix.split('/').all(is_segment)) {
        return Err(BadUrl::Prefix);
    }
    let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
    let bucket = bucket.to_owned();
    endpoint.set_path("/");
    Ok(StoreLocation { endpoint, bucket, prefix })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_says_endpoint_bucket_and_prefix() {
        for (url, endpoint, bucket, prefix) in [
            (
                "https://s3.eu-central-1.amazonaws.com/asp-files",
                "https://s3.eu-central-1.amazonaws.com/",
                "asp-files",
                "",
            ),
            ("http://127.0.0.1:9000/asp/", "http://127.0.0.1:9000/", "asp", ""),
            (
                "https://minio.internal/team.files/asp/prod",
                "https://minio.internal/",
                "team.files",
                "asp/prod/",
            ),
        ] {
            let place = check(url).unwrap();
            assert_eq!(
                (place.endpoint.as_str(), place.bucket.as_str(), place.prefix.as_str()),
                (endpoint, bucket, prefix)
            );
        }
    }

    #[test]
    fn other_urls_are_refused_without_being_repeated() {
        for url in [
            "",
            "s3://asp",
            "https://",
            "https://root:hunter2@host/bucket",
            "https://hunter2@host/bucket",
            "https://host/bucket?key=hunter2",
            "https://host/bucket#hunter2",
            "https://host",
            "https://host/",
            "https://host/BUCKET",
            "https://host/ab",
            "https://host/a..b",
            "https://host/bucket/../other",
            "https://host/bucket/a//b",
            "https://host/bucket/a%2Fb",
        ] {
            let Err(error) = check(url) else { panic!("{url} is taken") };
            assert!(!error.to_string().contains("hunter2"), "{error}");
        }
    }
}
