//! The languages a machine can run plugins in, as set-up left them in the environment.

use std::path::{Path, PathBuf};

/// A language, and the variables that must all name something that exists.
const LANGUAGES: [(&str, &[&str]); 3] = [
    ("python", &["ASP_PLUGIN_PYTHON"]),
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
        for (language, names) in LANGUAGES {
            let values: Vec<_> = names
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)))
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

/// The `asp-runtime` beside this binary.
pub fn runtime_binary() -> Option<PathBuf> {
    let binary = std::env::current_exe().ok()?.with_file_name("asp-runtime");
    binary.is_file().then_some(binary)
}
