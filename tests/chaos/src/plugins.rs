//! The plugins: a good one, and the hostile ones of the languages' own tests, installed where a runtime looks.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use asp_e2e::tool;
use serde_json::{Value, json};

/// The plugin of the neighbours, whose calls must not notice anything.
pub(crate) const GOOD: &str = "good";
pub(crate) const RELEASE: &str = "1.0.0";

/// Memory above the disk bound, so that a full disk is no full memory.
const MEMORY: u64 = 256 << 20;
/// What a JVM needs before its plugin takes anything.
const JAVA_MEMORY: u64 = 512 << 20;
pub(crate) const PIDS: u32 = 64;
pub(crate) const FILES: u32 = 256;
pub(crate) const DISK: u64 = 32 << 20;
pub(crate) const LOG_RATE: u64 = 1 << 20;

/// Installs `id` with what differs from a plain manifest, and returns its package's directory.
pub(crate) fn install(plugins: &Path, id: &str, version: &str, differs: &Value) -> Result<PathBuf> {
    let mut manifest = json!({
        "format": 1, "id": id, "version": version, "kind": "tool", "mode": "plugin",
        "artifactSha256": "a".repeat(64),
        "limits": {
            "maxRuntimeSeconds": 60, "memoryBytes": MEMORY, "pids": PIDS, "files": FILES,
            "diskBytes": DISK, "logBytesPerSecond": LOG_RATE,
        },
    });
    for (key, value) in differs.as_object().into_iter().flatten() {
        match (manifest.get_mut(key), value) {
            (Some(Value::Object(inner)), Value::Object(more)) => inner.extend(more.clone()),
            _ => {
                manifest
                    .as_object_mut()
                    .context("a manifest is an object")?
                    .insert(key.clone(), value.clone());
            }
        }
    }
    let home = plugins.join(id).join(version);
    let package = home.join("package");
    fs::create_dir_all(&package)?;
    fs::write(home.join("plugin.json"), manifest.to_string())?;
    Ok(package)
}

fn pool(workers: u32, concurrency: u32) -> Value {
    json!({"mode": "warm", "min": workers, "max": workers, "concurrency": concurrency, "idleSeconds": 300})
}

/// A plugin that behaves: [`GOOD`] for the neighbours, others where a row needs one.
pub(crate) fn echo(plugins: &Path, id: &str, version: &str, (workers, places): (u32, u32)) -> Result<()> {
    let manifest = json!({"language": "python", "entrypoint": "echo.py", "pool": pool(workers, places)});
    let package = install(plugins, id, version, &manifest)?;
    fs::copy(tool::root()?.join("tests/chaos/plugins/echo/echo.py"), package.join("echo.py"))?;
    fs::write(package.join("release.py"), format!("RELEASE = \"{version}\"\n"))?;
    Ok(())
}

/// A plugin that cannot be loaded.
pub(crate) fn broken(plugins: &Path, id: &str) -> Result<()> {
    let manifest = json!({"language": "python", "entrypoint": "broken.py", "pool": pool(1, 1)});
    let package = install(plugins, id, RELEASE, &manifest)?;
    fs::copy(tool::root()?.join("tests/chaos/plugins/broken/broken.py"), package.join("broken.py"))?;
    Ok(())
}

/// The hostile plugin of the Python shim's tests.
pub(crate) fn python(plugins: &Path, id: &str, (workers, places): (u32, u32)) -> Result<()> {
    let manifest = json!({"language": "python", "entrypoint": "hostile.py", "pool": pool(workers, places)});
    let package = install(plugins, id, RELEASE, &manifest)?;
    copy(&tool::root()?.join("runtime/python/tests/hostile/package"), &package, "py")
}

/// The hostile plugin of the Node shim's tests.
pub(crate) fn node(plugins: &Path, id: &str, (workers, places): (u32, u32)) -> Result<()> {
    let manifest = json!({"language": "node", "entrypoint": "hostile.mjs", "pool": pool(workers, places)});
    let package = install(plugins, id, RELEASE, &manifest)?;
    copy(&tool::root()?.join("runtime/node/tests/hostile"), &package, "mjs")
}

/// The hostile plugin of the Java library's tests, compiled from its source.
pub(crate) fn java(plugins: &Path, id: &str, (workers, places): (u32, u32)) -> Result<()> {
    let manifest = json!({
        "language": "java", "entrypoint": "asp.plugin.fixtures.Hostile", "pool": pool(workers, places),
        "limits": {"memoryBytes": JAVA_MEMORY},
    });
    let package = install(plugins, id, RELEASE, &manifest)?;
    let source = tool::root()?.join("runtime/java/src/test/java/asp/plugin/fixtures/Hostile.java");
    let (java, shim) = tool::plugin_java()?;
    let javac = java.canonicalize()?.with_file_name("javac");
    let javac = if javac.is_file() { javac } else { "javac".into() };
    let shim = shim.display();
    let mut compiler = Command::new(javac);
    compiler
        .args(["-nowarn", "-proc:none", "-encoding", "UTF-8", "-cp"])
        .arg(format!("{shim}/*:{shim}/lib/*"));
    let output = compiler.arg("-d").arg(&package).arg(&source).output().context("start javac")?;
    ensure!(output.status.success(), "javac: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}

fn copy(from: &Path, to: &Path, extension: &str) -> Result<()> {
    for entry in fs::read_dir(from).with_context(|| format!("read {}", from.display()))? {
        let path = entry?.path();
        if let (true, Some(name)) = (path.extension().is_some_and(|has| has == extension), path.file_name()) {
            fs::copy(&path, to.join(name))?;
        }
    }
    Ok(())
}
