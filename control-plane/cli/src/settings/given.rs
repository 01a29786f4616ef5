//! The settings of an installation: files named by the operator, which override this process's environment.

use std::collections::BTreeMap;
use std::path::PathBuf;

use asp_command::environment::{Environment, ProcessEnvironment};
use asp_command::failure::SettingFault;

use super::values::small_file;

const FLAG: &str = "--settings";
/// Maximum size of a settings file in bytes.
const MAX_FILE: u64 = 1 << 20;

/// Settings by name.
#[derive(Debug, Default)]
pub struct GivenSettings {
    /// Values, each with its file.
    of_files: BTreeMap<String, (String, PathBuf)>,
}

/// Name of a setting that is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenName {
    pub name: String,
    /// File that gives it; `None` for a variable of this process.
    pub file: Option<PathBuf>,
}

impl GivenSettings {
    /// Reads files of `NAME=VALUE` lines, as used by systemd and Docker; later files take precedence.
    pub fn read(files: &[PathBuf]) -> Result<GivenSettings, Vec<SettingFault>> {
        let mut given = GivenSettings::default();
        for file in files {
            let bad = |fault: String| {
                vec![SettingFault { name: FLAG.to_owned(), message: format!("{}: {fault}", file.display()) }]
            };
            let text = small_file(file, MAX_FILE, &format!("more than {MAX_FILE} bytes")).map_err(bad)?;
            let settings = parse(&text).map_err(bad)?.into_iter();
            given.of_files.extend(settings.map(|(name, value)| (name, (value, file.clone()))));
        }
        Ok(given)
    }

    /// Returns the names of the files' settings, then those of the variables of this process.
    pub fn names(&self) -> Vec<GivenName> {
        let of_files = self.of_files.iter();
        let of_files =
            of_files.map(|(name, (_, file))| GivenName { name: name.clone(), file: Some(file.clone()) });
        let variables = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
        of_files.chain(variables.map(|name| GivenName { name, file: None })).collect()
    }

    /// Whether a file gives this setting.
    pub fn is_of_file(&self, name: &str) -> bool {
        self.of_files.contains_key(name)
    }
}

impl Environment for GivenSettings {
    fn raw(&self, name: &str) -> Option<String> {
        self.of_files.get(name).map(|(value, _)| value.clone()).or_else(|| ProcessEnvironment.raw(name))
    }
}

/// Parses the lines. Quotes around a value are removed; variables are not expanded. A line without a setting is reported by
/// its number only, because it may contain a secret.
fn parse(text: &str) -> Result<BTreeMap<String, String>, String> {
    let mut found = BTreeMap::new();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let line = line.strip_prefix("export ").unwrap_or(line);
        let Some((name, value)) = line.split_once('=') else {
            return Err(format!("line {} is not NAME=VALUE", number + 1));
        };
        let value = value.trim();
        let quoted = ['\'', '"'].into_iter().find_map(|mark| value.strip_prefix(mark)?.strip_suffix(mark));
        found.insert(name.trim().to_owned(), quoted.unwrap_or(value).to_owned());
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_settings_with_and_without_quotes() {
        let text = "# of the gateway\n\nA=1\nexport B='x;for=a/* b/*'\n C = \"y=z\" \nD=\n";
        let found = parse(text).unwrap();
        let found: Vec<_> = found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, [("A", "1"), ("B", "x;for=a/* b/*"), ("C", "y=z"), ("D", "")]);
        assert_eq!(parse("A=1\ns3cret").unwrap_err(), "line 2 is not NAME=VALUE");
    }
}
