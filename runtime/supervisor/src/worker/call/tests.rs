//! Tests of the rules for one call.

use asp_proto::plugin::{Completed, DelegationRequested, ElicitationRequested, McpRequested, Progress};
use futures::StreamExt;

use super::*;
use crate::ppp::outbox::MAX_FRAMES;
use crate::ppp::outbox::multiplexer::MergedStream;
use crate::ppp::outbox::tests::outbox;

fn rules() -> CallRules {
    CallRules {
        max_runtime: Duration::from_secs(60),
        input_timeout: Duration::from_secs(300),
        heartbeat: Some(Duration::from_secs(10)),
        artifact_bytes: 100_000,
        log_bytes_per_second: 1000,
        elicitations: ["age".to_owned()].into(),
        delegations: ["llm".to_owned()].into(),
        is_stdio: false,
    }
}

fn call() -> (Call, MergedStream) {
    let (outbox, frames) = outbox("t", &Arc::default());
    (Call::new("r".into(), outbox, Arc::new(rules()), None), frames)
}

fn elicit(id: &str) -> Payload {
    Payload::Elicitation(ElicitationRequested { elicitation_id: id.into(), ..Default::default() })
}

fn piece(uri: &str, offset: u64, length: usize) -> Payload {
    Payload::ArtifactData(ArtifactData {
        uri: uri.into(),
        offset,
        data: vec![0; length],
        ..Default::default()
    })
}

fn artifact(uri: &str, size: u64) -> Payload {
    Payload::Artifact(ArtifactEmitted { uri: uri.into(), size, ..Default::default() })
}

#[tokio::test(start_paused = true)]
async fn the_clock_stands_while_a_question_is_open() {
    let (call, _frames) = call();
    let start = Instant::now();
    assert_eq!(call.limit(), (start + Duration::from_secs(30), "no heartbeat"));
    tokio::time::advance(Duration::from_secs(20)).await;
    call.receive(elicit("age")).await.unwrap();
    assert_eq!(call.limit(), (start + Duration::from_secs(20 + 305), "input expired"));
    tokio::time::advance(Duration::from_secs(200)).await;
    call.record_answer(false, "age");
    tokio::time::advance(Duration::from_secs(15)).await;
    call.receive(Payload::Progress(Progress::default())).await.unwrap();
    assert_eq!(call.limit(), (start + Duration::from_secs(260), "maximum runtime"));
}

#[tokio::test]
async fn undeclared_or_too_many_questions_end_the_worker() {
    let (call, _frames) = call();
    assert!(matches!(call.receive(elicit("other")).await, Err(Cause::Protocol(_))));
    let as_mcp = Payload::McpRequested(McpRequested { method: "roots/list".into(), ..Default::default() });
    let asked = call.receive(as_mcp).await;
    assert!(matches!(asked, Err(Cause::Protocol(_))), "a plugin does not get around what it declares");
    let delegate = |number: usize| {
        Payload::Delegation(DelegationRequested {
            delegate_id: "llm".into(),
            correlation_id: number.to_string(),
            ..Default::default()
        })
    };
    for number in 0..MAX_QUESTIONS {
        call.receive(delegate(number)).await.unwrap();
    }
    assert!(matches!(call.receive(delegate(99)).await, Err(Cause::Limit(_))));
}

#[tokio::test]
async fn storage_requests_without_an_answer_have_a_bound() {
    let (call, _frames) = call();
    let asked = |id: &str| {
        Payload::StorageRequested(StorageRequested { correlation_id: id.into(), ..Default::default() })
    };
    for number in 0..10 * MAX_STORAGE_REQUESTS {
        call.receive(asked(&number.to_string())).await.unwrap();
        call.record_storage_answer();
    }
    for number in 0..MAX_STORAGE_REQUESTS {
        call.receive(asked(&number.to_string())).await.unwrap();
    }
    assert!(matches!(call.receive(asked("more")).await, Err(Cause::Limit(_))));
    let long = asked(&"x".repeat(MAX_CORRELATION + 1));
    assert!(matches!(call.receive(long).await, Err(Cause::Protocol(_))));
}

#[tokio::test]
async fn artifacts_have_no_gaps_and_a_bound() {
    let (gap, _frames) = call();
    gap.receive(piece("report://t/a", 0, 10)).await.unwrap();
    gap.receive(piece("report://t/b", 0, 5)).await.unwrap();
    gap.receive(piece("report://t/a", 10, 10)).await.unwrap();
    gap.receive(artifact("report://t/a", 20)).await.unwrap();
    gap.receive(artifact("https://example.com/x", 0)).await.unwrap();
    assert!(matches!(gap.receive(artifact("report://t/b", 6)).await, Err(Cause::Protocol(_))));
    assert!(matches!(gap.receive(piece("report://t/c", 1, 1)).await, Err(Cause::Protocol(_))));
    assert!(matches!(gap.receive(piece("report://t/d", 0, MAX_PIECE + 1)).await, Err(Cause::Protocol(_))));

    let (large, _frames) = call();
    large.receive(piece("report://t/a", 0, 60_000)).await.unwrap();
    assert!(matches!(large.receive(piece("report://t/b", 0, 60_000)).await, Err(Cause::Limit(_))));
}

#[tokio::test(start_paused = true)]
async fn empty_artifacts_are_counted_over_the_whole_call() {
    let (begun, _frames) = call();
    let (named, _frames) = call();
    for number in 0..MAX_ARTIFACTS {
        begun.receive(piece("report://t/a", 0, 0)).await.unwrap();
        begun.receive(artifact("report://t/a", 0)).await.unwrap();
        named.receive(artifact(&format!("report://t/{number}"), 0)).await.unwrap();
    }
    assert_eq!(begun.receive(piece("report://t/a", 0, 0)).await, Err(Cause::Limit("artifacts")));
    named.receive(artifact("https://example.com/x", 0)).await.unwrap();
    assert_eq!(named.receive(artifact("report://t/a", 0)).await, Err(Cause::Limit("artifacts")));
}

#[tokio::test]
async fn what_a_delegation_is_called_has_a_bound_and_is_forgotten_with_its_answer() {
    let (call, _frames) = call();
    let delegate = |id: &str| {
        Payload::Delegation(DelegationRequested {
            delegate_id: "llm".into(),
            correlation_id: id.into(),
            ..Default::default()
        })
    };
    for number in 0..10 * MAX_QUESTIONS {
        let id = number.to_string();
        call.receive(delegate(&id)).await.unwrap();
        call.record_answer(true, &id);
    }
    assert!(call.state.lock().questions.is_empty());
    let long = delegate(&"x".repeat(MAX_CORRELATION + 1));
    assert!(matches!(call.receive(long).await, Err(Cause::Protocol(_))));
}

fn progress() -> Payload {
    Payload::Progress(Progress::default())
}

fn completed() -> Payload {
    Payload::Completed(Completed::default())
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_does_not_read_loses_the_call_after_a_bounded_wait_and_is_told() {
    let (call, mut frames) = call();
    for _ in 0..MAX_FRAMES {
        call.receive(progress()).await.unwrap();
    }
    let before = Instant::now();
    call.receive(progress()).await.unwrap();
    assert_eq!(before.elapsed(), MAX_STALL);
    call.receive(progress()).await.unwrap();
    assert_eq!(before.elapsed(), MAX_STALL, "nobody waits for it again");
    call.receive(completed()).await.unwrap();
    assert_eq!(call.end(), Some(CallEnd::Answered));
    let told = format!("{:?}", frames.next().await.unwrap().unwrap());
    assert!(told.contains("RuntimeOverload"), "{told}");
}

#[tokio::test(start_paused = true)]
async fn a_gateway_that_reads_slowly_gets_everything_however_long_it_takes() {
    let (outbox, mut frames) = outbox("t", &Arc::default());
    let patient = CallRules { max_runtime: Duration::from_secs(100_000), ..rules() };
    let call = Call::new("r".into(), outbox, Arc::new(patient), None);
    let reading = tokio::spawn(async move {
        let mut read = Vec::new();
        while let Some(frame) = frames.next().await {
            read.push(format!("{:?}", frame.unwrap()));
            if read.len() == 2 * MAX_FRAMES {
                break;
            }
            tokio::time::sleep(MAX_STALL * 2 / 3).await;
        }
        read
    });
    // With the result as many as a window has room for: nothing is acknowledged here.
    for _ in 1..2 * MAX_FRAMES {
        call.receive(progress()).await.unwrap();
    }
    assert_eq!(
        call.limit().0,
        Instant::now() + Duration::from_secs(30),
        "its worker was not silent meanwhile"
    );
    call.receive(completed()).await.unwrap();
    let read = reading.await.unwrap();
    assert_eq!(read.len(), 2 * MAX_FRAMES);
    assert!(!read.iter().any(|frame| frame.contains("RuntimeOverload")));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_to_end_waits_for_no_reader() {
    let (call, mut frames) = call();
    let call = Arc::new(call);
    for _ in 0..MAX_FRAMES {
        call.receive(progress()).await.unwrap();
    }
    let before = Instant::now();
    let waits = tokio::spawn({
        let call = Arc::clone(&call);
        async move { call.receive(progress()).await }
    });
    tokio::task::yield_now().await;
    call.drop_when_blocked();
    waits.await.unwrap().unwrap();
    call.receive(progress()).await.unwrap();
    call.receive(completed()).await.unwrap();
    assert_eq!(before.elapsed(), Duration::ZERO);
    for _ in 0..MAX_FRAMES {
        frames.next().await.unwrap().unwrap();
    }
    let last = frames.next().await.unwrap().unwrap();
    assert!(format!("{last:?}").contains("ServerMessage"), "the end, right after what was queued: {last:?}");
}
