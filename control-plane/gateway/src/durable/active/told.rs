//! What the store tells of a call that somebody may come back for, at whichever gateway: that it runs and in which
//! state, and how it ended.
//!
//! Keeps true: a call that nobody was told of leaves nothing in the store but the answer in the ledger under its key; an
//! outcome is stored once: one that the ledger has under the call's key is there alone; what only tells of a call is
//! sealed as such, and no gateway goes on with the call by it.

use std::sync::Arc;
use std::time::Duration;

use asp_edge::Caller;
use asp_store::records::{CallRecord, MAX_KEEP, NOBODY, OwnerId, Saved, State};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use super::ending::Ending;
use super::{ActiveFault, ActiveTable, context, in_time, key};
use crate::call::Call;
use crate::call::bounds::KEEP;
use crate::call::claim::LedgerClaim;
use crate::call::outcome::{Outcome, Output, Refusal};
use crate::call::principal::principal;
use crate::call::remote::RemoteCall;
use crate::clock::unix_ms;
use crate::durable::record::Record;
use crate::seal::Purpose;

/// How a call ended, as its record says it. Variants are only added: gateways of two versions share records.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Kept {
    Done(Output),
    Refused(Refusal),
    /// The answer is in the ledger, under the call's key.
    InLedger(LedgerClaim),
    /// It was completed, and its answer was too large.
    TooLarge,
}

/// What the store says of a call.
pub enum Told {
    /// It runs at some gateway, or waits to be taken over.
    Runs(Seen),
    Ended(Box<EndedCall>),
}

/// The standing of a call that is known already.
pub enum Stands {
    /// It runs at this gateway; `None` where that is gone and none has taken the call over.
    Runs(Option<OwnerId>),
    Ended(Box<EndedCall>),
}

/// A call that runs elsewhere, as its row says.
pub struct Seen {
    pub call: RemoteCall,
    /// `None` where it does not open with this gateway's keys.
    pub record: Option<Box<Record>>,
    /// The gateway that runs it; `None` where that is gone and none has taken the call over.
    pub owner: Option<OwnerId>,
}

impl Seen {
    fn of(id: Uuid, row: &CallRecord, is_left: bool, record: Option<Record>) -> Seen {
        let kept = u64::try_from(row.expires_ms.saturating_sub(row.created_ms)).unwrap_or(0);
        let call = RemoteCall {
            id,
            state: row.state,
            updated_ms: u64::try_from(row.updated_ms).unwrap_or(0),
            created_ms: u64::try_from(row.created_ms).unwrap_or(0),
            // A row by which another gateway goes on ends with the call's time, and then tells of it for as long.
            kept_for: Duration::from_millis(kept).clamp(KEEP, MAX_KEEP),
            put: record.as_ref().and_then(Record::put).map(Box::new),
            primitive: row.plugin.clone(),
        };
        Seen { call, record: record.map(Box::new), owner: row.owner.filter(|_| !is_left) }
    }
}

/// A call that has ended, perhaps at another gateway.
pub struct EndedCall {
    pub record: Record,
    /// `None` where nobody will ever know: its gateway is gone, and none can go on with it.
    pub kept: Option<Kept>,
    /// How long its record stays.
    pub left: Duration,
}

impl ActiveTable {
    /// Somebody is told of the call. From now on its record says at every gateway where it stands, and then how it
    /// ended; a store that does not take that costs other gateways the sight of it.
    pub fn tell(self: &Arc<Self>, call: &Arc<Call>) {
        drop(self.tell_after(call, None));
    }

    /// The same for a call that has ended: returns once the store has its end.
    pub async fn tell_end(self: &Arc<Self>, call: &Arc<Call>) -> Result<(), ActiveFault> {
        match self.tell_after(call, None) {
            Some(ending) => ActiveTable::stored_late(ending).await,
            None => Ok(()),
        }
    }

    /// `stored`: the state that the store has already. Returns the storing of its end if the call has ended.
    fn tell_after(self: &Arc<Self>, call: &Arc<Call>, stored: Option<State>) -> Option<JoinHandle<Ending>> {
        if !call.ownership.tells() {
            return None;
        }
        if call.ownership.has_given_row_up() {
            return Some(self.end_late(call));
        }
        if let Some(shared) = &self.shared {
            shared.begin(call, self.clone());
        }
        let table = self.clone();
        let call = call.clone();
        tokio::spawn(async move { table.follow(&call, stored).await });
        None
    }

    /// The same, and the store has the call's record when this returns, or its end if it has ended.
    pub async fn announce(self: &Arc<Self>, call: &Arc<Call>) -> Result<(), ActiveFault> {
        if call.ownership.is_passed_on() {
            // Its gateway has announced it.
            return Ok(());
        }
        // Before the store is asked: whoever gives up waiting ends the call, and its row may be made all the same.
        call.ownership.asks();
        let state = call.state();
        let saved = self.put_state(call, state).await?;
        // The other request gets this call's answer, and its gateway stores it.
        if saved != Saved::NotOwner || !self.is_twins(call) {
            self.noted(call, saved)?;
        }
        call.note_announced();
        // Its end comes after what was stored here, and is stored because the call is told.
        match self.tell_after(call, Some(state)) {
            Some(ending) => ActiveTable::stored_late(ending).await,
            None => Ok(()),
        }
    }

    /// Stores each state of the call until it ends. Where the store does not take one, it is asked again at the next.
    async fn follow(&self, call: &Call, stored: Option<State>) {
        let mut events = call.events.reader_from(call.events.next_number());
        let mut last = stored;
        loop {
            let state = call.state();
            if state.is_terminal() {
                return;
            }
            let put = match last {
                Some(last) if last == state => Ok(()),
                Some(_) | None => self.put_state(call, state).await.map(drop),
            };
            if let Some(written) = call.ownership.written() {
                written.announced(put.is_ok());
            }
            if put.is_ok() {
                last = Some(state);
            }
            if let Err(error) = put {
                tracing::debug!(call = %call.id, trace = %call.trace, %error, "other gateways are not told where a call stands that its client may come back for");
            }
            if events.next().await.is_none() {
                return;
            }
        }
    }

    /// Where the row is another gateway's, that one's says more.
    async fn put_state(&self, call: &Call, state: State) -> Result<Saved, ActiveFault> {
        let record = self.telling(call)?;
        self.put_row(call, &key(call, false), state, record).await
    }

    /// The record of a call without what was asked.
    pub(super) fn telling(&self, call: &Call) -> Result<Bytes, ActiveFault> {
        let mut record = Record::of(call, &Value::Null.into(), None, true);
        // If this gateway is lost, the ledger is asked how the call ended.
        record.claim = call.ownership.key().cloned();
        let text = serde_json::to_vec(&record).map_err(|e| ActiveFault(e.to_string()))?;
        let key = key(call, false);
        self.seal(Purpose::Told, &context(&key.call, &key.org, &key.plugin, 0), &text)
    }

    /// What the store says of a call to `caller` at `server`; of a foreign one as little as of none.
    pub async fn told(&self, call: Uuid, caller: &Caller, server: &str) -> Result<Option<Told>, ActiveFault> {
        if self.is_away() {
            return Err(ActiveFault("the store does not answer".into()));
        }
        let Some(row) = in_time(self.store.find(*call.as_bytes())).await? else { return Ok(None) };
        // A row of an earlier version names neither; its record does, where it is opened.
        let is_theirs = row.principal == principal(caller) && row.server == server;
        if !is_theirs && !row.server.is_empty() {
            return Ok(None);
        }
        let is_left = self.is_left(row.is_retired, row.is_left);
        let ended = || self.ended(call, &row, caller).map(|ended| ended.map(Box::new));
        let runs = || Told::Runs(Seen::of(call, &row, is_left, self.opened(&call, &row)));
        Ok(match row.owner {
            None => ended()?.map(Told::Ended),
            Some(_) if !is_left => Some(runs()),
            Some(_) if !row.resumes => ended()?.map(Told::Ended),
            // With what is past its time nobody goes on.
            Some(_) => match ended()? {
                Some(ended) if ended.record.is_past() => Some(Told::Ended(ended)),
                _ => left(&row).map(|_| runs()),
            },
        })
    }

    /// The same, for who knows what the call is and looks again and again until `deadline`, when its time is over: while it runs
    /// no more is read than where it stands.
    pub async fn stands(
        &self,
        call: Uuid,
        (caller, server): (&Caller, &str),
        deadline: Instant,
    ) -> Result<Option<Stands>, ActiveFault> {
        if self.is_away() {
            return Err(ActiveFault("the store does not answer".into()));
        }
        let Some(stand) = in_time(self.store.stand(*call.as_bytes())).await? else { return Ok(None) };
        if stand.principal == principal(caller)
            && stand.server == server
            && let Some(owner) = stand.owner
        {
            if !self.is_left(stand.is_retired, stand.is_left) {
                return Ok(Some(Stands::Runs(Some(owner))));
            }
            if stand.resumes && Instant::now() < deadline {
                return Ok(Some(Stands::Runs(None)));
            }
        }
        Ok(self.told(call, caller, server).await?.map(|told| match told {
            Told::Runs(seen) => Stands::Runs(seen.owner),
            Told::Ended(ended) => Stands::Ended(ended),
        }))
    }

    /// Whether the gateway that ran a call is gone. A lease that has lapsed says nothing while all may have: the store was away.
    fn is_left(&self, is_retired: bool, has_lapsed: bool) -> bool {
        is_retired || (has_lapsed && self.is_steady())
    }

    /// What a row holds of its call.
    pub(super) fn opened(&self, call: &Uuid, row: &CallRecord) -> Option<Record> {
        let at = context(call.as_bytes(), &row.org, &row.plugin, 0);
        // What was given up was sealed to be gone on with.
        let is_to_go_on = row.resumes || row.owner == Some(NOBODY);
        let purpose = if is_to_go_on { Purpose::Record } else { Purpose::Told };
        serde_json::from_slice(&self.sealer.open_bytes(purpose, &at, &row.record)?).ok()
    }

    /// `None` if the record's time is over, or it does not open with this gateway's keys. One that was given up has an end all the
    /// same: that may be why it was.
    fn ended(&self, call: Uuid, row: &CallRecord, caller: &Caller) -> Result<Option<EndedCall>, ActiveFault> {
        let is_given_up = row.owner == Some(NOBODY) && row.principal == principal(caller);
        let unread = || is_given_up.then(|| Record::unread(row, caller));
        let record = self.opened(&call, row).or_else(unread);
        let Some((left, record)) = left(row).zip(record) else { return Ok(None) };
        if row.owner.is_some() {
            return Ok(Some(EndedCall { record, kept: None, left }));
        }
        let at = context(call.as_bytes(), &row.org, &row.plugin, 0);
        let Some(kept) = self.sealer.open_bytes(Purpose::Outcome, &at, &row.outcome) else { return Ok(None) };
        // It is there, and is told by a gateway of the version that stored it.
        let kept = serde_json::from_slice(&kept)
            .map_err(|_| ActiveFault("the outcome was stored by a newer version of asp".into()))?;
        Ok(Some(EndedCall { record, kept: Some(kept), left }))
    }
}

/// How long the record of a call counts; `None` for one that is past its time.
fn left(row: &CallRecord) -> Option<Duration> {
    u64::try_from(row.expires_ms).ok()?.checked_sub(unix_ms()).map(Duration::from_millis)
}

impl Kept {
    /// What the ledger knows, or may come to know, it alone tells.
    pub(super) fn of(call: &Call, outcome: &Outcome) -> Kept {
        match (outcome, call.ownership.claim()) {
            (Outcome::Done { .. } | Outcome::Refused(Refusal::OutcomeUnknown), Some(claim))
                if claim.mutating =>
            {
                Kept::InLedger(claim.clone())
            }
            (Outcome::Done { output, .. }, _) => Kept::Done(output.clone()),
            (Outcome::Refused(refusal), _) => Kept::Refused(refusal.clone()),
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use asp_store::records::{CallRecords, End, MemoryRecords, Orphan, RecordKey};

    use super::*;
    use crate::call::outcome::{Disapproval, Withdrawal};
    use crate::call::page::Visit;
    use crate::call::registry::CallRegistry;
    use crate::call::testkit::caller;
    use crate::seal::Sealer;

    pub(crate) fn table(store: &Arc<MemoryRecords>) -> ActiveTable {
        let sealer = Arc::new(Sealer::new(&[1; 32], None).unwrap());
        let registry = Arc::new(CallRegistry::default());
        ActiveTable::new(store.clone(), OwnerId([1; 16]), sealer, registry, None)
    }

    /// The key of a call of alice's.
    fn key(call: u8) -> RecordKey {
        RecordKey {
            call: [call; 16],
            org: "acme".into(),
            principal: principal(&caller("alice")),
            user: [2; 16],
            server: "demo".into(),
            plugin: "echo@1.0.0".into(),
            context: String::new(),
            created_ms: 0,
            expires_ms: i64::MAX,
            resumes: false,
        }
    }

    fn record() -> String {
        let record = serde_json::json!({
            "caller": {"org": "acme", "user": "alice", "groups": [], "scopes": [], "client": "cli", "wcit": "t",
                       "issuer": "dev", "issued_at": 0, "expires_at": 1},
            "server": "demo", "primitive": "echo", "version": "1.0.0", "protocol": 1, "protocol_request_id": "7",
            "session": "", "elicitation": false, "sampling": false, "bytes_in": 0, "deadline_ms": 0,
            "arguments": {}, "handed_over": true,
        });
        record.to_string()
    }

    /// Returns what a gateway is told of a call of alice's that ended with this outcome.
    async fn told_of(outcome: &str) -> Result<Option<Told>, ActiveFault> {
        let store = Arc::new(MemoryRecords::default());
        let (table, key) = (table(&store), key(7));
        let at = context(&key.call, &key.org, &key.plugin, 0);
        let end = End {
            state: State::Completed,
            record: table.seal(Purpose::Told, &at, record().as_bytes()).unwrap(),
            outcome: table.seal(Purpose::Outcome, &at, outcome.as_bytes()).unwrap(),
            keep: KEEP,
        };
        store.finish(&key, OwnerId([9; 16]), end).await.unwrap();
        table.told(Uuid::from_bytes(key.call), &caller("alice"), "demo").await
    }

    #[tokio::test]
    async fn a_call_whose_outcome_a_newer_version_stored_is_not_unknown() {
        let ended = told_of(r#""TooLarge""#).await;
        assert!(matches!(ended, Ok(Some(Told::Ended(ended))) if ended.kept == Some(Kept::TooLarge)));
        for newer in [r#""Archived""#, r#"{"Deferred":{"until":7}}"#, r#"{"Refused":{"Postponed":"x"}}"#] {
            let told = told_of(newer).await;
            assert!(told.is_err_and(|fault| fault.to_string().contains("newer version")), "{newer}");
        }
    }

    #[tokio::test]
    async fn a_call_that_was_given_up_has_ended_also_where_its_record_does_not_open() {
        let store = Arc::new(MemoryRecords::default());
        let table = table(&store);
        let gone = OwnerId([9; 16]);
        for (call, opens) in [(7, true), (8, false)] {
            let key = RecordKey { resumes: true, ..key(call) };
            let at = context(&key.call, &key.org, &key.plugin, 0);
            let sealed = table.seal(Purpose::Record, &at, record().as_bytes()).unwrap();
            let sealed = if opens { sealed } else { Bytes::from_static(b"sealed with another key") };
            store.put(&key, gone, State::Working, sealed).await.unwrap();
            let told =
                async |caller: &Caller| table.told(Uuid::from_bytes(key.call), caller, "demo").await.unwrap();
            assert!(
                opens || matches!(told(&caller("alice")).await, Some(Told::Runs(_))),
                "it waits for a gateway"
            );
            assert!(table.give_up(&Orphan { call: key.call, owner: gone }).await.unwrap());
            let Some(Told::Ended(ended)) = told(&caller("alice")).await else {
                panic!("{call} has not ended")
            };
            assert!(ended.kept.is_none(), "nobody knows how");
            assert!(table.abandoned(9).await.unwrap().is_empty(), "no gateway goes on with it");
            let bob = Caller { user: "bob".into(), ..caller("alice") };
            assert!(told(&bob).await.is_none());
        }
    }

    #[test]
    fn a_refusal_is_told_as_it_was_and_only_a_limit_loses_its_name() {
        let refusals = [
            Refusal::Withdrawn(Withdrawal::TokenExpired),
            Refusal::NotApproved(Disapproval::Declined),
            Refusal::InvalidArguments { pointer: "/a".into(), message: "m".into() },
            Refusal::Relayed {
                code: -7,
                message: "m".into(),
                data: Some(serde_json::json!({"n": 1}).into()),
            },
            Refusal::PagesFirst {
                pages: vec![Visit { id: "v".into(), message: "m".into(), url: "https://a.example".into() }],
            },
            Refusal::Cancelled,
        ];
        let again = |refusal: Refusal| {
            let text = serde_json::to_vec(&Kept::Refused(refusal)).unwrap();
            serde_json::from_slice::<Kept>(&text).unwrap()
        };
        for refusal in refusals {
            assert_eq!(again(refusal.clone()), Kept::Refused(refusal));
        }
        let limited = again(Refusal::Limited { limit: "minute", retry_after_ms: 3 });
        assert_eq!(limited, Kept::Refused(Refusal::Limited { limit: "calls", retry_after_ms: 3 }));
    }
}
