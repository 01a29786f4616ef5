//! How artifacts appear among a server's resources: their URIs and the built-in primitive that reads them.

/// The builtin that reads artifacts. It checks the owner itself, so that a spec that names it gains nothing.
pub const ENTRYPOINT: &str = "asp.artifact";
/// The scheme of artifact URIs.
pub const SCHEME: &str = "asp-artifact://";
/// The primitive id of artifacts, for policy, limits and audit.
pub const PRIMITIVE_ID: &str = "asp.artifact";
