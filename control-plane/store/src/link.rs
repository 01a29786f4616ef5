//! A URL by which whoever has it reads some bytes for a while.

use std::fmt;

/// Such a URL: it is a credential, and prints as `***`.
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
