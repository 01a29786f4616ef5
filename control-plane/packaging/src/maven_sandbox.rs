//! Builds of Maven projects in a sandbox: Maven runs what a `pom.xml` says, without the user's files and with no network but the
//! registries.
//!
//! Owns the sandbox of one build, and the files that a project downloaded, which its own later builds use. Needs level 3, because lower
//! levels have no network at all. Keeps true: the build sees the project, its parent POMs, the local repository, Maven, Java and
//! the account's `settings.xml`; only regular files below `target` come out; what one project downloads reaches no other project.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, chown};
use std::path::{Component, Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use asp_launcher::{Bounds, Egress, Level, Limits, Probe, Processes, Sandbox, own_group};
use sha2::{Digest, Sha256};
use tar::{Archive, EntryType};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::languages::runtime_binary;
use super::registries::Registries;
use super::registry_proxy::RegistryProxy;
use super::{dependencies, maven};

const SCRIPT: &str = include_str!("maven_sandbox/build.sh");
/// Port of the proxy on the loopback inside.
const PORT: u16 = 8118;
/// User inside if this process is root: `nobody` on common systems.
const NOBODY: u32 = 65534;
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Interval at which the memory of all processes of a build is read: no control group bounds them together.
const SAMPLE_EVERY: Duration = Duration::from_millis(500);
/// Maximum bytes of the output that are reported.
const MAX_OUTPUT: u64 = 1 << 20;
/// Maximum bytes and number of files that come out of a build.
const MAX_RESULT: u64 = 1 << 30;
const MAX_FILES: usize = 100_000;
const MAX_SETTINGS: u64 = 1 << 20;
/// Maximum number of projects whose downloads are kept; those of the one that was not built for the longest time are removed first.
const MAX_PROJECTS: usize = 16;
/// Files of the machine that every sandbox shows.
const SHOWN: [&str; 3] = ["/usr", "/lib", "/bin"];
/// Debian's settings of Maven, to which its folder has links.
const DEBIAN: &str = "/etc/maven";

/// Bounds of a build. Compiling needs memory for the compiler and for the tests beside Maven.
const LIMITS: Limits = Limits {
    memory_bytes: 4 << 30,
    cpu_millis: 64_000,
    pids: 1024,
    files: 4096,
    disk_bytes: 2 << 30,
    file_bytes: 1 << 30,
    cpu_seconds: None,
};

/// Sandbox of this machine for builds.
pub(crate) struct MavenSandbox {
    worker_init: PathBuf,
    probe: Probe,
    registries: Registries,
    settings: Option<PathBuf>,
    programs: Programs,
}

/// Maven and Java as this process finds them.
struct Programs {
    maven: PathBuf,
    maven_home: PathBuf,
    java_home: PathBuf,
}

/// Files of the machine that one build reads.
struct BuildFiles<'a> {
    folder: &'a Path,
    kept: &'a Path,
    /// Settings with the proxy.
    network: &'a Path,
    /// The account's local repository.
    shared: Option<PathBuf>,
    /// Parent POMs on disk.
    poms: Vec<PathBuf>,
}

/// Directories of one build.
struct BuildHome {
    root: PathBuf,
    _work: TempDir,
}

impl MavenSandbox {
    /// Finds the sandbox; `Err`: the reason why this machine has none for builds.
    pub(crate) fn find() -> Result<MavenSandbox> {
        let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let beside = || {
            let runtime = named("ASP_RUNTIME_BIN").or_else(runtime_binary)?;
            Some(runtime.canonicalize().ok()?.with_file_name("worker-init"))
        };
        let worker_init = named("ASP_RUNTIME_WORKER_INIT").or_else(beside);
        let worker_init = worker_init.filter(|path| path.is_file()).context("worker-init was not found")?;
        let settings = named("HOME").map(|home| home.join(".m2/settings.xml")).filter(|file| file.is_file());
        let registries = Registries::of_maven(&read_settings(settings.as_deref())?);
        if registries.has_own_proxy() {
            bail!("the account reaches the network by a proxy of its own");
        }
        let programs = Programs::find()?;
        let home = BuildHome::create()?;
        let probe = asp_launcher::probe(&worker_init, &home.root);
        if probe.level != Some(Level::L3) {
            let why = probe.missing.first().map(|(_, why)| why.clone()).unwrap_or_default();
            bail!("the sandbox of builds needs level 3: {why}");
        }
        Ok(MavenSandbox { worker_init, probe, registries, settings, programs })
    }

    /// Builds the project in `folder`, for at most `limit`, and replaces its `target`.
    pub(crate) fn build(&self, folder: &Path, (limit, stop): (Duration, &CancellationToken)) -> Result<()> {
        let folder = folder.canonicalize().with_context(|| format!("find {}", folder.display()))?;
        let home = BuildHome::create()?;
        let kept = project_repository(&folder)?;
        let user = if self.probe.own_user { NOBODY } else { rustix::process::geteuid().as_raw() };
        home.prepare(self.probe.own_user.then_some(user))?;
        let proxy = RegistryProxy::on_socket(&home.socket(), self.registries.clone())
            .context("start the proxy of the build")?;
        home.give(&home.socket(), self.probe.own_user.then_some(user))?;
        let sandbox = self.sandbox(&folder, &home, &kept, user)?;
        let results = tempfile::tempfile().context("create a file for the results")?;
        let output = tempfile::tempfile().context("create a file for the output")?;
        let launched = asp_launcher::launch(&self.worker_init, &sandbox, None);
        let mut launch = launched.context("describe the sandbox of the build")?;
        launch.command.stdin(Stdio::null());
        launch.command.stdout(results.try_clone().context("share a file")?);
        launch.command.stderr(output.try_clone().context("share a file")?);
        let mut child = launch.command.spawn().context("start worker-init")?;
        let succeeded = wait(&mut child, limit, stop)?;
        if let Some(fault) = launch.report.fault() {
            bail!("the sandbox of the build could not be made: {}: {}", fault.step, fault.error);
        }
        if !succeeded {
            let refused = proxy.refusals().map(|refused| format!("\n{refused}")).unwrap_or_default();
            bail!("mvn failed in the sandbox:\n{}{refused}", end_of(output)?.trim_end());
        }
        take_results(results, &folder, &kept)
    }

    fn sandbox(&self, folder: &Path, home: &BuildHome, kept: &Path, user: u32) -> Result<Sandbox> {
        let network = home.root.join("settings.xml");
        fs::write(&network, network_settings()).with_context(|| format!("write {}", network.display()))?;
        fs::set_permissions(&network, fs::Permissions::from_mode(0o644)).context("open the settings")?;
        let files = BuildFiles {
            folder,
            kept,
            network: &network,
            shared: shared_repository(),
            poms: maven::parents(folder),
        };
        let work_dir = home.root.join("home");
        let script = ["/bin/sh", "-c", SCRIPT, "build"].map(str::to_owned);
        Ok(Sandbox {
            level: Level::L3,
            bounds: Bounds::Sampled,
            keeps_user: false,
            argv: script.into_iter().chain(maven::goals()).collect(),
            env: self.environment(&files, &work_dir)?,
            read_only: self.read_only(files),
            work_dir,
            run_dir: home.root.join("run"),
            uid: user,
            gid: if self.probe.own_user { user } else { own_group(false) },
            limits: LIMITS,
            egress: Some(Egress { proxy_socket: home.socket(), port: PORT, tcp: Vec::new() }),
            hostname: "build".to_owned(),
        })
    }

    /// Returns the variables of the script and of Maven.
    fn environment(&self, files: &BuildFiles<'_>, work_dir: &Path) -> Result<BTreeMap<String, String>> {
        let text = |path: &Path| path.to_str().map(str::to_owned).context("a path is not UTF-8");
        let optional = |path: Option<&Path>| path.map(text).transpose().map(Option::unwrap_or_default);
        let work = text(work_dir)?;
        let java_home = text(&self.programs.java_home)?;
        let poms = files.poms.iter().map(|pom| text(pom)).collect::<Result<Vec<String>>>()?;
        let proxied = ["http", "https"]
            .map(|protocol| format!("-D{protocol}.proxyHost=127.0.0.1 -D{protocol}.proxyPort={PORT}"))
            .join(" ");
        let variables = [
            ("HOME", work.clone()),
            ("TMPDIR", work.clone()),
            ("PATH", format!("{java_home}/bin:/usr/local/bin:/usr/bin:/bin")),
            ("LANG", "C.UTF-8".to_owned()),
            ("JAVA_HOME", java_home),
            ("MAVEN_SKIP_RC", "1".to_owned()),
            // For the programs that Maven starts, too: /tmp is not writable.
            ("JAVA_TOOL_OPTIONS", format!("-Djava.io.tmpdir={work} -XX:-UsePerfData")),
            ("MAVEN_OPTS", format!("-Xmx1g -Duser.home={work} {proxied}")),
            ("PROJECT", text(files.folder)?),
            ("POMS", poms.join("\n")),
            ("SHARED", optional(files.shared.as_deref())?),
            ("KEPT", text(files.kept)?),
            ("MAVEN", text(&self.programs.maven)?),
            ("NETWORK", text(files.network)?),
            ("SETTINGS", optional(self.settings.as_deref())?),
        ];
        Ok(variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
    }

    /// Returns the files of this machine that the build sees besides those of every sandbox.
    fn read_only(&self, files: BuildFiles<'_>) -> Vec<PathBuf> {
        let Programs { maven_home, java_home, .. } = &self.programs;
        let mut paths: Vec<PathBuf> = [files.folder, files.kept, files.network].map(Path::to_owned).into();
        paths.extend(files.poms);
        paths.extend(files.shared);
        paths.extend(self.settings.clone());
        paths.extend([maven_home.clone(), java_home.clone(), PathBuf::from(DEBIAN)]);
        paths.retain(|path| path.exists() && !SHOWN.iter().any(|shown| path.starts_with(shown)));
        paths.sort();
        // What is below another one is shown with it.
        paths.dedup_by(|path, before| path.starts_with(before));
        paths
    }
}

impl Programs {
    fn find() -> Result<Programs> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let of_path = |name: &str| {
            let found =
                std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file());
            found
                .and_then(|file| file.canonicalize().ok())
                .with_context(|| format!("{name} was not found on the PATH"))
        };
        let home_of = |program: &Path| program.parent()?.parent().map(Path::to_owned);
        let maven = of_path("mvn")?;
        let maven_home = home_of(&maven).context("mvn has no home")?;
        let named =
            std::env::var_os("JAVA_HOME").map(PathBuf::from).and_then(|home| home.canonicalize().ok());
        let java_home = match named {
            Some(home) => home,
            None => home_of(&of_path("java")?).context("java has no home")?,
        };
        Ok(Programs { maven, maven_home, java_home })
    }
}

impl BuildHome {
    fn create() -> Result<BuildHome> {
        let work = tempfile::Builder::new().prefix("asp-build").tempdir().context("create a directory")?;
        // Everybody may pass; each directory inside belongs to the build's user.
        fs::set_permissions(work.path(), fs::Permissions::from_mode(0o711)).context("open a directory")?;
        let root = work.path().canonicalize().context("find a directory")?;
        Ok(BuildHome { root, _work: work })
    }

    fn socket(&self) -> PathBuf {
        self.root.join("proxy")
    }

    /// Creates the directories that the sandbox covers.
    fn prepare(&self, owner: Option<u32>) -> Result<()> {
        for name in ["home", "run"] {
            let path = self.root.join(name);
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&path)
                .with_context(|| format!("create {}", path.display()))?;
            self.give(&path, owner)?;
        }
        Ok(())
    }

    /// Gives a file to the build's user, if that is another one.
    fn give(&self, path: &Path, owner: Option<u32>) -> Result<()> {
        let Some(owner) = owner else { return Ok(()) };
        chown(path, Some(owner), Some(owner)).with_context(|| format!("give {} away", path.display()))
    }
}

/// Waits for the end of the build, and ends it with everything that it started; returns whether it succeeded.
fn wait(child: &mut Child, limit: Duration, stop: &CancellationToken) -> Result<bool> {
    let deadline = Instant::now() + limit;
    let mut sampled = Instant::now();
    let reason = loop {
        match child.try_wait().context("wait for the build")? {
            Some(status) => return Ok(status.success()),
            None if stop.is_cancelled() => break "was stopped because asp stops".to_owned(),
            None if Instant::now() >= deadline => {
                break format!("did not finish within {} s and was stopped", limit.as_secs());
            }
            None if sampled.elapsed() >= SAMPLE_EVERY => {
                sampled = Instant::now();
                if Processes::now().take(child.id()).memory_bytes() > LIMITS.memory_bytes {
                    break format!(
                        "used more than {} GiB of memory and was stopped",
                        LIMITS.memory_bytes >> 30
                    );
                }
            }
            None => thread::sleep(LOOK_EVERY),
        }
    };
    // Its processes die with it. Err: it has exited already.
    let _ = child.kill();
    let _ = child.wait();
    bail!("mvn {reason}")
}

/// Returns the end of the output, which has the reason of a failure.
fn end_of(mut output: File) -> Result<String> {
    let from = output.metadata().map_or(0, |metadata| metadata.len().saturating_sub(MAX_OUTPUT));
    let mut said = Vec::new();
    output
        .seek(SeekFrom::Start(from))
        .and_then(|_| output.take(MAX_OUTPUT).read_to_end(&mut said))
        .context("read the output of mvn")?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// Unpacks the archive of a build: its `target` into the project, its downloads into the repository that is kept.
fn take_results(mut results: File, folder: &Path, kept: &Path) -> Result<()> {
    results.seek(SeekFrom::Start(0)).context("read the results")?;
    let fresh = tempfile::Builder::new().prefix(".asp-target").tempdir_in(folder);
    let fresh = fresh.with_context(|| format!("create a folder in {}", folder.display()))?;
    let mut archive = Archive::new(results.take(MAX_RESULT));
    for (number, entry) in archive.entries().context("read the results")?.enumerate() {
        let mut entry = entry.context("read the results")?;
        let path = entry.path().context("read the results")?.into_owned();
        if number >= MAX_FILES {
            bail!("the build has more than {MAX_FILES} files");
        }
        // A link could lead out of the project.
        if !matches!(entry.header().entry_type(), EntryType::Regular | EntryType::Directory) {
            continue;
        }
        let Some((to, rest)) = destination(&path, fresh.path(), kept) else { continue };
        let target = to.join(rest);
        let parent = if entry.header().entry_type() == EntryType::Directory {
            Some(&*target)
        } else {
            target.parent()
        };
        if let Some(parent) = parent {
            fs::create_dir_all(parent).with_context(|| format!("create {}", parent.display()))?;
        }
        if entry.header().entry_type() == EntryType::Regular {
            let mut file = File::create(&target).with_context(|| format!("write {}", target.display()))?;
            std::io::copy(&mut entry, &mut file).with_context(|| format!("write {}", target.display()))?;
        }
    }
    let target = folder.join("target");
    if target.symlink_metadata().is_ok() {
        fs::remove_dir_all(&target).with_context(|| format!("empty {}", target.display()))?;
    }
    let made = fresh.path().join("target");
    match made.is_dir() {
        true => fs::rename(&made, &target).with_context(|| format!("write {}", target.display())),
        false => Ok(()),
    }
}

/// Returns the place of a file of the archive; `None` if it has none.
fn destination<'p>(path: &'p Path, fresh: &'p Path, kept: &'p Path) -> Option<(&'p Path, &'p Path)> {
    if !path.components().all(|part| matches!(part, Component::Normal(_))) {
        return None;
    }
    match path.strip_prefix("repository") {
        Ok(rest) => Some((kept, rest)),
        Err(_) if path.starts_with("target") => Some((fresh, path)),
        Err(_) => None,
    }
}

/// Returns the folder of what a project has downloaded, which exists.
fn project_repository(folder: &Path) -> Result<PathBuf> {
    let digest: String = Sha256::digest(folder.as_os_str().as_encoded_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let all = dependencies::cache_folder("maven")?;
    let kept = all.join(digest);
    fs::create_dir_all(&kept).with_context(|| format!("create {}", kept.display()))?;
    dependencies::mark_used(&kept)?;
    dependencies::evict(&all, MAX_PROJECTS);
    kept.canonicalize().with_context(|| format!("find {}", kept.display()))
}

/// Returns the account's local repository: the one that `MAVEN_OPTS` names, else the usual one.
fn shared_repository() -> Option<PathBuf> {
    let options = std::env::var("MAVEN_OPTS").unwrap_or_default();
    let named = options
        .split_whitespace()
        .find_map(|word| word.strip_prefix("-Dmaven.repo.local="))
        .map(PathBuf::from);
    let usual = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".m2/repository"));
    named.or_else(usual)?.canonicalize().ok().filter(|folder| folder.is_dir())
}

fn read_settings(file: Option<&Path>) -> Result<String> {
    let Some(file) = file else { return Ok(String::new()) };
    let mut text = String::new();
    let opened = File::open(file).and_then(|opened| opened.take(MAX_SETTINGS).read_to_string(&mut text));
    opened.with_context(|| format!("read {}", file.display()))?;
    Ok(text)
}

/// Returns Maven's settings for the network of the sandbox.
fn network_settings() -> String {
    let proxy = |protocol: &str| {
        format!(
            "<proxy><id>asp-{protocol}</id><active>true</active><protocol>{protocol}</protocol><host>127.0.0.1</host>\
             <port>{PORT}</port></proxy>"
        )
    };
    format!("<settings><proxies>{}{}</proxies></settings>\n", proxy("https"), proxy("http"))
}

#[cfg(test)]
#[path = "maven_sandbox/tests.rs"]
mod tests;
