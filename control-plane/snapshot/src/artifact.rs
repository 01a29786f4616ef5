//! Artifacts among a server's resources: their URIs and the built-in primitive that reads them.

/// Entrypoint of the builtin that reads artifacts. It checks the owner itself, so a spec that names it gains nothing.
pub const ENTRYPOINT: &str = "asp.artifact";
/// Scheme of artifact URIs.
pub const SCHEME: &str = "asp-artifact://";
/// Primitive id of artifacts in policy, limits and audit.
pub const PRIMITIVE_ID: &str = "asp.artifact";
