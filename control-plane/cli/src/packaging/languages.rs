//! The languages a machine can run plugins in, as set-up left them in the environment; an `asp` that was installed into
//! a Python environment has that one's interpreter. Where only the interpreter is not named, that of the PATH is taken
//! if it is new enough, and it is told.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

const PYTHON: &str = "ASP_PLUGIN_PYTHON";

/// Major and minor.
type Version = (u32, u32);

/// A language, and the variables that must all name something that exists.
struct Language {
    name: &'static str,
    variables: &'static [&'static str],
    /// The program of the PATH that stands in for the first variable, and the oldest that the shim runs on.
    fallback: Option<(&'static str, Version)>,
}

const LANGUAGES: [Language; 3] = [
    // A Python without the shim's packages runs nothing.
    Language { name: "python", variables: &[PYTHON], fallback: None },
    Language {
        name: "node",
        variables: &["ASP_PLUGIN_NODE", "ASP_PLUGIN_NODE_SHIM"],
        fallback: Some(("node", (20, 11))),
    },
    Language {
        name: "java",
        variables: &["ASP_PLUGIN_JAVA", "ASP_PLUGIN_JAVA_SHIM"],
        fallback: Some(("java", (17, 0))),
    },
];

/// What `asp-runtime` needs to know of the languages, and which there are not.
#[derive(Clone, Debug, Default)]
pub struct Languages {
    pub present: Vec<&'static str>,
    /// Name and value of each variable.
    pub environment: Vec<(String, String)>,
    /// A language and the variables it wants.
    pub absent: Vec<(&'static str, String)>,
    /// Variables of absent languages: a child must not inherit the half of them.
    pub unset: Vec<&'static str>,
    /// A language, and which interpreter it runs on that no variable names.
    pub notes: Vec<(&'static str, String)>,
}

impl Languages {
    pub fn find() -> Languages {
        let mut found = Languages::default();
        LANGUAGES.iter().for_each(|language| found.add(language));
        found
    }

    fn add(&mut self, language: &Language) {
        let Language { name, variables, fallback } = *language;
        let value = |variable: &str| std::env::var(variable).ok().or_else(|| installed(variable));
        let mut values: Vec<(String, String)> = variables
            .iter()
            .filter_map(|variable| Some(((*variable).to_owned(), value(variable)?)))
            .filter(|(_, value)| Path::new(value).exists())
            .collect();
        let mut lacks = variables.join(", ");
        if let (Some((program, oldest)), [interpreter, rest @ ..]) = (fallback, variables)
            && values.len() == rest.len()
            && value(interpreter).is_none()
        {
            match on_path(program, oldest, &std::env::var_os("PATH").unwrap_or_default()) {
                Ok((path, version)) => {
                    let note = format!(
                        "plugins in {name} run on {path}, version {version}, which is first on the PATH; \
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

/// The first program of this name, and its version; else why it cannot be used.
fn on_path(program: &str, oldest: Version, path: &OsStr) -> Result<(String, String), String> {
    let mut candidates = std::env::split_paths(path).map(|folder| folder.join(program));
    let found = candidates.find(|candidate| candidate.is_file());
    let found = found.ok_or_else(|| format!("there is no {program} on the PATH"))?;
    // A worker sees the file itself, and not the links that lead there.
    let found = found.canonicalize().map_err(|error| format!("{}: {error}", found.display()))?;
    let output = Command::new(&found).arg("--version").output();
    let said = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let is_version = |byte: char| byte.is_ascii_digit() || byte == '.';
    let version =
        said.split(|byte| !is_version(byte)).find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    let version = version.unwrap_or("unknown").to_owned();
    let mut numbers = version.split('.').map(|number| number.parse::<u32>().unwrap_or_default());
    let numbers = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let shown = found.display();
    if numbers < oldest {
        let (major, minor) = oldest;
        return Err(format!(
            "{shown}, the first on the PATH, is version {version}; {major}.{minor} is the oldest that works"
        ));
    }
    let text = found.to_str().map(str::to_owned);
    Ok((text.ok_or_else(|| format!("{shown} is no UTF-8"))?, version))
}

/// What this binary was installed with.
fn installed(name: &str) -> Option<String> {
    let binary = std::env::current_exe().ok()?;
    let python = (name == PYTHON).then(|| python_of(&binary)).flatten()?;
    python.into_os_string().into_string().ok()
}

/// The interpreter of the Python environment that `binary` is installed in, where that has the shim: any other beside
/// it, as in a system's `bin`, cannot run a plugin.
fn python_of(binary: &Path) -> Option<PathBuf> {
    let bin = binary.parent()?;
    let versions = bin.parent()?.join("lib").read_dir().ok()?;
    let shim = versions.flatten().any(|version| version.path().join("site-packages/asp_plugin").is_dir());
    Some(bin.join("python3")).filter(|python| shim && python.exists())
}

/// The `asp-runtime` beside this binary.
pub fn runtime_binary() -> Option<PathBuf> {
    let binary = std::env::current_exe().ok()?.with_file_name("asp-runtime");
    binary.is_file().then_some(binary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_of_the_path_is_taken_if_it_is_new_enough() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let bin = tempfile::tempdir().unwrap();
        let real = bin.path().canonicalize().unwrap().join("java-21");
        let says = |text: &str| {
            std::fs::write(&real, format!("#!/bin/sh\n{text}\n")).unwrap();
            std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o755)).unwrap();
            on_path("java", (17, 0), bin.path().as_os_str())
        };
        assert_eq!(
            on_path("java", (17, 0), bin.path().as_os_str()).unwrap_err(),
            "there is no java on the PATH"
        );
        symlink(&real, bin.path().join("java")).unwrap();
        let real = real.to_str().unwrap().to_owned();
        assert_eq!(says("echo openjdk 21.0.2 2024-01-16"), Ok((real.clone(), "21.0.2".into())));
        assert_eq!(says("echo v17"), Ok((real.clone(), "17".into())));
        let old = says("echo v12.3.4").unwrap_err();
        assert!(old.contains(&real) && old.contains("12.3.4; 17.0 is the oldest"), "{old}");
        assert!(says("echo Unrecognized option: --version >&2; exit 1").unwrap_err().contains("unknown"));
    }

    #[test]
    fn an_installed_binary_takes_the_interpreter_of_its_environment_if_the_shim_is_there() {
        let environment = tempfile::tempdir().unwrap();
        let bin = environment.path().join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        std::fs::write(bin.join("python3"), "").unwrap();
        let packages = environment.path().join("lib/python3.12/site-packages");
        std::fs::create_dir_all(&packages).unwrap();
        assert_eq!(python_of(&bin.join("asp")), None, "an interpreter without the shim");
        std::fs::create_dir(packages.join("asp_plugin")).unwrap();
        assert_eq!(python_of(&bin.join("asp")), Some(bin.join("python3")));
    }
}
