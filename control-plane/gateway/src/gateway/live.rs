//! Reports of the running calls and open sessions to the store that admins read, and the end of those that admins stop.
//!
//! Keeps true: a call is reported once it has run for [`LONG`], so that short ones cost no write; requests are applied as long as
//! the store answers, however many another org has, and applying one twice is harmless.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use asp_call::call::Call;
use asp_pipeline::sessions::{LegacySession, SessionSubject};
use asp_protocols::mcp::elsewhere;
use asp_snapshot::protocol::protocol_name;
use asp_store::live::{
    LiveError, LiveKind, LiveStore, LiveWork, MAX_LISTED, MAX_REPORTED, REPORT_LASTS, STOPS_OVERLAP,
    StopRequest,
};
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

/// [`STOPS_OVERLAP`] in milliseconds.
const OVERLAP_MS: i64 = STOPS_OVERLAP.as_secs().cast_signed() * 1_000;

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
        self.apply_stops(gateway).await?;
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

    /// Applies all new requests, however many: those of one org must not hold up another one's.
    async fn apply_stops(&mut self, gateway: &Gateway) -> Result<(), LiveError> {
        let after_ms = self.newest_ms.saturating_sub(OVERLAP_MS);
        let mut last: Option<StopRequest> = None;
        loop {
            let mut stops = self.store.stop_requests(after_ms, last.as_ref()).await?;
            for stop in &stops {
                apply(gateway, stop).await;
                self.newest_ms = self.newest_ms.max(stop.at_ms);
            }
            if u32::try_from(stops.len()).is_ok_and(|count| count < MAX_LISTED) {
                return Ok(());
            }
            last = stops.pop();
        }
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

/// Returns the work to report: of the calls and of the sessions at most [`MAX_REPORTED`] each.
fn work(gateway: &Gateway) -> Vec<LiveWork> {
    let running = gateway.pipeline.running_calls();
    let is_long = |call: &&Arc<Call>| call.started.elapsed() >= LONG && !call.state().is_terminal();
    let calls: Vec<&Arc<Call>> = running.iter().filter(is_long).collect();
    let calls = longest(&calls, |call| (call.caller.org.as_str(), call.began_ms()));
    let kept = gateway.sessions.list_sessions();
    let sessions: Vec<(&Arc<LegacySession>, &SessionSubject)> =
        kept.iter().filter_map(|session| Some((session, session.subject()?))).collect();
    let sessions = longest(&sessions, |(session, subject)| (subject.org.as_str(), session.created_at()));
    let sessions = sessions.into_iter().map(|(session, subject)| of_session(session, subject));
    let mut work: Vec<LiveWork> = calls.into_iter().map(|call| of_call(call)).chain(sessions).collect();
    // As it was in the last report, if nothing has changed.
    work.sort();
    work
}

/// Returns at most [`MAX_REPORTED`]: by turns of each org what began first, so that the work of one org hides no other's. `of`
/// returns the org and the beginning.
fn longest<'w, T>(all: &'w [T], of: impl Fn(&'w T) -> (&'w str, u64)) -> Vec<&'w T> {
    let mut all: Vec<(u64, &str, &T)> = all
        .iter()
        .map(|one| {
            let (org, since) = of(one);
            (since, org, one)
        })
        .collect();
    all.sort_by_key(|(since, ..)| *since);
    let mut turns: HashMap<&str, usize> = HashMap::new();
    let mut ranked: Vec<(usize, &T)> = Vec::with_capacity(all.len());
    for (_, org, one) in all {
        let turn = turns.entry(org).or_default();
        *turn += 1;
        ranked.push((*turn, one));
    }
    ranked.sort_by_key(|(turn, _)| *turn);
    ranked.truncate(MAX_REPORTED);
    ranked.into_iter().map(|(_, one)| one).collect()
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

fn of_session(session: &LegacySession, subject: &SessionSubject) -> LiveWork {
    LiveWork {
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_work_of_one_org_hides_no_other_ones() {
        let mut all: Vec<(&str, u64)> = (0..3 * MAX_REPORTED as u64).map(|since| ("many", since)).collect();
        all.extend([("few", 9_000), ("few", 8_000)]);
        let kept = longest(&all, |(org, since)| (*org, *since));
        assert_eq!(kept.len(), MAX_REPORTED);
        assert_eq!(kept[..4], [&("many", 0), &("few", 8_000), &("many", 1), &("few", 9_000)]);
        let all_fit = longest(&all[..5], |(org, since)| (*org, *since));
        assert_eq!(all_fit.len(), 5);
    }
}
