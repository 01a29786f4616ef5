//! Registries of packages that a build may reach: those of the account's configuration of pip, npm and Maven, and those of
//! `ASP_BUILD_REGISTRIES`.
//!
//! Keeps true: nothing that a plugin's folder contains adds a registry.

use std::collections::BTreeSet;
use std::fmt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::tool;

/// URLs or hosts of further registries, separated by commas.
pub const ENV_BUILD_REGISTRIES: &str = "ASP_BUILD_REGISTRIES";
/// Registries of each tool without any configuration.
const OF_PIP: [&str; 2] = ["https://pypi.org", "https://files.pythonhosted.org"];
const OF_NPM: [&str; 1] = ["https://registry.npmjs.org"];
const OF_MAVEN: [&str; 2] = ["https://repo.maven.apache.org", "https://repo1.maven.org"];
/// Timeout for asking a tool for its configuration.
const ASK: Duration = Duration::from_secs(30);
/// Maximum number of registries.
const MAX_REGISTRIES: usize = 64;
/// Maximum length of a host name in DNS.
const MAX_HOST: usize = 253;
/// Variables that name a proxy of the account.
const OF_PROXIES: [&str; 6] =
    ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"];

/// Host and port of a registry.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RegistryAddress {
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// Registries that a build may reach.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Registries {
    addresses: BTreeSet<RegistryAddress>,
    /// Whether the account's configuration of the tool names a proxy.
    has_proxy: bool,
}

impl RegistryAddress {
    /// Parses `host:port`, or `host` if there is a port to take.
    pub(crate) fn of_authority(text: &str, port: Option<u16>) -> Option<RegistryAddress> {
        let (host, port) = match text.rsplit_once(':') {
            Some((host, number)) if number.bytes().all(|byte| byte.is_ascii_digit()) => {
                (host, number.parse().ok()?)
            }
            Some(_) => return None,
            None => (text, port?),
        };
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_".contains(&byte);
        let fits = (1..=MAX_HOST).contains(&host.len()) && host.bytes().all(is_plain) && port != 0;
        fits.then(|| RegistryAddress { host: host.to_ascii_lowercase(), port })
    }

    /// Parses the beginning of a URL.
    fn of_url(url: &str) -> Option<RegistryAddress> {
        let (scheme, rest) = url.split_once("://")?;
        let port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return None,
        };
        let authority = rest.split(['/', '?', '#']).next()?;
        let host = authority.rsplit('@').next()?;
        RegistryAddress::of_authority(host, Some(port))
    }
}

impl fmt::Display for RegistryAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.host, self.port)
    }
}

impl Registries {
    /// Returns the registries at these URLs; a text without a scheme is a host, reached by HTTPS.
    pub(crate) fn of<'u>(urls: impl IntoIterator<Item = &'u str>) -> Registries {
        let address = |url: &str| match url.contains("://") {
            true => RegistryAddress::of_url(url),
            false => RegistryAddress::of_authority(url, Some(443)),
        };
        let addresses = urls.into_iter().filter_map(address).take(MAX_REGISTRIES).collect();
        Registries { addresses, has_proxy: false }
    }

    pub(crate) fn allow(&self, address: &RegistryAddress) -> bool {
        self.addresses.contains(address)
    }

    /// Whether the account reaches the network by a proxy of its own, which decides then.
    pub(crate) fn has_own_proxy(&self) -> bool {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        self.has_proxy || OF_PROXIES.iter().any(|name| is_set(name))
    }

    /// Returns the registries of pip. `pip` starts it; its list of settings includes those of variables.
    pub(crate) fn of_pip(mut pip: Command, stop: &CancellationToken) -> Registries {
        pip.args(["config", "list"]);
        // Err: an old pip has no such list, and a broken one says so when it installs.
        let listed = tool::run(&mut pip, "pip", ASK, stop).unwrap_or_default();
        let has_proxy = listed.lines().any(|line| {
            line.split_once('=').is_some_and(|(key, value)| key.ends_with(".proxy") && value.len() > 2)
        });
        Registries { has_proxy, ..Registries::configured(&OF_PIP, &listed) }
    }

    /// Returns the registries of npm for this account: the project's own file is not read in `folder`.
    pub(crate) fn of_npm(folder: &Path, stop: &CancellationToken) -> Registries {
        let mut npm = Command::new("npm");
        npm.args(["config", "list", "--json"]).current_dir(folder);
        let listed = tool::run(&mut npm, "npm", ASK, stop).unwrap_or_default();
        let settings = || listed.lines().filter_map(|line| line.trim().trim_matches('"').split_once("\": "));
        let values: Vec<&str> =
            settings().filter(|(key, _)| key.ends_with("registry")).map(|(_, value)| value).collect();
        let is_proxy = |key: &str| key == "proxy" || key == "https-proxy";
        let has_proxy = settings().any(|(key, value)| is_proxy(key) && value.contains("://"));
        Registries { has_proxy, ..Registries::configured(&OF_NPM, &values.join("\n")) }
    }

    /// Returns the registries of Maven. `settings` is the text of the account's `settings.xml`.
    pub(crate) fn of_maven(settings: &str) -> Registries {
        Registries::configured(&OF_MAVEN, settings)
    }

    /// Returns the usual registries, those whose URLs are in `text`, and those of the operator's setting.
    fn configured(usual: &[&str], text: &str) -> Registries {
        let further = std::env::var(ENV_BUILD_REGISTRIES).unwrap_or_default();
        let further = further.split(',').map(str::trim).filter(|name| !name.is_empty());
        Registries::of(usual.iter().copied().chain(urls(text)).chain(further))
    }
}

/// Returns the URLs of HTTP in a text.
fn urls(text: &str) -> impl Iterator<Item = &str> {
    // pip writes the ends of lines as `\n`.
    let is_end = |c: char| c.is_whitespace() || c.is_control() || "\\\"'<>,;()[]{}".contains(c);
    text.split(is_end).filter_map(|word| {
        let at = word.find("https://").or_else(|| word.find("http://"))?;
        word.get(at..)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(host: &str, port: u16) -> RegistryAddress {
        RegistryAddress { host: host.into(), port }
    }

    #[test]
    fn a_registry_is_a_host_and_a_port() {
        for (url, expected) in [
            ("https://Registry.npmjs.org/", Some(("registry.npmjs.org", 443))),
            ("https://user:word@npm.example.org/a/b", Some(("npm.example.org", 443))),
            ("http://127.0.0.1:4873", Some(("127.0.0.1", 4873))),
            ("http://verdaccio?x", Some(("verdaccio", 80))),
            ("npm.example.org", Some(("npm.example.org", 443))),
            ("npm.example.org:8443", Some(("npm.example.org", 8443))),
            ("https://a:b", None),
            ("https://a:70000", None),
            ("https://a:0", None),
            ("https:///x", None),
            ("ftp://a", None),
            ("a b", None),
            ("", None),
        ] {
            let expected = expected.map(|(host, port)| address(host, port));
            let expected = Registries { addresses: expected.into_iter().collect(), has_proxy: false };
            assert_eq!(Registries::of([url]), expected, "{url}");
        }
    }

    #[test]
    fn the_urls_of_a_configuration_are_registries_beside_the_usual_ones() {
        let pip = "global.index-url='https://pypi.example.org/simple'\n\
            global.extra-index-url='\\nhttps://one.example.org\\nhttp://two.example.org:81'\n:env:.find-links='/opt/wheels'\n";
        let found = Registries::configured(&OF_PIP, pip);
        for (host, port) in [
            ("pypi.org", 443),
            ("files.pythonhosted.org", 443),
            ("pypi.example.org", 443),
            ("one.example.org", 443),
            ("two.example.org", 81),
        ] {
            assert!(found.allow(&address(host, port)), "{host}: {found:?}");
        }
        assert!(!found.allow(&address("two.example.org", 443)) && !found.allow(&address("example.org", 443)));
        let maven = "<mirror><url>https://maven.example.org/all</url></mirror>";
        assert!(Registries::of_maven(maven).allow(&address("maven.example.org", 443)));
    }
}
