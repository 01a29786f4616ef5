//! Dependencies of Python: `requirements.txt`, or `project.dependencies` of `pyproject.toml`, pinned in `requirements.lock`.
//!
//! Refuses whatever is not a name with versions: an address, a path or an option would make pip run code of the project.
//! Sources: PEP 508, PEP 621, pip's installation report (version 1) and requirements file format.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::{FETCH, network, write_lock};
use crate::registries::Registries;
use crate::{languages, tool};

const REQUIREMENTS: &str = "requirements.txt";
const PROJECT: &str = "pyproject.toml";
const LOCK: &str = "requirements.lock";
/// Folder of installed packages, which a worker has on its path.
const SITE: &str = "site-packages";
/// The shim, which the runtime provides.
const SHIM: &str = "asp-plugin";
/// Beginning of a lock that the platform wrote; any other lock is the author's.
const MARK: &str = "# Written by asp from ";
/// Option of a requirement that pins a file.
const HASH: &str = "--hash=";
/// Prints the dependencies of a `pyproject.toml` as JSON, in one line.
const READ_PROJECT: &str = "import json, sys, tomllib
with open(sys.argv[1], 'rb') as file:
    print(json.dumps(tomllib.load(file).get('project', {}).get('dependencies', [])))";

pub(super) fn is_declared(folder: &Path) -> bool {
    let in_project = || fs::read_to_string(folder.join(PROJECT)).is_ok_and(|text| has_dependencies(&text));
    !folder.join(SITE).is_dir() && (folder.join(REQUIREMENTS).is_file() || in_project())
}

/// Returns the real location of the interpreter that runs plugins.
pub(super) fn interpreter() -> Result<PathBuf> {
    let python = plugins_python()?;
    python.canonicalize().with_context(|| format!("find {}", python.display()))
}

fn plugins_python() -> Result<PathBuf> {
    languages::python()
        .context("dependencies of Python need the interpreter of plugins: set ASP_PLUGIN_PYTHON")
}

/// Returns the pinned requirements, one a line, if the lock was written from these requirements or is the author's own.
pub(super) fn current(folder: &Path, stop: &CancellationToken) -> Result<Option<String>> {
    let Ok(text) = fs::read_to_string(folder.join(LOCK)) else { return Ok(None) };
    let first = text.lines().next().unwrap_or_default();
    if first.starts_with(MARK) && !first.contains(&digest(&declared(folder, stop)?)) {
        return Ok(None);
    }
    pinned(folder).map(Some)
}

/// Returns the pinned requirements, one a line.
pub(super) fn pinned(folder: &Path) -> Result<String> {
    let path = folder.join(LOCK);
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    Ok(requirements(&text, LOCK)?.join("\n"))
}

/// Writes the lock: each package with one version and the hashes of its files.
pub(super) fn resolve(folder: &Path, work: &Path, stop: &CancellationToken) -> Result<()> {
    let wanted = declared(folder, stop)?;
    let is_pinned = wanted.iter().all(|line| line.contains(HASH));
    let lines = if is_pinned { wanted.clone() } else { ask_pip(&wanted, work, stop)? };
    let source = if folder.join(REQUIREMENTS).is_file() { REQUIREMENTS } else { PROJECT };
    let mut text = format!("{MARK}{source} (SHA-256 {}); commit it\n", digest(&wanted));
    for line in lines {
        text.push_str(&line.replace(&format!(" {HASH}"), &format!(" \\\n    {HASH}")));
        text.push('\n');
    }
    write_lock(&folder.join(LOCK), &text)
}

/// Installs the pinned requirements into `site-packages` of the folder.
pub(super) fn install(lock: &str, into: &Path, work: &Path, stop: &CancellationToken) -> Result<()> {
    let site = into.join(SITE);
    fs::create_dir(&site).with_context(|| format!("create {}", site.display()))?;
    if lock.is_empty() {
        return Ok(());
    }
    let mut pip = pip(lock, work, stop)?;
    pip.args(["--no-deps", "--require-hashes", "--target"]).arg(&site);
    run_pip(&mut pip, stop)?;
    remove_scripts(&site)
}

/// Installs a package (`name[extras]==version`) with everything that it needs into `site`, an absolute path.
pub(super) fn fetch(requirement: &str, site: &Path, work: &Path, stop: &CancellationToken) -> Result<()> {
    check_requirement(requirement)?;
    let mut pip = pip(requirement, work, stop)?;
    pip.arg("--target").arg(site);
    run_pip(&mut pip, stop)?;
    remove_scripts(site)
}

/// Rejects what is not one requirement that an index answers.
fn check_requirement(requirement: &str) -> Result<()> {
    if requirement.contains(['\r', '\n', '\\', '#']) || name_of(requirement).is_none() {
        bail!("`{requirement}` is not a package's name with its version");
    }
    Ok(())
}

/// Returns the declared requirements, one an element.
fn declared(folder: &Path, stop: &CancellationToken) -> Result<Vec<String>> {
    let path = folder.join(REQUIREMENTS);
    if path.is_file() {
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        return requirements(&text, REQUIREMENTS);
    }
    let mut python = Command::new(plugins_python()?);
    python.args(["-I", "-c", READ_PROJECT]).arg(folder.join(PROJECT));
    let output = tool::run(&mut python, "python", FETCH, stop).context("read pyproject.toml")?;
    let last = output.lines().next_back().unwrap_or_default();
    let listed: Vec<String> = serde_json::from_str(last)
        .context("project.dependencies of pyproject.toml is not a list of texts")?;
    requirements(&listed.join("\n"), PROJECT)
}

/// Whether `[project]` of a `pyproject.toml` has the key `dependencies`.
fn has_dependencies(text: &str) -> bool {
    let lines = text.lines().map(str::trim_end).skip_while(|line| *line != "[project]").skip(1);
    let mut of_section = lines.take_while(|line| !(line.starts_with('[') && line.ends_with(']')));
    of_section
        .any(|line| line.strip_prefix("dependencies").is_some_and(|rest| rest.trim_start().starts_with('=')))
}

/// Parses the requirements of a file, without comments and without the shim.
fn requirements(text: &str, file: &str) -> Result<Vec<String>> {
    let joined = text.replace("\r\n", "\n").replace("\\\n", " ");
    let mut found = Vec::new();
    for line in joined.lines() {
        let line = without_comment(line).split_whitespace().collect::<Vec<_>>().join(" ");
        if line.is_empty() {
            continue;
        }
        let name = name_of(&line).with_context(|| {
            format!(
                "{file}: `{line}` is not a package's name with its versions; put other code into the plugin's \
                 folder, and options into the configuration of pip"
            )
        })?;
        if name != SHIM {
            found.push(line);
        }
    }
    Ok(found)
}

fn without_comment(line: &str) -> &str {
    match line.trim_start().starts_with('#') {
        true => "",
        false => line.split(" #").next().unwrap_or(line),
    }
}

/// Returns the normalized name (PEP 503) of a requirement that an index answers; `None` of an option, an address or a path.
fn name_of(line: &str) -> Option<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let rest = line.trim_start_matches(is_name);
    let name = line.strip_suffix(rest)?;
    if !name.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let rest = rest.trim_start();
    let rest = match rest.strip_prefix('[') {
        Some(extras) => extras.split_once(']')?.1.trim_start(),
        None => rest,
    };
    let is_plain = rest.is_empty() || rest.starts_with(['=', '<', '>', '!', '~', ';', '(', '-']);
    let is_hash = |word: &str| word.starts_with(HASH) || !word.starts_with('-');
    (is_plain && rest.split(' ').all(is_hash)).then(|| name.to_ascii_lowercase().replace(['_', '.'], "-"))
}

fn digest(requirements: &[String]) -> String {
    Sha256::digest(requirements.join("\n")).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns each package that pip chooses, with its version and the hash of its file.
fn ask_pip(wanted: &[String], work: &Path, stop: &CancellationToken) -> Result<Vec<String>> {
    let report = work.join("report.json");
    let mut pip = pip(&wanted.join("\n"), work, stop)?;
    // Without a target, pip refuses a Python that the system manages, even if nothing is installed.
    pip.args(["--dry-run", "--ignore-installed", "--target"]).arg(work.join(SITE));
    pip.arg("--report").arg(&report);
    run_pip(&mut pip, stop)?;
    let text = fs::read_to_string(&report).context("read pip's report; pip 22.2 or later writes it")?;
    let report: Value = serde_json::from_str(&text).context("read pip's report")?;
    let chosen = report.get("install").and_then(Value::as_array).context("pip's report lists nothing")?;
    let mut lines = chosen.iter().map(pinned_line).collect::<Result<Vec<String>>>()?;
    lines.sort();
    Ok(lines)
}

/// Returns the requirement for one element of pip's report.
fn pinned_line(chosen: &Value) -> Result<String> {
    let text = |pointer: &str| chosen.pointer(pointer).and_then(Value::as_str);
    let name = text("/metadata/name");
    let version = text("/metadata/version");
    let (name, version) = name.zip(version).context("pip's report has a package without name and version")?;
    let archive = "/download_info/archive_info";
    let hash = text(&format!("{archive}/hashes/sha256"));
    // Before pip 23.
    let hash = hash.or_else(|| text(&format!("{archive}/hash"))?.strip_prefix("sha256="));
    let hash = hash.with_context(|| format!("pip's report has no SHA-256 of {name}"))?;
    Ok(format!("{name}=={version} {HASH}sha256:{hash}"))
}

/// Returns `pip install` of these requirements, which builds nothing and asks nothing.
fn pip(requirements: &str, work: &Path, stop: &CancellationToken) -> Result<Command> {
    let file = work.join(REQUIREMENTS);
    fs::write(&file, requirements).with_context(|| format!("write {}", file.display()))?;
    let mut pip = Command::new(python_with_pip(work, stop)?);
    // Isolated: no module of the current directory takes the place of pip.
    pip.args(["-I", "-m", "pip"]).current_dir(work);
    pip.args(["install", "--disable-pip-version-check", "--no-input", "--no-compile", "--quiet"]);
    pip.args(["--only-binary=:all:", "-r"]).arg(file);
    Ok(pip)
}

/// Runs pip, which reaches the registries of its configuration.
fn run_pip(pip: &mut Command, stop: &CancellationToken) -> Result<()> {
    let mut listing = Command::new(pip.get_program());
    listing.args(["-I", "-m", "pip"]);
    let registries = Registries::of_pip(listing, stop);
    network::run(pip, "pip", registries, &["--proxy"], (FETCH, stop)).map(drop)
}

/// Returns an interpreter with pip: the one of plugins, else one of an environment made for it in `work`.
fn python_with_pip(work: &Path, stop: &CancellationToken) -> Result<PathBuf> {
    let python = plugins_python()?;
    let mut asked = Command::new(&python);
    if tool::run(asked.args(["-I", "-c", "import pip"]), "python", FETCH, stop).is_ok() {
        return Ok(python);
    }
    let environment = work.join("environment");
    let mut venv = Command::new(&python);
    venv.args(["-I", "-m", "venv"]).arg(&environment);
    let made = tool::run(&mut venv, "python -m venv", FETCH, stop);
    made.with_context(|| format!("{} has no pip, which installs dependencies", python.display()))?;
    Ok(environment.join("bin/python"))
}

/// Removes the programs of packages: they have the interpreter's path, and the same lock is to make the same files everywhere.
fn remove_scripts(site: &Path) -> Result<()> {
    let programs = site.join("bin");
    if programs.is_dir() {
        fs::remove_dir_all(&programs).with_context(|| format!("remove {}", programs.display()))?;
    }
    for entry in fs::read_dir(site).with_context(|| format!("read {}", site.display()))?.flatten() {
        let record = entry.path().join("RECORD");
        let Ok(text) = fs::read_to_string(&record) else { continue };
        let kept = text.lines().filter(|line| !line.starts_with("../"));
        let kept: String = kept.map(|line| format!("{line}\n")).collect();
        fs::write(&record, kept).with_context(|| format!("write {}", record.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requirements_are_names_with_versions_and_nothing_else() {
        let text = "# all\nRequests[socks] >= 2 ; python_version < '4'  # web\r\n\nnumpy==2.0 \\\n    --hash=sha256:ab\n\
            asp_plugin\nplain\n";
        assert_eq!(
            requirements(text, "x").unwrap(),
            ["Requests[socks] >= 2 ; python_version < '4'", "numpy==2.0 --hash=sha256:ab", "plain"]
        );
        for other in [
            "-e .",
            "-r other.txt",
            "--index-url https://example.org",
            "./local",
            "/abs",
            "folder/x",
            "x @ https://example.org/x.tar.gz",
            "https://example.org/x.whl",
            "git+https://example.org/x",
            "x==1 --config-settings=a",
        ] {
            let fault = requirements(other, "requirements.txt").unwrap_err().to_string();
            assert!(fault.starts_with(&format!("requirements.txt: `{other}` is not")), "{fault}");
        }
    }

    #[test]
    fn a_package_to_fetch_is_one_requirement() {
        for good in ["kit", "mcp-server_time==2026.10.19", "kit[cli,x]==1.2", "kit[cli]"] {
            assert!(check_requirement(good).is_ok(), "{good}");
        }
        for bad in [
            "",
            "-e .",
            "--index-url=https://example.org",
            "./kit",
            "kit\n--index-url https://example.org",
            "kit[cli,\nx]==1",
            "kit \\",
            "kit # x",
            "kit --config-settings=a",
            "kit @ https://example.org/kit.whl",
        ] {
            assert!(check_requirement(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_dependencies_of_a_project_are_those_of_its_own_section() {
        let project =
            "[build-system]\nrequires = []\n[project]\nname = \"x\"\ndependencies = [\n  \"a\",\n]\n";
        assert!(has_dependencies(project));
        for other in [
            "[tool.ruff]\ndependencies = []\n",
            "[project]\nname = \"x\"\n[tool]\ndependencies = []\n",
            "[project]\ndependencies_of = 1\n",
        ] {
            assert!(!has_dependencies(other), "{other}");
        }
    }

    #[test]
    fn what_pip_chose_is_pinned_by_its_hash() {
        let chosen = |archive: Value| {
            pinned_line(&serde_json::json!({
                "metadata": {"name": "idna", "version": "3.7"},
                "download_info": {"url": "https://example.org/idna.whl", "archive_info": archive},
            }))
        };
        let line = "idna==3.7 --hash=sha256:ab";
        assert_eq!(chosen(serde_json::json!({"hashes": {"sha256": "ab"}})).unwrap(), line);
        assert_eq!(chosen(serde_json::json!({"hash": "sha256=ab"})).unwrap(), line);
        assert!(chosen(serde_json::json!({})).is_err());
    }

    #[test]
    fn requirements_with_hashes_are_the_lock_and_an_edit_makes_it_old() {
        let root = tempfile::tempdir().unwrap();
        let stop = CancellationToken::new();
        let write = |text: &str| fs::write(root.path().join(REQUIREMENTS), text).unwrap();
        let pinned = |text: Option<&str>| text.map(str::to_owned);
        write("idna==3.7 --hash=sha256:ab --hash=sha256:cd  # both platforms\n");
        assert_eq!(current(root.path(), &stop).unwrap(), None);
        resolve(root.path(), root.path(), &stop).unwrap();
        let lock = fs::read_to_string(root.path().join(LOCK)).unwrap();
        assert!(lock.ends_with("idna==3.7 \\\n    --hash=sha256:ab \\\n    --hash=sha256:cd\n"), "{lock}");
        let text = "idna==3.7 --hash=sha256:ab --hash=sha256:cd";
        assert_eq!(current(root.path(), &stop).unwrap(), pinned(Some(text)));
        write("# more words\nidna==3.7 --hash=sha256:ab --hash=sha256:cd\n");
        assert_eq!(current(root.path(), &stop).unwrap(), pinned(Some(text)));
        write("idna==3.8 --hash=sha256:ab\n");
        assert_eq!(current(root.path(), &stop).unwrap(), None);
        fs::write(root.path().join(LOCK), "idna==3.6 --hash=sha256:ef\n").unwrap();
        assert_eq!(current(root.path(), &stop).unwrap(), pinned(Some("idna==3.6 --hash=sha256:ef")));
    }

    #[test]
    fn programs_with_the_interpreters_path_do_not_stay() {
        let site = tempfile::tempdir().unwrap();
        for folder in ["bin", "x-1.dist-info"] {
            fs::create_dir(site.path().join(folder)).unwrap();
        }
        fs::write(site.path().join("bin/x"), "#!/here/python").unwrap();
        let record = site.path().join("x-1.dist-info/RECORD");
        fs::write(&record, "../../bin/x,sha256=ab,9\nx.py,sha256=cd,1\n").unwrap();
        remove_scripts(site.path()).unwrap();
        assert!(!site.path().join("bin").exists());
        assert_eq!(fs::read_to_string(&record).unwrap(), "x.py,sha256=cd,1\n");
    }
}
