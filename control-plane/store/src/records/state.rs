//! States of a call, used wherever calls are described.

/// State of a call (ADR 1). `InputRequired` and `AuthRequired` are the suspended states.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    Submitted,
    Working,
    InputRequired,
    AuthRequired,
    Completed,
    Failed,
    Cancelled,
    Rejected,
}

impl State {
    pub const ALL: [State; 8] = [
        State::Submitted,
        State::Working,
        State::InputRequired,
        State::AuthRequired,
        State::Completed,
        State::Failed,
        State::Cancelled,
        State::Rejected,
    ];

    /// Whether the state is final.
    pub const fn is_terminal(self) -> bool {
        matches!(self, State::Completed | State::Failed | State::Cancelled | State::Rejected)
    }

    /// Returns the state's name in stores, metrics and audit.
    pub const fn as_str(self) -> &'static str {
        match self {
            State::Submitted => "submitted",
            State::Working => "working",
            State::InputRequired => "input_required",
            State::AuthRequired => "auth_required",
            State::Completed => "completed",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
            State::Rejected => "rejected",
        }
    }

    pub fn parse(name: &str) -> Option<State> {
        State::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_state_is_read_as_it_was_written() {
        for state in State::ALL {
            assert_eq!(State::parse(state.as_str()), Some(state));
        }
        assert_eq!(State::parse("ended"), None);
    }
}
