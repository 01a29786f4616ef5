//! Reasons for which an operation does not become a tool.

use super::document::DocumentFault;

/// Maximum number of parameters of one operation.
pub(super) const MAX_PARAMETERS: usize = 200;

/// A reason for which an operation does not become a tool.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SkipReason {
    #[error(transparent)]
    Document(#[from] DocumentFault),
    #[error("its required parameter {name} {why}")]
    Parameter { name: String, why: &'static str },
    #[error("it has more than {MAX_PARAMETERS} parameters")]
    TooMany,
    #[error("its path does not begin with a slash and would become part of the host name")]
    NoPath,
    #[error("it is at another server, {0}; import it separately, with --operation and --proxy-url")]
    Server(String),
    #[error("its body is neither JSON nor a form: {0}")]
    Body(String),
    #[error("its required form field {name} {why}")]
    Field { name: String, why: &'static str },
    #[error("its form has no field that can be sent as text")]
    NoField,
}
