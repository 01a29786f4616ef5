//! URLs that grant temporary read access to some bytes.

use std::fmt;

/// A URL that grants read access to its holder. As a credential, it prints as `***`.
#[derive(Clone, PartialEq, Eq)]
pub struct Link {
    pub url: String,
    /// Unix milliseconds.
    pub expires_ms: i64,
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("url", &"***").field("expires_ms", &self.expires_ms).finish()
    }
}
