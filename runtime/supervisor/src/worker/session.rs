//! The single PPP `Session` stream of a worker: its calls share it, identified by their request id.
//!
//! Owns the table of the worker's calls, and the running executions of a plugin's calls. Keeps true: a message about an
//! unknown call, and every other protocol violation, is a [`Cause`] to end the worker; when the worker ends, every call
//! of the table is notified.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use asp_proto::grace::EXECUTION_STOPS_WITHIN;
use asp_proto::plugin::server_message::Payload;
use asp_proto::plugin::{ClientMessage, LogLine, Ping, ServerMessage, client_message};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::{Instant, timeout};
use tonic::Status;

use crate::cause::Cause;
use crate::ppp::outbox::Outbox;
use crate::worker::call::{Call, ONLY_STDIO, Stall};
use crate::worker::heartbeat::Heartbeat;
use crate::worker::logs::{self, Meter};
use crate::worker::rules::PackageRules;

/// Capacity for messages that the worker has not read. Each may be large, so there are few.
pub const TO_WORKER: usize = 32;

#[derive(Debug)]
pub struct Session {
    rules: Arc<PackageRules>,
    to_worker: mpsc::Sender<ClientMessage>,
    /// A channel of their own, because bursts of calls fill the other one.
    pings: mpsc::Sender<ClientMessage>,
    kill: mpsc::Sender<Cause>,
    /// Tenant of a call that ignored its cancellation while the worker answered.
    culprit: OnceLock<String>,
    calls: Mutex<CallTable>,
    heart: Mutex<Heartbeat>,
    /// Rate limit of all the worker's log lines, from all sources.
    logs: Arc<Meter>,
    /// Times in which its stream was not read because a gateway did not read.
    stall: Arc<Stall>,
}

#[derive(Debug, Default)]
struct CallTable {
    /// Calls by request id. Bounded by the pool's slots: each call has one.
    open: HashMap<String, Arc<Call>>,
    dead: Option<Cause>,
}

/// Reason why a call did not begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BeginError {
    /// The worker has a call of this id.
    Duplicate,
    Dead(Cause),
}

impl Session {
    /// Creates a session. `kill` ends the worker; its capacity is one cause, the first.
    pub fn new(
        logs: Arc<Meter>,
        rules: Arc<PackageRules>,
        (to_worker, pings): (mpsc::Sender<ClientMessage>, mpsc::Sender<ClientMessage>),
        kill: mpsc::Sender<Cause>,
    ) -> Session {
        Session {
            rules,
            to_worker,
            pings,
            kill,
            culprit: OnceLock::new(),
            calls: Mutex::default(),
            heart: Mutex::default(),
            logs,
            stall: Arc::default(),
        }
    }

    /// Registers a call of a primitive, which may then be sent.
    pub fn begin(
        &self,
        (request_id, primitive): (&str, &str),
        outbox: Outbox,
        deadline: Option<Instant>,
    ) -> Result<Arc<Call>, BeginError> {
        let mut calls = self.calls.lock();
        if let Some(cause) = calls.dead {
            return Err(BeginError::Dead(cause));
        }
        if calls.open.contains_key(request_id) {
            return Err(BeginError::Duplicate);
        }
        let rules = self.rules.of(primitive);
        let stall = Arc::clone(&self.stall);
        let call = Arc::new(Call::new(request_id.to_owned(), outbox, rules, deadline).of_worker(stall));
        calls.open.insert(request_id.to_owned(), Arc::clone(&call));
        Ok(call)
    }

    /// Replaces the worker's named secrets in a text.
    pub fn redact<'a>(&self, text: &'a str) -> Cow<'a, str> {
        self.logs.redact(text)
    }

    pub fn open_calls(&self) -> usize {
        self.calls.lock().open.len()
    }

    /// Removes a call that ended outside the session stream.
    pub fn remove(&self, request_id: &str) {
        self.calls.lock().open.remove(request_id);
    }

    /// Sends a message to the worker if there is capacity; otherwise returns it. Ignores a dead worker: its calls are
    /// notified of its end.
    #[allow(clippy::result_large_err, reason = "the caller gets its own payload back")]
    pub fn try_send(&self, payload: client_message::Payload) -> Result<(), client_message::Payload> {
        match self.to_worker.try_send(ClientMessage { payload: Some(payload) }) {
            Ok(()) | Err(TrySendError::Closed(_)) => Ok(()),
            Err(TrySendError::Full(message)) => message.payload.map_or(Ok(()), Err),
        }
    }

    /// Waits for capacity for one message; `None` when the worker has ended. Cancel-safe.
    pub async fn wait_for_capacity(&self) -> Option<mpsc::Permit<'_, ClientMessage>> {
        self.to_worker.reserve().await.ok()
    }

    /// Sends the next ping. `Err`: too many are unanswered. A ping for which there is no capacity counts too: a worker
    /// that does not read does not answer either.
    pub fn ping(&self) -> Result<(), Cause> {
        let nonce = self.heart.lock().next_ping()?;
        let payload = Some(client_message::Payload::Ping(Ping { nonce }));
        // Err: there is no capacity, or the worker has ended.
        let _ = self.pings.try_send(ClientMessage { payload });
        Ok(())
    }

    /// Ends the worker.
    pub fn kill(&self, cause: Cause) {
        // Err: it is being ended already.
        let _ = self.kill.try_send(cause);
    }

    /// Ends the worker because a call of `tenant` ignored its cancellation.
    pub fn kill_for_call(&self, tenant: &str) {
        // If the worker does not answer pings either, any of its calls may block it.
        if self.heart.lock().is_responsive() {
            // Err: a culprit is known already, and one is enough.
            let _ = self.culprit.set(tenant.to_owned());
        }
        self.kill(Cause::Deadline);
    }

    /// Returns the tenant whose call alone ended the worker by ignoring its cancellation, if known.
    pub fn culprit(&self) -> Option<&str> {
        self.culprit.get().map(String::as_str)
    }

    /// Handles a message from the worker. `Err`: the worker must end.
    pub async fn receive(&self, message: ServerMessage) -> Result<(), Cause> {
        let payload = message.payload.ok_or(Cause::Protocol("an empty or unknown message"))?;
        match payload {
            Payload::Pong(pong) => self.heart.lock().handle_pong(&pong.nonce),
            Payload::Init(_) => Err(Cause::Protocol("a second init")),
            Payload::Log(line) => self.log(line).await,
            // The answer may arrive after the call's end, and adds nothing to it.
            Payload::Cancel(answer) if self.find(&answer.request_id).is_none() => Ok(()),
            // Before its call is taken from the table: the call is notified of the worker's end.
            Payload::LineAnswer(_) if !self.rules.is_stdio() => Err(ONLY_STDIO),
            mut ends @ (Payload::Completed(_) | Payload::Failed(_) | Payload::LineAnswer(_)) => {
                // Gateways log the messages of failures.
                if let Payload::Failed(failed) = &mut ends
                    && let Cow::Owned(redacted) = self.redact(&failed.message)
                {
                    failed.message = redacted;
                }
                let id = ends.request_id().to_owned();
                let call = self.calls.lock().open.remove(&id);
                call.ok_or(Cause::Protocol("a result of an unknown call"))?.receive(ends).await
            }
            event => self.pass(event).await,
        }
    }

    /// Logs a line outside calls, or sends one of a call to its gateway: both within the worker's rate.
    async fn log(&self, mut line: LogLine) -> Result<(), Cause> {
        if line.request_id.is_empty() {
            self.logs.log_outside_calls(&line.message);
            return Ok(());
        }
        let call = self.find(&line.request_id).ok_or(Cause::Protocol("an event of an unknown call"))?;
        let end = line.message.floor_char_boundary(logs::MAX_LINE);
        line.message.truncate(end);
        if let Cow::Owned(redacted) = self.redact(&line.message) {
            line.message = redacted;
        }
        // The plugin can fill its other fields as well.
        if !self.logs.take_line(line.encoded_len()) {
            return Ok(());
        }
        call.receive(Payload::Log(line)).await
    }

    /// Notifies every call that the worker has ended; returns their number.
    pub fn notify_end(&self, cause: Cause) -> usize {
        let open = {
            let mut calls = self.calls.lock();
            calls.dead = Some(cause);
            std::mem::take(&mut calls.open)
        };
        for call in open.values() {
            call.crash(cause);
        }
        open.len()
    }

    fn find(&self, request_id: &str) -> Option<Arc<Call>> {
        self.calls.lock().open.get(request_id).cloned()
    }

    async fn pass(&self, event: Payload) -> Result<(), Cause> {
        let call = self.find(event.request_id()).ok_or(Cause::Protocol("an event of an unknown call"))?;
        call.receive(event).await
    }
}

/// The running executions of one plugin's calls, by the call's id.
///
/// Keeps true: at most one execution of a call runs at a time. A gateway that lost its stream, or took over the calls
/// of another gateway, runs a call again at once, while the previous execution may still need time to end.
#[derive(Debug, Default)]
pub struct Executions(Mutex<HashMap<String, Arc<Call>>>);

/// An execution that runs as long as this is held.
#[derive(Debug)]
pub struct Execution<'a> {
    all: &'a Executions,
    call: Arc<Call>,
}

/// Error: the call's previous execution did not end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StillRuns;

impl From<StillRuns> for Status {
    fn from(_: StillRuns) -> Status {
        Status::already_exists("an earlier call with this request_id does not end")
    }
}

impl Executions {
    /// Tells a previous execution of the call to end, and waits until it has. Cancel-safe.
    pub async fn end_previous(&self, request_id: &str) -> Result<(), StillRuns> {
        let Some(former) = self.0.lock().get(request_id).cloned() else { return Ok(()) };
        former.superseded.cancel();
        timeout(EXECUTION_STOPS_WITHIN, former.wait_for_end()).await.map(drop).map_err(|_| StillRuns)
    }

    /// Records that an execution has begun.
    pub fn enter(&self, call: &Arc<Call>) -> Execution<'_> {
        self.0.lock().insert(call.request_id.clone(), Arc::clone(call));
        Execution { all: self, call: Arc::clone(call) }
    }
}

impl Drop for Execution<'_> {
    fn drop(&mut self) {
        let mut running = self.all.0.lock();
        // A successor may be registered already.
        if running.get(&self.call.request_id).is_some_and(|call| Arc::ptr_eq(call, &self.call)) {
            running.remove(&self.call.request_id);
        }
    }
}

#[cfg(test)]
mod tests {
    use asp_proto::plugin::{
        CancelRequest, CancelResponse, Checkpoint, Completed, Failed, InitResponse, LineAnswer, Pong,
        Progress,
    };
    use std::collections::BTreeSet;
    use std::time::Duration;

    use futures::{FutureExt, StreamExt};

    use super::*;
    use crate::ppp::outbox::multiplexer::MergedStream;
    use crate::ppp::outbox::tests::outbox;
    use crate::worker::call::{CallEnd, CallRules};

    struct Rig {
        session: Session,
        _from_session: mpsc::Receiver<ClientMessage>,
        pings: mpsc::Receiver<ClientMessage>,
        kill: mpsc::Receiver<Cause>,
    }

    fn rig() -> Rig {
        let rules = CallRules {
            max_runtime: Duration::from_secs(60),
            input_timeout: Duration::from_secs(300),
            heartbeat: None,
            artifact_bytes: 1000,
            log_bytes_per_second: 1000,
            elicitations: BTreeSet::new(),
            delegations: BTreeSet::new(),
            is_stdio: false,
        };
        let (to_worker, _from_session) = mpsc::channel(TO_WORKER);
        let (pings_sender, pings) = mpsc::channel(1);
        let (kill_sender, kill) = mpsc::channel(1);
        Rig {
            session: Session::new(
                Arc::new(Meter::new("p", "w", 1000)),
                Arc::new(PackageRules::from(rules)),
                (to_worker, pings_sender),
                kill_sender,
            ),
            _from_session,
            pings,
            kill,
        }
    }

    fn begin(session: &Session, id: &str) -> (Arc<Call>, MergedStream) {
        let (outbox, frames) = outbox(id, &Arc::default());
        (session.begin((id, "echo"), outbox, None).unwrap(), frames)
    }

    fn message(payload: Payload) -> ServerMessage {
        ServerMessage { payload: Some(payload) }
    }

    fn completed(id: &str) -> ServerMessage {
        message(Payload::Completed(Completed { request_id: id.into(), ..Default::default() }))
    }

    #[tokio::test]
    async fn a_burst_of_calls_holds_up_no_ping() {
        let mut rig = rig();
        let cancel = || client_message::Payload::Cancel(CancelRequest::default());
        (0..TO_WORKER).for_each(|_| assert!(rig.session.try_send(cancel()).is_ok()));
        assert!(rig.session.try_send(cancel()).is_err(), "there is no room");
        rig.session.ping().unwrap();
        let sent = rig.pings.try_recv().unwrap().payload;
        assert!(matches!(sent, Some(client_message::Payload::Ping(_))), "{sent:?}");
    }

    #[tokio::test]
    async fn a_second_result_or_an_unknown_call_is_a_fault() {
        let rig = rig();
        let (call, _frames) = begin(&rig.session, "a");
        let (other, _frames) = begin(&rig.session, "b");
        assert_eq!(rig.session.receive(completed("a")).await, Ok(()));
        assert_eq!(call.end(), Some(CallEnd::Answered));
        assert_eq!(other.end(), None, "the other call goes on");
        let failed = Failed { request_id: "a".into(), ..Default::default() };
        let progress = Progress { request_id: "nobody".into(), ..Default::default() };
        for fault in [
            completed("a"),
            message(Payload::Failed(failed)),
            message(Payload::Progress(progress)),
            message(Payload::Init(InitResponse::default())),
            ServerMessage { payload: None },
        ] {
            assert!(matches!(rig.session.receive(fault).await, Err(Cause::Protocol(_))));
        }
        let line = LineAnswer { request_id: "b".into(), ..Default::default() };
        assert_eq!(rig.session.receive(message(Payload::LineAnswer(line))).await, Err(ONLY_STDIO));
        assert_eq!(rig.session.open_calls(), 1, "the call is notified of the worker's end");
        let cancel = CancelResponse { request_id: "a".into(), ..Default::default() };
        assert_eq!(rig.session.receive(message(Payload::Cancel(cancel))).await, Ok(()));
        assert_eq!(rig.session.receive(message(Payload::Pong(Pong::default()))).await, Ok(()));
    }

    #[tokio::test]
    async fn a_log_line_counts_with_all_its_fields() {
        let rig = rig();
        let (_call, mut frames) = begin(&rig.session, "a");
        let line = |task_id: String| {
            message(Payload::Log(LogLine { request_id: "a".into(), task_id, ..LogLine::default() }))
        };
        rig.session.receive(line("x".repeat(100))).await.unwrap();
        assert!(frames.next().now_or_never().is_some());
        rig.session.receive(line("x".repeat(1001))).await.unwrap();
        assert!(frames.next().now_or_never().is_none(), "it is above the rate of bytes");
    }

    #[tokio::test]
    async fn a_checkpoint_is_small_and_waits_for_its_acknowledgement() {
        let rig = rig();
        let (call, _frames) = begin(&rig.session, "a");
        let checkpoint = |seq, bytes| {
            message(Payload::Checkpoint(Checkpoint { request_id: "a".into(), seq, capsule: vec![0; bytes] }))
        };
        for seq in 1..=16 {
            rig.session.receive(checkpoint(seq, 64 << 10)).await.unwrap();
        }
        let one_more = rig.session.receive(checkpoint(17, 1)).await;
        assert_eq!(one_more, Err(Cause::Limit("unacknowledged checkpoints")));
        call.record_checkpoint();
        call.record_checkpoint();
        rig.session.receive(checkpoint(18, 1)).await.unwrap();
        for bytes in [(64 << 10) + 1, 3 << 20] {
            let oversize = rig.session.receive(checkpoint(19, bytes)).await;
            assert_eq!(oversize, Err(Cause::Protocol("an oversize checkpoint")));
        }
    }

    #[tokio::test]
    async fn a_call_that_does_not_end_is_its_tenants_where_the_worker_answers() {
        let mut well = rig();
        well.session.ping().unwrap();
        well.session.kill_for_call("stubborn");
        well.session.kill_for_call("another");
        assert_eq!(
            (well.kill.recv().await, well.session.culprit()),
            (Some(Cause::Deadline), Some("stubborn"))
        );
        let mut silent = rig();
        silent.session.ping().unwrap();
        silent.session.ping().unwrap();
        silent.session.kill_for_call("anyone");
        assert_eq!((silent.kill.recv().await, silent.session.culprit()), (Some(Cause::Deadline), None));
    }

    #[tokio::test]
    async fn all_calls_hear_of_their_workers_end_and_no_new_one_begins() {
        let mut rig = rig();
        let calls: Vec<_> = ["a", "b"].map(|id| begin(&rig.session, id)).into_iter().collect();
        assert_eq!(
            rig.session.begin(("a", "echo"), outbox("x", &Arc::default()).0, None).unwrap_err(),
            BeginError::Duplicate
        );
        rig.session.kill(Cause::Wedged);
        rig.session.kill(Cause::Deadline);
        assert_eq!(rig.kill.recv().await, Some(Cause::Wedged), "the first cause counts");
        assert_eq!(rig.session.notify_end(Cause::Wedged), 2);
        for (call, _) in &calls {
            assert_eq!(call.end(), Some(CallEnd::Crashed(Cause::Wedged)));
        }
        assert_eq!(
            rig.session.begin(("c", "echo"), outbox("x", &Arc::default()).0, None).unwrap_err(),
            BeginError::Dead(Cause::Wedged)
        );
    }
}
