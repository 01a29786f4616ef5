//! The environment, from which settings and credentials of commands come.

use std::collections::BTreeMap;

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
