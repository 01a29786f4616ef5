//! Lasting facts about a token with a valid signature, as the cache keeps them.

use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use crate::caller::{Caller, Mark, marks};

/// Facts about a token that hold as long as its issuer's keys and rules do.
pub(crate) struct VerifiedToken {
    pub(super) caller: Arc<Caller>,
    pub(super) audiences: Vec<String>,
    pub(super) issuer_audience: bool,
    pub(super) not_before: u64,
    /// The `iss` claim.
    pub(super) iss: String,
    /// Filled by [`VerifiedToken::marks`].
    pub(super) marks: OnceLock<[Mark; 4]>,
}

impl VerifiedToken {
    /// Returns the entries under which the token may be revoked; `token` must be the token of these facts.
    pub(super) fn marks(&self, token: &str) -> &[Mark; 4] {
        self.marks.get_or_init(|| marks(&self.iss, &self.caller, &Sha256::digest(token).into()))
    }

    /// Returns the approximate size in bytes.
    pub(super) fn size(&self) -> usize {
        let caller = &self.caller;
        let lists = [&caller.groups, &caller.scopes, &self.audiences];
        let texts: usize =
            lists.iter().flat_map(|list| list.iter()).map(|text| text.len() + size_of::<String>()).sum();
        let names = [&caller.org, &caller.user, &caller.client, &caller.wcit, &caller.issuer, &self.iss];
        texts
            + names.iter().map(|name| name.len()).sum::<usize>()
            + size_of::<VerifiedToken>()
            + size_of::<Caller>()
    }
}
