//! `asp mcp`: connects a client on standard input and output to a server of a platform, or to one in a directory that this
//! process serves itself.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use asp_command::environment::{Environment, ProcessEnvironment};
use asp_command::failure::Failure;
use asp_platform::secret::Secret;
use reqwest::Url;

use crate::args::mcp::McpArgs;
use crate::bridge::{self, Credential, ServerEndpoint};
use crate::serve::stop;
use crate::settings::listen::DEFAULT_PORT;

const ENV_EDGE_URL: &str = "ASP_EDGE_URL";
pub(super) const ENV_TOKEN: &str = "ASP_TOKEN";
const ENV_TOKEN_FILE: &str = "ASP_TOKEN_FILE";
/// Time that hanging tasks have after the client is gone.
const REST: Duration = Duration::from_secs(1);

/// Runs until the client has closed standard input and its requests are answered, or until a signal.
pub fn run(args: &McpArgs) -> Result<(), Failure> {
    if let Some(directory) = &args.embedded {
        return super::dev::embedded(directory, args.server.clone());
    }
    let server = args.server.as_deref().unwrap_or_default();
    let place = endpoint(args.url.as_deref(), server, "mcp", &ProcessEnvironment)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start the runtime")?;
    let outcome = runtime.block_on(bridge::run(place, async {
        // Err: signals cannot be received; closing standard input still ends the process.
        if stop::wait_for_signal().await.is_err() {
            std::future::pending::<()>().await;
        }
    }));
    runtime.shutdown_timeout(REST);
    Ok(outcome?)
}

/// Returns the platform's URL of the command line, or else of the environment.
pub(super) fn edge_url(stated: Option<&str>, environment: &dyn Environment) -> Result<Url, Failure> {
    let base = stated.map(str::to_owned).or_else(|| environment.get(ENV_EDGE_URL));
    let base = base.unwrap_or_else(|| format!("http://127.0.0.1:{DEFAULT_PORT}"));
    let name = if stated.is_some() { "--url" } else { ENV_EDGE_URL };
    let is_good = |url: &Url| ["http", "https"].contains(&url.scheme()) && url.has_host();
    let url = Url::parse(&base).ok().filter(is_good);
    url.ok_or_else(|| Failure::bad(name, format!("`{base}` is not an http or https URL")))
}

/// Returns the endpoint of a server's protocol below the URL of the command line, or else of the environment.
pub(super) fn endpoint(
    stated: Option<&str>,
    server: &str,
    protocol: &str,
    environment: &dyn Environment,
) -> Result<ServerEndpoint, Failure> {
    let url = bridge::below(edge_url(stated, environment)?, server, protocol);
    let url = url.context("the URL of the platform has no path below it")?;
    let credential = match (environment.get(ENV_TOKEN), environment.get(ENV_TOKEN_FILE)) {
        (Some(_), Some(_)) => {
            return Err(Failure::bad(ENV_TOKEN, format!("and {ENV_TOKEN_FILE} are both set; one is enough")));
        }
        (Some(token), None) => Credential::Token(Secret::new(token)),
        (None, Some(path)) => Credential::File(PathBuf::from(path)),
        (None, None) => Credential::None,
    };
    Ok(ServerEndpoint { url, credential })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    fn placed(url: Option<&str>, variables: &[(&str, &str)]) -> Result<ServerEndpoint, Failure> {
        let variables: BTreeMap<&str, &str> = variables.iter().copied().collect();
        endpoint(url, "demo", "mcp", &variables)
    }

    #[test]
    fn the_server_is_below_the_platforms_url() {
        let url = |url, variables: &[_]| placed(url, variables).unwrap().url.to_string();
        assert_eq!(url(None, &[]), "http://127.0.0.1:8080/demo/mcp");
        assert_eq!(url(None, &[("ASP_EDGE_URL", "https://x.example/")]), "https://x.example/demo/mcp");
        assert_eq!(url(Some("http://y:1"), &[("ASP_EDGE_URL", "https://x")]), "http://y:1/demo/mcp");
    }

    #[test]
    fn what_is_no_url_and_two_tokens_are_refused() {
        for bad in ["y:1", "ftp://x", "", "http://"] {
            assert!(matches!(placed(Some(bad), &[]), Err(Failure::Configuration(_))), "{bad}");
        }
        let both = placed(None, &[("ASP_TOKEN", "a"), ("ASP_TOKEN_FILE", "b")]);
        assert!(matches!(both, Err(Failure::Configuration(_))));
    }
}
