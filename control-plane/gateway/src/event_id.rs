//! The sealed ids of server-sent events in legacy MCP sessions: where on which stream their client is
//! (2025-11-25 transports, resumability and redelivery).
//!
//! Keeps true: an id is attacker input: it opens only for the same principal, server and session; two events never have
//! the same id; what it names is looked for anew each time, by whoever may have it.

use asp_edge::Caller;

use crate::call::principal::principal;
use crate::seal::{Purpose, Sealer};

mod position;

pub use position::{CallPosition, ChangesPosition, MAX_TOKEN, Position};

/// Who may come back with an id.
pub struct Holder(Vec<u8>);

impl Holder {
    pub fn of(caller: &Caller, server: &str, session: [u8; 16]) -> Holder {
        Holder([principal(caller).as_slice(), session.as_slice(), server.as_bytes()].concat())
    }
}

/// The id of an event; `None` where none can be made, and the stream is not resumed from there.
pub fn seal(sealer: &Sealer, holder: &Holder, position: &Position) -> Option<String> {
    sealer.seal(Purpose::Event, &holder.0, &position.encode()?).ok()
}

/// What an id says to its holder; foreign ones and altered ones are as unknown as none.
pub fn open(sealer: &Sealer, holder: &Holder, id: &str) -> Option<Position> {
    Position::decode(&sealer.open(Purpose::Event, &holder.0, id)?)
}
