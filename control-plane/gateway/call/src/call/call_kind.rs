//! The kind of a call: it invokes its primitive, completes an argument, or lists resources.

/// Kind of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum CallKind {
    /// Invokes the primitive: calls a tool, gets a prompt or reads a resource.
    #[default]
    Invoke,
    /// Completes an argument of a prompt or template: `arguments` has what was typed, and may lack other arguments.
    Complete(String),
    /// Lists the resources behind a template; they are the contents of the outcome. There are no arguments.
    List,
}

impl CallKind {
    pub fn is_invocation(&self) -> bool {
        *self == CallKind::Invoke
    }

    /// Returns the argument to complete.
    pub fn completed_argument(&self) -> Option<&str> {
        match self {
            CallKind::Complete(argument) => Some(argument),
            CallKind::Invoke | CallKind::List => None,
        }
    }
}
