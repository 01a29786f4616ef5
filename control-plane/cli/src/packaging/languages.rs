//! The languages a machine can run plugins in, as set-up left them in the environment; an `asp` that was installed into
//! a Python environment has that one's interpreter.

use std::path::{Path, PathBuf};

const PYTHON: &str = "ASP_PLUGIN_PYTHON";

/// A language, and the variables that must all name something that exists.
const LANGUAGES: [(&str, &[&str]); 3] = [
    ("python", &[PYTHON]),
    ("node", &["ASP_PLUGIN_NODE", "ASP_PLUGIN_NODE_SHIM"]),
    ("java", &["ASP_PLUGIN_JAVA", "ASP_PLUGIN_JAVA_SHIM"]),
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
}

impl Languages {
    pub fn find() -> Languages {
        let mut found = Languages::default();
        let value = |name: &str| std::env::var(name).ok().or_else(|| installed(name));
        for (language, names) in LANGUAGES {
            let values: Vec<_> = names
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), value(name)?)))
                .filter(|(_, value)| Path::new(value).exists())
                .collect();
            if values.len() == names.len() {
                found.present.push(language);
                found.environment.extend(values);
            } else {
                found.absent.push((language, names.join(", ")));
                found.unset.extend_from_slice(names);
            }
        }
        found
    }
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
