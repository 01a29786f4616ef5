//! Operator lists: entries that an operator allows, and the primitives that each entry serves (`for`).
//!
//! Owns the one syntax of `for` and of settings whose value is a list of entries. Keeps true: an entry serves the
//! primitives that it names and no others; an empty `for` serves nobody. `docs/operator-lists.md` describes both forms.

use std::fmt;

/// Maximum number of patterns of one entry, and of bytes of one pattern.
pub const MAX_PATTERNS: usize = 256;
const MAX_PATTERN: usize = 576;
/// Maximum length of a server name in bytes.
const MAX_SERVER: usize = 63;

/// Pattern that serves every primitive of every server.
pub const EVERY_PRIMITIVE: &str = "*";
/// Placeholder in lines that an operator completes.
pub const PLACEHOLDER: &str = "SERVER/PRIMITIVE";

/// One entry of a setting such as `name=url;for=server/*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListEntry {
    /// Text before the first `;`.
    pub value: String,
    /// Patterns of `for`; `None` if the entry has no `for`.
    pub patterns: Option<Vec<String>>,
}

impl fmt::Display for ListEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let patterns = self.patterns.as_ref().map_or_else(|| PLACEHOLDER.to_owned(), |some| some.join(" "));
        write!(f, "{};for={patterns}", self.value)
    }
}

/// Whether one of `patterns` names this primitive of this server.
pub fn allows(patterns: &[String], server: &str, primitive: &str) -> bool {
    patterns.iter().any(|pattern| covers(pattern, server, primitive))
}

fn covers(pattern: &str, server: &str, primitive: &str) -> bool {
    if pattern == EVERY_PRIMITIVE {
        return true;
    }
    let Some((of, id)) = pattern.split_once('/') else { return false };
    of == server
        && match id.strip_suffix('*') {
            Some(prefix) => primitive.starts_with(prefix),
            None => primitive == id,
        }
}

/// Whether `domain`, a host or `*.suffix` as in `allowedDomains`, matches this host.
pub fn names_host(domain: &str, host: &str) -> bool {
    match domain.strip_prefix('*') {
        Some(suffix) => host.len() > suffix.len() && host.ends_with(suffix),
        None => domain == host,
    }
}

/// Checks the patterns of one entry.
pub fn check(patterns: &[String]) -> Result<(), String> {
    if patterns.len() > MAX_PATTERNS {
        return Err(format!("for: more than {MAX_PATTERNS} patterns"));
    }
    let fault = patterns.iter().find_map(|pattern| Some((pattern, pattern_fault(pattern)?)));
    match fault {
        Some((pattern, fault)) => Err(format!("for: `{}` {fault}", pattern.escape_debug())),
        None => Ok(()),
    }
}

/// Returns the fault of a pattern; `None` for `server/primitive`, `server/prefix*` and `*`.
fn pattern_fault(pattern: &str) -> Option<&'static str> {
    if pattern == EVERY_PRIMITIVE {
        return None;
    }
    if pattern.len() > MAX_PATTERN {
        return Some("is longer than 576 bytes");
    }
    let Some((server, id)) = pattern.split_once('/') else {
        return Some("is not server/primitive, server/prefix* or *");
    };
    let label = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if server.is_empty() || server.len() > MAX_SERVER || !server.bytes().all(label) {
        return Some("names no server before its `/`");
    }
    let name = id.strip_suffix('*').unwrap_or(id);
    if id.is_empty() {
        return Some("names no primitive after its `/`");
    }
    if name.contains('*') {
        return Some("has a `*` before its end");
    }
    if name.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Some("has white space or a control character");
    }
    None
}

/// Parses a setting: entries separated by commas or line ends, each `VALUE` or `VALUE;for=PATTERN PATTERN...`.
pub fn parse(text: &str) -> Result<Vec<ListEntry>, Vec<String>> {
    let mut entries = Vec::new();
    let mut faults = Vec::new();
    for entry in text.split([',', '\n']).map(str::trim).filter(|entry| !entry.is_empty()) {
        match parse_entry(entry) {
            Ok(entry) => entries.push(entry),
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() { Ok(entries) } else { Err(faults) }
}

fn parse_entry(text: &str) -> Result<ListEntry, String> {
    let mut parts = text.split(';').map(str::trim);
    let value = parts.next().unwrap_or_default().to_owned();
    if value.is_empty() {
        return Err(format!("`{}` has nothing before its `;`", text.escape_debug()));
    }
    let mut patterns: Option<Vec<String>> = None;
    for part in parts {
        let Some(listed) = part.strip_prefix("for=") else {
            return Err(format!("an entry has `{}` where only `for=` may follow a `;`", part.escape_debug()));
        };
        patterns.get_or_insert_default().extend(listed.split_whitespace().map(str::to_owned));
    }
    if let Some(patterns) = &patterns {
        check(patterns)?;
    }
    Ok(ListEntry { value, patterns })
}

/// Returns the setting in a form that an operator may paste: entries without `for` get a placeholder.
pub fn completed(name: &str, entries: &[ListEntry]) -> String {
    let entries: Vec<String> = entries.iter().map(ToString::to_string).collect();
    format!("{name}='{}'", entries.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patterns(list: &[&str]) -> Vec<String> {
        list.iter().map(|pattern| (*pattern).to_owned()).collect()
    }

    /// Invariant I-12.
    #[test]
    fn an_entry_serves_what_it_names_and_nothing_else() {
        for (list, primitive, serves) in [
            (&[][..], "find", false),
            (&["crm/find"][..], "find", true),
            (&["crm/find"][..], "find-all", false),
            (&["crm/find"][..], "Find", false),
            (&["crm/fi*"][..], "find", true),
            (&["crm/fi*"][..], "file", true),
            (&["crm/fi*"][..], "f", false),
            (&["crm/*"][..], "find", true),
            (&["crm/*"][..], "a/b", true),
            (&["other/*"][..], "find", false),
            (&["cr/*"][..], "find", false),
            (&["crm2/*", "other/find"][..], "find", false),
            (&["other/x", "crm/find"][..], "find", true),
            (&["*"][..], "find", true),
            // `check` refuses these, so nobody can write them. They serve nobody all the same.
            (&["crm*"][..], "find", false),
            (&["*/find"][..], "find", false),
            (&[""][..], "find", false),
        ] {
            assert_eq!(allows(&patterns(list), "crm", primitive), serves, "{list:?} {primitive}");
        }
    }

    #[test]
    fn good_and_bad_patterns() {
        for good in ["*", "crm/find", "crm/fi*", "crm/*", "a-1/b.c_d-e", "crm/a/b"] {
            assert_eq!(check(&patterns(&[good])), Ok(()), "{good}");
        }
        let long = format!("crm/{}", "x".repeat(600));
        for bad in [
            "",
            "crm",
            "crm*",
            "*/find",
            "/find",
            "crm/",
            "Crm/find",
            "crm/f*d",
            "crm/**",
            "c*/x",
            "**",
            "crm /find",
            "crm/fi nd",
            "crm/fi\u{7f}",
            "crm_1/x",
            &long,
        ] {
            assert!(check(&patterns(&[bad])).is_err(), "{bad:?}");
        }
        assert!(check(&vec!["*".to_owned(); 257]).is_err());
    }

    #[test]
    fn a_setting_is_parsed_and_completed() {
        let text = " a=http://h:1;for=crm/* ops/find , b=http://i ;for=,\n c=http://j\n";
        let entries = parse(text).unwrap();
        let parsed: Vec<_> =
            entries.iter().map(|entry| (entry.value.as_str(), entry.patterns.clone())).collect();
        assert_eq!(
            parsed,
            [
                ("a=http://h:1", Some(patterns(&["crm/*", "ops/find"]))),
                ("b=http://i", Some(Vec::new())),
                ("c=http://j", None),
            ]
        );
        assert_eq!(
            completed("X", &entries),
            "X='a=http://h:1;for=crm/* ops/find,b=http://i;for=,c=http://j;for=SERVER/PRIMITIVE'"
        );
        assert_eq!(parse(""), Ok(Vec::new()));
        for bad in ["a=b;", "a=b;to=crm/*", "a=b;for", "a=b;for=crm", ";for=crm/*", "a=b;for=crm/*;x"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        // All faults at once.
        assert_eq!(parse("a;x,b;y").unwrap_err().len(), 2);
    }
}
