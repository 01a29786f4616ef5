//! The sealed ids of server-sent events in legacy MCP sessions: a client's position on a stream (2025-11-25 transports,
//! resumability and redelivery).
//!
//! Keeps true: an id is attacker input: it opens only for the same principal, server and session; two events never have
//! the same id; the right to its call or stream is checked each time.

use asp_edge::Caller;

use asp_call::call::principal::principal;
use asp_call::seal::{Purpose, Sealer};

mod position;

pub use position::{CallPosition, ChangesPosition, MAX_TOKEN, Position};

/// Principal, server and session that may return with an id.
pub struct IdHolder(Vec<u8>);

impl IdHolder {
    pub fn of(caller: &Caller, server: &str, session: [u8; 16]) -> IdHolder {
        IdHolder([principal(caller).as_slice(), session.as_slice(), server.as_bytes()].concat())
    }
}

/// Returns the id of an event; `None` if there is none, so that the stream cannot be resumed from there.
pub fn seal(sealer: &Sealer, holder: &IdHolder, position: &Position) -> Option<String> {
    sealer.seal(Purpose::Event, &holder.0, &position.encode()?).ok()
}

/// Returns the position in an id of this holder; foreign and altered ids look the same as none.
pub fn open(sealer: &Sealer, holder: &IdHolder, id: &str) -> Option<Position> {
    Position::decode(&sealer.open(Purpose::Event, &holder.0, id)?)
}
