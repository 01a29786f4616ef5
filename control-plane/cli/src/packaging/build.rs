//! Makes what a plugin's folder needs before it can be packed: Java is compiled, the others are as they are.
//!
//! A folder with a `pom.xml` is Maven's; plain `.java` files are compiled with the JDK against the shim, so that
//! a first plugin needs neither Maven nor a network.

use std::fs;
use std::io::{Read, Seek, SeekFrom};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process_group};

use super::Unit;
use super::folder::is_maven;
use crate::parent_death::die_with_parent;

/// Where plain sources are compiled to; the Java shim looks there.
const CLASSES: &str = "classes";
/// Where Maven puts what it makes.
const MAVENS: &str = "target";

/// A first build by Maven fetches what the project needs; one that takes longer hangs.
const BUILD: Duration = Duration::from_secs(600);
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Bytes of what a tool said that are told.
const MAX_SAID: u64 = 1 << 20;

/// Builds every unit in one of `languages` (`None`: any) that has code; returns the ids of those that needed it.
pub fn all(units: &[Unit], languages: Option<&[&str]>) -> anyhow::Result<Vec<String>> {
    let mut built = Vec::new();
    for unit in units.iter().filter(|unit| unit.is_in(languages)) {
        let Some(folder) = &unit.folder else { continue };
        if build(folder, &unit.language).with_context(|| format!("build plugin {}", unit.id))? {
            built.push(unit.id.clone());
        }
    }
    Ok(built)
}

/// Whether `folder/name` is what Maven makes of a module.
fn is_mavens(folder: &Path, name: &str) -> bool {
    name == MAVENS && is_maven(folder)
}

/// Whether `folder/name` is what the sources of the plugin in `folder` are compiled to.
fn is_compiled(folder: &Path, name: &str) -> bool {
    name == CLASSES && java_files(folder).is_ok_and(|sources| !sources.is_empty())
}

/// Whether `folder/name` is what a build makes; `is_plugins`: `folder` is the one of the plugin itself.
pub fn is_made(folder: &Path, name: &str, is_plugins: bool) -> bool {
    is_mavens(folder, name) || (is_plugins && is_compiled(folder, name))
}

/// The files of the machine that decide what a build of the code in `folder` makes.
pub fn tools(folder: &Path, language: &str) -> Vec<PathBuf> {
    if language != "java" {
        return Vec::new();
    }
    let of_path = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|program| program.is_file())
    };
    if is_maven(folder) {
        return of_path("mvn").into_iter().chain(of_path("java")).collect();
    }
    let javac = javac();
    let compiler = if javac.is_absolute() { Some(javac) } else { of_path("javac") };
    let shim = std::env::var_os("ASP_PLUGIN_JAVA_SHIM").map(PathBuf::from);
    compiler.into_iter().chain(shim).collect()
}

/// Builds the plugin in `folder`; says whether there was anything to do.
fn build(folder: &Path, language: &str) -> anyhow::Result<bool> {
    if language != "java" {
        return Ok(false);
    }
    if is_maven(folder) {
        let goals = ["-q", "-B", "package", "dependency:copy-dependencies", "-DincludeScope=runtime"];
        run(Command::new("mvn").args(goals).current_dir(folder), "mvn", BUILD)?;
        return Ok(true);
    }
    let sources = java_files(folder)?;
    if sources.is_empty() {
        return Ok(false);
    }
    let shim = std::env::var("ASP_PLUGIN_JAVA_SHIM")
        .context("ASP_PLUGIN_JAVA_SHIM says where the shim's jars are")?;
    let classes = folder.join(CLASSES);
    if classes.is_dir() {
        fs::remove_dir_all(&classes).with_context(|| format!("empty {}", classes.display()))?;
    }
    let mut javac = Command::new(javac());
    javac.args(["--release", "17", "-encoding", "UTF-8", "-proc:none", "-cp"]);
    javac.arg(format!("{shim}/*:{shim}/lib/*")).arg("-d").arg(&classes).args(sources);
    run(&mut javac, "javac", BUILD)?;
    Ok(true)
}

/// The compiler beside the interpreter, else that of the PATH.
fn javac() -> PathBuf {
    let interpreter = std::env::var_os("ASP_PLUGIN_JAVA").map(PathBuf::from);
    let real = interpreter.and_then(|java| java.canonicalize().ok());
    let beside = real.map(|java| java.with_file_name("javac")).filter(|javac| javac.is_file());
    beside.unwrap_or_else(|| "javac".into())
}

fn java_files(folder: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("read {}", next.display()))? {
            let entry = entry.with_context(|| format!("read {}", next.display()))?;
            let path = entry.path();
            let kind = entry.file_type().context("read a file's type")?;
            if kind.is_dir() {
                folders.push(path);
            } else if kind.is_file() && path.extension().is_some_and(|extension| extension == "java") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Runs a tool to its end, for at most `limit`: then it is killed with all that it started.
fn run(command: &mut Command, name: &str, limit: Duration) -> anyhow::Result<()> {
    // A file, unlike a pipe, never fills and never waits for a process that outlives the tool.
    let output = tempfile::tempfile().context("make a file for what the tool says")?;
    let share = || output.try_clone().context("share a file");
    // A group of its own can be ended whole; the kernel ends it when this process dies.
    command.stdin(Stdio::null()).stdout(share()?).stderr(share()?).process_group(0);
    die_with_parent(command);
    let mut child = command.spawn().with_context(|| format!("start {name}; is it installed?"))?;
    let deadline = Instant::now() + limit;
    let ended = loop {
        if let Some(status) = child.try_wait().with_context(|| format!("wait for {name}"))? {
            break Some(status);
        }
        if Instant::now() >= deadline {
            end(&mut child);
            break None;
        }
        std::thread::sleep(LOOK_EVERY);
    };
    if ended.is_some_and(|status| status.success()) {
        return Ok(());
    }
    let mut said = Vec::new();
    let mut output = output;
    // The end, where the reason stands.
    let from = output.metadata().map_or(0, |metadata| metadata.len().saturating_sub(MAX_SAID));
    let read = output.seek(SeekFrom::Start(from)).and_then(|_| output.take(MAX_SAID).read_to_end(&mut said));
    read.with_context(|| format!("read what {name} said"))?;
    let said = String::from_utf8_lossy(&said);
    match ended {
        Some(_) => bail!("{name} failed:\n{}", said.trim_end()),
        None => {
            let last = said.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("nothing");
            bail!("{name} did not end within {} s and was killed; it said last: {last}", limit.as_secs())
        }
    }
}

fn end(child: &mut Child) {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    // Err: it is gone already.
    let _ = group.map(|group| kill_process_group(group, Signal::KILL));
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_that_hangs_is_killed_with_what_it_started_and_named() {
        let work = tempfile::tempdir().unwrap();
        let file = work.path().join("pid");
        let script =
            format!("sleep 600 & echo $! > {0}.new; mv {0}.new {0}; echo loading; wait", file.display());
        let mut shell = Command::new("sh");
        let error = run(shell.arg("-c").arg(script), "mvn", Duration::from_secs(2)).unwrap_err().to_string();
        assert_eq!(error, "mvn did not end within 2 s and was killed; it said last: loading");
        let started = fs::read_to_string(file).unwrap();
        let stat = format!("/proc/{}/stat", started.trim());
        let bound = Instant::now() + Duration::from_secs(30);
        // A killed process is there for a moment more, and as a zombie until its parent has looked.
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            assert!(Instant::now() < bound, "what the tool started still runs");
            std::thread::sleep(LOOK_EVERY);
        }
    }

    #[test]
    fn what_a_tool_that_fails_said_is_told() {
        let mut shell = Command::new("sh");
        let failed = run(shell.args(["-c", "echo out; echo err >&2; exit 1"]), "javac", BUILD).unwrap_err();
        assert_eq!(failed.to_string(), "javac failed:\nout\nerr");
    }
}
