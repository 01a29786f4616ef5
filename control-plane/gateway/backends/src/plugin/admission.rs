//! Admission of a call by a runtime, as the call's caller is told about it.

use asp_call::call::Call;
use asp_call::call::event::Event;
use asp_call::call::outcome::Refusal;
use asp_proto::snapshot::Mutation;
use asp_runtime_client::admission::{QueuePosition, Rejection, word};

/// Returns the refusal of a call that got no worker.
pub(super) fn refusal(rejection: Rejection) -> Refusal {
    match rejection {
        Rejection::Busy { retry_after } => Refusal::Limited {
            limit: "runtime",
            retry_after_ms: u64::try_from(retry_after.as_millis()).unwrap_or(u64::MAX),
        },
        Rejection::Unreachable | Rejection::JustLost => {
            Refusal::Upstream("the plugin runtime does not answer".into())
        }
        Rejection::StillEnding => Refusal::Upstream("the call's former execution has not ended".into()),
        Rejection::Draining => Refusal::Upstream("the plugin is being replaced; try again".into()),
        Rejection::Unhealthy(reason) if word(&reason) == "not_loaded" => {
            Refusal::Upstream("the plugin's code does not load; its output has the reason".into())
        }
        Rejection::Unhealthy(_) => Refusal::Upstream("the plugin fails too often at the moment".into()),
        Rejection::PutOff(why) => Refusal::Upstream(why),
        Rejection::Host(why) => Refusal::Upstream(format!("{why}; try again")),
        // Paths and versions of the runtime's machine are only logged.
        Rejection::Impossible(reason) => Refusal::Upstream(in_public(&reason).into()),
        Rejection::Unusable(_) | Rejection::Refuses(_) => {
            Refusal::Upstream("the plugin cannot run with its configuration".into())
        }
    }
}

/// Returns the public reason for a caller whose call arrived before the plugin was known to be impossible.
fn in_public(reason: &str) -> &'static str {
    match word(reason) {
        "language_absent" => "the plugin's runtime does not support its language",
        "isolation" => "the plugin's runtime cannot isolate it as its spec requires",
        "digest_mismatch" => "the installed package of the plugin is not the one that its spec pins",
        "outdated" => "the plugin's runtime is older than this gateway",
        _ => "the plugin is not installed on its runtime",
    }
}

/// Reports the call's queue position to the call's followers.
pub(super) fn tell_queued(call: &Call, place: QueuePosition) {
    // Position 0: the runtime has not counted it yet.
    let mut message = match place.position {
        0 => "queued".to_owned(),
        position => format!("queued: position {position} of {}", place.depth.max(position)),
    };
    if let Some(eta) = place.eta {
        message.push_str(&format!(", about {:.1} s", eta.as_secs_f64()));
    }
    call.emit(Event::Status { phase: "ADMISSION.QUEUED".into(), message: Some(message) });
}

/// Reports that a worker is being prepared for a queued call.
pub(super) fn tell_started(call: &Call) {
    call.emit(Event::Status { phase: "ADMISSION.STARTED".into(), message: Some("starting".into()) });
}

/// Returns the refusal of a call that the runtime ended because this gateway did not read its results in time.
pub(super) fn overload(call: &Call) -> Refusal {
    call.note_failure_cause(
        "this gateway read the call's results too slowly; the usual cause is its load or a slow artifact store",
    );
    match call.entry.primitive.mutation() {
        Mutation::ReadOnly | Mutation::Idempotent => Refusal::Upstream(
            "the plugin's results were read too slowly, and its call was ended; try again".into(),
        ),
        Mutation::NonIdempotent | Mutation::Destructive | Mutation::Unspecified => Refusal::OutcomeUnknown,
    }
}

#[cfg(test)]
mod tests {
    use asp_proto::supervisor::{Admission, AllocateWorkerResponse, admission};
    use asp_runtime_client::admission::read;

    use super::*;

    fn answer(status: admission::Status, reason: &str) -> AllocateWorkerResponse {
        let admission = Admission { status: status.into(), reason: reason.into(), ..Admission::default() };
        AllocateWorkerResponse { admission: Some(admission), ..AllocateWorkerResponse::default() }
    }

    #[test]
    fn every_reason_of_the_contract_has_its_refusal() {
        let rows = [
            ("throttled: queue of the tenant is full", "rate_limited"),
            ("overload", "rate_limited"),
            ("quarantined: 5 crashes", "upstream_unavailable"),
            ("breaker_open", "upstream_unavailable"),
            ("not_loaded: it throws", "upstream_unavailable"),
            ("draining", "upstream_unavailable"),
            ("tenant_quarantined: next try in 30 s", "upstream_unavailable"),
            ("host_trouble: no space left on device", "upstream_unavailable"),
            ("not_installed: cdcsr 1.0.1", "upstream_unavailable"),
            ("digest_mismatch", "upstream_unavailable"),
            ("language_absent", "upstream_unavailable"),
            ("isolation", "upstream_unavailable"),
            ("something new", "upstream_unavailable"),
        ];
        for (reason, expected) in rows {
            let rejection = read(answer(admission::Status::Rejected, reason)).unwrap_err();
            let refusal = refusal(rejection);
            assert_eq!(refusal.reason().as_str(), expected, "{reason}");
            assert!(!refusal.public_message().contains("cdcsr"), "{refusal}");
        }
    }
}
