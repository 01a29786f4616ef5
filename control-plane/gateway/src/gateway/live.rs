//! Reports of the running calls and open sessions to the store that admins read, and the end of those that admins stop.
//!
//! Keeps true: a call is reported once it has run for [`LONG`], so that short ones cost no write; requests are applied as long as
//! the store answers, and applying one twice is harmless.

use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_call::call::Call;
use asp_pipeline::sessions::LegacySession;
use asp_protocols::mcp::elsewhere;
use asp_snapshot::protocol::protocol_name;
use asp_store::live::{LiveError, LiveKind, LiveStore, LiveWork, MAX_REPORTED, REPORT_LASTS, StopRequest};
use tokio::time::Instant;

use super::Gateway;

/// Interval between two looks at the calls and the requests.
const EVERY: Duration = Duration::from_secs(1);
/// Time after which a call is reported.
const LONG: Duration = Duration::from_secs(1);
/// Interval at which an unchanged report is written again.
const REPEAT: Duration = Duration::from_secs(10);
/// Timeout of one look, with all its statements.
const PASS_WITHIN: Duration = Duration::from_secs(15);
/// Time by which reads of requests overlap: commits may be seen later than their times say.
const OVERLAP_MS: i64 = 10_000;

/// State of the reports of one gateway.
struct LiveReporter {
    store: Arc<dyn LiveStore>,
    /// This run of the gateway.
    writer: [u8; 16],
    reported: Vec<LiveWork>,
    reported_at: Option<Instant>,
    /// Time of the newest request that was read.
    newest_ms: i64,
    is_failing: bool,
}

impl Gateway {
    /// Reports running calls and sessions, and ends those that admins stop, until the gateway is dropped; run it as a task.
    pub async fn report_live(gateway: Weak<Gateway>, store: Arc<dyn LiveStore>) {
        let mut reporter = LiveReporter {
            store,
            writer: rand::random(),
            reported: Vec::new(),
            reported_at: None,
            newest_ms: 0,
            is_failing: false,
        };
        let mut ticks = tokio::time::interval(EVERY);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(gateway) = gateway.upgrade() else { return };
            let pass = tokio::time::timeout(PASS_WITHIN, reporter.pass(&gateway)).await;
            // A machine that vanished never answers.
            let done =
                pass.unwrap_or_else(|_| Err(LiveError::Failed("the store does not answer".to_owned())));
            if let Err(error) = &done
                && !reporter.is_failing
            {
                tracing::warn!(%error, "running calls and sessions could not be reported; admins do not see them and cannot end them");
            }
            reporter.is_failing = done.is_err();
        }
    }
}

impl LiveReporter {
    async fn pass(&mut self, gateway: &Gateway) -> Result<(), LiveError> {
        let stops = self.store.stop_requests(self.newest_ms.saturating_sub(OVERLAP_MS)).await?;
        for stop in &stops {
            apply(gateway, stop).await;
            self.newest_ms = self.newest_ms.max(stop.at_ms);
        }
        let work = work(gateway);
        let is_old = self.reported_at.is_none_or(|at| at.elapsed() >= REPEAT.min(REPORT_LASTS));
        if work == self.reported && (!is_old || work.is_empty()) {
            return Ok(());
        }
        self.store.report_live(self.writer, &work).await?;
        self.reported = work;
        self.reported_at = Some(Instant::now());
        Ok(())
    }
}

/// Ends what a request is about, if it is here.
async fn apply(gateway: &Gateway, stop: &StopRequest) {
    let is_ended = match stop.kind {
        LiveKind::Call => gateway.pipeline.cancel_for_admin(&stop.id, &stop.org),
        LiveKind::Session => elsewhere::end_for_admin(&gateway.replica, &stop.id, &stop.org).await,
    };
    if is_ended {
        tracing::info!(
            kind = stop.kind.as_str(),
            id = stop.id,
            org = stop.org,
            "ended at the request of an admin"
        );
    }
}

/// Returns the work to report: the calls and the sessions that have lasted longest, at most [`MAX_REPORTED`] each.
fn work(gateway: &Gateway) -> Vec<LiveWork> {
    let running = gateway.pipeline.running_calls();
    let is_long = |call: &&Arc<Call>| call.started.elapsed() >= LONG && !call.state().is_terminal();
    let calls = oldest(running.iter().filter(is_long).map(|call| of_call(call)).collect());
    let sessions = gateway.sessions.list_sessions();
    let sessions = oldest(sessions.iter().filter_map(|session| of_session(session)).collect());
    [calls, sessions].concat()
}

fn oldest(mut work: Vec<LiveWork>) -> Vec<LiveWork> {
    work.sort_by(|one, other| (one.since_ms, &one.id).cmp(&(other.since_ms, &other.id)));
    work.truncate(MAX_REPORTED);
    work
}

fn of_call(call: &Call) -> LiveWork {
    let primitive = &call.entry.primitive;
    LiveWork {
        kind: LiveKind::Call,
        id: call.id.to_string(),
        org: call.caller.org.clone(),
        user: call.caller.user.clone(),
        issuer: call.caller.issuer.clone(),
        server: call.server.message.name.clone(),
        primitive: format!("{}@{}", primitive.id, primitive.version),
        protocol: protocol_name(call.protocol).to_owned(),
        state: call.state().as_str().to_owned(),
        since_ms: i64::try_from(call.began_ms()).unwrap_or(i64::MAX),
    }
}

fn of_session(session: &LegacySession) -> Option<LiveWork> {
    let subject = session.subject()?;
    Some(LiveWork {
        kind: LiveKind::Session,
        id: session.key(),
        org: subject.org.clone(),
        user: subject.user.clone(),
        issuer: subject.issuer.clone(),
        server: subject.server.clone(),
        primitive: String::new(),
        protocol: "mcp".to_owned(),
        state: String::new(),
        since_ms: i64::try_from(session.created_at().saturating_mul(1_000)).unwrap_or(i64::MAX),
    })
}
