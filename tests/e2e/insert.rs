//! The examples of envoy/examples, filled by `envoy/fill`: the platform's filter acts where it is enabled and nowhere else.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use asp_e2e::envoy::{self, Envoy};
use asp_e2e::port::Reserved;
use asp_e2e::{http1, tool};
use tokio::process::Command;

use crate::trial::{Shared, trials};

/// Gives the harness an address to ask whether Envoy is ready.
const ADMIN: &str = "admin: { address: { socket_address: { address: 127.0.0.1, port_value: 0 } } }\n";

trials! { insert:
    the_filter_of_one_virtual_host_leaves_the_others_alone,
    the_filter_of_a_listener_refuses_every_path_before_the_first_snapshot,
    a_missing_section_or_variable_is_an_error,
}

async fn the_filter_of_one_virtual_host_leaves_the_others_alone(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let envoy = start(&directory, "virtual-host.yaml").await?;
    let own = http1::get(envoy.address, "/hello", &[]).await?;
    ensure!((own.status, own.text().as_str()) == (200, "hello\n"), "{} {}", own.status, own.text());
    let host = [("host", "mcp.localhost")];
    let refused = http1::get(envoy.address, "/hello", &host).await?;
    ensure!(refused.status == 503, "{} {}", refused.status, refused.text());
    ensure!(refused.reason().as_deref() == Some("upstream_unavailable"), "{}", refused.text());
    Ok(())
}

async fn the_filter_of_a_listener_refuses_every_path_before_the_first_snapshot(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let envoy = start(&directory, "listener.yaml").await?;
    for path in ["/hello", "/demo/mcp"] {
        let refused = http1::get(envoy.address, path, &[]).await?;
        ensure!(refused.status == 503, "{path}: {} {}", refused.status, refused.text());
        ensure!(refused.reason().as_deref() == Some("upstream_unavailable"), "{path}: {}", refused.text());
    }
    Ok(())
}

async fn a_missing_section_or_variable_is_an_error(_: &Shared) -> Result<()> {
    let directory = tempfile::tempdir()?;
    let config = directory.path().join("mine.yaml");
    std::fs::write(&config, "http_filters:\n# insert: http_filters\n")?;
    for (arguments, wanted) in
        [(vec![], "ASP_FILTER_WASM"), (vec!["ASP_FILTER_WASM=/f".to_owned()], "# insert:")]
    {
        let path = if arguments.is_empty() { example("listener.yaml")? } else { config.clone() };
        let done = fill()?.arg(path).args(arguments).output().await?;
        let error = String::from_utf8_lossy(&done.stderr).into_owned();
        ensure!(!done.status.success() && error.contains(wanted), "{wanted}: {error}");
    }
    Ok(())
}

fn example(name: &str) -> Result<std::path::PathBuf> {
    Ok(tool::root()?.join("envoy/examples").join(name))
}

/// Returns the command without the settings of this process.
fn fill() -> Result<Command> {
    let mut command = Command::new(tool::root()?.join("envoy/fill"));
    command.env_remove("ASP_PEER_CERT").env_remove("ASP_FILTER_WASM");
    Ok(command)
}

/// Starts Envoy with a filled example and without a control plane.
async fn start(directory: &tempfile::TempDir, name: &str) -> Result<Envoy> {
    let port = Reserved::new()?;
    let control = Reserved::new()?;
    let variables = [
        format!("PORT={}", port.port()),
        format!("ASP_XDS_PORT={}", control.port()),
        format!("ASP_FILTER_WASM={}", tool::filter_wasm()?.display()),
    ];
    let done = fill()?.arg(example(name)?).args(variables).output().await?;
    ensure!(done.status.success(), "envoy/fill: {}", String::from_utf8_lossy(&done.stderr));
    let config = String::from_utf8(done.stdout).context("the configuration is text")?;
    let template = directory.path().join("template.yaml");
    std::fs::write(&template, config + ADMIN)?;
    let directory = directory.path();
    let xds_port = control.port();
    Envoy::start(envoy::Settings {
        directory,
        template,
        port,
        xds_port,
        tls: None,
        variables: BTreeMap::new(),
    })
    .await
}
