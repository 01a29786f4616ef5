//! The principal of a call, independent of its token.

use asp_edge::Caller;

use crate::digest;
use crate::quota_table::Owner;

/// Returns the digest of the principal: issuer, org, user and client, but not the token, so that a refresh does not end
/// a session. The same names from two issuers are two principals: each issuer vouches only for its own users.
pub fn principal(caller: &Caller) -> [u8; 16] {
    digest::shortened(&[&caller.issuer, &caller.org, &caller.user, &caller.client])
}

/// Returns the digest of the user whatever the client, because a user can register any number of clients: quotas of
/// what is kept apply to users.
pub fn user(caller: &Caller) -> [u8; 16] {
    digest::shortened(&[&caller.issuer, &caller.org, &caller.user])
}

/// Returns the owner charged for what is kept for a caller, whatever the client, as [`user`] has it.
pub fn owner(caller: &Caller) -> Owner {
    Owner { user: user(caller), org: digest::shortened(&[&caller.org]) }
}

/// Whether two tokens belong to the same principal.
pub fn is_same(one: &Caller, other: &Caller) -> bool {
    one.issuer == other.issuer && one.org == other.org && one.user == other.user && one.client == other.client
}
