//! Addresses of the runtimes for plugins (`ASP_RUNTIMES`).
//!
//! Keeps true: a language may have several runtimes, each listed once, and at most as many as a gateway uses.

use asp_gateway::executors::plugin::runtimes::MAX_RUNTIMES;

use super::source::Reader;

pub const ENV_RUNTIMES: &str = "ASP_RUNTIMES";

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
pub(super) fn read(reader: &mut Reader<'_>) -> Vec<RuntimeAddress> {
    let text = reader.optional(ENV_RUNTIMES).unwrap_or_default();
    let mut found: Vec<RuntimeAddress> = Vec::new();
    for entry in text.split(',').filter(|entry| !entry.is_empty()) {
        let (languages, url) = entry.split_once('=').unwrap_or_default();
        let languages: Vec<String> = languages.split('+').map(str::to_owned).collect();
        let known = languages.iter().all(|language| LANGUAGES.contains(&language.as_str()));
        let absolute = url.strip_prefix("unix:").is_some_and(|path| path.starts_with('/'));
        if !known || !(absolute || url.starts_with("https://")) {
            let message = format!(
                "must be language[+language]=unix:/path or =https://host:port,… with {}, not `{entry}`",
                LANGUAGES.join(", ")
            );
            reader.fault(ENV_RUNTIMES, message);
            continue;
        }
        for language in &languages {
            let of_language = || found.iter().filter(|other| other.languages.contains(language));
            if of_language().any(|other| other.url == url) {
                reader.fault(ENV_RUNTIMES, format!("names {url} twice for {language}"));
            }
            if of_language().count() == MAX_RUNTIMES {
                reader.fault(ENV_RUNTIMES, format!("names more than {MAX_RUNTIMES} runtimes for {language}"));
            }
        }
        found.push(RuntimeAddress { languages, url: url.to_owned() });
    }
    found
}
