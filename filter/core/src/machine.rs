//! Keys with which machines call (`psk`): how one is told from a token. Whose it is only gateways know.

/// How every key begins, so that none is taken for a token and shown to an issuer.
pub const KEY_PREFIX: &str = "asp_psk_";

/// The issuer's name, and its `iss`, of callers with a key. No issuer can have this name.
pub const MACHINE_ISSUER: &str = "asp:machines";

/// Whether a credential has the form of a key.
pub(crate) fn is_key(credential: &str) -> bool {
    credential.starts_with(KEY_PREFIX)
}
