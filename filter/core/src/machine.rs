//! Machines as callers: distinguishes a machine key (`psk`) from a token, and policy entries about machines from those
//! about users. Only gateways know which machine a key belongs to.

/// Prefix of every key, so that no key is mistaken for a token and shown to an issuer.
pub const KEY_PREFIX: &str = "asp_psk_";

/// Issuer name, and `iss`, of callers with a key. No issuer can have this name.
pub const MACHINE_ISSUER: &str = "asp:machines";

/// Whether a credential has the form of a key.
pub(crate) fn is_key(credential: &str) -> bool {
    credential.starts_with(KEY_PREFIX)
}

/// Whether a policy entry that names `issuer` covers callers of `caller_issuer`. An empty `issuer` covers every issuer,
/// except that an entry with a user's name (`names_user`) then never covers machines.
pub fn covers_issuer(issuer: &str, names_user: bool, caller_issuer: &str) -> bool {
    match issuer {
        "" => !names_user || caller_issuer != MACHINE_ISSUER,
        issuer => issuer == caller_issuer,
    }
}
