//! The network of pip and npm: the registries of the account, by a proxy for as long as the tool runs.
//!
//! Keeps true: an address in a lock or in a declared dependency leads to no other service. If the account has a proxy of its own, that
//! proxy decides instead.

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

/// Runs a tool that reaches the registries alone. `option` is its option with the URL of a proxy.
pub(super) fn run(
    command: &mut Command,
    name: &str,
    registries: Registries,
    options: &[&str],
    (limit, stop): (Duration, &CancellationToken),
) -> Result<String> {
    if registries.has_own_proxy() {
        return tool::run(command, name, limit, stop);
    }
    let proxy = RegistryProxy::on_loopback(registries).context("start the proxy of the build")?;
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
    let ran = tool::run(command, name, limit, stop);
    match proxy.refusals() {
        Some(refused) => ran.with_context(|| refused),
        None => ran,
    }
}
