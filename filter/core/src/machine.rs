//! Machines beside users: how a key (`psk`) is told from a token, and which of the two a name in policy is about. Whose a
//! key is only gateways know.

/// How every key begins, so that none is taken for a token and shown to an issuer.
pub const KEY_PREFIX: &str = "asp_psk_";

/// The issuer's name, and its `iss`, of callers with a key. No issuer can have this name.
pub const MACHINE_ISSUER: &str = "asp:machines";

/// Whether a credential has the form of a key.
pub(crate) fn is_key(credential: &str) -> bool {
    credential.starts_with(KEY_PREFIX)
}

/// Whether what names `issuer` in policy is about callers of `caller_issuer`. An empty `issuer` is every one; a user's name
/// (`names_user`) is then never a machine's.
pub fn covers_issuer(issuer: &str, names_user: bool, caller_issuer: &str) -> bool {
    match issuer {
        "" => !names_user || caller_issuer != MACHINE_ISSUER,
        issuer => issuer == caller_issuer,
    }
}
