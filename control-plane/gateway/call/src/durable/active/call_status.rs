//! States and outcomes of calls in the store, for clients that return at any gateway, and the lists of a principal's calls
//! at one server.
//!
//! Keeps true: a call that no client knows of leaves nothing in the store but the answer in the ledger under its key;
//! a record that only reports a call is sealed for that purpose, and no gateway continues the call from it; a principal
//! sees only its own calls in a list, a record is opened only for its caller's list, and rows that do not open, or whose
//! id no client chose, are skipped; the work for a page is bounded.

use std::sync::Arc;
use std::time::Duration;

use asp_edge::Caller;
use asp_store::records::{CallRecord, Listing, MAX_KEEP, NOBODY, OwnerId, Save, State};
use bytes::Bytes;
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use super::brief::merged;
use super::ending::EndResult;
use super::{ActiveFault, ActiveTable, context, in_time, key};
use crate::call::Call;
use crate::call::event::log::first_generation;
use crate::call::principal::principal;
use crate::call::remote::{CallCursor, CallPage, ListOrder, ListedCall, RemoteCall};
use crate::call::terms::KEEP;
use crate::clock::unix_ms;
use crate::durable::ended_call::EndedCall;
use crate::durable::record::Record;
use crate::seal::Purpose;

/// Status of a call according to the store.
pub enum CallStatus {
    /// Runs at some gateway, or waits to be taken over.
    Runs(RemoteCallRow),
    Ended(Box<EndedCall>),
}

/// Status of a call without its record.
pub enum BriefStatus {
    /// Runs at the gateway with this id; `None` if that is gone and none has taken the call over.
    Runs(Option<OwnerId>),
    Ended(Box<EndedCall>),
}

/// A call that runs elsewhere, according to its row.
pub struct RemoteCallRow {
    pub call: RemoteCall,
    /// Opened record; `None` if it does not open with this gateway's keys.
    pub record: Option<Box<Record>>,
    /// Gateway that runs it; `None` if that is gone and none has taken the call over.
    pub owner: Option<OwnerId>,
    /// Number of gateways that have taken the call over.
    pub takeovers: u32,
}

impl RemoteCallRow {
    fn of(id: Uuid, row: &CallRecord, is_left: bool, record: Option<Record>) -> RemoteCallRow {
        let kept = u64::try_from(row.expires_ms.saturating_sub(row.created_ms)).unwrap_or(0);
        let call = RemoteCall {
            id,
            state: row.state,
            updated_ms: u64::try_from(row.updated_ms).unwrap_or(0),
            created_ms: u64::try_from(row.created_ms).unwrap_or(0),
            // A row from which another gateway continues ends at the call's deadline; after that it reports the call
            // for as long.
            kept_for: Duration::from_millis(kept).clamp(KEEP, MAX_KEEP),
            put: record.as_ref().and_then(Record::put).map(Box::new),
            opening: record.as_ref().and_then(|record| record.opening.clone()),
            history: record.as_ref().map(|record| record.history.clone()).unwrap_or_default(),
            primitive: row.plugin.clone(),
        };
        let owner = row.owner.filter(|_| !is_left);
        RemoteCallRow { call, record: record.map(Box::new), owner, takeovers: row.takeovers }
    }
}

impl ActiveTable {
    /// Makes the call known to every gateway, because a client knows of it: from now on its record reports its state,
    /// and then its end. If the store does not accept that, other gateways do not see the call.
    pub fn tell(self: &Arc<Self>, call: &Arc<Call>) {
        drop(self.tell_after(call, None));
    }

    /// Does the same for a call that has ended, and returns once the store has its end, whoever told it first. A brief call
    /// needs no record.
    pub async fn tell_end(self: &Arc<Self>, call: &Arc<Call>) -> Result<(), ActiveFault> {
        if self.has_briefly(call) {
            return Ok(());
        }
        let _late_end = call.ownership.lock_late_end().await;
        match self.tell_after(call, None) {
            Some(ending) => ActiveTable::stored_late(ending).await,
            None => Ok(()),
        }
    }

    /// `stored`: the state that the store already has. Returns the task that stores the end, if the call has ended.
    fn tell_after(
        self: &Arc<Self>,
        call: &Arc<Call>,
        stored: Option<State>,
    ) -> Option<JoinHandle<EndResult>> {
        if !call.ownership.known.set() {
            return None;
        }
        if call.ownership.given_up.is_set() {
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

    /// Does the same for a call that has not started, and returns once the store has its record. Until a client relies on it,
    /// the call may still be void.
    pub async fn introduce(self: &Arc<Self>, call: &Arc<Call>) -> Result<(), ActiveFault> {
        call.ownership.note_store_attempt();
        let state = call.state();
        let saved = self.put_state(call, state).await?;
        self.noted(call, saved)?;
        drop(self.tell_after(call, Some(state)));
        Ok(())
    }

    /// Does the same, and returns once the store has the call's record, or its end if it has ended.
    pub async fn announce(self: &Arc<Self>, call: &Arc<Call>) -> Result<(), ActiveFault> {
        if call.ownership.passed_on.is_set() {
            // Its gateway has announced it.
            return Ok(());
        }
        // Before the store is asked: a client that gives up ends the call, and its row may be created nevertheless.
        call.ownership.note_store_attempt();
        let state = call.state();
        let saved = self.put_state(call, state).await?;
        // The other request gets this call's answer, and its gateway stores it.
        if saved != Save::NotOwner || !self.is_twins(call) {
            self.noted(call, saved)?;
        }
        call.note_announced();
        let _late_end = call.ownership.lock_late_end().await;
        // Its end is stored after this record, because the call is known to a client.
        match self.tell_after(call, Some(state)) {
            Some(ending) => ActiveTable::stored_late(ending).await,
            None => Ok(()),
        }
    }

    /// Stores each state of the call until it ends. A state that the store does not accept is retried with the next
    /// event.
    async fn follow(&self, call: &Call, stored: Option<State>) {
        let mut events = call.events.reader_from(call.events.next_number());
        let mut last = stored.map(|state| (state, open_question(call, state)));
        loop {
            let state = call.state();
            if state.is_terminal() {
                return;
            }
            let question = open_question(call, state);
            // Another question is stored as well, because receivers are notified of each.
            let is_stored = last.as_ref().is_some_and(|(stored, asked)| {
                *stored == state && (question.is_none() || *asked == question)
            });
            let put = if is_stored { Ok(()) } else { self.put_state(call, state).await.map(drop) };
            if let Some(publication) = call.ownership.publication() {
                publication.note_record(put.is_ok());
            }
            if put.is_ok() {
                last = Some((state, question));
            }
            if let Err(error) = put {
                tracing::debug!(call = %call.id, trace = %call.trace, %error, "state of a call could not be stored; other gateways do not see it");
            }
            if events.next().await.is_none() {
                return;
            }
        }
    }

    /// Stores the state. If the row belongs to another gateway, that one knows more.
    async fn put_state(&self, call: &Call, state: State) -> Result<Save, ActiveFault> {
        let record = self.telling(call)?;
        self.put_row(call, &key(call, false), state, record).await
    }

    /// Returns the record of a call without its arguments.
    pub(super) fn telling(&self, call: &Call) -> Result<Bytes, ActiveFault> {
        let mut record = Record::of(call, &Value::Null.into(), None, true);
        // If this gateway is lost, the ledger has the outcome.
        record.claim = call.ownership.key().cloned();
        let text = serde_json::to_vec(&record).map_err(|e| ActiveFault(e.to_string()))?;
        let key = key(call, false);
        self.seal(Purpose::Told, &context(&key.call, &key.org, &key.plugin, 0), &text)
    }

    /// Returns the status of a call for `caller` at `server`; `None` also for a call of another principal.
    pub async fn status(
        &self,
        call: Uuid,
        caller: &Caller,
        server: &str,
    ) -> Result<Option<CallStatus>, ActiveFault> {
        if self.is_away() {
            return Err(ActiveFault("the store does not answer".into()));
        }
        let Some(row) = in_time(self.store.find(*call.as_bytes())).await? else { return Ok(None) };
        // A row of an earlier version has neither of them in clear; its record, which is opened, does.
        let is_theirs = row.principal == principal(caller) && row.server == server;
        if !is_theirs && !row.server.is_empty() {
            return Ok(None);
        }
        let is_left = self.is_left(row.is_retired, row.is_left);
        let ended = || self.ended(call, &row, caller).map(|ended| ended.map(Box::new));
        let runs = || CallStatus::Runs(RemoteCallRow::of(call, &row, is_left, self.opened(&call, &row)));
        Ok(match row.owner {
            None => ended()?.map(CallStatus::Ended),
            Some(_) if !is_left => Some(runs()),
            Some(_) if !row.resumes => ended()?.map(CallStatus::Ended),
            // No gateway continues a call after its deadline.
            Some(_) => match ended()? {
                Some(ended) if ended.record.is_past() => Some(CallStatus::Ended(ended)),
                _ => validity_left(&row).map(|_| runs()),
            },
        })
    }

    /// Returns the caller and the server of a call; `None` if it has no record that opens with this gateway's keys.
    pub async fn requester(&self, call: Uuid) -> Result<Option<(Caller, String)>, ActiveFault> {
        if self.is_away() {
            return Err(ActiveFault("the store does not answer".into()));
        }
        let Some(row) = in_time(self.store.find(*call.as_bytes())).await? else { return Ok(None) };
        Ok(self.opened(&call, &row).map(Record::requester))
    }

    /// Returns the status of a known call, for pollers until `deadline`, the end of its time: while it runs, only its
    /// state is read.
    pub async fn brief_status(
        &self,
        call: Uuid,
        (caller, server): (&Caller, &str),
        deadline: Instant,
    ) -> Result<Option<BriefStatus>, ActiveFault> {
        if self.is_away() {
            return Err(ActiveFault("the store does not answer".into()));
        }
        let Some(stand) = in_time(self.store.stand(*call.as_bytes())).await? else { return Ok(None) };
        if stand.principal == principal(caller)
            && stand.server == server
            && let Some(owner) = stand.owner
        {
            if !self.is_left(stand.is_retired, stand.is_left) {
                return Ok(Some(BriefStatus::Runs(Some(owner))));
            }
            if stand.resumes && Instant::now() < deadline {
                return Ok(Some(BriefStatus::Runs(None)));
            }
        }
        Ok(self.status(call, caller, server).await?.map(|told| match told {
            CallStatus::Runs(seen) => BriefStatus::Runs(seen.owner),
            CallStatus::Ended(ended) => BriefStatus::Ended(ended),
        }))
    }

    /// Whether the gateway that ran a call is gone. A lapsed lease proves nothing while the store was unavailable and
    /// all leases may have lapsed.
    fn is_left(&self, is_retired: bool, has_lapsed: bool) -> bool {
        is_retired || (has_lapsed && self.is_steady())
    }

    /// Opens the record in a row.
    pub(super) fn opened(&self, call: &Uuid, row: &CallRecord) -> Option<Record> {
        let at = context(call.as_bytes(), &row.org, &row.plugin, 0);
        let open = |purpose| self.sealer.open_bytes(purpose, &at, &row.record);
        let opened = match row.owner {
            _ if row.resumes => open(Purpose::Record),
            // A record that was given up was sealed for continuing the call, if it could be continued.
            Some(owner) if owner == NOBODY => open(Purpose::Record).or_else(|| open(Purpose::Told)),
            _ => open(Purpose::Told),
        };
        serde_json::from_slice(&opened?).ok()
    }

    /// Returns an ended call; `None` if the record has expired or does not open with this gateway's keys. A call that
    /// was given up has ended in any case: the keys may be the reason.
    fn ended(&self, call: Uuid, row: &CallRecord, caller: &Caller) -> Result<Option<EndedCall>, ActiveFault> {
        let is_given_up = row.owner == Some(NOBODY) && row.principal == principal(caller);
        let unread = || is_given_up.then(|| Record::from_row(row, caller));
        let record = self.opened(&call, row).or_else(unread);
        let Some((left, record)) = validity_left(row).zip(record) else { return Ok(None) };
        let ended_ms = u64::try_from(row.updated_ms).unwrap_or(0);
        if row.owner.is_some() {
            // Its gateway may have shown events that are not known.
            let generation = first_generation(row.takeovers.saturating_add(1));
            return Ok(Some(EndedCall { record, kept: None, ended_ms, generation, left, events: None }));
        }
        let at = context(call.as_bytes(), &row.org, &row.plugin, 0);
        let Some(kept) = self.sealer.open_bytes(Purpose::Outcome, &at, &row.outcome) else { return Ok(None) };
        // The outcome exists; only a gateway of the version that stored it can read it.
        let kept = serde_json::from_slice(&kept)
            .map_err(|_| ActiveFault("the outcome was stored by a newer version of asp".into()))?;
        let generation = record.generation;
        Ok(Some(EndedCall { record, kept: Some(kept), ended_ms, generation, left, events: None }))
    }
}

/// Returns the id of the question that the call waits for in this state.
fn open_question(call: &Call, state: State) -> Option<String> {
    let waits = matches!(state, State::InputRequired | State::AuthRequired);
    waits.then(|| call.questions.pending().into_iter().next().map(|question| question.id)).flatten()
}

/// Returns the time for which the record of a call is valid; `None` for an expired one.
fn validity_left(row: &CallRecord) -> Option<Duration> {
    u64::try_from(row.expires_ms).ok()?.checked_sub(unix_ms()).map(Duration::from_millis)
}

impl ActiveTable {
    /// Returns a page of at most `rows` of the caller's calls at `server`: records, and brief calls of this gateway.
    pub async fn listed(
        &self,
        caller: &Caller,
        server: &str,
        order: ListOrder,
        before: Option<CallCursor>,
        rows: u32,
    ) -> Result<CallPage, ActiveFault> {
        let listing = Listing { principal: principal(caller), server, order, before, limit: rows };
        let found = in_time(self.store.list(&listing)).await?;
        let is_last = found.len() < usize::try_from(rows).unwrap_or(usize::MAX);
        let next = found.last().filter(|_| !is_last).map(|(call, row)| (row.time(order), *call));
        let calls = found.into_iter().filter_map(|(call, row)| {
            let put = self.opened(&Uuid::from_bytes(call), &row)?.put()?;
            let milliseconds = |ms: i64| u64::try_from(ms).unwrap_or(0);
            Some(ListedCall {
                put,
                state: row.state,
                created_ms: milliseconds(row.created_ms),
                updated_ms: milliseconds(row.updated_ms),
            })
        });
        let page = CallPage { calls: calls.collect(), next };
        Ok(match order {
            ListOrder::Updated => merged(page, self.brief_page(caller, server, (before, rows)).await, rows),
            // Lists of protocols that have no brief calls.
            ListOrder::Created => page,
        })
    }
}

#[cfg(test)]
pub(super) mod tests {
    use asp_store::records::{CallRecords, End, MemoryRecords, Orphan, RecordKey};

    use super::*;
    use crate::call::registry::CallRegistry;
    use crate::call::testkit::caller;
    use crate::durable::stored_outcome::StoredOutcome;
    use crate::seal::Sealer;

    pub(crate) fn table(store: &Arc<MemoryRecords>) -> ActiveTable {
        let sealer = Arc::new(Sealer::new(&[1; 32], None).unwrap());
        let registry = Arc::new(CallRegistry::default());
        ActiveTable::new(store.clone(), OwnerId([1; 16]), sealer, registry, None)
    }

    /// Returns the key of a call of alice's.
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

    /// Returns the status of a call of alice's that ended with this outcome.
    async fn told_of(outcome: &str) -> Result<Option<CallStatus>, ActiveFault> {
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
        table.status(Uuid::from_bytes(key.call), &caller("alice"), "demo").await
    }

    #[tokio::test]
    async fn a_call_whose_outcome_a_newer_version_stored_is_not_unknown() {
        let ended = told_of(r#""TooLarge""#).await;
        assert!(
            matches!(ended, Ok(Some(CallStatus::Ended(ended))) if ended.kept == Some(StoredOutcome::TooLarge))
        );
        for newer in [r#""Archived""#, r#"{"Deferred":{"until":7}}"#, r#"{"Refused":{"Postponed":"x"}}"#] {
            let told = told_of(newer).await;
            assert!(told.is_err_and(|fault| fault.to_string().contains("newer version")), "{newer}");
        }
    }

    #[tokio::test]
    async fn the_requester_of_a_call_is_in_its_record() {
        let store = Arc::new(MemoryRecords::default());
        let table = table(&store);
        // Also in that of a call which failed with its gateway.
        for (call, owner, state) in [(7, OwnerId([9; 16]), State::Working), (8, NOBODY, State::Failed)] {
            let key = key(call);
            let at = context(&key.call, &key.org, &key.plugin, 0);
            let sealed = table.seal(Purpose::Told, &at, record().as_bytes()).unwrap();
            store.put(&key, owner, state, sealed).await.unwrap();
        }
        let found = async |call: Uuid| {
            let requester = table.requester(call).await.unwrap();
            requester.map(|(caller, server)| (caller.user, server))
        };
        let alice = ("alice".to_owned(), "demo".to_owned());
        for call in [7, 8] {
            assert_eq!(found(Uuid::from_bytes([call; 16])).await, Some(alice.clone()));
        }
        assert_eq!(found(Uuid::nil()).await, None);
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
            let told = async |caller: &Caller| {
                table.status(Uuid::from_bytes(key.call), caller, "demo").await.unwrap()
            };
            assert!(
                opens || matches!(told(&caller("alice")).await, Some(CallStatus::Runs(_))),
                "it waits for a gateway"
            );
            assert!(table.give_up(&Orphan { call: key.call, owner: gone }).await.unwrap());
            let Some(CallStatus::Ended(ended)) = told(&caller("alice")).await else {
                panic!("{call} has not ended")
            };
            assert!(ended.kept.is_none(), "nobody knows how");
            assert!(table.abandoned(9).await.unwrap().is_empty(), "no gateway goes on with it");
            let bob = Caller { user: "bob".into(), ..caller("alice") };
            assert!(told(&bob).await.is_none());
        }
    }
}
