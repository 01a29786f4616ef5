//! Where plugins run (`ASP_RUNTIMES`).

use super::source::Reader;

pub const ENV_RUNTIMES: &str = "ASP_RUNTIMES";

/// What a runtime may run.
pub const LANGUAGES: [&str; 4] = ["python", "node", "java", "mcp-stdio"];

/// Where a language runtime is, and what it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuntimeAddress {
    pub languages: Vec<String>,
    /// `unix:<path>` or `https://host:port`.
    pub url: String,
}

/// `language[+language]=url`, separated by commas.
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
        let taken = |language: &&String| found.iter().any(|other| other.languages.contains(language));
        if let Some(language) = languages.iter().find(taken) {
            reader.fault(ENV_RUNTIMES, format!("names {language} twice"));
        }
        found.push(RuntimeAddress { languages, url: url.to_owned() });
    }
    found
}
