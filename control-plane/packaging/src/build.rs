//! Prepares a plugin's folder for packing: Java is compiled, the dependencies of Python and Node are installed.
//!
//! A folder with a `pom.xml` is built by Maven, in a sandbox unless its user has agreed to a build outside; plain `.java` files are compiled with the JDK against the shim, so that a
//! first plugin needs neither Maven nor a network.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::spawn_blocking;
use tokio_util::sync::CancellationToken;

use super::dependencies::Dependencies;
use super::folder::is_maven;
use super::maven_sandbox::MavenSandbox;
use super::{Unit, maven, tool, trust};

/// Output folder for plain sources, in which the Java shim looks.
const CLASSES: &str = "classes";
/// Output folder of Maven.
const MAVENS: &str = "target";

/// Timeout of a build: a first build by Maven downloads what the project needs.
const BUILD: Duration = Duration::from_secs(600);

/// Works like [`all`]; dropping the future ends a running build with all processes that it started.
pub async fn all_async(units: &[Unit], languages: Option<Vec<&'static str>>) -> Result<()> {
    let stop = CancellationToken::new();
    let _ends = stop.clone().drop_guard();
    let units = units.to_vec();
    let building = spawn_blocking(move || all(&units, languages.as_deref(), &stop));
    building.await.context("build the plugins")?.map(drop)
}

/// Builds every unit in one of `languages` (`None`: any) that has code; returns the ids of those that needed a build. A
/// running build ends on `stop`.
pub fn all(units: &[Unit], languages: Option<&[&str]>, stop: &CancellationToken) -> Result<Vec<String>> {
    let mut built = Vec::new();
    for unit in units.iter().filter(|unit| unit.is_in(languages)) {
        let Some(folder) = &unit.folder else { continue };
        if build(folder, &unit.language, stop).with_context(|| format!("build plugin {}", unit.id))? {
            built.push(unit.id.clone());
        }
    }
    Ok(built)
}

/// Whether `folder/name` is build output: Maven's for a module or, if `is_plugins` (`folder` is the plugin's top folder), the
/// compiled plugin.
pub fn is_made(folder: &Path, name: &str, is_plugins: bool) -> bool {
    let is_compiled = || name == CLASSES && java_files(folder).is_ok_and(|sources| !sources.is_empty());
    (name == MAVENS && is_maven(folder)) || (is_plugins && is_compiled())
}

/// Returns the files of the machine on which a build of the code in `folder` depends.
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

/// Builds the plugin in `folder`; returns whether there was anything to build.
fn build(folder: &Path, language: &str, stop: &CancellationToken) -> Result<bool> {
    if let Some(dependencies) = Dependencies::of(folder, language) {
        dependencies.ensure(stop)?;
    }
    if language != "java" {
        return Ok(false);
    }
    if is_maven(folder) {
        return build_with_maven(folder, stop).map(|()| true);
    }
    let sources = java_files(folder)?;
    if sources.is_empty() {
        return Ok(false);
    }
    let shim = std::env::var("ASP_PLUGIN_JAVA_SHIM")
        .context("set ASP_PLUGIN_JAVA_SHIM to the folder of the shim's jars")?;
    let classes = folder.join(CLASSES);
    if classes.is_dir() {
        fs::remove_dir_all(&classes).with_context(|| format!("empty {}", classes.display()))?;
    }
    let mut javac = Command::new(javac());
    javac.args(["--release", "17", "-encoding", "UTF-8", "-proc:none", "-cp"]);
    javac.arg(format!("{shim}/*:{shim}/lib/*")).arg("-d").arg(&classes).args(sources);
    tool::run(&mut javac, "javac", BUILD, stop)?;
    Ok(true)
}

/// Builds a Maven project: as the user where that was agreed to, else in a sandbox.
fn build_with_maven(folder: &Path, stop: &CancellationToken) -> Result<()> {
    if trust::is_agreed(folder)? {
        let mut maven = Command::new("mvn");
        return tool::run(maven.args(maven::goals()).current_dir(folder), "mvn", BUILD, stop).map(drop);
    }
    match MavenSandbox::find() {
        Ok(sandbox) => sandbox.build(folder, (BUILD, stop)),
        Err(why) => Err(trust::refusal(folder).context(format!("{why:#}"))),
    }
}

/// Returns the compiler next to the interpreter, else the one on the PATH.
fn javac() -> PathBuf {
    let interpreter = std::env::var_os("ASP_PLUGIN_JAVA").map(PathBuf::from);
    let real = interpreter.and_then(|java| java.canonicalize().ok());
    let beside = real.map(|java| java.with_file_name("javac")).filter(|javac| javac.is_file());
    beside.unwrap_or_else(|| "javac".into())
}

fn java_files(folder: &Path) -> Result<Vec<PathBuf>> {
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
