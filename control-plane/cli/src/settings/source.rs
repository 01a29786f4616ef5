//! Reads settings from an environment and collects every fault instead of stopping at the first.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

use asp_platform::operator_list::{self, EVERY_PRIMITIVE, ListEntry};

/// A source of settings; tests use a map and never touch the process's environment.
pub trait Environment {
    /// Returns the value as it is, or `None` if it is unset.
    fn raw(&self, name: &str) -> Option<String>;

    /// Returns the value, or `None` if it is unset or empty.
    fn get(&self, name: &str) -> Option<String> {
        self.raw(name).filter(|value| !value.is_empty())
    }
}

/// Environment of this process.
pub struct ProcessEnvironment;

impl Environment for ProcessEnvironment {
    fn raw(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

impl Environment for BTreeMap<&str, &str> {
    fn raw(&self, name: &str) -> Option<String> {
        BTreeMap::get(self, name).map(|value| (*value).to_owned())
    }
}

/// A faulty setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SettingFault {
    pub name: String,
    pub message: String,
}

impl Display for SettingFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.name, self.message)
    }
}

/// An entry of an operator list whose `for` deserves a log line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListNote {
    pub list: &'static str,
    /// Text before `;for=`, or the entry's name in a file.
    pub entry: String,
    pub served: Coverage,
}

/// Coverage of a noted entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// Every primitive, because development mode reads an entry without `for` so.
    Every,
    /// No primitive: its `for` is empty.
    None,
}

/// Reads settings and collects faults.
pub struct Reader<'e> {
    environment: &'e dyn Environment,
    faults: Vec<SettingFault>,
    /// Whether an entry of an operator list without `for` applies to every primitive.
    dev: bool,
    notes: Vec<ListNote>,
}

impl<'e> Reader<'e> {
    pub fn new(environment: &'e dyn Environment) -> Reader<'e> {
        Reader { environment, faults: Vec::new(), dev: false, notes: Vec::new() }
    }

    /// Creates a reader for which, if `dev`, an entry of an operator list without `for` applies to every primitive.
    pub fn of_development(environment: &'e dyn Environment, dev: bool) -> Reader<'e> {
        Reader { dev, ..Reader::new(environment) }
    }

    /// Whether an entry of an operator list without `for` applies to every primitive.
    pub fn is_development(&self) -> bool {
        self.dev
    }

    /// Takes the notes about operator lists, for the log.
    pub fn take_notes(&mut self) -> Vec<ListNote> {
        std::mem::take(&mut self.notes)
    }

    /// Returns the entries of an operator list with the primitives each applies to. Outside of development an entry without
    /// `for` is a fault that ends with the setting to paste, unless `is_entry` rejects some entry, which then may be a
    /// secret.
    pub fn operator_list(
        &mut self,
        name: &'static str,
        is_entry: fn(&str) -> bool,
    ) -> Vec<(String, Vec<String>)> {
        let text = self.optional(name).unwrap_or_default();
        let entries = match operator_list::parse(&text) {
            Ok(entries) => entries,
            Err(faults) => {
                faults.into_iter().for_each(|fault| self.fault(name, fault));
                return Vec::new();
            }
        };
        let may_be_shown = entries.iter().all(|entry| is_entry(&entry.value));
        if !self.dev && may_be_shown && entries.iter().any(|entry| entry.patterns.is_none()) {
            let message = format!(
                "has entries that do not name the primitives they serve; complete and paste (docs/operator-lists.md), or have \
                 `asp upgrade check` complete it from what is stored:\n  {}",
                operator_list::completed(name, &entries)
            );
            self.fault(name, message);
        }
        let mut served = |ListEntry { value, patterns }: ListEntry| {
            let patterns = self.served(name, &value, patterns);
            (value, patterns)
        };
        entries.into_iter().map(&mut served).collect()
    }

    /// Returns the primitives that an entry applies to, and takes a note if these are all or none.
    pub fn served(&mut self, list: &'static str, entry: &str, patterns: Option<Vec<String>>) -> Vec<String> {
        let served = match &patterns {
            None if self.dev => Coverage::Every,
            Some(some) if some.is_empty() => Coverage::None,
            None | Some(_) => return patterns.unwrap_or_default(),
        };
        self.notes.push(ListNote { list, entry: entry.to_owned(), served });
        match served {
            Coverage::Every => vec![EVERY_PRIMITIVE.to_owned()],
            Coverage::None => Vec::new(),
        }
    }

    pub fn fault(&mut self, name: &str, message: impl Into<String>) {
        self.faults.push(SettingFault { name: name.to_owned(), message: message.into() });
    }

    /// Returns the settings if there was no fault.
    pub fn finish<T>(self, settings: T) -> Result<T, Vec<SettingFault>> {
        if self.faults.is_empty() { Ok(settings) } else { Err(self.faults) }
    }

    pub fn optional(&mut self, name: &str) -> Option<String> {
        self.environment.get(name)
    }

    /// Reads a setting that a cluster shares. A value that is set but empty, as from an empty Secret, is a fault: it does not
    /// mean that this process should use its own store.
    pub fn shared(&mut self, name: &str) -> Option<String> {
        if self.environment.raw(name).is_some_and(|value| value.trim().is_empty()) {
            self.fault(name, "is set and empty: give it a value, or unset it to do without");
        }
        self.optional(name)
    }

    pub fn path(&mut self, name: &str, default: &str) -> PathBuf {
        PathBuf::from(self.optional(name).unwrap_or_else(|| default.to_owned()))
    }

    /// Reads a number within `range`; a faulty one is reported and read as the default.
    pub fn number<T>(&mut self, name: &str, default: T, range: RangeInclusive<T>) -> T
    where
        T: FromStr + PartialOrd + Display,
    {
        let Some(text) = self.optional(name) else {
            return default;
        };
        match text.parse::<T>() {
            Ok(number) if range.contains(&number) => number,
            _ => {
                let low = range.start();
                let high = range.end();
                self.fault(name, format!("must be a number from {low} to {high}, not `{text}`"));
                default
            }
        }
    }

    /// Reads `host:port` with a literal address: Envoy's endpoint discovery does not resolve names.
    pub fn socket_address(&mut self, name: &str) -> Option<String> {
        let text = self.optional(name)?;
        if text.parse::<SocketAddr>().is_err() {
            self.fault(name, format!("must be <ip>:<port>, not `{text}`"));
        }
        Some(text)
    }

    /// Reads an http(s) origin: scheme, host, optional port; no path, query or trailing slash.
    pub fn origin(&mut self, name: &str) -> Option<String> {
        let text = self.optional(name)?;
        if !is_origin(&text) {
            self.fault(name, format!("must be http(s)://host[:port] without a path, not `{text}`"));
        }
        Some(text)
    }
}

/// Whether the text is scheme, host and optional port only.
pub fn is_origin(text: &str) -> bool {
    let host = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://")).unwrap_or_default();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | ':' | '[' | ']');
    !host.is_empty() && host.chars().all(plain)
}

/// Makes a path absolute: Envoy and other processes would resolve a relative one from their own directory.
pub(super) fn absolute(path: PathBuf) -> PathBuf {
    std::path::absolute(&path).unwrap_or(path)
}
