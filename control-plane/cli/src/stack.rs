//! `--stack`: the processes of a development machine around `asp serve`, started, watched and stopped.
//!
//! Owns: Envoy, the sample MCP server, the language runtime, and the file that signals that the stack is ready. Keeps true:
//! no child outlives this process, and a child that keeps dying ends the stack with one clear line.

pub mod child;
pub mod everything;
pub mod plugins;
pub mod ready;
pub mod runtime;
pub mod secrets;
pub mod table;
pub mod template;

use std::path::Path;

use anyhow::Context;
use asp_command::state_dir;

use crate::settings::Settings;
use child::Program;
use template::Variables;

/// Envoy's bootstrap, and the two transport sockets that it can be filled with.
const BOOTSTRAP: &str = include_str!("../../../envoy/bootstrap.yaml");
const PLAIN: &str = include_str!("../../../envoy/downstream-plain.json");
const TLS: &str = include_str!("../../../envoy/downstream-tls.json");

/// Ports that Envoy is started with.
#[derive(Clone, Copy, Debug)]
pub struct EnvoyPorts {
    pub edge: u16,
    pub admin: u16,
    pub xds: u16,
}

/// Writes `envoy.yaml` into the state directory and returns the program that runs it.
pub fn envoy(settings: &Settings, program: &Path, ports: EnvoyPorts) -> anyhow::Result<Program> {
    let mut variables = Variables::from([
        ("ASP_PORT", ports.edge.to_string()),
        ("ASP_ENVOY_ADMIN_PORT", ports.admin.to_string()),
        ("ASP_XDS_PORT", ports.xds.to_string()),
        ("ASP_BIND", settings.listen.bind.to_string()),
        ("ASP_FILTER_WASM", text(&settings.filter_wasm)),
    ]);
    let socket = match &settings.tls {
        None => PLAIN.to_owned(),
        Some(tls) => {
            let files =
                Variables::from([("ASP_TLS_CERT", text(&tls.certificate)), ("ASP_TLS_KEY", text(&tls.key))]);
            template::render(TLS, &files).context("fill in Envoy's TLS settings")?
        }
    };
    variables.insert("ASP_TRANSPORT_SOCKET", socket.trim().to_owned());
    let rendered = template::render(BOOTSTRAP, &variables).context("fill in Envoy's bootstrap")?;
    let path = settings.state_dir.join("envoy.yaml");
    state_dir::replace(&path, rendered.as_bytes()).with_context(|| format!("write {}", path.display()))?;
    let arguments = [
        "--config-path",
        &text(&path),
        "--concurrency",
        &settings.edge_workers.to_string(),
        // Two stacks on one machine must not share Envoy's shared memory.
        "--disable-hot-restart",
        "--log-level",
        "warning",
        // The filter logs refused requests.
        "--component-log-level",
        "wasm:info",
        "--log-format",
        r#"{"level":"%l","component":"envoy","logger":"%n","message":"%j"}"#,
    ];
    Ok(Program {
        name: "envoy",
        path: program.to_owned(),
        arguments: arguments.map(str::to_owned).to_vec(),
        environment: Vec::new(),
        listener: None,
    })
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}
