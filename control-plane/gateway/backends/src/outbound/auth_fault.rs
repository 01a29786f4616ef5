//! The reason why a request cannot authenticate.

use asp_call::call::outcome::Refusal;

/// Reason why a request cannot authenticate.
#[derive(Debug)]
pub(crate) struct AuthFault {
    pub refusal: Refusal,
    /// Whether the next request may succeed.
    pub passes: bool,
}
