//! A language runtime beside a stack: `asp-runtime` with the plugins of a directory of primitives installed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::Command;

use crate::process::Process;
use crate::{tool, wait};

/// The languages set-up installs for tests, and servers that may be of any.
const LANGUAGES: &str = "python+node+java+mcp-stdio";

/// What a runtime finds around it.
#[derive(Default)]
pub struct World {
    /// Mount options of a small disk of its own for its state, which only root can mount.
    pub disk: Option<&'static str>,
    /// What it has as `/etc/hosts`, which only root can mount.
    pub hosts: Option<PathBuf>,
    /// More of its environment.
    pub environment: Vec<(&'static str, String)>,
}

/// A running `asp-runtime`.
pub struct Runtime {
    pub process: Process,
    pub socket: PathBuf,
    plugins: PathBuf,
    world: World,
    // Before the directory that it lies in.
    disk: Disk,
    // Short, because a Unix socket's path has at most 107 bytes.
    _directory: TempDir,
}

/// Where the runtime's state lies.
struct Disk {
    at: PathBuf,
    mounted: bool,
}

impl Disk {
    fn make(at: &Path, options: Option<&str>) -> Result<Disk> {
        fs::create_dir(at)?;
        if let Some(options) = options {
            let mut mount = std::process::Command::new("mount");
            let status = mount.args(["-t", "tmpfs", "-o", options, "tmpfs"]).arg(at).status()?;
            ensure!(status.success(), "only root can mount a disk of its own: {status}");
        }
        Ok(Disk { at: at.to_owned(), mounted: options.is_some() })
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if self.mounted {
            let _ = std::process::Command::new("umount").arg("-l").arg(&self.at).status();
        }
    }
}

impl Runtime {
    /// Installs the plugins of `primitives`, starts the runtime and waits until it accepts connections.
    pub async fn start(primitives: &Path, world: World) -> Result<Runtime> {
        let directory = tempfile::Builder::new().prefix("rt").tempdir()?;
        let plugins = directory.path().join("plugins");
        install(primitives, &plugins).await?;
        let socket = directory.path().join("api.sock");
        let disk = Disk::make(&directory.path().join("state"), world.disk)?;
        let process = Process::start("asp-runtime", command(&disk.at, &plugins, &socket, &world)?)?;
        let mut runtime = Runtime { process, socket, plugins, world, disk, _directory: directory };
        runtime.wait_ready().await?;
        Ok(runtime)
    }

    /// Starts it again after it was killed, over the same plugins and the same directory.
    pub async fn restart(&mut self) -> Result<()> {
        let command = command(&self.disk.at, &self.plugins, &self.socket, &self.world)?;
        self.process = Process::start("asp-runtime", command)?;
        self.wait_ready().await
    }

    /// Where its state lies.
    pub fn disk(&self) -> &Path {
        &self.disk.at
    }

    /// Where its plugins are installed.
    pub fn plugins(&self) -> &Path {
        &self.plugins
    }

    /// Kills every worker process with SIGKILL; returns how many there were.
    pub fn kill_workers(&self) -> Result<usize> {
        let mut killed = 0;
        for worker in self.workers()? {
            let pid = Pid::from_raw(worker).context("a process id is positive")?;
            // It may have ended by itself in the meantime.
            killed += usize::from(kill_process(pid, Signal::KILL).is_ok());
        }
        Ok(killed)
    }

    /// The processes of its workers.
    pub fn workers(&self) -> Result<Vec<i32>> {
        let runtime = i32::try_from(self.process.id().context("the runtime runs")?)?;
        Ok(descendants(runtime)?.into_iter().filter(|pid| is_interpreter(*pid)).collect())
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

/// Every process below `root`, by /proc.
fn descendants(root: i32) -> Result<Vec<i32>> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(pid) = entry?.file_name().to_string_lossy().parse::<i32>() else { continue };
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // "pid (name) state ppid …"; the name may hold spaces and brackets.
        let parent =
            stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(1)?.parse::<i32>().ok());
        parents.extend(parent.map(|parent| (pid, parent)));
    }
    let mut found = vec![root];
    let mut at = 0;
    while let Some(above) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, parent)| *parent == above).map(|(pid, _)| *pid));
        at += 1;
    }
    found.remove(0);
    Ok(found)
}

/// Whether it is the worker itself and not `worker-init` around it.
fn is_interpreter(pid: i32) -> bool {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&line);
    text.contains("asp_plugin.worker") || text.contains("worker.mjs") || text.contains("asp.plugin.Worker")
}

/// The value of `ASP_RUNTIMES` for a gateway.
pub fn address(socket: &Path) -> String {
    format!("{LANGUAGES}=unix:{}", socket.display())
}

/// Builds and installs every plugin whose code lies beside its spec; one without code is an error here.
async fn install(primitives: &Path, plugins: &Path) -> Result<()> {
    fs::create_dir_all(plugins)?;
    let mut build = Command::new(tool::asp()?);
    // The package files are not needed: installing makes its own.
    let packages = tempfile::tempdir()?;
    build.args(["plugin", "build"]).arg(primitives).arg("--out").arg(packages.path());
    let (java, shim) = tool::plugin_java()?;
    build.env("ASP_PLUGIN_JAVA", java).env("ASP_PLUGIN_JAVA_SHIM", shim);
    quietly(build).await?;
    let mut install = Command::new(tool::asp()?);
    install.args(["plugin", "install"]).arg(primitives).arg("--plugins").arg(plugins);
    quietly(install).await
}

/// Runs a command that has nothing to complain about, but that there may be no plugin.
async fn quietly(mut command: Command) -> Result<()> {
    let output = command.kill_on_drop(true).output().await?;
    let said = String::from_utf8_lossy(&output.stderr);
    let complains = |line: &str| {
        !line.trim().is_empty() && !line.ends_with("has a plugin") && !line.starts_with("next: ")
    };
    if !output.status.success() || said.lines().any(complains) {
        bail!("asp plugin: {said}");
    }
    Ok(())
}

fn command(state: &Path, plugins: &Path, socket: &Path, world: &World) -> Result<Command> {
    let mut command = match &world.hosts {
        None => Command::new(tool::runtime()?),
        Some(hosts) => {
            let mut around = Command::new("unshare");
            let program = r#"mount --bind "$0" /etc/hosts && exec "$@""#;
            around.args(["--mount", "--", "sh", "-c", program]).arg(hosts).arg(tool::runtime()?);
            around
        }
    };
    command.envs(world.environment.iter().map(|(name, value)| (name, value)));
    command.arg("--plugins").arg(plugins).arg("--state").arg(state).arg("--socket").arg(socket);
    let python = tool::plugin_python()?;
    let node = tool::plugin_node()?;
    let java = tool::plugin_java()?;
    command.env("ASP_PLUGIN_PYTHON", python);
    command.env("ASP_PLUGIN_NODE", node.0).env("ASP_PLUGIN_NODE_SHIM", node.1);
    command.env("ASP_PLUGIN_JAVA", java.0).env("ASP_PLUGIN_JAVA_SHIM", java.1);
    Ok(command)
}
