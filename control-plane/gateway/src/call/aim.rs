//! The aim of a call: to use its primitive, to complete an argument, or to list resources.

/// The use that a call makes of its primitive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Aim {
    /// It is done: called, got or read.
    #[default]
    Done,
    /// The values of an argument of a prompt or template: what was typed stands in `arguments`, and others may be missing
    /// there.
    Completed(String),
    /// The resources behind a template, which are the contents of the outcome; there are no arguments.
    Listed,
}

impl Aim {
    pub fn is_done(&self) -> bool {
        *self == Aim::Done
    }

    /// The argument whose values are asked for.
    pub fn completing(&self) -> Option<&str> {
        match self {
            Aim::Completed(argument) => Some(argument),
            Aim::Done | Aim::Listed => None,
        }
    }
}
