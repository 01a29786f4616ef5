//! What stays true of a token whose signature is good; the cache keeps it.

use std::sync::{Arc, OnceLock};

use sha2::{Digest, Sha256};

use crate::caller::{Caller, Mark, marks};

/// What stays true of a token as long as its issuer's keys and rules do.
pub(crate) struct Verified {
    pub(super) caller: Arc<Caller>,
    pub(super) audiences: Vec<String>,
    pub(super) issuer_audience: bool,
    pub(super) not_before: u64,
    /// The `iss` claim.
    pub(super) iss: String,
    /// Filled by [`Verified::marks`].
    pub(super) marks: OnceLock<[Mark; 4]>,
}

impl Verified {
    /// Entries under which the token may be revoked; `token` is the one these are the facts of.
    pub(super) fn marks(&self, token: &str) -> &[Mark; 4] {
        self.marks.get_or_init(|| marks(&self.iss, &self.caller, &Sha256::digest(token).into()))
    }

    /// About how many bytes this takes.
    pub(super) fn size(&self) -> usize {
        let caller = &self.caller;
        let lists = [&caller.groups, &caller.scopes, &self.audiences];
        let texts: usize =
            lists.iter().flat_map(|list| list.iter()).map(|text| text.len() + size_of::<String>()).sum();
        let names = [&caller.org, &caller.user, &caller.client, &caller.wcit, &caller.issuer, &self.iss];
        texts
            + names.iter().map(|name| name.len()).sum::<usize>()
            + size_of::<Verified>()
            + size_of::<Caller>()
    }
}
