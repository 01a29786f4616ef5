//! One runtime with its plugins, and a gateway's connection to it. Everything is gone when it is dropped.
//!
//! Every repeat has a bed of its own: backoff, quarantine and breaker of the last one must not be seen.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use asp_e2e::{tool, wait};
use asp_proto::supervisor::{DrainRequest, EnsurePluginRequest, HealthRequest, PluginRef};
use asp_runtime_client::runtimes::Runtime;
use prost_types::value::Kind;
use tempfile::TempDir;
use tokio::time::{Instant, sleep};

use crate::plugins::{self, GOOD, RELEASE};

const POLL: Duration = Duration::from_millis(10);
const LOG_TAIL: usize = 15;
/// Workers and places of the neighbours' plugin.
const NEIGHBOURS: (u32, u32) = (2, 8);

/// A gateway's connection to the runtime.
pub(crate) type Client = Arc<Runtime>;

pub(crate) struct Bed {
    pub client: Client,
    child: Child,
    directory: TempDir,
}

impl Bed {
    /// Starts a runtime over what `install` puts into its directory of plugins; [`GOOD`] is always there, warm.
    pub(crate) async fn start(install: impl FnOnce(&Path) -> Result<()>) -> Result<Bed> {
        // Short, because a Unix socket's path has at most 107 bytes.
        let directory = tempfile::Builder::new().prefix("ch").tempdir()?;
        let installed = directory.path().join("plugins");
        fs::create_dir(&installed)?;
        plugins::echo(&installed, GOOD, RELEASE, NEIGHBOURS)?;
        install(&installed)?;
        let socket = directory.path().join("api.sock");
        let child = command(directory.path(), &socket)?.spawn().context("start asp-runtime")?;
        let mut bed = Bed { client: Runtime::local(&socket)?, child, directory };
        bed.wait_ready(&socket).await?;
        bed.warm(GOOD, RELEASE, NEIGHBOURS.0).await?;
        Ok(bed)
    }

    async fn wait_ready(&mut self, socket: &Path) -> Result<()> {
        let deadline = Instant::now() + wait::START;
        while tokio::net::UnixStream::connect(socket).await.is_err() {
            if let Some(status) = self.child.try_wait()? {
                bail!("asp-runtime ended with {status}:\n{}", self.log_tail());
            }
            if Instant::now() > deadline {
                bail!("asp-runtime accepts no connection:\n{}", self.log_tail());
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    /// A client with a connection of its own.
    pub(crate) fn another_client(&self) -> Result<Client> {
        Ok(Runtime::local(&self.directory.path().join("api.sock"))?)
    }

    pub(crate) fn plugins(&self) -> PathBuf {
        self.directory.path().join("plugins")
    }

    /// The runtime's process.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Lets the runtime keep workers of this plugin, and waits until as many are there.
    pub(crate) async fn warm(&self, id: &str, version: &str, workers: u32) -> Result<()> {
        self.prewarm(id, version).await?;
        let deadline = Instant::now() + wait::START;
        let name = format!("{id}@{version}");
        while self.figure(&name, "workers").await? - self.figure(&name, "starting").await?
            < f64::from(workers)
        {
            if Instant::now() > deadline {
                bail!("{name} has no {workers} workers:\n{}", self.log_tail());
            }
            sleep(POLL).await;
        }
        Ok(())
    }

    pub(crate) async fn prewarm(&self, id: &str, version: &str) -> Result<()> {
        let plugin = Some(reference(id, version));
        let request = EnsurePluginRequest { plugin, prewarm: true, ..EnsurePluginRequest::default() };
        self.client
            .any_client()
            .ensure_plugin(request)
            .await
            .with_context(|| format!("ensure {id} {version}"))?;
        Ok(())
    }

    pub(crate) async fn drain(&self, id: &str, version: &str, deadline: Option<Duration>) -> Result<()> {
        let request = DrainRequest {
            plugin: Some(reference(id, version)),
            graceful: deadline.is_some(),
            deadline: deadline.map(TryInto::try_into).transpose().context("the deadline is too long")?,
        };
        self.client.any_client().drain(request).await.with_context(|| format!("drain {id} {version}"))?;
        Ok(())
    }

    /// A figure of a plugin in the runtime's health; 0 when it is not there.
    pub(crate) async fn figure(&self, plugin: &str, name: &str) -> Result<f64> {
        let health =
            self.client.any_client().health(HealthRequest {}).await.context("ask for health")?.into_inner();
        let mut at = Kind::StructValue(health.runtimes.context("health has figures")?);
        for key in ["plugins", plugin, name] {
            let Kind::StructValue(mut fields) = at else { return Ok(0.0) };
            match fields.fields.remove(key).and_then(|value| value.kind) {
                Some(kind) => at = kind,
                None => return Ok(0.0),
            }
        }
        let Kind::NumberValue(number) = at else { bail!("{name} of {plugin} is no number") };
        Ok(number)
    }

    /// Ends the runtime as a crash would.
    pub(crate) fn kill(&mut self) -> Result<()> {
        self.child.kill().context("kill the runtime")?;
        self.child.wait().context("wait for the runtime")?;
        Ok(())
    }

    pub(crate) fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(self.directory.path().join("log")).unwrap_or_default()).into_owned()
    }

    pub(crate) fn log_tail(&self) -> String {
        let log = self.log();
        let lines: Vec<&str> = log.lines().collect();
        lines.get(lines.len().saturating_sub(LOG_TAIL)..).unwrap_or_default().join("\n")
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        // Err: it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn reference(id: &str, version: &str) -> PluginRef {
    PluginRef { id: id.to_owned(), version: version.to_owned(), ..PluginRef::default() }
}

fn command(directory: &Path, socket: &Path) -> Result<Command> {
    let mut command = Command::new(tool::runtime()?);
    command.arg("--plugins").arg(directory.join("plugins")).arg("--state").arg(directory.join("state"));
    command.arg("--socket").arg(socket);
    let node = tool::plugin_node()?;
    let java = tool::plugin_java()?;
    command.env("ASP_PLUGIN_PYTHON", tool::plugin_python()?);
    command.env("ASP_PLUGIN_NODE", node.0).env("ASP_PLUGIN_NODE_SHIM", node.1);
    command.env("ASP_PLUGIN_JAVA", java.0).env("ASP_PLUGIN_JAVA_SHIM", java.1);
    // To a file: reading a flooded log here would take processor time from the neighbours.
    let log = File::create(directory.join("log"))?;
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    Ok(command)
}
