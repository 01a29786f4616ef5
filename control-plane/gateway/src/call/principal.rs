//! Whose call it is, whatever token brought it.

use asp_edge::Caller;

use crate::digest;

/// The principal: issuer, org, user and client, not the token, so that a refresh does not end a session. The same
/// names from two issuers are two principals: each issuer answers for its own users only.
pub fn principal(caller: &Caller) -> [u8; 16] {
    digest::shortened(&[&caller.issuer, &caller.org, &caller.user, &caller.client])
}

/// The principal whatever the client, of which a user can register any number: who has a share of what is kept.
pub fn user(caller: &Caller) -> [u8; 16] {
    digest::shortened(&[&caller.issuer, &caller.org, &caller.user])
}

/// Whether two tokens are of one principal.
pub fn is_same(one: &Caller, other: &Caller) -> bool {
    one.issuer == other.issuer && one.org == other.org && one.user == other.user && one.client == other.client
}
