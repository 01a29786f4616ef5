//! Addresses of the runtimes for plugins (`ASP_RUNTIMES`).
//!
//! Keeps true: a language may have several runtimes, each listed once, and at most as many as a gateway uses.

use asp_runtime_client::runtimes::MAX_RUNTIMES;

use super::values::{List, list};

/// Languages that a runtime may run.
pub const LANGUAGES: [&str; 4] = ["python", "node", "java", "mcp-stdio"];

/// Address of a language runtime, or of several under one name, and the languages they run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeAddress {
    pub languages: Vec<String>,
    /// `unix:<path>` or `https://host:port`; a host name stands for all its addresses.
    pub url: String,
}

/// Parses `language[+language]=url` entries, separated by commas, with one entry for each further runtime of a language.
pub(super) fn runtimes(text: &str) -> Result<List<RuntimeAddress>, String> {
    let found = list(text, runtime)?;
    for (position, RuntimeAddress { languages, url }) in found.iter().enumerate() {
        for language in languages {
            let others = || found.iter().take(position).filter(|other| other.languages.contains(language));
            if others().any(|other| other.url == *url) {
                return Err(format!("names {url} twice for {language}"));
            }
            if others().count() == MAX_RUNTIMES {
                return Err(format!("names more than {MAX_RUNTIMES} runtimes for {language}"));
            }
        }
    }
    Ok(found)
}

fn runtime(entry: &str) -> Result<RuntimeAddress, String> {
    let (languages, url) = entry.split_once('=').unwrap_or_default();
    let languages: Vec<String> = languages.split('+').map(str::to_owned).collect();
    let known = languages.iter().all(|language| LANGUAGES.contains(&language.as_str()));
    let absolute = url.strip_prefix("unix:").is_some_and(|path| path.starts_with('/'));
    if !known || !(absolute || url.starts_with("https://")) {
        let known = LANGUAGES.join(", ");
        return Err(format!(
            "must be language[+language]=unix:/path or =https://host:port,… with {known}, not `{entry}`"
        ));
    }
    Ok(RuntimeAddress { languages, url: url.to_owned() })
}
