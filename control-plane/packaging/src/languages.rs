//! The languages that a machine can run plugins in, from the environment that set-up wrote; an `asp` installed into a Python
//! environment uses that environment's interpreter. If only the variable of the interpreter is missing, the one on the PATH
//! is asked for its real location, used if it is new enough, and reported.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::tool;

const PYTHON: &str = "ASP_PLUGIN_PYTHON";

/// Timeout for asking an interpreter: it answers in less than a second, but a version manager may search first.
const ASK: Duration = Duration::from_secs(20);

/// Major and minor version.
type Version = (u32, u32);

/// A language, and the variables that must all name an existing file or folder.
struct LanguageVariables {
    name: &'static str,
    variables: &'static [&'static str],
    /// Interpreter on the PATH to use if the first variable is missing.
    fallback: Option<&'static Interpreter>,
}

/// A program on the PATH. It may be the dispatcher of a version manager (mise, asdf, volta), which a sandbox does not have,
/// so the interpreter itself is asked for its location.
struct Interpreter {
    program: &'static str,
    /// Oldest version that the shim runs on.
    oldest: Version,
    /// Arguments that make it print lines of `key = value`.
    arguments: &'static [&'static str],
    version: &'static str,
    /// Key of a path, and the interpreter's location below that path.
    place: (&'static str, &'static str),
}

const NODE: Interpreter = Interpreter {
    program: "node",
    oldest: (20, 11),
    arguments: &["-p", "`version = ${process.versions.node}\nplace = ${process.execPath}`"],
    version: "version",
    place: ("place", ""),
};

const JAVA: Interpreter = Interpreter {
    program: "java",
    oldest: (17, 0),
    arguments: &["-XshowSettings:properties", "-version"],
    version: "java.version",
    place: ("java.home", "bin/java"),
};

const LANGUAGES: [LanguageVariables; 3] = [
    // A Python without the shim's packages cannot run a plugin.
    LanguageVariables { name: "python", variables: &[PYTHON], fallback: None },
    LanguageVariables {
        name: "node",
        variables: &["ASP_PLUGIN_NODE", "ASP_PLUGIN_NODE_SHIM"],
        fallback: Some(&NODE),
    },
    LanguageVariables {
        name: "java",
        variables: &["ASP_PLUGIN_JAVA", "ASP_PLUGIN_JAVA_SHIM"],
        fallback: Some(&JAVA),
    },
];

/// Available languages with the environment that `asp-runtime` needs for them, and the missing ones.
#[derive(Clone, Debug, Default)]
pub struct Languages {
    pub present: Vec<&'static str>,
    /// Name and value of each variable.
    pub environment: Vec<(String, String)>,
    /// Missing languages, each with the variables it requires.
    pub absent: Vec<(&'static str, String)>,
    /// Variables of missing languages: a child process must not inherit an incomplete set.
    pub unset: Vec<&'static str>,
    /// Languages whose interpreter was found on the PATH instead of by a variable, each with a message.
    pub notes: Vec<(&'static str, String)>,
}

impl Languages {
    /// Finds the languages, asking interpreters on the PATH if no variable names one; blocks until they answer or until `stop`.
    pub fn find(stop: &CancellationToken) -> Languages {
        let mut found = Languages::default();
        LANGUAGES.iter().for_each(|language| found.add(language, stop));
        found
    }

    /// Works like [`Languages::find`] without blocking; dropping the future ends the interpreters that were asked.
    pub async fn find_async() -> Languages {
        let stop = CancellationToken::new();
        let _dropped = stop.clone().drop_guard();
        // Err: the process is ending.
        tokio::task::spawn_blocking(move || Languages::find(&stop)).await.unwrap_or_default()
    }

    fn add(&mut self, language: &LanguageVariables, stop: &CancellationToken) {
        let LanguageVariables { name, variables, fallback } = *language;
        let value = |variable: &str| std::env::var(variable).ok().or_else(|| installed(variable));
        let mut values: Vec<(String, String)> = variables
            .iter()
            .filter_map(|variable| Some(((*variable).to_owned(), value(variable)?)))
            .filter(|(_, value)| Path::new(value).exists())
            .collect();
        let mut lacks = variables.join(", ");
        if let (Some(fallback), [interpreter, rest @ ..]) = (fallback, variables)
            && values.len() == rest.len()
            && value(interpreter).is_none()
        {
            match fallback.find_on_path(&std::env::var_os("PATH").unwrap_or_default(), stop) {
                Ok((path, version)) => {
                    let program = fallback.program;
                    let note = format!(
                        "plugins in {name} run on {path}, version {version}, which is the first {program} on the PATH; \
                         {interpreter} names another"
                    );
                    self.notes.push((name, note));
                    values.push(((*interpreter).to_owned(), path));
                }
                Err(why) => lacks = format!("{interpreter} ({why})"),
            }
        }
        if values.len() == variables.len() {
            self.present.push(name);
            self.environment.extend(values);
        } else {
            self.absent.push((name, lacks));
            self.unset.extend_from_slice(variables);
        }
    }
}

impl Interpreter {
    /// Returns the real location and the version of the first such program on `path`, or why it cannot be used.
    fn find_on_path(&self, path: &OsStr, stop: &CancellationToken) -> Result<(String, String), String> {
        let program = self.program;
        let mut candidates = std::env::split_paths(path).map(|folder| folder.join(program));
        let found = candidates.find(|candidate| candidate.is_file());
        let found = found.ok_or_else(|| format!("{program} was not found on the PATH"))?;
        let shown = format!("{}, the first on the PATH,", found.display());
        // Run by the name found on the PATH, from which a dispatcher knows which program it stands for.
        let mut command = Command::new(&found);
        let said = tool::run(command.args(self.arguments), program, ASK, stop);
        let said = said.map_err(|error| {
            let lines = error.to_string();
            let lines: Vec<&str> = lines.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
            format!("{shown} does not run: {}", lines.join(" "))
        })?;
        let value = |key: &str| {
            let mut lines = said.lines().filter_map(|line| line.split_once(" = "));
            lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim().to_owned())
        };
        let (key, below) = self.place;
        let (Some(version), Some(place)) = (value(self.version), value(key)) else {
            return Err(format!("{shown} does not report its version and location, as {program} should"));
        };
        self.is_new_enough(&version).map_err(|why| format!("{shown} {why}"))?;
        // A worker sees the file itself, but not the links that lead to it.
        let place = match below {
            "" => PathBuf::from(place),
            below => Path::new(&place).join(below),
        };
        let real = place
            .canonicalize()
            .map_err(|error| format!("{shown} reports the version {}: {error}", place.display()))?;
        let text = real.to_str().map(str::to_owned);
        Ok((text.ok_or_else(|| format!("{} is not UTF-8", real.display()))?, version))
    }

    fn is_new_enough(&self, version: &str) -> Result<(), String> {
        let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
        let numbers = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
        let (major, minor) = self.oldest;
        if numbers < self.oldest {
            return Err(format!("is version {version}; {major}.{minor} is the oldest that works"));
        }
        Ok(())
    }
}

/// Returns the Python that runs plugins, without asking it for anything.
pub fn python() -> Option<PathBuf> {
    let named = std::env::var(PYTHON).ok().or_else(|| installed(PYTHON)).map(PathBuf::from);
    named.filter(|python| python.exists())
}

/// Returns the variable's value if `asp` was installed with it.
fn installed(name: &str) -> Option<String> {
    let binary = std::env::current_exe().ok()?;
    let python = (name == PYTHON).then(|| sibling_python(&binary)).flatten()?;
    python.into_os_string().into_string().ok()
}

/// Returns the interpreter of the Python environment that `binary` is installed in, if that has the shim: another interpreter
/// in the same folder, as in a system's `bin`, cannot run a plugin.
fn sibling_python(binary: &Path) -> Option<PathBuf> {
    let bin = binary.parent()?;
    let versions = bin.parent()?.join("lib").read_dir().ok()?;
    let shim = versions.flatten().any(|version| version.path().join("site-packages/asp_plugin").is_dir());
    Some(bin.join("python3")).filter(|python| shim && python.exists())
}

/// Returns the `asp-runtime` next to this binary.
pub fn runtime_binary() -> Option<PathBuf> {
    let binary = std::env::current_exe().ok()?.with_file_name("asp-runtime");
    binary.is_file().then_some(binary)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Writes a program through another process: a child started by a concurrent test would inherit a file open for writing
    /// here, and running that file would fail with "Text file busy".
    fn program(path: &Path, script: &str) {
        let write = r#"printf '#!/bin/sh\n%s\n' "$2" > "$1" && chmod 755 "$1""#;
        let mut shell = std::process::Command::new("sh");
        assert!(shell.args(["-c", write, "sh"]).arg(path).arg(script).status().unwrap().success());
    }

    #[test]
    fn a_program_of_the_path_is_taken_if_it_is_new_enough() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let bin = root.join("bin");
        std::fs::create_dir(&bin).unwrap();
        let found = || JAVA.find_on_path(bin.as_os_str(), &CancellationToken::new());
        assert_eq!(found().unwrap_err(), "java was not found on the PATH");
        let home = root.join("jdk-21");
        std::fs::create_dir_all(home.join("bin")).unwrap();
        let real = home.join("bin/java");
        symlink(&real, bin.join("java")).unwrap();
        let says = |version: &str| {
            let says = format!("echo Property settings: >&2; echo '    java.home = {}' >&2", home.display());
            program(&real, &format!("{says}; echo '    java.version = {version}' >&2"));
            found()
        };
        let at = |version: &str| Ok((real.to_str().unwrap().to_owned(), version.to_owned()));
        assert_eq!(says("21.0.2"), at("21.0.2"));
        assert_eq!(says("17"), at("17"));
        let old = says("1.8.0_412").unwrap_err();
        assert!(
            old.contains("bin/java, the first") && old.contains("1.8.0_412; 17.0 is the oldest"),
            "{old}"
        );
        program(&real, "echo 17");
        assert!(found().unwrap_err().contains("does not report its version"));
    }

    #[test]
    fn of_a_version_manager_the_interpreter_itself_is_taken_and_what_it_complains_of_is_told() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let real = root.join("installs/node/22.1.0/bin/node");
        std::fs::create_dir_all(real.parent().unwrap()).unwrap();
        program(&real, &format!("echo 'version = 22.1.0'; echo 'place = {}'", real.display()));
        // As mise and volta do: one program behind many names.
        let shims = root.join("shims");
        std::fs::create_dir(&shims).unwrap();
        program(
            &root.join("manager"),
            &format!("[ \"${{0##*/}}\" = node ] || exit 1; exec {} \"$@\"", real.display()),
        );
        symlink(root.join("manager"), shims.join("node")).unwrap();
        let found = NODE.find_on_path(shims.as_os_str(), &CancellationToken::new());
        assert_eq!(found, Ok((real.to_str().unwrap().to_owned(), "22.1.0".to_owned())));

        program(&root.join("manager"), "echo 'No version is set for command node' >&2; exit 126");
        let said = NODE.find_on_path(shims.as_os_str(), &CancellationToken::new()).unwrap_err();
        let shim = shims.join("node");
        for part in [shim.to_str().unwrap(), "does not run", "No version is set for command node"] {
            assert!(said.contains(part), "{part}: {said}");
        }
    }

    #[test]
    fn an_installed_binary_takes_the_interpreter_of_its_environment_if_the_shim_is_there() {
        let environment = tempfile::tempdir().unwrap();
        let bin = environment.path().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("python3"), "").unwrap();
        let packages = environment.path().join("lib/python3.12/site-packages");
        std::fs::create_dir_all(&packages).unwrap();
        assert_eq!(sibling_python(&bin.join("asp")), None, "an interpreter without the shim");
        std::fs::create_dir(packages.join("asp_plugin")).unwrap();
        assert_eq!(sibling_python(&bin.join("asp")), Some(bin.join("python3")));
    }

    #[test]
    fn who_does_not_answer_is_ended_with_the_command() {
        let root = tempfile::tempdir().unwrap();
        program(&root.path().join("node"), "echo $$ > \"${0%/*}/asked\"; exec sleep 600");
        let asked = root.path().join("asked");
        let stop = CancellationToken::new();
        let said = std::thread::scope(|scope| {
            let answer = scope.spawn(|| NODE.find_on_path(root.path().as_os_str(), &stop));
            let until = std::time::Instant::now() + ASK;
            while !asked.exists() && std::time::Instant::now() < until {
                std::thread::yield_now();
            }
            stop.cancel();
            answer.join().unwrap().unwrap_err()
        });
        assert!(said.contains("was stopped because asp stops"), "{said}");
    }
}
