//! The hostile plugins as a row names them: language, what they are told, how they are installed.

use std::path::Path;

use anyhow::Result;
use serde_json::{Value, json};

use crate::call::Request;
use crate::plugins::{self, RELEASE};

/// The id the hostile plugin is installed under.
pub(crate) const HOSTILE: &str = "hostile";

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Language {
    Python,
    Node,
    Java,
}

impl Language {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Language::Python => "python",
            Language::Node => "node",
            Language::Java => "java",
        }
    }

    /// Installs the language's hostile plugin: `shape` is its workers and the places of each.
    pub(crate) fn install(self, plugins: &Path, shape: (u32, u32)) -> Result<()> {
        match self {
            Language::Python => plugins::python(plugins, HOSTILE, shape),
            Language::Node => plugins::node(plugins, HOSTILE, shape),
            Language::Java => plugins::java(plugins, HOSTILE, shape),
        }
    }

    /// A call that does nothing bad and ends at once.
    pub(crate) fn harmless(self) -> Request {
        call(match self {
            Language::Python => json!({"mode": "own_environ"}),
            Language::Node => json!({"probe": "env"}),
            Language::Java => json!({"act": "env"}),
        })
    }
}

/// A call of the hostile plugin.
pub(crate) fn call(arguments: Value) -> Request {
    Request::new(HOSTILE, RELEASE, arguments)
}

/// A call that says it has begun, and stays until it is killed.
pub(crate) fn held() -> Request {
    call(json!({"mode": "ignore_cancel"}))
}
