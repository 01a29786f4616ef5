//! Permission for builds with Maven outside of the sandbox, which run whatever a project's `pom.xml` names with the user's rights. It
//! is asked for only where the machine has no sandbox for builds.
//!
//! Keeps true: Maven runs nothing below a directory until its user has agreed, once: at the terminal, which is recorded in
//! `asp/builds` below `$XDG_CONFIG_HOME` or `~/.config`, or for every directory with `ASP_TRUST_BUILDS=true`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use asp_command::state_dir;

use super::folder::is_maven;
use super::maven_sandbox::MavenSandbox;

/// File name in the user's `asp` directory.
const FILE: &str = "builds";
pub const ENV_TRUST_BUILDS: &str = "ASP_TRUST_BUILDS";
/// Maximum number of recorded directories; the oldest is dropped first.
const MOST: usize = 1_000;
/// Maximum length of a line; a longer one is not a path.
const MAX_LINE: u64 = 4_096;

/// Reads a variable of an environment.
type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

fn of_process(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// Asks whether Maven may build below `root`, if a plugin there needs it, there is no sandbox for it, no answer is recorded, and
/// there is a terminal.
/// Whatever the answer, work without Maven continues.
pub fn ask(root: &Path) -> anyhow::Result<()> {
    let somebody = io::stdin().is_terminal() && io::stderr().is_terminal();
    let Some(root) = root.canonicalize().ok().filter(|root| somebody && has_maven(root)) else {
        return Ok(());
    };
    if is_trusted(&root, &of_process)? || MavenSandbox::find().is_ok() {
        return Ok(());
    }
    let shown = root.display();
    let mut said = String::new();
    let mut terminal = io::stderr();
    write!(
        terminal,
        "{shown}: Maven runs code of its pom.xml files as your user, outside of the sandbox. Build here? [y/N] "
    )?;
    terminal.flush()?;
    io::Read::take(io::stdin().lock(), MAX_LINE).read_line(&mut said).context("read the answer")?;
    if ["y", "yes"].contains(&said.trim().to_ascii_lowercase().as_str()) {
        remember(&root, &of_process)?;
    }
    Ok(())
}

/// Whether Maven may build in `folder` outside of the sandbox.
pub(super) fn is_agreed(folder: &Path) -> anyhow::Result<bool> {
    let folder = folder.canonicalize().with_context(|| format!("find {}", folder.display()))?;
    is_trusted(&folder, &of_process)
}

/// Returns the refusal of a build outside of the sandbox, with the remedy.
pub(super) fn refusal(folder: &Path) -> anyhow::Error {
    anyhow!(
        "Maven runs code of the pom.xml of {} as your user, outside of the sandbox: confirm it by `asp plugin \
         build` at a terminal, or set {ENV_TRUST_BUILDS}=true",
        folder.display()
    )
}

/// Whether a plugin of a server below `root` is built by Maven.
fn has_maven(root: &Path) -> bool {
    let below =
        |folder: &Path| std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    below(root).any(|server| below(&server.join("plugins")).any(|plugin| is_maven(&plugin)))
}

fn is_trusted(folder: &Path, environment: Environment<'_>) -> anyhow::Result<bool> {
    match environment(ENV_TRUST_BUILDS).as_deref() {
        None | Some("false") => Ok(remembered(environment)?.iter().any(|root| folder.starts_with(root))),
        Some("true") => Ok(true),
        Some(_) => bail!("{ENV_TRUST_BUILDS} must be true or false"),
    }
}

/// Reads the recorded directories, one a line.
fn remembered(environment: Environment<'_>) -> anyhow::Result<Vec<PathBuf>> {
    let Some(file) = state_dir::of_user(environment, FILE) else { return Ok(Vec::new()) };
    match std::fs::read_to_string(&file) {
        Ok(text) => Ok(text.lines().map(PathBuf::from).filter(|root| root.is_absolute()).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).with_context(|| format!("read {}", file.display())),
    }
}

fn remember(root: &Path, environment: Environment<'_>) -> anyhow::Result<()> {
    let no_home = || format!("no HOME to remember it in; set {ENV_TRUST_BUILDS}=true");
    let file = state_dir::of_user(environment, FILE).with_context(no_home)?;
    let root = root.to_str().filter(|root| !root.contains('\n'));
    let root =
        root.with_context(|| format!("the path is not a single line of text; set {ENV_TRUST_BUILDS}=true"))?;
    let mut roots = remembered(environment)?;
    roots.push(root.into());
    let roots = roots.get(roots.len().saturating_sub(MOST)..).unwrap_or_default();
    let text: String = roots.iter().map(|root| format!("{}\n", root.display())).collect();
    if let Some(folder) = file.parent() {
        state_dir::create(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    state_dir::replace(&file, text.as_bytes()).with_context(|| format!("write {}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An environment with one variable.
    fn with(name: &'static str, value: String) -> impl Fn(&str) -> Option<String> {
        move |asked| (asked == name).then(|| value.clone())
    }

    #[test]
    fn a_yes_holds_for_the_directory_and_all_below_it_alone() {
        let home = tempfile::tempdir().unwrap();
        let set = with("HOME", home.path().display().to_string());
        let trusted = |folder: &str| is_trusted(Path::new(folder), &set).unwrap();
        assert!(!trusted("/a/mine"));
        remember(Path::new("/a/mine"), &set).unwrap();
        remember(Path::new("/b"), &set).unwrap();
        for folder in ["/a/mine", "/a/mine/greet/plugins/x", "/b/c"] {
            assert!(trusted(folder), "{folder}");
        }
        for folder in ["/a", "/a/mine2", "/a/other", "/"] {
            assert!(!trusted(folder), "{folder}");
        }
    }

    #[test]
    fn the_setting_stands_for_every_answer_and_a_word_that_it_does_not_know_is_refused() {
        let of = |value: &str| with(ENV_TRUST_BUILDS, value.to_owned());
        assert!(is_trusted(Path::new("/a"), &of("true")).unwrap());
        assert!(!is_trusted(Path::new("/a"), &of("false")).unwrap());
        assert!(is_trusted(Path::new("/a"), &of("yes")).is_err());
    }

    #[test]
    fn what_does_not_fit_on_a_line_is_not_remembered() {
        let home = tempfile::tempdir().unwrap();
        let set = with("HOME", home.path().display().to_string());
        assert!(remember(Path::new("/a\n/"), &set).is_err());
        assert!(!is_trusted(Path::new("/etc"), &set).unwrap());
        assert!(remember(Path::new("/a"), &|_| None).is_err());
    }

    #[test]
    fn only_plugins_that_maven_builds_are_asked_about() {
        let root = tempfile::tempdir().unwrap();
        let plugin = root.path().join("greet/plugins/greet");
        std::fs::create_dir_all(&plugin).unwrap();
        assert!(!has_maven(root.path()));
        std::fs::write(plugin.join("pom.xml"), "<project/>").unwrap();
        assert!(has_maven(root.path()));
    }
}
