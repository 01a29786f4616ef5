//! Sources of settings, and the faults that are found in them.
//!
//! clap parses the values, each by the parser of its declaration. Keeps true: every fault is found, not only the first; no
//! fault repeats a secret, or a URL with credentials; and the values of the process's environment reach clap by way of
//! [`Environment`] alone.

use std::error::Error;

use asp_command::environment::Environment;
use asp_command::failure::SettingFault;
use asp_platform::operator_list::{self, EVERY_PRIMITIVE, ListEntry};
use asp_platform::secret::Secret;
use clap::{Arg, Args, Command};

/// Settings that a cluster shares. One that is set but empty, as from an empty Secret, is a fault: it does not mean that this
/// process should use its own store, or that no topic revokes.
const SHARED: [&str; 4] = ["ASP_DATABASE_URL", "ASP_REDIS_URL", "ASP_S3_URL", "ASP_KAFKA_BROKERS"];

/// Text that stands for a value that must not be shown.
pub const HIDDEN: &str = "***";

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

/// Parses settings and collects the faults of their values and of their checks.
pub struct Checks<'e> {
    environment: &'e dyn Environment,
    /// Whether an entry of an operator list without `for` applies to every primitive.
    pub(super) dev: bool,
    faults: Vec<SettingFault>,
    /// Settings whose values their parsers rejected.
    rejected: Vec<String>,
    /// Texts that no fault may repeat, each before its parts.
    hidden: Vec<Secret>,
    /// Notes about operator lists, for the log.
    pub(super) notes: Vec<ListNote>,
}

impl<'e> Checks<'e> {
    pub fn new(environment: &'e dyn Environment, dev: bool) -> Checks<'e> {
        Checks {
            environment,
            dev,
            faults: Vec::new(),
            rejected: Vec::new(),
            hidden: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Parses the settings that `T` declares. A value that its parser rejects is a fault and reads as the default.
    pub fn read<T: Args>(&mut self) -> Option<T> {
        let command = T::augment_args(Command::new("settings")).no_binary_name(true);
        let mut arguments = Vec::new();
        for argument in command.get_arguments() {
            let Some((name, value)) = self.read_variable(argument) else { continue };
            self.hide(&value, argument.is_hide_env_values_set());
            let text = format!("--{}={value}", argument.get_long().unwrap_or_default());
            match rejection(argument, &text) {
                None => arguments.push(text),
                Some(fault) => self.reject(name, &fault),
            }
        }
        let command = command.mut_args(|argument| argument.env(None));
        let parsed = command.try_get_matches_from(arguments);
        match parsed.and_then(|mut matches| T::from_arg_matches_mut(&mut matches)) {
            Ok(settings) => Some(settings),
            // Every value passed its parser, so this is a fault of the declaration.
            Err(error) => {
                self.fault("settings", format!("cannot be parsed: {}", error.kind()));
                None
            }
        }
    }

    /// Returns name and value of a setting that the environment gives.
    fn read_variable(&mut self, argument: &Arg) -> Option<(String, String)> {
        let name = argument.get_env()?.to_str()?.to_owned();
        let value = self.environment.raw(&name)?;
        if SHARED.contains(&name.as_str()) && value.trim().is_empty() {
            self.reject(name, "is set and empty: give it a value, or unset it to do without");
            return None;
        }
        (!value.is_empty()).then_some((name, value))
    }

    /// Hides a secret, or a value with credentials and its parts that may have some of them, from the faults.
    fn hide(&mut self, value: &str, is_secret: bool) {
        if is_secret || has_credentials(value) {
            let marked = |part: &&str| part.contains("://") || part.contains('@');
            let parts = value.split(',').chain(value.split([',', ';', '='])).map(str::trim).filter(marked);
            self.hidden.extend([value].into_iter().chain(parts).map(Secret::from));
        }
    }

    /// Returns the entries of an operator list with the primitives each applies to. Outside of development an entry without
    /// `for` is a fault that ends with the setting to paste, unless `is_entry` rejects some entry, which then may be a
    /// secret.
    pub fn operator_list(
        &mut self,
        name: &'static str,
        entries: &[ListEntry],
        is_entry: fn(&str) -> bool,
    ) -> Vec<(String, Vec<String>)> {
        let may_be_shown = entries.iter().all(|entry| is_entry(&entry.value));
        if !self.dev && may_be_shown && entries.iter().any(|entry| entry.patterns.is_none()) {
            let message = format!(
                "has entries that do not name the primitives they serve; complete and paste (docs/operator-lists.md), or have \
                 `asp upgrade check` complete it from what is stored:\n  {}",
                operator_list::completed(name, entries)
            );
            self.fault(name, message);
        }
        let mut served = |ListEntry { value, patterns }: &ListEntry| {
            let patterns = self.primitives_of(name, value, patterns.clone());
            (value.clone(), patterns)
        };
        entries.iter().map(&mut served).collect()
    }

    /// Returns the primitives that an entry applies to, and takes a note if these are all or none.
    pub fn primitives_of(
        &mut self,
        list: &'static str,
        entry: &str,
        patterns: Option<Vec<String>>,
    ) -> Vec<String> {
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

    /// Adds a fault, unless the setting's value was rejected, which explains why it is missing.
    pub fn fault(&mut self, name: &str, message: impl Into<String>) {
        if !self.is_rejected(name) {
            self.faults.push(SettingFault { name: name.to_owned(), message: message.into() });
        }
    }

    /// Adds a fault for each setting that is given without the one that it belongs to.
    pub fn without(&mut self, missing: &str, settings: &[(&str, bool)]) {
        if self.is_rejected(missing) {
            return;
        }
        for (name, _) in settings.iter().filter(|(_, is_given)| *is_given) {
            self.fault(name, format!("means nothing without {missing}"));
        }
    }

    fn reject(&mut self, name: String, reason: &str) {
        self.fault(&name, reason);
        self.rejected.push(name);
    }

    fn is_rejected(&self, name: &str) -> bool {
        self.rejected.iter().any(|rejected| rejected == name)
    }

    /// Returns the settings if there was no fault.
    pub fn finish<T>(mut self, settings: Option<T>) -> Result<T, Vec<SettingFault>> {
        for fault in &mut self.faults {
            for hidden in &self.hidden {
                fault.message = fault.message.replace(hidden.expose(), HIDDEN);
            }
        }
        settings.filter(|_| self.faults.is_empty()).ok_or(self.faults)
    }
}

/// Whether a value contains a URL that may have credentials.
pub fn has_credentials(value: &str) -> bool {
    value.split_once("://").is_some_and(|(_, rest)| rest.contains('@'))
}

/// Returns the reason for which a setting's parser rejects a value.
fn rejection(argument: &Arg, text: &str) -> Option<String> {
    let command = Command::new("setting").no_binary_name(true).arg(argument.clone().env(None));
    let error = command.try_get_matches_from([text]).err()?;
    Some(error.source().map_or_else(|| "is not valid".to_owned(), |reason| reason.to_string()))
}
