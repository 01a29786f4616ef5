//! Rules of a key's state, shared by all backends, which only store the entries.

use std::time::Duration;

use super::{Budget, Holder, RequestHash};

/// Retention of a key whose holder died: as long as that of an answer.
pub(crate) const KEEP_ABANDONED: Duration = Duration::from_secs(24 * 3600);

/// State of a key at the time of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    /// Running, but its lease has expired or its gateway is gone.
    Abandoned,
    Answered,
    /// Answered, and the answer has expired.
    Expired,
}

/// Situation that a claim finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyStatus {
    /// No valid entry: the first to replace it gets the key.
    Free,
    Conflict,
    Answer,
    Abandoned,
    Running,
}

/// Change of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) enum KeyChange {
    /// The holder's call continues on another gateway.
    Seize(RequestHash, Holder),
    /// Another call repeats an abandoned execution.
    Reclaim(RequestHash),
    /// The holder renews, answers or releases the key.
    Own(Holder),
}

/// Condition under which a key may change. It must be running in every case: an answer never changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Condition {
    /// Hash of the request.
    pub hash: Option<RequestHash>,
    /// Call that must hold the key.
    pub call: Option<[u8; 16]>,
    /// Gateway that must hold the key.
    pub owner: Option<[u8; 16]>,
    pub abandoned: bool,
}

impl State {
    /// Derives the state. `ended`: the lease or the answer's retention has expired; `gone`: the gateway of a running
    /// key is gone and no other resumes it.
    pub(crate) fn of(answered: bool, ended: bool, gone: bool) -> State {
        match (answered, ended) {
            (true, true) => State::Expired,
            (true, false) => State::Answered,
            (false, ended) if ended || gone => State::Abandoned,
            (false, _) => State::Running,
        }
    }

    /// Returns what a claim finds, given whether its request is the same.
    pub(crate) fn status_for(self, same: bool) -> KeyStatus {
        match self {
            State::Expired => KeyStatus::Free,
            _ if !same => KeyStatus::Conflict,
            State::Answered => KeyStatus::Answer,
            State::Abandoned => KeyStatus::Abandoned,
            State::Running => KeyStatus::Running,
        }
    }
}

impl KeyChange {
    /// Returns the condition of the change. An abandoned key still belongs to its holder until another takes it.
    pub(crate) fn condition(&self) -> Condition {
        let runs = Condition { hash: None, call: None, owner: None, abandoned: false };
        match *self {
            KeyChange::Seize(hash, holder) => Condition { hash: Some(hash), call: Some(holder.call), ..runs },
            KeyChange::Reclaim(hash) => Condition { hash: Some(hash), abandoned: true, ..runs },
            KeyChange::Own(holder) => {
                Condition { call: Some(holder.call), owner: Some(holder.owner), ..runs }
            }
        }
    }
}

impl Condition {
    pub(crate) fn holds(&self, hash: &RequestHash, holder: &Holder, state: State) -> bool {
        let runs = match state {
            State::Running => !self.abandoned,
            State::Abandoned => true,
            State::Answered | State::Expired => false,
        };
        runs && self.hash.is_none_or(|wanted| wanted == *hash)
            && self.call.is_none_or(|wanted| wanted == holder.call)
            && self.owner.is_none_or(|wanted| wanted == holder.owner)
    }
}

impl Budget {
    /// Whether an org with `keys` may claim another.
    pub(crate) fn has_room(&self, keys: u64) -> bool {
        keys < u64::from(self.keys)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: RequestHash = [2; 32];
    const OTHER: RequestHash = [9; 32];
    const HOLDER: Holder = Holder { call: [1; 16], owner: [7; 16], org: [1; 16] };
    /// HOLDER's call on another gateway.
    const SUCCESSOR: Holder = Holder { owner: [8; 16], ..HOLDER };
    const ANOTHER: Holder = Holder { call: [2; 16], ..HOLDER };

    #[test]
    fn a_key_is_abandoned_while_it_runs_and_its_lease_or_its_gateway_has_ended() {
        for (answered, ended, gone, state) in [
            (false, false, false, State::Running),
            (false, true, false, State::Abandoned),
            (false, false, true, State::Abandoned),
            (true, false, false, State::Answered),
            (true, false, true, State::Answered),
            (true, true, false, State::Expired),
        ] {
            assert_eq!(State::of(answered, ended, gone), state);
        }
    }

    #[test]
    fn what_a_claim_finds_depends_on_the_state_and_on_the_request() {
        for (state, same, other) in [
            (State::Running, KeyStatus::Running, KeyStatus::Conflict),
            (State::Abandoned, KeyStatus::Abandoned, KeyStatus::Conflict),
            (State::Answered, KeyStatus::Answer, KeyStatus::Conflict),
            (State::Expired, KeyStatus::Free, KeyStatus::Free),
        ] {
            assert_eq!([state.status_for(true), state.status_for(false)], [same, other], "{state:?}");
        }
    }

    #[test]
    fn a_key_changes_for_its_holder_its_call_elsewhere_or_after_its_holders_death() {
        let changes = [
            KeyChange::Own(HOLDER),
            KeyChange::Own(SUCCESSOR),
            KeyChange::Own(ANOTHER),
            KeyChange::Seize(HASH, SUCCESSOR),
            KeyChange::Seize(HASH, ANOTHER),
            KeyChange::Seize(OTHER, SUCCESSOR),
            KeyChange::Reclaim(HASH),
            KeyChange::Reclaim(OTHER),
        ];
        let yes = true;
        let no = false;
        for (state, allowed) in [
            (State::Running, [yes, no, no, yes, no, no, no, no]),
            (State::Abandoned, [yes, no, no, yes, no, no, yes, no]),
            (State::Answered, [no; 8]),
            (State::Expired, [no; 8]),
        ] {
            let found = changes.map(|change| change.condition().holds(&HASH, &HOLDER, state));
            assert_eq!(found, allowed, "{state:?}");
        }
    }

    #[test]
    fn a_budget_takes_as_many_keys_as_it_says_and_no_more() {
        let budget = Budget { keys: 3, bytes: 10 };
        assert_eq!([2, 3, 4].map(|keys| budget.has_room(keys)), [true, false, false]);
    }
}
