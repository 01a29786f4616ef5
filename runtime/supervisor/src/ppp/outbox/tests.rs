//! Tests of the outbox: bounds, readers that go, and beginnings that are held back.

use asp_proto::supervisor::tunnel_event::Type;
use futures::{FutureExt, StreamExt};

use super::*;
use crate::ppp::outbox::multiplexer::{MergedStream, multiplexer};
use crate::ppp::{MAX_FRAME, closed_frame, event_frame};

/// Opens the outbox of the only tunnel of a stream.
pub(crate) fn outbox(tunnel_id: &str, budget: &Arc<OutboxBudget>) -> (Outbox, MergedStream) {
    let (multiplexer, merged) = multiplexer(budget);
    let stream = multiplexer.open(tunnel_id).unwrap();
    (Outbox::new(tunnel_id, stream.queue), merged)
}

fn frame(text: &str) -> PppServerFrame {
    event_frame("t", Type::TunnelReady, text, None)
}

#[tokio::test(start_paused = true)]
async fn a_full_outbox_waits_for_room_and_then_gives_up() {
    let (outbox, mut frames) = outbox("t", &Arc::default());
    for _ in 0..MAX_FRAMES {
        outbox.send(frame("x"), Duration::ZERO).await.unwrap();
    }
    assert_eq!(outbox.send(frame("y"), Duration::from_secs(1)).await, Err(SendError::NoRoom));
    let sender = outbox.clone();
    let waiting = tokio::spawn(async move { sender.send(frame("y"), Duration::from_secs(1)).await });
    tokio::task::yield_now().await;
    frames.next().await.unwrap().unwrap();
    assert_eq!(waiting.await.unwrap(), Ok(()));
    outbox.send_last(frame("last"));
    outbox.close();
    assert_eq!(outbox.send(frame("late"), Duration::ZERO).await, Err(SendError::Gone));
    for _ in 0..=MAX_FRAMES {
        frames.next().await.unwrap().unwrap();
    }
    assert!(frames.next().now_or_never().is_none());
}

#[tokio::test]
async fn large_frames_are_bounded_by_bytes() {
    let (outbox, _frames) = outbox("t", &Arc::default());
    let large = "x".repeat(MAX_FRAME - 100);
    for _ in 0..4 {
        outbox.send(frame(&large), Duration::ZERO).await.unwrap();
    }
    assert_eq!(outbox.send(frame(&large), Duration::ZERO).await, Err(SendError::NoRoom));
}

#[tokio::test]
async fn a_reader_that_goes_is_noticed() {
    let (outbox, frames) = outbox("t", &Arc::default());
    let watching = outbox.clone();
    let gone = tokio::spawn(async move { watching.reader_gone().await });
    tokio::task::yield_now().await;
    drop(frames);
    gone.await.unwrap();
    assert_eq!(outbox.send(frame("x"), Duration::ZERO).await, Err(SendError::Gone));
}

#[tokio::test]
async fn a_tunnel_that_was_given_up_tells_its_end_and_nothing_else() {
    let (outbox, mut frames) = outbox("t", &Arc::default());
    for _ in 0..MAX_FRAMES {
        outbox.send(frame("x"), Duration::ZERO).await.unwrap();
    }
    outbox.give_up(frame("too slow"));
    outbox.reader_gone().await;
    assert_eq!(outbox.send(frame("late"), Duration::ZERO).await, Err(SendError::Gone));
    outbox.send_last(frame("closed"));
    outbox.close();
    let sent = std::iter::from_fn(|| frames.next().now_or_never().flatten());
    let told: Vec<_> = sent.map(|frame| format!("{:?}", frame.unwrap())).collect();
    assert!(told.len() == 2 && told[0].contains("too slow") && told[1].contains("closed"), "{told:?}");
}

#[tokio::test]
async fn all_tunnels_share_a_budget_and_each_gets_a_frame_through() {
    let budget = Arc::default();
    let large = "x".repeat(MAX_FRAME - 100);
    let greedy: Vec<_> = (0..5).map(|_| outbox("t", &budget)).collect();
    let taken = greedy.iter().map(|(outbox, _)| {
        std::iter::repeat_with(|| outbox.try_send(frame(&large))).take_while(Result::is_ok).count()
    });
    let taken: Vec<_> = taken.collect();
    assert!(taken.iter().sum::<usize>() <= 16 && taken[4] >= 1, "{taken:?}");
    let (late, mut frames) = outbox("t", &budget);
    late.try_send(frame(&large)).unwrap();
    assert!(late.try_send(frame("x")).is_err(), "the others hold everything");
    frames.next().await.unwrap().unwrap();
    late.try_send(frame("x")).unwrap();
    drop(greedy);
    late.try_send(frame(&large)).unwrap();
    assert!(budget.has(12 * MAX_FRAME), "what they held is given back");
}

#[tokio::test]
async fn a_beginning_that_is_told_with_an_end_without_an_answer_counts_in_its_cost() {
    let (multiplexer, mut merged) = multiplexer(&Arc::default());
    let stream = multiplexer.open("+1").unwrap();
    let outbox = Outbox::new("one", stream.queue);
    outbox.begin_with_work(event_frame("+1", Type::TunnelReady, "stands for the answer", None));
    outbox.send_with_next(event_frame("one", Type::TunnelReady, "", None));
    outbox.send_last(event_frame("one", Type::WorkerCrashed, "", None));
    let end = Ok(());
    let told = outbox.end_with_cost(closed_frame("one", &end), &end, TunnelCost::default());
    let sent: Vec<PppServerFrame> =
        std::iter::from_fn(|| merged.next().now_or_never().flatten().and_then(Result::ok)).collect();
    let [answer, rest @ ..] = sent.as_slice() else { panic!("{sent:?}") };
    assert_eq!((answer.tunnel_id.as_str(), rest.len()), ("+1", 2));
    assert_eq!(told, rest.iter().map(|frame| frame_size(frame) as u64).sum::<u64>());
    assert_eq!(rest.last().unwrap().closed.unwrap().bytes_out, told);
}
