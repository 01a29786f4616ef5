//! The version that a client states in a header or the query.

use asp_a2a::version::{VERSION_HEADER, check_version as check};
use asp_a2a::{A2aError, A2aFailure, Generation};

use crate::ProtocolRequest;

/// Replaces a header that is not text; no version is called so.
const UNREADABLE: &str = "?";

/// Checks the stated version against the version of the request.
pub(super) fn check_version(request: &ProtocolRequest, generation: Generation) -> Result<(), A2aFailure> {
    let mut values = request.headers.get_all(VERSION_HEADER).iter();
    let header = values.next().map(|value| value.to_str().unwrap_or(UNREADABLE));
    if values.next().is_some() {
        let message = "the A2A-Version header must be sent once";
        return Err(A2aFailure::new(A2aError::VersionNotSupported, message));
    }
    let query = request.uri.query().and_then(asp_a2a::rest::query_version);
    check(generation, header, query.as_deref())
}
