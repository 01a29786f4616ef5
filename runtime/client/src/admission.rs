//! Admission: the runtime's answer to an allocation, and what a tunnel has cost once it has ended.
//!
//! Owns: the reading of `Admission`, of queue positions and of a closed tunnel's statistics, and their recording. Keeps
//! true: the reasons are those of the contract (supervisor.proto); an unknown reason is never taken as permission.

use std::sync::Arc;
use std::time::Duration;

use asp_platform::worker_usage::Stats;
use asp_proto::supervisor::{AllocateWorkerResponse, TunnelCost, TunnelEvent, admission};
use prost_types::value::Kind;
use prost_types::{Struct, Value};
use tokio_util::task::TaskTracker;
use tonic::{Code, Status};

/// Retry delay for a rejected caller if the runtime states none.
const DEFAULT_RETRY: Duration = Duration::from_secs(1);

/// A worker that is assigned or will be.
#[derive(Clone, Debug)]
pub struct Allocation {
    pub tunnel_id: String,
    /// Position in the queue; `None` if a worker is assigned or starting.
    pub place: Option<QueuePosition>,
    /// Id of the assigned worker; `None` if it is starting or the call is queued.
    pub worker: Option<String>,
    /// Whether the worker has the work that was sent with the request.
    pub took: bool,
}

/// Position in a runtime's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct QueuePosition {
    pub position: u64,
    pub depth: u64,
    pub eta: Option<Duration>,
}

/// Reason why there is no worker. Nothing was delivered.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Rejection {
    /// The runtime does not answer.
    #[error("the runtime does not answer")]
    Unreachable,
    /// The runtime does not answer, but did a moment ago.
    #[error("the runtime no longer answers")]
    JustLost,
    /// Call limit reached: of this caller, of this plugin, or in total.
    #[error("the runtime has reached a limit of calls")]
    Busy { retry_after: Duration },
    /// The runtime is shutting down, or the plugin is being replaced: another attempt may succeed.
    #[error("the runtime is shutting down, or the plugin is being replaced")]
    Draining,
    /// The call's previous execution has not ended at this runtime. After a broken stream the runtime gives it some
    /// seconds to stop, and accepts the call again afterwards.
    #[error("the call's previous execution has not ended")]
    StillEnding,
    /// The plugin currently crashes too often, as the text says.
    #[error("{0}")]
    Unhealthy(String),
    /// The plugin crashes on calls of the caller's tenant, as the text says; other tenants are served.
    #[error("{0}")]
    PutOff(String),
    /// The runtime's machine cannot start a worker, as the text says; the next attempt may succeed.
    #[error("{0}")]
    Host(String),
    /// No runtime can currently run the plugin, for the contract's reason: the primitive is hidden from now on.
    #[error("{0}")]
    Impossible(String),
    /// The plugin cannot run as it is installed or configured; the text is for the operator.
    #[error("{0}")]
    Unusable(String),
    /// The plugin itself has reported, in its worker, that it cannot run; the text is for the operator.
    #[error("{0}")]
    Refuses(String),
}

impl Rejection {
    pub fn of_status(status: &Status) -> Rejection {
        match status.code() {
            // A broken connection is reported as any of these.
            Code::Unavailable | Code::Cancelled | Code::DeadlineExceeded | Code::Unknown | Code::Internal => {
                Rejection::Unreachable
            }
            Code::ResourceExhausted => Rejection::Busy { retry_after: DEFAULT_RETRY },
            Code::AlreadyExists => Rejection::StillEnding,
            code => Rejection::Unusable(format!("runtime answers {code:?}: {}", status.message())),
        }
    }

    /// Parses `<reason>: <sentence>`, the form of `Admission.reason` and of a late rejection's message.
    pub fn of_reason(reason: &str, retry_after: Option<Duration>) -> Rejection {
        match word(reason) {
            "throttled" | "overload" => Rejection::Busy { retry_after: retry_after.unwrap_or(DEFAULT_RETRY) },
            "draining" => Rejection::Draining,
            "quarantined" | "breaker_open" | "not_loaded" => Rejection::Unhealthy(reason.to_owned()),
            "tenant_quarantined" => Rejection::PutOff(reason.to_owned()),
            "host_trouble" => Rejection::Host(reason.to_owned()),
            _ if is_impossible(reason) => Rejection::Impossible(reason.to_owned()),
            _ => Rejection::Unusable(format!("runtime refuses the plugin: {reason}")),
        }
    }

    /// Whether another attempt may succeed within the call's time.
    pub fn passes(&self) -> bool {
        !matches!(
            self,
            Rejection::Impossible(_)
                | Rejection::Unusable(_)
                | Rejection::Refuses(_)
                | Rejection::Unhealthy(_)
                | Rejection::PutOff(_)
        )
    }

    /// Whether another runtime may take the call: it was not begun at this one. A tenant that crashes workers is not
    /// passed on to the next runtime, and an execution that is still ending is waited for where it is.
    pub fn allows_other_runtime(&self) -> bool {
        !matches!(self, Rejection::PutOff(_) | Rejection::StillEnding | Rejection::Refuses(_))
    }
}

/// Reads the answer to AllocateWorker.
pub fn read(answer: AllocateWorkerResponse) -> Result<Allocation, Rejection> {
    use admission::Status as Admitted;
    let admission = answer.admission.unwrap_or_default();
    let handle = answer.handle.filter(|handle| !handle.tunnel_id.is_empty());
    let delay = admission.estimated_start_delay.and_then(|delay| Duration::try_from(delay).ok());
    match (admission.status(), handle) {
        (Admitted::Admitted, Some(handle)) => {
            // The worker is named only if the call already has its place (supervisor.proto).
            let worker = Some(handle.worker_local_id).filter(|worker| !worker.is_empty());
            Ok(Allocation { tunnel_id: handle.tunnel_id, place: None, worker, took: answer.took })
        }
        (Admitted::Queued, Some(handle)) => {
            let mut place = answer.queue.as_ref().map(queue_position).unwrap_or_default();
            place.eta = place.eta.or(delay);
            Ok(Allocation { tunnel_id: handle.tunnel_id, place: Some(place), worker: None, took: false })
        }
        (Admitted::Rejected, _) => Err(Rejection::of_reason(&admission.reason, delay)),
        _ => Err(Rejection::Unusable("runtime gives no handle".into())),
    }
}

/// Reads the queue position from a queue's values or from the details of an ALLOCATION_QUEUED event.
pub fn queue_position(details: &Struct) -> QueuePosition {
    let count = |name: &str| number(details, name).map_or(0, |count| count as u64);
    let eta = number(details, "eta_ms").or_else(|| number(details, "moving_eta"));
    QueuePosition {
        position: count("position"),
        depth: count("depth"),
        eta: eta.map(|eta| Duration::from_millis(eta as u64)),
    }
}

/// Cause of a worker's death.
#[derive(Clone, Debug, PartialEq)]
pub struct Crash {
    pub cause: String,
    /// Whether the call had been delivered to the worker; `None` if the runtime does not say.
    pub delivered: Option<bool>,
}

pub fn crash(event: &TunnelEvent) -> Crash {
    let member =
        |name: &str| event.details.as_ref().and_then(|details| details.fields.get(name)?.kind.as_ref());
    let cause = match member("cause") {
        Some(Kind::StringValue(cause)) => cause.clone(),
        _ => "exit".into(),
    };
    let delivered = match member("delivered") {
        Some(Kind::BoolValue(delivered)) => Some(*delivered),
        _ => None,
    };
    Crash { cause, delivered }
}

pub fn stats(details: Option<&Struct>) -> Stats {
    let detail = |name: &str| details.and_then(|details| number(details, name)).unwrap_or_default();
    Stats {
        cpu_ms: detail("cpu_ms"),
        rss_max: detail("rss_max"),
        bytes_in: detail("bytes_in"),
        bytes_out: detail("bytes_out"),
        duration_ms: detail("duration_ms"),
    }
}

/// Converts the cost in a tunnel's last frame.
#[expect(clippy::cast_precision_loss, reason = "2^53 bytes or ms are enough")]
pub fn cost(cost: &TunnelCost) -> Stats {
    Stats {
        cpu_ms: cost.cpu_ms as f64,
        rss_max: cost.rss_max as f64,
        bytes_in: cost.bytes_in as f64,
        bytes_out: cost.bytes_out as f64,
        duration_ms: cost.duration_ms as f64,
    }
}

/// Reads the fault from a TUNNEL_CLOSED event (supervisor.proto).
pub fn fault(event: &TunnelEvent) -> Option<Status> {
    match event.details.as_ref()?.fields.get("code")?.kind {
        Some(Kind::NumberValue(code)) => {
            Some(Status::new(Code::from_i32(code as i32), event.message.clone()))
        }
        _ => None,
    }
}

/// Reads a number that is not negative.
fn number(details: &Struct, name: &str) -> Option<f64> {
    match details.fields.get(name) {
        Some(Value { kind: Some(Kind::NumberValue(number)) }) if *number >= 0.0 => Some(*number),
        _ => None,
    }
}

/// Returns the word before the sentence in `<reason>: <sentence>`.
pub fn word(reason: &str) -> &str {
    reason.split(':').next().unwrap_or_default().trim()
}

/// Whether only an operator can remedy the reason: the language, the sandbox or the package of the plugin is missing.
/// Any other reason, including an unknown one, may pass.
pub fn is_impossible(reason: &str) -> bool {
    matches!(word(reason), "language_absent" | "isolation" | "not_installed" | "digest_mismatch")
}

/// Receiver of the cost of each closed tunnel, with the language of its plugin.
pub type UsageRecorder = Arc<dyn Fn(&'static str, &Stats) + Send + Sync>;

/// Destination of a tunnel's cost.
#[derive(Clone)]
pub struct Account {
    pub language: &'static str,
    pub usage: UsageRecorder,
    /// Tasks that the gateway waits for when it ends.
    pub tasks: TaskTracker,
}

/// A tunnel that is to be closed at the runtime.
pub struct EndedTunnel {
    pub id: String,
    pub reason: &'static str,
    pub account: Account,
}

impl Account {
    pub fn used(&self, reason: &'static str, stats: &Stats) {
        tracing::debug!(
            language = self.language,
            reason,
            cpu_ms = stats.cpu_ms,
            rss_max = stats.rss_max,
            bytes_in = stats.bytes_in,
            bytes_out = stats.bytes_out,
            duration_ms = stats.duration_ms,
            "tunnel closed"
        );
        (self.usage)(self.language, stats);
    }
}

impl EndedTunnel {
    /// Records the statistics in the answer to CloseTunnel.
    pub fn closed(&self, details: Option<&Struct>) {
        self.used(&stats(details));
    }

    pub fn used(&self, stats: &Stats) {
        self.account.used(self.reason, stats);
    }
}

#[cfg(test)]
mod tests {
    use asp_proto::supervisor::{Admission, TunnelHandle};

    use super::*;

    fn details(members: &[(&str, Kind)]) -> Struct {
        let fields = members.iter().map(|(name, kind)| ((*name).into(), Value { kind: Some(kind.clone()) }));
        Struct { fields: fields.collect() }
    }

    fn answer(status: admission::Status, reason: &str) -> AllocateWorkerResponse {
        let admission = Admission { status: status.into(), reason: reason.into(), ..Admission::default() };
        AllocateWorkerResponse { admission: Some(admission), ..AllocateWorkerResponse::default() }
    }

    #[test]
    fn an_admission_without_a_handle_or_a_status_is_none() {
        for status in [admission::Status::Admitted, admission::Status::Queued, admission::Status::Unspecified]
        {
            assert!(matches!(read(answer(status, "")), Err(Rejection::Unusable(_))));
        }
    }

    #[test]
    fn a_queue_place_has_its_eta_from_either_name() {
        let mut queued = answer(admission::Status::Queued, "");
        queued.handle = Some(TunnelHandle { tunnel_id: "t".into(), ..TunnelHandle::default() });
        queued.queue = Some(details(&[
            ("position", Kind::NumberValue(3.0)),
            ("depth", Kind::NumberValue(7.0)),
            ("moving_eta", Kind::NumberValue(1200.0)),
        ]));
        let place = read(queued).unwrap().place.unwrap();
        assert_eq!(place, QueuePosition { position: 3, depth: 7, eta: Some(Duration::from_millis(1200)) });
        let bad = details(&[("position", Kind::NumberValue(-1.0)), ("depth", Kind::StringValue("x".into()))]);
        assert_eq!(super::queue_position(&bad), QueuePosition::default());
    }

    #[test]
    fn a_crash_tells_its_cause_and_whether_the_call_was_delivered() {
        let details =
            details(&[("cause", Kind::StringValue("oom".into())), ("delivered", Kind::BoolValue(false))]);
        let event = TunnelEvent { details: Some(details), ..TunnelEvent::default() };
        assert_eq!(crash(&event), Crash { cause: "oom".into(), delivered: Some(false) });
        assert_eq!(crash(&TunnelEvent::default()), Crash { cause: "exit".into(), delivered: None });
    }
}
