//! The aim of a call: to use its primitive, to complete an argument, or to list resources.

/// The use that a call makes of its primitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Aim {
    /// Uses it: calls a tool, gets a prompt or reads a resource.
    #[default]
    Done,
    /// Completes an argument of a prompt or template: `arguments` has what was typed, and may lack other arguments.
    Completed(String),
    /// Lists the resources behind a template; they are the contents of the outcome. There are no arguments.
    Listed,
}

impl Aim {
    pub fn is_done(&self) -> bool {
        *self == Aim::Done
    }

    /// Returns the argument to complete.
    pub fn completing(&self) -> Option<&str> {
        match self {
            Aim::Completed(argument) => Some(argument),
            Aim::Done | Aim::Listed => None,
        }
    }
}
