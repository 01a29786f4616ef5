//! Tests of calls that arrive with the request for their worker: the number of frames and their contents.

use asp_proto::envelope::packed;
use asp_proto::plugin::server_message::Payload as Out;
use asp_proto::plugin::{
    ContentChunk, GetPromptRequest, GetPromptResponse, ReadResourceRequest, ServerMessage, content_chunk,
};
use asp_proto::supervisor::ppp_server_frame::Payload;
use asp_proto::supervisor::tunnel_event::Type;
use asp_proto::supervisor::{
    AllocateWorkerRequest, AllocateWorkerResponse, CloseTunnelRequest, PppServerFrame, TunnelCost,
};
use prost::{Message, Name};
use serde_json::{Value, json};

use super::harness::{Stack, eventually, invocation, start, wanted};
use super::shared::Shared;

fn call(plugin: &str, request_id: &str, arguments: &Value) -> AllocateWorkerRequest {
    AllocateWorkerRequest {
        work: Some(packed(&invocation(request_id, &arguments.to_string(), None))),
        ..wanted(plugin, "t")
    }
}

async fn warm(differs: Value) -> (Stack, Shared) {
    let stack = start(&[("echo", differs)]).await;
    stack.call("echo", "warm", &json!({})).await;
    let shared = Shared::open(&stack).await;
    (stack, shared)
}

/// Returns the tunnel's frames up to its last one.
async fn frames(shared: &mut Shared) -> Vec<PppServerFrame> {
    let mut frames = Vec::new();
    while frames.last().is_none_or(|frame: &PppServerFrame| frame.closed.is_none()) {
        frames.push(shared.next().await.unwrap().expect("the stream ended"));
    }
    frames
}

fn is<M: Name>(frame: &PppServerFrame) -> bool {
    matches!(&frame.payload, Some(Payload::Ppp(any)) if any.type_url == M::type_url())
}

fn is_event(frame: &PppServerFrame, kind: Type) -> bool {
    matches!(&frame.payload, Some(Payload::Event(event)) if event.r#type() == kind)
}

fn message(frame: &PppServerFrame) -> Option<Out> {
    match &frame.payload {
        Some(Payload::Ppp(any)) if is::<ServerMessage>(frame) => {
            ServerMessage::decode(any.value.as_slice()).unwrap().payload
        }
        _ => None,
    }
}

fn output(frame: &PppServerFrame) -> Value {
    let Some(Out::Completed(done)) = message(frame) else { panic!("no result: {frame:?}") };
    serde_json::from_slice(&done.output.unwrap().value).unwrap()
}

fn answer(frame: &PppServerFrame) -> AllocateWorkerResponse {
    assert!(is::<AllocateWorkerResponse>(frame), "{frame:?}");
    let Some(Payload::Ppp(any)) = &frame.payload else { panic!("{frame:?}") };
    AllocateWorkerResponse::decode(any.value.as_slice()).unwrap()
}

#[tokio::test]
async fn a_plain_call_takes_one_frame_and_one_message_each_way() {
    let (stack, mut shared) = warm(json!({})).await;
    let mut taken = Vec::new();
    for number in 0..50 {
        let text = format!("call {number}");
        shared.put(&format!("+{number}"), &call("echo", &text, &json!({"text": text}))).await;
        let frames = frames(&mut shared).await;
        let last = frames.last().unwrap();
        assert_eq!(output(last)["text"], text.as_str());
        if frames.len() == 1 {
            assert_eq!(last.tunnel_id, format!("+{number}"), "the gateway knows no other name");
        }
        taken.push(frames.len());
    }
    // On a busy machine some calls take longer than their beginning is held back.
    assert!(taken.contains(&1), "{taken:?}");
    // The init of the session, the previous call and this one.
    shared.put("+count", &call("echo", "count", &json!({"mode": "count"}))).await;
    let counted = output(frames(&mut shared).await.last().unwrap());
    assert_eq!(counted, json!({"heard": 1 + 1 + 50 + 1, "said": 1 + 1 + 50}));
    assert_eq!(stack.figure("echo@1.0.0", "active").await, 0);
    shared.half_close();
    assert_eq!(shared.next().await.unwrap(), None, "nothing follows a last frame");
}

#[tokio::test]
async fn a_longer_call_tells_of_its_beginning_and_of_its_cost_with_its_end() {
    let (_stack, mut shared) = warm(json!({})).await;
    shared.put("+1", &call("echo", "one", &json!({"mode": "slow", "ms": 300}))).await;
    let frames = frames(&mut shared).await;
    let [allocated, ready, init, progress, last] = frames.as_slice() else { panic!("{frames:?}") };
    let given = answer(allocated);
    assert!(given.took && allocated.tunnel_id == "+1");
    let handle = given.handle.unwrap().tunnel_id;
    assert!([ready, init, progress, last].iter().all(|frame| frame.tunnel_id == handle), "{frames:?}");
    assert!(is_event(ready, Type::TunnelReady) && matches!(message(init), Some(Out::Init(init)) if init.ok));
    assert_eq!(output(last), json!({"slept": 300}));
    let TunnelCost { bytes_in, bytes_out, duration_ms, .. } = last.closed.unwrap();
    assert!(bytes_in > 0 && bytes_out > 0 && duration_ms >= 300, "{last:?}");
}

#[tokio::test]
async fn a_worker_that_dies_is_told_with_the_calls_cost() {
    let (_stack, mut shared) = warm(json!({})).await;
    shared.put("+1", &call("echo", "one", &json!({"mode": "exit", "code": 3}))).await;
    let frames = frames(&mut shared).await;
    assert!(answer(&frames[0]).took);
    assert!(is_event(frames.last().unwrap(), Type::WorkerCrashed), "{frames:?}");
}

#[tokio::test]
async fn work_without_a_worker_is_not_taken_and_the_tunnel_ends_as_others_do() {
    let stack = start(&[("echo", json!({}))]).await;
    let mut shared = Shared::open(&stack).await;
    shared.put("+1", &call("echo", "one", &json!({"text": "cold"}))).await;
    let given = answer(&shared.next().await.unwrap().unwrap());
    assert!(!given.took);
    let handle = given.handle.unwrap().tunnel_id;
    shared.until_event(&handle, Type::TunnelReady).await;
    shared.invoke(&handle, "one", &json!({"text": "cold, again"})).await;
    shared.until_event(&handle, Type::TunnelClosed).await;
}

fn text(frame: &PppServerFrame) -> String {
    assert!(is::<ContentChunk>(frame), "{frame:?}");
    let Some(Payload::Ppp(any)) = &frame.payload else { panic!("{frame:?}") };
    let Some(content_chunk::Data::Text(text)) = ContentChunk::decode(any.value.as_slice()).unwrap().data
    else {
        panic!("{frame:?}")
    };
    text
}

fn read(uri: &str, request_id: &str) -> AllocateWorkerRequest {
    let read = ReadResourceRequest { uri: uri.into(), request_id: request_id.into(), ..Default::default() };
    AllocateWorkerRequest { work: Some(packed(&read)), ..wanted("echo", "t") }
}

#[tokio::test]
async fn a_prompt_and_a_resource_of_one_chunk_take_one_frame_each_way() {
    let (stack, mut shared) = warm(json!({})).await;
    let mut prompts = Vec::new();
    let mut reads = Vec::new();
    for number in 0..50 {
        let name = format!("+prompt{number}");
        let get = GetPromptRequest { name: "greet".into(), request_id: name.clone(), ..Default::default() };
        let request = AllocateWorkerRequest { work: Some(packed(&get)), ..wanted("echo", "t") };
        shared.put(&name, &request).await;
        let got = frames(&mut shared).await;
        assert!(is::<GetPromptResponse>(got.last().unwrap()), "{got:?}");
        prompts.push(got.len());
        let name = format!("+read{number}");
        shared.put(&name, &read("test://one", &name)).await;
        let got = frames(&mut shared).await;
        assert_eq!(text(got.last().unwrap()), "part 0");
        reads.push(got.len());
    }
    // On a busy machine some calls take longer than their beginning is held back.
    assert!(prompts.contains(&1) && reads.contains(&1), "{prompts:?} {reads:?}");
    assert_eq!(stack.figure("echo@1.0.0", "active").await, 0);
    shared.half_close();
    assert_eq!(shared.next().await.unwrap(), None, "nothing follows a last frame");
}

#[tokio::test]
async fn a_resource_of_several_chunks_ends_with_the_last_of_them() {
    let (_stack, mut shared) = warm(json!({})).await;
    shared.put("+1", &read("test://x", "read")).await;
    let frames = frames(&mut shared).await;
    let chunks: Vec<_> = frames.iter().filter(|frame| is::<ContentChunk>(frame)).map(text).collect();
    assert_eq!(chunks, ["part 0", "part 1", "part 2"]);
    assert!(is::<ContentChunk>(frames.last().unwrap()), "{frames:?}");
}

#[tokio::test]
async fn a_gateway_that_sends_the_work_after_its_request_is_told_of_a_resources_end_apart() {
    let (_stack, mut shared) = warm(json!({})).await;
    shared.put("+1", &wanted("echo", "t")).await;
    let handle = shared.allocated("+1").await;
    let read =
        ReadResourceRequest { uri: "test://one".into(), request_id: "read".into(), ..Default::default() };
    shared.put(&handle, &read).await;
    let mut told = Vec::new();
    loop {
        match shared.of(&handle).await {
            Payload::Ppp(any) => told.push(any.type_url),
            Payload::Event(event) if event.r#type() == Type::TunnelClosed => break,
            Payload::Event(_) => {}
        }
    }
    assert_eq!(told, [ContentChunk::type_url()]);
}

#[tokio::test]
async fn what_a_gateway_that_left_did_not_read_is_room_for_others() {
    let (stack, mut shared) = warm(json!({})).await;
    // Each tunnel holds more than a sixth of the budget of all tunnels.
    for number in 0..7 {
        let name = format!("+{number}");
        shared.put(&name, &read("test://large", &name)).await;
        let handle = shared.allocated(&name).await;
        read_until_idle(&stack, &mut shared).await;
        let request = CloseTunnelRequest { tunnel_id: handle.clone(), reason: "abandoned".into() };
        shared.put(&handle, &request).await;
    }
    // This tunnel is not read either, and still ends, because its first frame fits.
    shared.put("+last", &read("test://large", "last")).await;
    let handle = shared.allocated("+last").await;
    let unread = read_until_idle(&stack, &mut shared).await;
    assert!(!unread.iter().any(|frame| is_event(frame, Type::RuntimeOverload)), "its outbox had no room");
    let reading = shared.read_each(std::time::Duration::from_millis(10), &handle);
    let frames = tokio::select! {
        frames = frames(&mut shared) => frames,
        () = reading => Vec::new(),
    };
    assert!(text(frames.last().unwrap()).starts_with("part 13"));
}

/// Returns all frames until no call runs.
async fn read_until_idle(stack: &Stack, shared: &mut Shared) -> Vec<PppServerFrame> {
    let mut read = Vec::new();
    let reading = async {
        loop {
            read.extend(shared.next().await.unwrap());
        }
    };
    tokio::select! {
        () = eventually("it has ended", || async { stack.figure("echo@1.0.0", "active").await == 0 }) => {}
        () = reading => {}
    }
    read
}

#[tokio::test]
async fn a_call_that_says_nothing_is_told_of_all_the_same_and_may_be_closed() {
    let (stack, mut shared) = warm(json!({})).await;
    shared.put("+1", &read("test://slow", "read")).await;
    let handle = answer(&shared.next().await.unwrap().unwrap()).handle.unwrap().tunnel_id;
    let request = CloseTunnelRequest { tunnel_id: handle.clone(), reason: "cancelled".into() };
    shared.put(&handle, &request).await;
    frames(&mut shared).await;
    eventually("its place is free", || async { stack.figure("echo@1.0.0", "active").await == 0 }).await;
}
