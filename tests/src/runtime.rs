//! A language runtime beside a stack: `asp-runtime` with the plugins of a directory of primitives installed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::process::Process;
use crate::{tool, wait};

/// The languages set-up installs for tests.
const LANGUAGES: &str = "python+node+java";

/// A running `asp-runtime`.
pub struct Runtime {
    pub process: Process,
    pub socket: PathBuf,
    plugins: PathBuf,
    // Short, because a Unix socket's path has at most 107 bytes.
    directory: TempDir,
}

impl Runtime {
    /// Installs the plugins of `primitives`, starts the runtime and waits until it accepts connections.
    pub async fn start(primitives: &Path) -> Result<Runtime> {
        let directory = tempfile::Builder::new().prefix("rt").tempdir()?;
        let plugins = directory.path().join("plugins");
        install(primitives, &plugins).await?;
        let socket = directory.path().join("api.sock");
        let process = Process::start("asp-runtime", command(directory.path(), &plugins, &socket)?)?;
        let mut runtime = Runtime { process, socket, plugins, directory };
        runtime.wait_ready().await?;
        Ok(runtime)
    }

    /// Starts it again after it was killed, over the same plugins and the same directory.
    pub async fn restart(&mut self) -> Result<()> {
        let command = command(self.directory.path(), &self.plugins, &self.socket)?;
        self.process = Process::start("asp-runtime", command)?;
        self.wait_ready().await
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let deadline = tokio::time::Instant::now() + wait::START;
        while UnixStream::connect(&self.socket).await.is_err() {
            self.process.check_alive()?;
            if tokio::time::Instant::now() >= deadline {
                bail!("the runtime accepts no connection:\n{}", self.process.tail());
            }
            tokio::time::sleep(wait::POLL).await;
        }
        Ok(())
    }
}

/// The value of `ASP_RUNTIMES` for a gateway.
pub fn address(socket: &Path) -> String {
    format!("{LANGUAGES}=unix:{}", socket.display())
}

/// Builds and installs every plugin whose code lies beside its spec; one without code is an error here.
async fn install(primitives: &Path, plugins: &Path) -> Result<()> {
    fs::create_dir_all(plugins)?;
    let mut build = Command::new(tool::asp()?);
    build.args(["plugin", "build"]).arg(primitives);
    let (java, shim) = tool::plugin_java()?;
    build.env("ASP_PLUGIN_JAVA", java).env("ASP_PLUGIN_JAVA_SHIM", shim);
    quietly(build).await?;
    let mut install = Command::new(tool::asp()?);
    install.args(["plugin", "install"]).arg(primitives).arg("--plugins").arg(plugins);
    quietly(install).await
}

/// Runs a command that has nothing to complain about.
async fn quietly(mut command: Command) -> Result<()> {
    let output = command.kill_on_drop(true).output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() || !said.trim().is_empty() {
        bail!("asp plugin: {said}");
    }
    Ok(())
}

fn command(state: &Path, plugins: &Path, socket: &Path) -> Result<Command> {
    let mut command = Command::new(tool::runtime()?);
    command.arg("--plugins").arg(plugins).arg("--state").arg(state).arg("--socket").arg(socket);
    let python = tool::plugin_python()?;
    let (node, java) = (tool::plugin_node()?, tool::plugin_java()?);
    command.env("ASP_PLUGIN_PYTHON", python);
    command.env("ASP_PLUGIN_NODE", node.0).env("ASP_PLUGIN_NODE_SHIM", node.1);
    command.env("ASP_PLUGIN_JAVA", java.0).env("ASP_PLUGIN_JAVA_SHIM", java.1);
    Ok(command)
}
