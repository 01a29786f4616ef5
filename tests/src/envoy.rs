//! A real Envoy: its configuration rendered as the development stack does, its admin interface.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use tokio::process::Command;

use crate::http1;
use crate::port::Reserved;
use crate::process::Process;
use crate::{tool, wait};

/// Worker threads, each with a filter of its own: two show what one alone would hide.
const WORKERS: u8 = 2;
/// The variable of a template that names the filter.
const FILTER: &str = "ASP_FILTER_WASM";

/// What an Envoy is started with.
pub struct Settings<'a> {
    /// Where the rendered configuration and Envoy's own files go.
    pub directory: &'a Path,
    /// The template, e.g. envoy/bootstrap.yaml of the repository.
    pub template: PathBuf,
    pub port: Reserved,
    pub xds_port: u16,
    /// Certificate and key, for the variant with TLS.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Further variables of the template; what they name is not filled in otherwise.
    pub variables: BTreeMap<String, String>,
}

/// A running Envoy.
pub struct Envoy {
    pub process: Process,
    pub address: SocketAddr,
    admin: SocketAddr,
    /// Where its configuration is, and what it says its admin interface's address in.
    files: [PathBuf; 2],
    workers: u8,
    _port: Reserved,
}

impl Envoy {
    /// Starts Envoy and waits until it listens; it needs no control plane for that.
    pub async fn start(settings: Settings<'_>) -> Result<Envoy> {
        Envoy::start_with(settings, WORKERS).await
    }

    /// The same with another number of worker threads.
    pub async fn start_with(settings: Settings<'_>, workers: u8) -> Result<Envoy> {
        let root = tool::root()?;
        let socket = match &settings.tls {
            None => fs::read_to_string(root.join("envoy/downstream-plain.json"))?,
            Some((certificate, key)) => fs::read_to_string(root.join("envoy/downstream-tls.json"))?
                .replace("${ASP_TLS_CERT}", &certificate.to_string_lossy())
                .replace("${ASP_TLS_KEY}", &key.to_string_lossy()),
        };
        let mut variables = settings.variables;
        for (name, value) in [
            ("ASP_PORT", settings.port.port().to_string()),
            ("ASP_BIND", "127.0.0.1".into()),
            ("ASP_ENVOY_ADMIN_PORT", "0".into()),
            ("ASP_XDS_PORT", settings.xds_port.to_string()),
            (FILTER, tool::filter_wasm()?.to_string_lossy().into_owned()),
            ("ASP_TRANSPORT_SOCKET", socket.trim().to_string()),
        ] {
            variables.entry(name.into()).or_insert(value);
        }
        let config = settings.directory.join("envoy.yaml");
        fs::write(&config, render(&fs::read_to_string(&settings.template)?, &variables)?)?;
        let admin_file = settings.directory.join("envoy-admin");
        let files = [config, admin_file];
        let (process, admin) = run(&files, workers).await?;
        Ok(Envoy { process, address: settings.port.address(), admin, files, workers, _port: settings.port })
    }

    /// Starts it again as it was, after its process has ended.
    pub async fn restart(&mut self) -> Result<()> {
        let [_, admin_file] = &self.files;
        fs::remove_file(admin_file)?;
        (self.process, self.admin) = run(&self.files, self.workers).await?;
        Ok(())
    }

    /// The value of a counter or gauge; an absent one is 0.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        let all = self.stats(name).await?;
        Ok(all.get(name).copied().unwrap_or(0))
    }

    /// Every counter and gauge whose name contains `part`.
    pub async fn stats(&self, part: &str) -> Result<BTreeMap<String, u64>> {
        let answer = http1::get(self.admin, "/stats", &[]).await?;
        let mut found = BTreeMap::new();
        for line in answer.text().lines().filter(|line| line.contains(part)) {
            if let Some((name, value)) = line.rsplit_once(": ")
                && let Ok(value) = value.parse()
            {
                found.insert(name.to_string(), value);
            }
        }
        Ok(found)
    }

    /// Whether it has what it judges requests by: the snapshot, and the list of revoked tokens, without which it accepts none.
    pub async fn has_snapshot(&self) -> Result<bool> {
        let taken = self.stats(".config_reload").await?;
        let has =
            |filter| taken.get(&format!("extension_config_discovery.http_filter.{filter}.config_reload"));
        Ok(["asp-edge", "asp-revoked"].into_iter().all(|filter| has(filter).is_some_and(|count| *count > 0)))
    }

    /// Where its admin interface listens, on loopback.
    pub fn admin_port(&self) -> u16 {
        self.admin.port()
    }

    /// The text of an admin path, e.g. `/config_dump`.
    pub async fn admin(&self, path: &str) -> Result<String> {
        Ok(http1::get(self.admin, path, &[]).await?.text())
    }
}

/// The variable of a template that names the filter.
pub fn filter_variable(wasm: &Path) -> BTreeMap<String, String> {
    BTreeMap::from([(FILTER.to_string(), wasm.to_string_lossy().into_owned())])
}

/// Fills in a template's `${NAME}`s; an unknown one is an error.
pub fn render(template: &str, variables: &BTreeMap<String, String>) -> Result<String> {
    let mut text = template.to_string();
    for (name, value) in variables {
        text = text.replace(&format!("${{{name}}}"), value);
    }
    if let Some((_, rest)) = text.split_once("${") {
        bail!("the template names an unknown variable: ${{{}", rest.chars().take(40).collect::<String>());
    }
    Ok(text)
}

async fn run([config, admin_file]: &[PathBuf; 2], workers: u8) -> Result<(Process, SocketAddr)> {
    let mut command = Command::new(tool::envoy()?);
    command.arg("--config-path").arg(config).arg("--admin-address-path").arg(admin_file);
    // Several Envoys share this machine: no hot restart, so no shared memory to collide on.
    command.args(["--disable-hot-restart", "--log-level", "warning", "--concurrency"]);
    command.arg(workers.to_string());
    let mut process = Process::start("envoy", command)?;
    let admin = ready(&mut process, admin_file).await?;
    Ok((process, admin))
}

async fn ready(process: &mut Process, admin_file: &Path) -> Result<SocketAddr> {
    let deadline = tokio::time::Instant::now() + wait::START;
    loop {
        process.check_alive()?;
        if let Ok(text) = fs::read_to_string(admin_file)
            && let Ok(admin) = text.trim().parse()
            && http1::get(admin, "/ready", &[]).await.is_ok_and(|answer| answer.status == 200)
        {
            return Ok(admin);
        }
        if tokio::time::Instant::now() >= deadline {
            return Err(anyhow::anyhow!(process.tail())).context("envoy is not ready");
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}
