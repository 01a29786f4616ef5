//! The network of pip and npm: the registries of the account, by a proxy for as long as the tool runs.
//!
//! Keeps true: an address in a lock, a declared dependency or a fetched package leads to no other service. If the account has a proxy
//! of its own, that proxy decides instead.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio_util::sync::CancellationToken;

use crate::registries::Registries;
use crate::registry_proxy::RegistryProxy;
use crate::tool;

/// Variables that name a proxy, or what is reached without one.
const PROXIES: [&str; 4] = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"];
const WITHOUT: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// Network of a tool that runs now.
pub(super) struct RegistryNetwork {
    /// Proxy to the registries; `None` if the account has one of its own.
    proxy: Option<RegistryProxy>,
}

impl RegistryNetwork {
    /// Starts the proxy, unless the account has one of its own.
    pub(super) fn start(registries: Registries) -> Result<RegistryNetwork> {
        if registries.has_own_proxy() {
            return Ok(RegistryNetwork { proxy: None });
        }
        let proxy = RegistryProxy::on_loopback(registries).context("start the proxy of the build")?;
        Ok(RegistryNetwork { proxy: Some(proxy) })
    }

    /// Sends a tool to the proxy. `options` are its options with the URL of a proxy, which are added to its command line.
    pub(super) fn confine(&self, command: &mut Command, options: &[&str]) {
        let Some(proxy) = &self.proxy else { return };
        let url = proxy.url();
        for option in options {
            command.arg(format!("{option}={url}"));
        }
        for variable in PROXIES {
            command.env(variable, &url);
        }
        for variable in WITHOUT {
            command.env_remove(variable);
        }
    }

    /// Runs a tool; its failure names what it was not allowed to reach.
    pub(super) fn run(
        &self,
        command: &mut Command,
        name: &str,
        (limit, stop): (Duration, &CancellationToken),
    ) -> Result<String> {
        let ran = tool::run(command, name, limit, stop);
        match self.proxy.as_ref().and_then(RegistryProxy::refusals) {
            Some(refused) => ran.with_context(|| refused),
            None => ran,
        }
    }
}

/// Runs a tool that reaches the registries alone. `options` are its options with the URL of a proxy.
pub(super) fn run(
    command: &mut Command,
    name: &str,
    registries: Registries,
    options: &[&str],
    bounds: (Duration, &CancellationToken),
) -> Result<String> {
    let network = RegistryNetwork::start(registries)?;
    network.confine(command, options);
    network.run(command, name, bounds)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use super::*;

    const BOUND: Duration = Duration::from_secs(30);

    fn shell(script: &str) -> Command {
        let mut shell = Command::new("sh");
        shell.args(["-c", script, "tool"]);
        shell
    }

    #[test]
    fn a_tool_is_sent_to_the_proxy_and_its_failure_names_what_it_was_refused() {
        let proxy = RegistryProxy::on_loopback(Registries::of(["registry.example.org"])).unwrap();
        let url = proxy.url();
        let network = RegistryNetwork { proxy: Some(proxy) };
        let stop = CancellationToken::new();
        let mut tool = shell("echo \"$HTTPS_PROXY $http_proxy ${NO_PROXY-unset}\"; echo \"$@\"");
        tool.env("NO_PROXY", "*");
        network.confine(&mut tool, &["--proxy"]);
        tool.args(["--", "kit"]);
        let said = network.run(&mut tool, "tool", (BOUND, &stop)).unwrap();
        assert_eq!(said, format!("{url} {url} unset\n--proxy={url} -- kit\n"));

        let mut stream = TcpStream::connect(url.trim_start_matches("http://")).unwrap();
        stream.write_all(b"CONNECT elsewhere.example.org:443 HTTP/1.1\r\n\r\n").unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
        let failed = network.run(&mut shell("exit 1"), "tool", (BOUND, &stop)).unwrap_err();
        assert!(failed.to_string().contains("elsewhere.example.org:443"), "{failed}");
    }

    #[test]
    fn a_proxy_of_the_account_decides_itself() {
        let network = RegistryNetwork { proxy: None };
        let mut tool = shell("echo \"$HTTPS_PROXY\" \"$@\"");
        tool.env("HTTPS_PROXY", "http://proxy.example.org");
        network.confine(&mut tool, &["--proxy"]);
        let said = network.run(&mut tool, "tool", (BOUND, &CancellationToken::new())).unwrap();
        assert_eq!(said, "http://proxy.example.org\n");
    }
}
